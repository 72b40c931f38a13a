"""Translate the dev or test sets of a run and score them; what has been translated already is reused."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from rota.data.store import Store
from rota.evaluation.config import EvaluationConfig, Select
from rota.evaluation.metrics import Score, averages, score
from rota.evaluation.selection import Selection, select_window
from rota.evaluation.translations import Combination, Counter, Progress, Translations, read_translations
from rota.evaluation.translator import Loader, find_window
from rota.runs.records import Entry, Record, read_record
from rota.types import Arm


@dataclass(frozen=True)
class Evaluation:
    """Scores of one model on one split: by language, then metric."""

    model: Combination
    split: str
    scores: Mapping[Arm, list[Score]]
    low_resource: tuple[Arm, ...]
    translations: Mapping[Arm, Path]
    sentences: Mapping[Arm, int]
    selection: Selection | None = None  # how the model was chosen; None: it was named, or is the last

    @property
    def step(self) -> int:
        """The last of the steps that the model is made of."""
        return self.model.step

    @property
    def select(self) -> Select | None:
        return None if self.selection is None else self.selection.select

    def values(self, metric: str) -> dict[Arm, float]:
        return {arm: found.value for arm, scores in self.scores.items() for found in scores if found.metric == metric}

    def averages(self, metric: str) -> dict[str, float]:
        return averages(self.values(metric), self.low_resource)


def evaluate(
    run: Path,
    store: Store,
    config: EvaluationConfig,
    *,
    split: Literal["dev", "test"] = "test",
    step: int | None = None,
    device: str = "auto",
    progress: Progress = lambda *_: None,
) -> Evaluation:
    """Scores of every language, also appended to ``evals.jsonl``; translations go to ``translations/``.

    The model is the window of checkpoints that ends with ``step``, else the selected one, else that of the last step.
    """
    loader = Loader(run, device, keep=config.checkpoints)
    selection = None
    if step is None and config.select is not None:
        selection = select_window(loader, store, config, progress)
    steps = find_window(run, config.checkpoints, step) if selection is None else selection.best.steps
    model, translations = Combination(steps, config.combine), Translations(loader, split, config)
    scores: dict[Arm, list[Score]] = {}
    paths: dict[Arm, Path] = {}
    sentences: dict[Arm, int] = {}
    for arm in store.languages:
        pairs = store.text(split, arm)
        counter = Counter(f"translating {arm}", len(pairs), progress)
        paths |= translations.of(model, {arm: [source for source, _ in pairs]}, counter)
        counter.reach(len(pairs))
        scores[arm] = score(read_translations(paths[arm]), [reference for _, reference in pairs])
        sentences[arm] = len(pairs)
    evaluation = Evaluation(model, split, scores, store.low_resource, paths, sentences, selection)
    record(run, evaluation, config)
    return evaluation


def record(run: Path, evaluation: Evaluation, config: EvaluationConfig) -> None:
    """Every score once, however often the evaluation is repeated."""
    file = Record(run / "evals.jsonl")
    known = [_identity(entry) for entry in read_record(file.path)]
    for arm, scores in evaluation.scores.items():
        for found in scores:
            entry = _entry(run, evaluation, config, arm, found)
            if _identity(entry) not in known:
                file.write(entry)
    file.close()


def _entry(run: Path, evaluation: Evaluation, config: EvaluationConfig, arm: Arm, found: Score) -> Entry:
    return {
        "step": evaluation.step,
        "steps": list(evaluation.model.steps),
        "combine": evaluation.model.combine,
        "select": evaluation.select,
        "split": evaluation.split,
        "search": config.search,
        "language": arm,
        "metric": found.metric,
        "score": found.value,
        "signature": found.signature,
        "sentences": evaluation.sentences[arm],
        "translations": evaluation.translations[arm].relative_to(run).as_posix(),
    }


def _identity(entry: Entry) -> dict[str, Any]:
    """An entry without what follows from the rest; older ones lack some keys: they are of single checkpoints."""
    early = {"steps": [entry["step"]], "combine": "last", "select": None}
    return {key: value for key, value in (early | entry).items() if key not in ("sentences", "translations")}
