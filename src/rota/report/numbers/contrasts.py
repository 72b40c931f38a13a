"""Means over seeds, and differences between two rows of a study with their intervals."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from statistics import mode

from rota.report.numbers.measures import Metric, values
from rota.report.study import Row, StudyRun
from rota.statistics import SeedComparison, holm, paired_seeds, smallest_detectable

NO_VALUE = "\N{EN DASH}"
"""Stands where there is no number."""

ALPHA = 0.05
FEWEST_SEEDS = 3


@dataclass(frozen=True)
class Estimate:
    """One number of one row: its value under each seed."""

    by_seed: Mapping[int, float]

    @property
    def n(self) -> int:
        return len(self.by_seed)

    @property
    def mean(self) -> float:
        return sum(self.by_seed.values()) / self.n

    @property
    def sd(self) -> float | None:
        """Standard deviation over seeds (n - 1 in the denominator); one seed has none."""
        if self.n < 2:
            return None
        return math.sqrt(sum((value - self.mean) ** 2 for value in self.by_seed.values()) / (self.n - 1))


def estimate(row: Row, metric: Metric, scope: str) -> Estimate | None:
    """Over the finished runs that have the value; None if there is none."""
    found = {seed: values(run, metric).get(scope) for seed, run in sorted(row.finished.items())}
    known = {seed: value for seed, value in found.items() if value is not None}
    return Estimate(known) if known else None


def over_seeds(row: Row, number: Callable[[StudyRun], float | None]) -> Estimate | None:
    """The same of any number of a run."""
    found = {seed: number(run) for seed, run in row.finished.items()}
    known = {seed: float(value) for seed, value in found.items() if value is not None}
    return Estimate(known) if known else None


@cache
def contrast(row: Row, baseline: Row, metric: Metric, scope: str) -> SeedComparison | None:
    """Row minus baseline over the seeds that both have; None below two of them, where there is no interval."""
    pairs = by_pairs(row, baseline, metric, scope)
    if row.name == baseline.name or len(pairs) < 2:
        return None
    return paired_seeds([theirs for theirs, _ in pairs.values()], [ours for _, ours in pairs.values()])


def by_pairs(row: Row, baseline: Row, metric: Metric, scope: str) -> dict[int, tuple[float, float]]:
    """Seed to (baseline, row), for the seeds that both have."""
    ours, theirs = estimate(row, metric, scope), estimate(baseline, metric, scope)
    if ours is None or theirs is None:
        return {}
    return {seed: (theirs.by_seed[seed], value) for seed, value in ours.by_seed.items() if seed in theirs.by_seed}


def written_difference(row: Row, baseline: Row, metric: Metric, scope: str) -> str:
    """Mean and interval, or why there is none."""
    found = contrast(row, baseline, metric, scope)
    if found is not None:
        low, high = map(metric.signed, found.interval)
        return f"{metric.signed(found.mean)} [{low}, {high}]"
    pairs = by_pairs(row, baseline, metric, scope)
    if not pairs:
        return NO_VALUE
    [(theirs, ours)] = pairs.values()
    return f"{metric.signed(ours - theirs)} (one seed: no interval)"


def excludes_zero(found: SeedComparison) -> bool:
    """Whether the sign of the difference is established; two seeds that happen to agree are not enough."""
    if found.seeds < FEWEST_SEEDS:
        return False
    low, high = found.interval
    return low > 0 or high < 0


def pooled_detectable(rows: Sequence[Row], baseline: Row, metric: Metric, scope: str) -> tuple[int, float] | None:
    """Pairs of a row and the smallest true difference that its t test would have seen, by the spread of all rows.

    The spread of three differences is a poor estimate: the root mean square over the rows, weighted by degrees of
    freedom, is a better one. The test is still that of a single row, with its most usual number of pairs. None below
    two rows with ``FEWEST_SEEDS``, where there is nothing to pool.
    """
    compared = [contrast(row, baseline, metric, scope) for row in rows]
    found = [one for one in compared if one is not None and one.seeds >= FEWEST_SEEDS]
    if len(found) < 2:
        return None
    freedom = sum(one.seeds - 1 for one in found)
    spread = math.sqrt(sum((one.seeds - 1) * one.spread**2 for one in found) / freedom)
    pairs = mode(sorted(one.seeds for one in found))
    return pairs, smallest_detectable(spread, pairs)


def marks(rows: Sequence[Row], baseline: Row, metric: Metric, scope: str) -> dict[str, str]:
    """By row: ``+`` better and ``-`` worse than the baseline where the 95 % interval excludes zero.

    Doubled where that holds after Holm's correction for the number of rows.
    """
    adjusted = holm_p(rows, baseline, metric, scope)
    result = {}
    for row in rows:
        comparison = contrast(row, baseline, metric, scope)
        if comparison is not None and excludes_zero(comparison):
            sign = "+" if (comparison.mean > 0) == metric.higher_is_better else "\N{MINUS SIGN}"
            result[row.name] = sign * (2 if adjusted[row.name] < ALPHA else 1)
    return result


def holm_p(rows: Sequence[Row], baseline: Row, metric: Metric, scope: str) -> dict[str, float]:
    """By row that has an interval: p of the paired t test, adjusted for the number of such rows."""
    found = {row.name: contrast(row, baseline, metric, scope) for row in rows}
    return holm({name: comparison.p_t for name, comparison in found.items() if comparison is not None})
