"""All rows of a study at once: the pooled model against the baseline, values at equal processor time, regret."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate

import numpy as np

from rota.report.numbers.contrasts import Estimate, estimate
from rota.report.numbers.measures import Metric, with_groups
from rota.report.study import Row, Study, StudyRun
from rota.statistics import PooledContrast, Regret, are_linked, common_time, pooled_comparison, regrets, value_at


def pooled(rows: Sequence[Row], baseline: Row, metric: Metric, scope: str, *, own: bool) -> dict[str, PooledContrast]:
    """By row; ``own``: every learned row has a variance of its own, the static ones share one."""
    found = {row.name: estimate(row, metric, scope) for row in rows}
    values = {name: each.by_seed for name, each in found.items() if each is not None}
    if baseline.name not in values:
        return {}
    learned = [row.name for row in rows if row.learned] if own else []
    return pooled_comparison(values, baseline.name, own_variance=learned)


Curve = tuple[list[float], list[float]]
"""Of a run: the time up to each validation, and the value there."""


def loss_curve(run: StudyRun, scope: str, cost: float | None = None) -> Curve:
    """Dev loss by processor seconds of training, or by updates times their ``cost``.

    Empty where the run has no timings, if those are needed, or not all languages of the group.
    """
    points = [(entry["step"], with_groups(entry["dev_loss"], run).get(scope)) for entry in run.validations]
    known = [(step, loss) for step, loss in points if loss is not None]
    losses = [loss for _, loss in known]
    if cost is not None:
        return [step * cost for step, _ in known], losses
    if not run.timings:
        return [], []
    steps = [0.0, *(float(entry["step"]) for entry in run.timings)]
    seconds = [0.0, *accumulate(float(entry["cpu"]) for entry in run.timings)]
    return [float(np.interp(step, steps, seconds)) for step, _ in known], losses


def step_curve(run: StudyRun) -> Curve:
    """Updates made, beside the same clock."""
    seconds = [0.0, *accumulate(float(entry["cpu"]) for entry in run.timings)]
    return seconds, [0.0, *(float(entry["step"]) for entry in run.timings)]


def time_budget(rows: Sequence[Row], scope: str) -> float | None:
    """Processor seconds that all finished runs reach; None where one has no timings."""
    return common_time([loss_curve(run, scope)[0] for row in rows for run in row.finished.values()])


def at_time(row: Row, curves: Mapping[int, Curve], budget: float) -> Estimate | None:
    """The values of a row's runs at a time, by seed."""
    found = {seed: value_at(*curves[seed], budget) for seed in sorted(row.finished)}
    known = {seed: value for seed, value in found.items() if value is not None}
    return Estimate(known) if known else None


def regret_over(studies: Mapping[str, Study], metric: Metric, scope: str) -> dict[str, Regret]:
    """Of the rows that all studies have with this metric; empty where there is none."""
    values: dict[str, dict[str, Mapping[int, float]]] = {}
    for name, study in studies.items():
        found = {row.name: estimate(row, metric, scope) for row in study.main}
        values[name] = {row: each.by_seed for row, each in found.items() if each is not None}
    common = set.intersection(*(set(by_row) for by_row in values.values()))
    if not common or not all(are_linked([by_row[row] for row in common]) for by_row in values.values()):
        return {}
    return regrets(values, higher_is_better=metric.higher_is_better)


def spread_of_regrets(found: Mapping[str, Regret]) -> str:
    """Where the intervals come from, in words."""
    if any(each.adjusted for each in found.values()):
        return "from the noise of a model of schedules and seeds, because not all schedules have the same seeds"
    return "from resampled seeds"
