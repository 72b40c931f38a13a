"""The planned contrasts of a study: one test for each line of the plan, and what the plan can detect."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from rota.plan import Languages, Plan, PlannedTest
from rota.report.numbers.contrasts import ALPHA
from rota.report.numbers.measures import GOAL, HIGH, LOW, MACRO, METRICS, Metric, values
from rota.report.numbers.pooled import loss_curve
from rota.report.study import Row, Study, own_seeds
from rota.statistics import (
    common_time,
    holm,
    paired_seeds,
    seeds_to_detect,
    smallest_detectable,
    student_t_quantile,
    value_at,
)

SCOPES: Final[Mapping[Languages, str]] = {"all": MACRO, "goal": GOAL, "low-resource": LOW, "high-resource": HIGH}

CURVES: Final = {"dev-loss": 1, "late-dev-loss": 5}
"""Endpoints that can be read at any time of a run: means of so many validations, up to the time."""

Values = Mapping[str, Mapping[int, float]]
"""Row to seed to value, on one corpus."""


def endpoint(name: str) -> Metric:
    known = {metric.name: metric for metric in METRICS}
    if name not in known:
        raise ValueError(f"endpoint {name!r} is not known; it is one of {', '.join(known)}")
    return known[name]


def check_endpoints(plan: Plan) -> None:
    """Mistakes that a report would find only after everything is trained."""
    for test in plan.tests():
        endpoint(test.endpoint)
        if test.contrast.at == "time" and test.endpoint not in CURVES:
            known = " or ".join(CURVES)
            raise ValueError(
                f"plan.contrasts.{test.name}: {test.endpoint} is measured at the end of a run only; at: time needs "
                f"endpoint: {known}"
            )
    if isinstance(plan.interest, dict):
        for name in plan.interest:
            endpoint(name)


@dataclass(frozen=True)
class MinusBest:
    """A row minus the best of others, paired by seed. With one other it is the paired t test."""

    best: str  # of the others, by its mean over these seeds
    seeds: int
    mean: float
    interval: tuple[float, float]  # 95 %
    p: float  # two-sided


def minus_best(
    ours: Mapping[int, float], others: Values, seeds: Sequence[int], *, higher_is_better: bool, alpha: float = ALPHA
) -> MinusBest:
    """The difference from the truly best of K others, whichever that is.

    A row is ahead of the best if it is ahead of every one: the largest of the K p values counts, and so does the least
    favourable end of the K intervals. It is behind the best if it is behind any one, which has K chances to seem so:
    there p values and intervals are corrected by Bonferroni's factor K. So the choice of the best from the same runs
    makes nothing significant.
    """
    sign = 1 if higher_is_better else -1
    own = [sign * ours[seed] for seed in seeds]
    found = {name: paired_seeds([sign * by_seed[seed] for seed in seeds], own) for name, by_seed in others.items()}
    best = min(found, key=lambda name: found[name].mean)
    gain, count = found[best].mean, len(found)
    low = min(each.interval[0] for each in found.values())
    reach = student_t_quantile(alpha / count, len(seeds) - 1) / math.sqrt(len(seeds))
    high = min(each.mean + reach * each.spread for each in found.values())
    ahead = max(each.p_t for each in found.values())
    behind = min(1.0, count * min((each.p_t for each in found.values() if each.mean < 0), default=1.0))
    ends = (sign * low, sign * high)
    return MinusBest(best, len(seeds), sign * gain, (min(ends), max(ends)), ahead if gain > 0 else behind)


@dataclass(frozen=True)
class PlannedResult:
    """What came out of one line of the plan."""

    test: PlannedTest
    metric: Metric
    interest: float | None
    planned: int  # seeds: those of the plan that all of its rows are to have
    found: MinusBest | None  # None below two seeds that all of its rows have
    best: Mapping[str, str]  # by corpus: the reference that was best there, of several
    budget: Mapping[str, float]  # by corpus: when runs were compared; empty: at their ends
    by_costs: bool = False  # the budget is in updates of a row of cost 1, instead of processor seconds
    p_holm: float | None = None  # adjusted for all lines of the plan that have a p

    @property
    def verdict(self) -> str:
        """In words, from the adjusted p and the interval."""
        if self.found is None or self.p_holm is None:
            return "no test yet"
        small = self.interest is not None and max(map(abs, self.found.interval)) < self.interest
        if self.p_holm < ALPHA:
            side = "better" if (self.found.mean > 0) == self.metric.higher_is_better else "worse"
            return f"{side}, but by less than the interest" if small else side
        return "no difference of interest" if small else "not decided"


def planned_results(plan: Plan, studies: Mapping[str, Study]) -> list[PlannedResult]:
    """All lines; ``studies``: by corpus, or under any one name for a suite on one corpus."""
    results = [_result(plan, test, studies) for test in plan.tests()]
    known = {str(number): each.found.p for number, each in enumerate(results) if each.found is not None}
    adjusted = holm(known)
    return [replace(each, p_holm=adjusted.get(str(number))) for number, each in enumerate(results)]


def _result(plan: Plan, test: PlannedTest, studies: Mapping[str, Study]) -> PlannedResult:
    metric = endpoint(test.endpoint)
    planned = plan.seeds_of(test.contrast.rows, own_seeds(studies.values()))
    corpora = test.corpora or tuple(studies)[:1]
    read = {corpus: planned_values(test, studies[corpus], plan) for corpus in corpora if corpus in studies}
    by_corpus = {corpus: found for corpus, (found, _) in read.items()}
    budget = {corpus: time for corpus, (_, time) in read.items() if time is not None}
    rows = test.contrast.rows
    tables = [by_corpus.get(corpus, {}) for corpus in corpora]
    seeds = [seed for seed in planned if all(seed in table.get(row, {}) for table in tables for row in rows)]
    found, best = None, {}
    if len(seeds) >= 2:
        mean = {row: {seed: sum(table[row][seed] for table in tables) / len(tables) for seed in seeds} for row in rows}
        others = {row: mean[row] for row in test.contrast.references}
        better = metric.higher_is_better
        found = minus_best(mean[test.contrast.row], others, seeds, higher_is_better=better)
        best = {corpora[0] if len(corpora) == 1 else "": found.best} if len(others) > 1 else {}
    interest = plan.interest_in(test.endpoint)
    return PlannedResult(test, metric, interest, len(planned), found, best, budget, by_costs=bool(plan.costs))


def planned_values(
    test: PlannedTest, study: Study, plan: Plan, seeds: Sequence[int] | None = None
) -> tuple[dict[str, dict[int, float]], float | None]:
    """The endpoint of each row of a contrast by seed, those of the plan by default; and when it was read, if early."""
    seeds = (plan.seeds or ()) if seeds is None else seeds
    rows = [study.rows[name] for name in test.contrast.rows if name in study.rows]
    scope, metric = SCOPES[test.contrast.languages], endpoint(test.endpoint)
    if test.contrast.at == "updates":
        found = {
            row.name: {seed: values(run, metric).get(scope) for seed, run in row.finished.items() if seed in seeds}
            for row in rows
        }
        budget = None
    else:
        costs = {row.name: plan.costs.get(row.name, 1.0) for row in rows} if plan.costs else {}
        curves = {row.name: _curves(row, scope, CURVES[test.endpoint], seeds, costs.get(row.name)) for row in rows}
        budget = common_time([times for by_seed in curves.values() for times, _ in by_seed.values()])
        found = {
            name: {seed: None if budget is None else value_at(*curve, budget) for seed, curve in by_seed.items()}
            for name, by_seed in curves.items()
        }
    known = {
        name: {seed: value for seed, value in by_seed.items() if value is not None} for name, by_seed in found.items()
    }
    return known, budget


def _curves(
    row: Row, scope: str, window: int, seeds: Sequence[int], cost: float | None
) -> dict[int, tuple[list[float], list[float]]]:
    """By seed: a clock, and the mean of the last ``window`` validations at each of its times.

    The clock is the number of updates times their ``cost``. Without one it is processor seconds, for all runs of a row
    the median over its seeds: how much time the same computation takes depends on what else the machine does, which is
    noise, and on the machine, which is a bias if rows were trained at different times.
    """
    read = {seed: loss_curve(run, scope, cost) for seed, run in row.finished.items() if seed in seeds}
    alike = len({len(times) for times, _ in read.values()}) == 1
    clock = np.median([times for times, _ in read.values()], axis=0).tolist() if alike else None
    found = {}
    for seed, (times, losses) in read.items():
        means = [float(np.mean(losses[max(0, end - window) : end])) for end in range(1, len(losses) + 1)]
        found[seed] = (times if clock is None else clock, means)
    return found


@dataclass(frozen=True)
class Detectable:
    """What one line of a plan can detect with probability 0.8, by the noise of earlier runs."""

    test: PlannedTest
    metric: Metric
    seeds: int
    spread: float | None  # standard deviation of a paired difference; None: no earlier run says
    alone: float | None  # smallest true difference that the test finds at 5 %; None below two seeds
    corrected: float | None  # the same at 5 % over the number of lines, the strictest step of Holm's correction
    interest: float | None
    enough: int | None  # seeds for the interest after correction; None if it is not known, or more than MOST_SEEDS


MOST_SEEDS: Final = 200
"""A difference that needs more seeds than this is said to be out of reach."""


def detectable(
    plan: Plan, earlier: Mapping[str, Study], own: Mapping[str, Collection[int]] | None = None
) -> list[Detectable]:
    """For every line; ``earlier``: studies by corpus, of which any stands for a corpus that has none of its own.

    ``own``: of the rows that have seeds of their own.
    """
    tests = plan.tests()
    seeds = [len(plan.seeds_of(test.contrast.rows, own or {})) for test in tests]
    return [_detectable(plan, test, each, len(tests), earlier) for test, each in zip(tests, seeds, strict=True)]


def _detectable(plan: Plan, test: PlannedTest, seeds: int, lines: int, earlier: Mapping[str, Study]) -> Detectable:
    metric, interest = endpoint(test.endpoint), plan.interest_in(test.endpoint)
    corpora = test.corpora or ("",)
    spreads = [_spread(plan, test, earlier.get(corpus) or next(iter(earlier.values()), None)) for corpus in corpora]
    known = [spread for spread in spreads if spread is not None]
    if len(known) < len(spreads):
        return Detectable(test, metric, seeds, None, None, None, interest, None)
    spread = math.sqrt(sum(each**2 for each in known)) / len(known)
    alone = corrected = None
    if seeds >= 2:
        alone, corrected = (smallest_detectable(spread, seeds, alpha=ALPHA / count) for count in (1, lines))
    enough = None
    if interest is not None:
        enough = seeds_to_detect(interest, spread, most=MOST_SEEDS, alpha=ALPHA / lines)
    return Detectable(test, metric, seeds, spread, alone, corrected, interest, enough)


FEWEST: Final = 5
"""Seeds from which on the spread of two rows' own differences is taken, instead of that of all rows together."""


