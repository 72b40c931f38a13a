"""Who helps whom: how far updates on each arm lead where the dev loss of each language falls.

A run of the align teacher with ``map: true`` records, for every arm that it played, the sums of the dot products of its
gradients with the direction of each dev language, and of their squares (``alignment`` in ``observations.jsonl``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from rota.runs.records import Entry
from rota.types import Arm, FloatArray

# A arms, L dev languages


@dataclass(frozen=True)
class HelpMap:
    """Updates on the row's arm along the direction of the column's language; ``nan`` where there are fewer than two.

    The unit is the root mean square of all products with that language: 0 is a step that neither helps nor hurts, 1 a
    typical step in the very direction.
    """

    first: int  # step
    last: int
    arms: tuple[Arm, ...]
    languages: tuple[Arm, ...]
    own: tuple[Arm, ...]  # (A,): the language of each arm
    means: FloatArray  # (A, L)
    errors: FloatArray  # (A, L): standard errors of the means
    updates: FloatArray  # (A,): how many were measured

    @property
    def sure(self) -> Any:
        """(A, L): where the mean is two standard errors or more from 0."""
        return np.abs(self.means) >= 2 * self.errors

    def as_json(self) -> dict[str, Any]:
        """Plain values; what is not known is null."""
        matrices = {name: _plain(getattr(self, name)) for name in ("means", "errors")}
        span = {"first": self.first, "last": self.last}
        return span | {"arms": list(self.arms), "languages": list(self.languages)} | matrices


def help_maps(
    observations: Iterable[Entry],
    arms: Sequence[Arm],
    parts: int = 1,
    language_of: Callable[[Arm], Arm] = lambda arm: arm,
) -> list[HelpMap]:
    """One map for each of ``parts`` equal spans of steps; none for a run that recorded no directions of languages.

    Rows are in the order of ``arms``, and columns as far as languages have the names of arms.
    """
    by_language = (4, 6)  # the lengths of what is recorded of an arm then
    found = [(entry, entry.get("alignment", {}).values()) for entry in observations]
    entries = [entry for entry, arms in found if any(len(sums) in by_language for sums in arms)]
    if not entries:
        return []
    recorded = tuple(next(iter(entries[0]["alignment"].values()))[3])
    languages = tuple(sorted(recorded, key=lambda name: arms.index(name) if name in arms else len(arms)))
    first, last = entries[0]["step"], entries[-1]["step"]
    borders = np.linspace(first, last + 1, parts + 1)
    spans = [[entry for entry in entries if low <= entry["step"] < high] for low, high in pairwise(borders)]
    own = tuple(language_of(arm) for arm in arms)
    return [_map(span, tuple(arms), languages, own) for span in spans if span]


def _map(entries: Sequence[Entry], arms: tuple[Arm, ...], languages: tuple[Arm, ...], own: tuple[Arm, ...]) -> HelpMap:
    counts_A, sums_ALN = np.zeros(len(arms)), np.zeros((len(arms), len(languages), 2))
    for entry in entries:
        for arm, (_, _, updates, by_language, *_) in entry["alignment"].items():
            if arm in arms:
                row = arms.index(arm)
                counts_A[row] += updates
                sums_ALN[row] += _pairs(by_language, languages)
    scale_L = np.sqrt(sums_ALN[..., 1].sum(0) / counts_A.sum())
    scale_L[scale_L == 0] = 1.0
    counts_A1 = np.where(counts_A >= 2, counts_A, np.nan)[:, None]
    means_AL = sums_ALN[..., 0] / counts_A1
    variances_AL = np.maximum(sums_ALN[..., 1] / counts_A1 - means_AL**2, 0.0) * counts_A1 / (counts_A1 - 1)
    errors_AL = np.sqrt(variances_AL / counts_A1)
    steps = entries[0]["step"], entries[-1]["step"]
    return HelpMap(*steps, arms, languages, own, means_AL / scale_L, errors_AL / scale_L, counts_A)


def _pairs(by_language: Mapping[Arm, Sequence[float]], languages: Sequence[Arm]) -> FloatArray:
    return np.array([by_language[name] for name in languages], dtype=float)


def effects_on_others(found: HelpMap) -> list[tuple[float, Arm, Arm]]:
    """Effects of arms on other languages, as far as they are certain: effect, arm, language; the largest first."""
    known = [
        (float(found.means[row, column]), arm, language)
        for row, arm in enumerate(found.arms)
        for column, language in enumerate(found.languages)
        if found.own[row] != language and bool(found.sure[row, column])
    ]
    return sorted(known, reverse=True)


def _plain(matrix: FloatArray) -> list[list[float | None]]:
    return [[round(float(value), 4) if np.isfinite(value) else None for value in row] for row in matrix]
