"""Colours of languages and schedules: related languages are related, and all are told apart by colour-blind readers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rota.types import Arm

# As in the paper's figure (Section 5.3): a hue for each family, dark for the low-resource language and light for its
# relative. The tones keep all eight apart for colour-blind readers, and the dark ones from a white and a dark page.
FAMILIES = {
    ("az", "tr"): ("#B8480A", "#F5B04C"),  # orange
    ("be", "ru"): ("#1060D0", "#66AEF5"),  # blue
    ("gl", "pt"): ("#AB3592", "#E6BCD4"),  # purple
    ("sk", "cs"): ("#20825A", "#7BE398"),  # green
}
NAMED = {arm: colour for arms, colours in FAMILIES.items() for arm, colour in zip(arms, colours, strict=True)}
OTHERS = ("#1060D0", "#F5B04C", "#20825A", "#AB3592", "#66AEF5", "#B8480A", "#F0E442", "#666666")


def language_colours(languages: Sequence[Arm]) -> dict[Arm, str]:
    """The paper's languages have their own colours; others take turns through the palette."""
    others = [arm for arm in languages if arm not in NAMED]
    taken = {NAMED.get(arm) for arm in languages}
    free = [colour for colour in OTHERS if colour not in taken]
    turn = {arm: free[index % len(free)] for index, arm in enumerate(others)}
    return {arm: NAMED.get(arm) or turn[arm] for arm in languages}


def line_colours(languages: Sequence[Arm]) -> dict[Arm, str]:
    """The same for lines, too thin for light tones: relatives share the dark one and differ by their dashes."""
    dark = {arm: colours[0] for arms, colours in FAMILIES.items() for arm in arms}
    return {arm: dark.get(arm, colour) for arm, colour in language_colours(languages).items()}


# Light page, dark page. Okabe and Ito's hues, the light ones darkened for white paper and the dark ones lightened.
SCHEDULES = (
    ("#0072B1", "#4FA8DC"),
    ("#D55E01", "#F08A45"),
    ("#009E74", "#35C79C"),
    ("#B5538F", "#DE93C0"),
    ("#A87400", "#E8B33A"),
    ("#4B4F9E", "#A4A8F0"),
    ("#6B6F75", "#A8AEB5"),
)
DASHES = ("-", (0, (5, 1.5)), (0, (1.5, 1.2)), (0, (6, 1.5, 1.5, 1.5)))
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">", "*")

Dash = str | tuple[float, tuple[float, ...]]


@dataclass(frozen=True)
class Look:
    """How one schedule is drawn, told apart by colour, by line and by marker."""

    colour: str
    dash: Dash
    marker: str


def schedule_looks(names: Sequence[str]) -> dict[str, Look]:
    """No two of the first 28 schedules have the same colour and line."""
    looks = {}
    for index, name in enumerate(names):
        turn, place = divmod(index, len(SCHEDULES))
        dash = DASHES[(place + turn) % len(DASHES)]
        looks[name] = Look(SCHEDULES[place][0], dash, MARKERS[(place + 3 * turn) % len(MARKERS)])
    return looks