def _spread(plan: Plan, test: PlannedTest, study: Study | None) -> float | None:
    """Standard deviation of the difference of two runs with the same seed: of these rows, else of all rows."""
    if study is None:
        return None
    every = replace_rows(test, study)
    table, _ = planned_values(every, study, plan, [seed for row in study.rows.values() for seed in row.runs])
    ours = table.get(test.contrast.row, {})
    own = []
    for name in test.contrast.references:
        common = [seed for seed in table.get(name, {}) if seed in ours]
        if len(common) >= FEWEST:
            own.append(float(np.var([ours[seed] - table[name][seed] for seed in common], ddof=1)))
    if own:
        return math.sqrt(float(np.mean(own)))
    residual = residual_variance(table)
    return None if residual is None else math.sqrt(2 * residual)


def replace_rows(test: PlannedTest, study: Study) -> PlannedTest:
    """The same test with all rows of a study: at equal time, all of them are then read at one time."""
    rows = [row.name for row in study.main if row.finished]
    chosen = test.contrast.model_copy(update={"row": rows[0] if rows else "", "minus_best_of": tuple(rows[1:])})
    return test._replace(contrast=chosen.model_copy(update={"minus": None}))


def residual_variance(table: Values) -> float | None:
    """Variance of the noise where value = row + seed + noise, over the seeds that all rows have; None below 2 x 2."""
    rows = {name: by_seed for name, by_seed in table.items() if len(by_seed) >= 2}
    seeds = sorted(set.intersection(*(set(by_seed) for by_seed in rows.values()))) if rows else []
    if len(rows) < 2 or len(seeds) < 2:
        return None
    values_RS = np.array([[by_seed[seed] for seed in seeds] for by_seed in rows.values()])
    residuals = values_RS - values_RS.mean(axis=1, keepdims=True) - values_RS.mean(axis=0) + values_RS.mean()
    return float((residuals**2).sum() / ((len(rows) - 1) * (len(seeds) - 1)))
