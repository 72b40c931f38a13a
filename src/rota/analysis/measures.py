"""The numbers a report compares: from the records of a run to one value for each language and group."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache

from rota.analysis.runs import RunRecords, Study
from rota.runs.records import Entry
from rota.types import Arm

LOW, HIGH, MACRO = "low-resource", "high-resource", "macro"
GROUPS = (LOW, HIGH, MACRO)
"""Scopes beside the languages: means over languages, each counting the same."""


@dataclass(frozen=True)
class Metric:
    """One way to judge a run. ``name`` is also the metric's name in ``evals.jsonl``, if it is a score."""

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
BEST_LOSS = Metric("best-dev-loss", "lowest dev loss", "nats per token", 3, higher_is_better=False)
CHRF = Metric("chrf", "chrF", "points", 2, higher_is_better=True)
BLEU = Metric("bleu", "BLEU", "points", 2, higher_is_better=True)
COMET = Metric("comet", "COMET", "points", 2, higher_is_better=True)

METRICS = (FINAL_LOSS, BEST_LOSS, CHRF, BLEU, COMET)
"""In the order of headlines: losses and chrF tell small differences apart sooner than BLEU."""


def measured(study: Study) -> list[Metric]:
    """The metrics for which at least one finished run has a value."""
    finished = [run for run in study.runs if run.finished]
    return [metric for metric in METRICS if any(values(run, metric) for run in finished)]


@cache
def values(run: RunRecords, metric: Metric) -> dict[str, float]:
    """By language, then by group; empty where the run has no such record."""
    if metric is FINAL_LOSS:
        return with_groups(run.validations[-1]["dev_loss"], run) if run.validations else {}
    if metric is BEST_LOSS:
        return _lowest(run)
    return with_groups({entry["language"]: entry["score"] for entry in chosen_scores(run, metric)}, run)


def with_groups(by_language: Mapping[Arm, float], run: RunRecords) -> dict[str, float]:
    """The same with the groups of which every language has a value."""
    groups = {LOW: run.low_resource, HIGH: run.high_resource, MACRO: list(run.sizes)}
    means = {
        name: sum(by_language[arm] for arm in arms) / len(arms)
        for name, arms in groups.items()
        if arms and all(arm in by_language for arm in arms)
    }
    return {**by_language, **means}


def _lowest(run: RunRecords) -> dict[str, float]:
    """The lowest value that each language and each group reached at any validation, each at its own step."""
    lowest: dict[str, float] = {}
    for entry in run.validations:
        for scope, loss in with_groups(entry["dev_loss"], run).items():
            lowest[scope] = min(loss, lowest.get(scope, loss))
    return lowest


def lowest_loss_step(run: RunRecords, scope: str = LOW) -> int | None:
    """The first validation at which the dev loss of a group was lowest."""
    losses = [(with_groups(entry["dev_loss"], run).get(scope), entry["step"]) for entry in run.validations]
    known = [(loss, step) for loss, step in losses if loss is not None]
    return min(known)[1] if known else None


def chosen_scores(run: RunRecords, metric: Metric) -> list[Entry]:
    """The test scores of the model that stands for the run: the selected one, else the last step's.

    Where neither was scored, a combination of checkpoints that ends with the last step stands for it.
    Of several evaluations of that model the one written last counts.
    """
    found = [entry for entry in run.evals if entry["metric"] == metric.name and entry["split"] == "test"]
    selected = [entry for entry in found if entry.get("select")]
    if not selected:
        found = [entry for entry in found if entry.get("combine", "last") == "last"] or found
        last = max((entry["step"] for entry in found), default=0)
        found = [entry for entry in found if entry["step"] == last]
    return _last_evaluation(selected or found)


def _last_evaluation(scores: Sequence[Entry]) -> list[Entry]:
    if not scores:
        return []
    how = evaluation_key(scores[-1])
    return list({entry["language"]: entry for entry in scores if evaluation_key(entry) == how}.values())


def evaluation_key(entry: Entry) -> tuple[object, ...]:
    return (_checkpoints(entry), *how_evaluated(entry))


def _checkpoints(entry: Entry) -> tuple[int, ...]:
    """The steps of the checkpoints that were put together; those of a single one do not say so."""
    return tuple(entry.get("steps") or [entry["step"]])


def how_evaluated(entry: Entry) -> tuple[object, ...]:
    """What must agree before two runs' scores may be compared: selection, combination, of how many, and search."""
    search = tuple(sorted(entry["search"].items()))
    return entry.get("select"), entry.get("combine", "last"), len(_checkpoints(entry)), search
