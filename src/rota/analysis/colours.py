"""Colours of languages: related ones are related, and all are told apart by colour-blind readers too."""

from __future__ import annotations

from collections.abc import Sequence

from rota.types import Arm

# Four hues of Okabe and Ito's palette, each in a strong tone (high-resource) and a light one (its relative).
FAMILIES = {
    ("tr", "az"): ("#0072B2", "#7FC4EA"),
    ("ru", "be"): ("#D55E00", "#F5B27F"),
    ("pt", "gl"): ("#009E73", "#7FD6BC"),
    ("cs", "sk"): ("#8F4A79", "#DDA6CB"),
}
NAMED = {arm: colour for arms, colours in FAMILIES.items() for arm, colour in zip(arms, colours, strict=True)}
OTHERS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442", "#666666")


def language_colours(languages: Sequence[Arm]) -> dict[Arm, str]:
    """The paper's languages have their own colours; others take turns through the palette."""
    others = [arm for arm in languages if arm not in NAMED]
    turn = {arm: OTHERS[index % len(OTHERS)] for index, arm in enumerate(others)}
    return {arm: NAMED.get(arm) or turn[arm] for arm in languages}
