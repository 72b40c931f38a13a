"""The evaluated models of a run, as its records tell: which one its scores stand for, and its translations."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

from rota.data.corpora.parallel import Split
from rota.data.store import Store
from rota.evaluation.comet import Comet
from rota.evaluation.evaluate import Evaluation
from rota.evaluation.metrics import Score
from rota.evaluation.translator import read_run
from rota.files import read_json, write_atomically
from rota.runs.records import REMEDY, Entry, Record, read_record
from rota.types import Arm


@dataclass(frozen=True)
class Model:
    """One model of a run that has translated a split: some checkpoints, how they were combined, the search."""

    split: Split
    step: int
    steps: tuple[int, ...]
    combine: str  # last, average or ensemble
    select: str | None  # what chose these checkpoints, if anything did
    search: Mapping[str, Any]
    entries: dict[tuple[Arm, str], Entry] = field(default_factory=dict)  # by language and metric, the newest of each

    @property
    def kind(self) -> str:
        """How the model was made, without its steps."""
        together = {
            "last": "",
            "average": f"mean of {len(self.steps)}, ",
            "ensemble": f"ensemble of {len(self.steps)}, ",
        }
        return together[self.combine] + (f"selected by {self.select}" if self.select else "not selected")

    def __str__(self) -> str:
        return f"step {self.step:,} ({self.kind})"

    @property
    def languages(self) -> list[Arm]:
        return [arm for arm, metric in self.entries if metric == "bleu"]


def evaluated_models(run: Path, split: Split) -> list[Model]:
    """All models in ``evals.jsonl`` that have scores of a split, in the order in which they were first scored."""
    models: dict[str, Model] = {}
    for entry in read_record(run / "evals.jsonl"):
        if entry["split"] == split:
            model = _model(entry, split)
            key = json.dumps([model.step, model.steps, model.combine, model.select, model.search], sort_keys=True)
            models.setdefault(key, model).entries[entry["language"], entry["metric"]] = entry
    return list(models.values())


def _model(entry: Entry, split: Split) -> Model:
    """Records of older versions know nothing but the last checkpoint."""
    steps = tuple(entry.get("steps") or [entry["step"]])
    return Model(split, entry["step"], steps, entry.get("combine", "last"), entry.get("select"), entry["search"])


def reported_model(run: Path, split: Split = "test") -> Model:
    """The model that the scores of a run stand for: the selected one, else that of the last step.

    Of several searches, the one in the run's config.
    """
    about = read_run(run)
    languages = list(about["data"]["sizes"])
    models = evaluated_models(run, split)
    whole = [model for model in models if set(languages) <= set(model.languages)]
    if not whole:
        missing = f"only of {', '.join(models[-1].languages)}" if models else "none"
        raise ValueError(f"{run} has no scores of its {split} sets ({missing}); run rota evaluate {run} first")
    selected = _selected_steps(run)
    wanted = about["config"]["evaluation"]

    def rank(model: Model) -> tuple[bool, bool, int, bool]:
        as_configured = all(wanted.get(name) == value for name, value in model.search.items())
        newest = model.select is not None and (model.select, model.steps) == selected
        return newest, model.select is not None, model.step, as_configured

    return max(reversed(whole), key=rank)


def _selected_steps(run: Path) -> tuple[str, tuple[int, ...]] | None:
    path = run / "selection.json"
    if not path.exists():
        return None
    content = read_json(path, "select", "best.steps", remedy=REMEDY)
    return content["select"], tuple(content["best"]["steps"])


def open_data(run: Path) -> Store:
    """The prepared data that a run was trained on."""
    about = read_run(run)
    store = Store.open(Path(about["data"]["folder"]))
    if store.fingerprint != about["data"]["fingerprint"]:
        raise ValueError(
            f"{store.folder} holds other data than {run} was trained on; prepare those again, or train anew"
        )
    return store


def translations_path(run: Path, model: Model, arm: Arm) -> Path:
    entry = model.entries[arm, "bleu"]
    beam, penalty = model.search["beam"], model.search["length_penalty"]
    old = f"translations/{model.step}.{model.split}.{arm}.beam{beam}-{penalty:g}.txt"
    return run / str(entry.get("translations", old))


def read_translations(run: Path, model: Model, arm: Arm, sentences: int) -> list[str]:
    """The translations of a test set, in its order."""
    return _lines(translations_path(run, model, arm), sentences, run)


def read_comet(run: Path, model: Model, arm: Arm, sentences: int) -> list[float]:
    """The COMET score of each sentence, x 100, as :func:`add_comet` wrote them."""
    entry = model.entries.get((arm, "comet"))
    if entry is None:
        raise ValueError(f"{run} has no COMET scores of {arm}, {model}; run rota evaluate {run} --comet MODEL first")
    return [float(line) for line in _lines(run / str(entry["sentence_scores"]), sentences, run)]


def _lines(path: Path, sentences: int, run: Path) -> list[str]:
    if not path.is_file():
        raise ValueError(f"{path} is missing; run rota evaluate {run} again")
    lines = path.read_text(encoding="utf-8").split("\n")[:-1]
    if len(lines) != sentences:
        raise ValueError(f"{path} has {len(lines)} lines for {sentences} sentences; delete it and evaluate {run} again")
    return lines


def with_comet(
    run: Path, evaluation: Evaluation, comet: Comet, *, progress: Callable[[str, int, int], None] = lambda *_: None
) -> Evaluation:
    """The scores of an evaluation and those of COMET beside them."""
    made = [
        model
        for model in evaluated_models(run, cast(Split, evaluation.split))
        if (model.steps, model.combine, model.select)
        == (evaluation.model.steps, evaluation.model.combine, evaluation.select)
        and all(translations_path(run, model, arm) == path for arm, path in evaluation.translations.items())
    ]
    assert made, "an evaluation has been recorded"
    found = add_comet(run, made[-1], open_data(run), comet, progress=progress)
    return replace(evaluation, scores={arm: [*scores, found[arm]] for arm, scores in evaluation.scores.items()})


def add_comet(
    run: Path,
    model: Model,
    store: Store,
    comet: Comet,
    *,
    progress: Callable[[str, int, int], None] = lambda *_: None,
) -> dict[Arm, Score]:
    """COMET of translations that exist, added to ``evals.jsonl``; what this model has scored is not repeated."""
    scores = {}
    for arm in model.languages:
        known = model.entries.get((arm, "comet"))
        if known is None or known["signature"] != comet.signature:
            known = _score_with_comet(run, model, arm, store, comet, progress)
            record = Record(run / "evals.jsonl")
            record.write(known)
            record.close()
            model.entries[arm, "comet"] = known
        scores[arm] = Score("comet", float(known["score"]), comet.signature)
    return scores


def _score_with_comet(
    run: Path, model: Model, arm: Arm, store: Store, comet: Comet, progress: Callable[[str, int, int], None]
) -> Entry:
    sources, references = zip(*store.text(model.split, arm), strict=True)
    done = 0

    def count(finished: int) -> None:
        nonlocal done
        done += finished
        progress(f"COMET of {arm}", done, len(sources))

    hypotheses = read_translations(run, model, arm, len(sources))
    value, by_sentence = comet.score(sources, hypotheses, references, progress=count)
    path = translations_path(run, model, arm).with_suffix(f".{comet.name}.txt")
    write_atomically(path, "".join(f"{score:.4f}\n" for score in by_sentence))
    found = {"metric": "comet", "score": value, "signature": comet.signature, "sentences": len(sources)}
    return {**model.entries[arm, "bleu"], **found, "sentence_scores": str(path.relative_to(run))}
