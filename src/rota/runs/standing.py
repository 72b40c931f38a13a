"""Which models of a run were scored, and which one of them stands for the run.

**The rule.** ``rota report``, ``compare-scores``, ``export`` and its model card all ask :func:`standing_scores` or
:func:`standing_model`, which answer from the files of the run alone. Of the models that were scored on a split (those
scored in every language before those scored in some), this one stands for the run:

1. the model of the last selection, which ``selection.json`` holds: the best window, combined as it was judged;
2. if that was not scored on this split, the selected model that was scored last;
3. if nothing was selected, the model that ends with the latest step. If several end there: the one that is combined as
   the run's config asks, else a single checkpoint, else the one that was scored last.

If a model was scored with several searches, the scores of the search in the run's config count, else the last ones. If
nothing was scored, the selected window stands for the run, else its last checkpoints, combined as the config asks; the
last one alone if the config asks for a selection that was not made yet.

``rota compare`` asks a different question, :func:`is_scored`: whether the model that a suite's config asks for has been
scored. If the config selects checkpoints, that model stands for the run. If it does not, it stands for the run unless
somebody has selected another with ``rota evaluate --select``.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from rota.runs.records import Entry
from rota.runs.run import Run
from rota.settings import Duration
from rota.types import Arm

Select = Literal["low-resource", "macro", "high-resource", "goal", "loss"]
Combine = Literal["last", "average", "ensemble", "moving-average"]
Split = Literal["dev", "test"]
MetricName = Literal["bleu", "chrf", "loss"]

DEFAULT_METRICS: Final[tuple[MetricName, ...]] = ("bleu", "chrf", "loss")

_SEARCH: Final = ("beam", "length_penalty", "engine")


@dataclass(frozen=True)
class Model:
    """Checkpoints of a run that translate as one model."""

    steps: tuple[int, ...]
    combine: Combine = "last"  # of several: the average of their weights, or an ensemble; of one: its moving average
    select: str | None = None  # what chose these checkpoints, if anything did

    @property
    def step(self) -> int:
        """The last of the steps that the model is made of."""
        return self.steps[-1]

    @property
    def name(self) -> str:
        """``1700`` for one checkpoint, else for example ``1530+1700.ensemble``; equal names have equal translations."""
        if len(self.steps) == 1 and self.combine != "moving-average":
            return str(self.step)  # the average and the ensemble of one checkpoint are that checkpoint
        return f"{'+'.join(map(str, self.steps))}.{self.combine}"

    @property
    def kind(self) -> str:
        """How the model was made, without its steps."""
        together = {
            "last": "",
            "average": f"mean of {len(self.steps)}, ",
            "ensemble": f"ensemble of {len(self.steps)}, ",
            "moving-average": "moving average, ",
        }
        return together[self.combine] + (f"selected by {self.select}" if self.select else "not selected")

    def __str__(self) -> str:
        return f"step {self.step:,} ({self.kind})"


@dataclass(frozen=True)
class Scores:
    """The scores of one model on one split, translated by one search."""

    model: Model
    split: Split
    search: Mapping[str, Any]
    entries: dict[tuple[Arm, str], Entry] = field(default_factory=dict)  # by language and metric, the newest of each

    @property
    def languages(self) -> list[Arm]:
        """Those with a score, in the order in which they were scored."""
        return list(dict.fromkeys(arm for arm, _ in self.entries))

    def of(self, metric: str) -> dict[Arm, Entry]:
        """The entries of one metric by language."""
        return {arm: entry for (arm, name), entry in self.entries.items() if name == metric}

    def values(self, metric: str) -> dict[Arm, float]:
        return {arm: float(entry["score"]) for arm, entry in self.of(metric).items()}


@dataclass(frozen=True)
class Asked:
    """How a config wants a run to be scored: the section ``evaluation`` of a config, or of ``run.json``."""

    select: str | None
    combine: Combine
    window: int
    search: Mapping[str, Any]
    select_beam: int | None
    metrics: tuple[str, ...] = DEFAULT_METRICS

    @classmethod
    def of(cls, evaluation: Mapping[str, Any]) -> Asked:
        """Records of older versions lack some settings, which then had their default."""
        return cls(
            evaluation.get("select"),
            evaluation.get("combine") or "last",
            evaluation.get("window", 4),
            {name: evaluation[name] for name in _SEARCH if name in evaluation},
            evaluation.get("select_beam"),
            tuple(evaluation.get("metrics") or DEFAULT_METRICS),
        )

    @property
    def checkpoints(self) -> int:
        """The number of checkpoints in a model, if the run has that many."""
        return self.window if self.combine in ("average", "ensemble") else 1

    @property
    def required(self) -> Collection[str]:
        """The metrics without which a run is not scored: runs of earlier versions have no loss beside the others."""
        return [metric for metric in self.metrics if metric != "loss"] or self.metrics

    def checkpoints_in(self, model: Model) -> int:
        """How many of them a model has that is combined in this way; 0 for any other model."""
        count = len(model.steps)
        return count if model.combine == self.combine and count <= self.checkpoints else 0

    def has_search(self, scores: Scores) -> bool:
        """Whether the translations were searched for in this way."""
        same_engine = scores.search.get("engine") == self.search.get("engine")
        return same_engine and all(scores.search.get(name) == value for name, value in self.search.items())

    def has_selection(self, selection: Mapping[str, Any]) -> bool:
        """Whether a selection was made in this way."""
        return (
            selection["select"] == self.select
            and selection["combine"] == self.combine
            and (self.combine in ("last", "moving-average") or selection["window"] == self.window)
            and (self.select == "loss" or selection["search"] == self._select_search)  # a loss needs no translations
        )

    @property
    def _select_search(self) -> dict[str, Any]:
        return {**self.search, "beam": self.select_beam or self.search.get("beam")}


def evaluated(run: Run, split: Split = "test") -> list[Scores]:
    """Everything in ``evals.jsonl`` about a split, in the order in which the models were first scored."""
    found: dict[str, Scores] = {}
    for entry in run.read("evals"):
        if entry["split"] == split:
            model, search = model_of(entry), entry["search"]
            key = json.dumps([model.steps, model.combine, model.select, search], sort_keys=True)
            scores = found.setdefault(key, Scores(model, split, search))
            scores.entries[entry["language"], entry["metric"]] = entry
    return list(found.values())


def model_of(entry: Entry) -> Model:
    """The model that a score is of. The first records knew single checkpoints only."""
    steps = tuple(entry.get("steps") or [entry["step"]])
    return Model(steps, entry.get("combine", "last"), entry.get("select"))


def selected_model(run: Run) -> Model | None:
    """The best window of the last selection; None if nothing was selected."""
    found = run.selection()
    if found is None:
        return None
    best = found["best"]
    steps = best["steps"] if "steps" in best else [best["step"]]
    return Model(tuple(steps), found.get("combine", "ensemble"), found.get("select"))


def require_selected(run: Run) -> Model:
    """The same, for a command whose user asked for it."""
    found = selected_model(run)
    if found is None:
        raise ValueError(f"{run} has no selection.json; run rota evaluate {run} --select low-resource first")
    return found


def standing_scores(run: Run, split: Split = "test") -> Scores | None:
    """The scores of the model that stands for a run, by the rule above; None if nothing was scored on the split."""
    asked = Asked.of(run.about["config"].get("evaluation") or {})
    selected, languages = selected_model(run), set(run.sizes)

    def rank(numbered: tuple[int, Scores]) -> tuple[Any, ...]:
        number, scores = numbered
        model = scores.model
        by_step = () if model.select else (model.step, asked.checkpoints_in(model), len(model.steps) == 1)
        return (
            languages <= set(scores.languages),
            model == selected,
            model.select is not None,
            *by_step,
            asked.has_search(scores),
            number,
        )

    return max(enumerate(evaluated(run, split)), key=rank, default=(0, None))[1]


def standing_model(run: Run) -> Model:
    """The model that stands for a run, by the rule above, whether it was scored or not."""
    scores = standing_scores(run)
    if scores is not None:
        return scores.model
    selected = selected_model(run)
    if selected is not None:
        return selected
    asked = Asked.of(run.about["config"].get("evaluation") or {})
    if asked.select is not None and asked.checkpoints > 1:
        # How a selected window is to be combined says nothing about checkpoints that were not judged.
        return Model(run.checkpoints().window(1))
    return Model(run.checkpoints().window(asked.checkpoints), asked.combine)


def is_scored(run: Run, asked: Asked, *, languages: Collection[Arm], steps: int, checkpoint_every: Duration) -> bool:
    """Whether every test set of a run of ``steps`` updates has been scored in the way that a config asks for."""
    selected = None
    if asked.select is not None:
        selection = run.selection("select", "combine", "window", "search", "best.steps")
        if selection is None or not asked.has_selection(selection):
            return False
        selected = selected_model(run)
    saved = len(run.checkpoints().list()) or -(-steps // max(1, checkpoint_every.steps(steps)))

    def is_asked_for(scores: Scores) -> bool:
        model = scores.model
        if not asked.has_search(scores):
            return False
        if selected is not None:
            return model == selected
        # As many checkpoints as were asked for, or all that the run has, or had.
        enough = min(asked.checkpoints, saved)
        return model.select is None and model.step == steps and asked.checkpoints_in(model) >= enough

    scored = {entry for scores in evaluated(run) if is_asked_for(scores) for entry in scores.entries}
    return {(arm, metric) for arm in languages for metric in asked.required} <= scored
