"""The step records of a run in windows: the languages it trained on, its teacher's scores and exploration."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from rota.runs.records import Entry
from rota.types import Arm, FloatArray

MOST_WINDOWS = 150
"""The paper counts in windows of 1,000 of its 150,000 steps."""


def window_count(steps: int) -> int:
    """The paper's windows where each holds ten steps at least; else fewer, but 30 if there are as many steps."""
    return max(1, min(MOST_WINDOWS, max(30, steps // 10), steps))


@dataclass(frozen=True)
class History:
    """One run in windows of equal length over its planned steps; ``nan`` where a window has no such entry."""

    updates: int
    tokens: dict[Arm, int]  # real target tokens in all
    ends: FloatArray  # (windows,) last step of each
    shares: dict[Arm, FloatArray]  # (windows,) share of the tokens
    epsilon: FloatArray  # (windows,) probability of a random choice; 1 in a warm-up
    scores: dict[Arm, FloatArray]  # (windows,) the score that the teacher gave each language, such as a Q value

    @property
    def overall(self) -> dict[Arm, float]:
        """Share of the tokens of the whole run."""
        total = sum(self.tokens.values())
        return {arm: count / total for arm, count in self.tokens.items()} if total else {}


class _Mean:
    """Means by window, filled one value at a time."""

    def __init__(self, windows: int) -> None:
        self.sums, self.counts = np.zeros(windows), np.zeros(windows)

    def add(self, window: int, value: float) -> None:
        self.sums[window] += value
        self.counts[window] += 1

    def result(self) -> FloatArray:
        means = np.full(len(self.sums), np.nan)
        np.divide(self.sums, self.counts, out=means, where=self.counts > 0)
        return means


def read_history(entries: Iterable[Entry], languages: Sequence[Arm], steps: int) -> History:
    """One pass over the step record of a run that was planned for ``steps`` updates."""
    windows = window_count(steps)
    tokens = {arm: np.zeros(windows) for arm in languages}
    epsilon, scores = _Mean(windows), {arm: _Mean(windows) for arm in languages}
    updates = 0
    for entry in entries:
        updates = entry["step"]
        window = min((updates - 1) * windows // steps, windows - 1)
        for arm, count in (entry.get("tokens_by_language") or {entry["arm"]: entry["tokens"]}).items():
            tokens[arm][window] += count
        _note_teacher(entry, window, epsilon, scores)
    total = np.sum(list(tokens.values()), axis=0)
    return History(
        updates,
        {arm: int(counts.sum()) for arm, counts in tokens.items()},
        (np.arange(windows) + 1) * steps / windows,
        {arm: counts / np.where(total > 0, total, np.nan) for arm, counts in tokens.items()},
        epsilon.result(),
        {arm: mean.result() for arm, mean in scores.items()},
    )


def _note_teacher(entry: Entry, window: int, epsilon: _Mean, scores: dict[Arm, _Mean]) -> None:
    if entry["why"] == "warmup":
        epsilon.add(window, 1.0)  # drawn at random, whatever the teacher does later
    elif "epsilon" in entry:
        epsilon.add(window, entry["epsilon"])
    for arm, score in entry.get("scores", {}).items():
        if arm in scores:
            scores[arm].add(window, score)
