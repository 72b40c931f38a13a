"""The numbers a report compares: from the records of a run to one value for each language and group."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from rota.goal import goal_mean, is_alike
from rota.report.study import Study, StudyRun
from rota.runs.standing import Scores
from rota.types import Arm

LOW, HIGH, MACRO, GOAL = "low-resource", "high-resource", "macro", "goal"
GROUPS = (LOW, HIGH, MACRO)
"""Scopes beside the languages: means over languages, each counting the same."""


@dataclass(frozen=True)
class Metric:
    """One way to judge a run. ``name`` is also the name of the score in the record of evaluations, if it is one."""

    name: str
    label: str
    unit: str
    digits: int
    higher_is_better: bool

    def written(self, value: float) -> str:
        return f"{value:.{self.digits}f}"

    def signed(self, value: float) -> str:
        """With a true minus sign; a zero has none."""
        text = f"{value:+.{self.digits}f}"
        return self.written(0.0) if float(text) == 0 else text.replace("-", "\N{MINUS SIGN}")


FINAL_LOSS = Metric("dev-loss", "dev loss", "nats per token", 3, higher_is_better=False)
LATE_LOSS = Metric("late-dev-loss", "dev loss, last five", "nats per token", 3, higher_is_better=False)
BEST_LOSS = Metric("best-dev-loss", "lowest dev loss", "nats per token", 3, higher_is_better=False)
CALIBRATED_LOSS = Metric("calibrated-dev-loss", "calibrated dev loss", "nats per token", 3, higher_is_better=False)
ACCURACY = Metric("token-accuracy", "token accuracy", "% of dev tokens", 2, higher_is_better=True)
TEST_LOSS = Metric("test-loss", "test loss", "nats per token", 3, higher_is_better=False)
CHRF = Metric("chrf", "chrF", "points", 2, higher_is_better=True)
BLEU = Metric("bleu", "BLEU", "points", 2, higher_is_better=True)
COMET = Metric("comet", "COMET", "points", 2, higher_is_better=True)

METRICS = (FINAL_LOSS, LATE_LOSS, BEST_LOSS, CALIBRATED_LOSS, ACCURACY, TEST_LOSS, CHRF, BLEU, COMET)
"""In the order of headlines: losses and chrF tell small differences apart sooner than BLEU."""

LATE = 5
"""Validations at the end of a run whose mean has less noise than the last one alone."""


def measured(study: Study) -> list[Metric]:
    """The metrics for which at least one finished run has a value."""
    finished = [run for run in study.runs if run.finished]
    return [metric for metric in METRICS if any(values(run, metric) for run in finished)]


@cache
def values(run: StudyRun, metric: Metric) -> dict[str, float]:
    """By language, then by group; empty where the run has no such record."""
    if metric is FINAL_LOSS:
        return with_groups(run.validations[-1]["dev_loss"], run) if run.validations else {}
    if metric is BEST_LOSS:
        return _lowest(run)
    if metric in _VALIDATED:
        record, factor = _VALIDATED[metric]
        return {scope: factor * value for scope, value in _late(run, record).items()}
    name = "loss" if metric is TEST_LOSS else metric.name
    return {} if run.scores is None else with_groups(run.scores.values(name), run)


_VALIDATED = {LATE_LOSS: ("dev_loss", 1.0), CALIBRATED_LOSS: ("calibrated_loss", 1.0), ACCURACY: ("accuracy", 100.0)}
"""Means of the last validations: the name in their record, and a factor for the unit."""


def _late(run: StudyRun, record: str) -> dict[str, float]:
    """Means over the last validations by language, then by group; empty if one of them does not have the record.

    Also if there are fewer than ``LATE``.
    """
    last = [entry.get(record) for entry in run.validations[-LATE:]]
    known = [entry for entry in last if entry is not None]
    if len(known) < LATE:
        return {}
    return with_groups({arm: sum(entry[arm] for entry in known) / len(known) for arm in known[-1]}, run)


def with_groups(by_language: Mapping[Arm, float], run: StudyRun) -> dict[str, float]:
    """The same with the means of those groups of which every language has a value."""
    groups = {LOW: run.low_resource, HIGH: run.high_resource, MACRO: list(run.sizes)}
    means = {
        name: sum(by_language[arm] for arm in arms) / len(arms)
        for name, arms in groups.items()
        if arms and all(arm in by_language for arm in arms)
    }
    if has_goal(run) and all(arm in by_language for arm in run.goal):
        means[GOAL] = goal_mean(by_language, run.goal)
    return {**by_language, **means}


def has_goal(run: StudyRun) -> bool:
    """Whether the languages do not all count alike."""
    return not is_alike(run.goal, run.sizes)


def headline_scope(study: Study) -> str:
    """What headlines are about: the goal, if all runs have the same one, else all languages."""
    goals = [run.goal for run in study.runs]
    return GOAL if has_goal(study.any_run) and all(goal == goals[0] for goal in goals) else MACRO


def scope_title(study: Study, scope: str) -> str:
    """A scope in words, such as the goal with its weights."""
    if scope != GOAL:
        return {MACRO: "all languages", LOW: "low-resource languages", HIGH: "high-resource languages"}[scope]
    weights = ", ".join(f"{arm} {weight:.2g}" for arm, weight in study.any_run.goal.items())
    return f"the goal ({weights})"


def _lowest(run: StudyRun) -> dict[str, float]:
    """The lowest value that each language and each group reached at any validation, each at its own step."""
    lowest: dict[str, float] = {}
    for entry in run.validations:
        for scope, loss in with_groups(entry["dev_loss"], run).items():
            lowest[scope] = min(loss, lowest.get(scope, loss))
    return lowest


def lowest_loss_step(run: StudyRun, scope: str = LOW) -> int | None:
    """The first validation at which the dev loss of a group was lowest."""
    losses = [(with_groups(entry["dev_loss"], run).get(scope), entry["step"]) for entry in run.validations]
    known = [(loss, step) for loss, step in losses if loss is not None]
    return min(known)[1] if known else None


def how_scored(scores: Scores) -> tuple[object, ...]:
    """What must agree before two runs' scores may be compared: selection, combination, of how many, and search."""
    model = scores.model
    return model.select, model.combine, len(model.steps), tuple(sorted(scores.search.items()))
