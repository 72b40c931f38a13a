"""Translate the dev or test sets of a run and score them; what has been translated or measured already is reused."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rota.data.corpora.parallel import Pair
from rota.data.store import SUBWORDS, Store
from rota.evaluation.config import EvaluationConfig
from rota.evaluation.losses import DETAILS, Losses, check_unchanged
from rota.evaluation.metrics import METRICS, Score, averages, score
from rota.evaluation.selection import Selection, select_window
from rota.evaluation.translator import Counter, Loader, Progress, Translations, Translator, read_lines, text_hash
from rota.files import damaged, read_json, sha256_of, short_hash, write_atomically
from rota.goal import Goal
from rota.runs import REMEDY, Entry, Run
from rota.runs.standing import Model, Scores, Split, evaluated, model_of
from rota.types import Arm, Route

if TYPE_CHECKING:
    from rota.evaluation.comet import Comet


@dataclass(frozen=True)
class Evaluation:
    """Scores of one model on one split: by language, then metric."""

    model: Model
    split: Split
    scores: Mapping[Arm, list[Score]]
    low_resource: tuple[Arm, ...]
    translations: Mapping[Arm, Path]  # empty if no metric needs them
    sentences: Mapping[Arm, int]
    selection: Selection | None = None  # how the model was chosen; None: it was named, or is the last
    goal: Goal = field(default_factory=dict)  # of the run; empty: all languages alike
    routes: Mapping[Arm, Route] = field(default_factory=dict)  # of the run; empty: every language into the same one

    @property
    def step(self) -> int:
        """The last of the steps that the model is made of."""
        return self.model.step

    @property
    def select(self) -> str | None:
        return self.model.select

    def values(self, metric: str) -> dict[Arm, float]:
        return {arm: found.value for arm, scores in self.scores.items() for found in scores if found.metric == metric}

    def averages(self, metric: str) -> dict[str, float]:
        return averages(self.values(metric), self.low_resource, self.goal, self.routes)


def evaluate(
    folder: Path,
    store: Store,
    config: EvaluationConfig,
    *,
    split: Split = "test",
    step: int | None = None,
    device: str = "auto",
    progress: Progress = lambda *_: None,
    processes: int = 1,
) -> Evaluation:
    """Scores of every language, which are also recorded in the run's folder beside its translations.

    The model is the window of checkpoints that ends with ``step``, else the selected one, else that of the last step.
    ``processes`` translate at the same time, if the model is on a CPU.
    """
    loader = Loader(folder, device, keep=config.checkpoints)
    check_data(loader.run, store, split)
    convert = _converter(loader, config, processes)
    selection = None
    if step is None and config.select is not None:
        store.check("dev")
        selection = select_window(loader, store, config, progress, processes=processes, convert=convert)
    if selection is None:
        model = Model(loader.run.checkpoints().window(config.checkpoints, step), config.combine)
    else:
        model = Model(selection.best.steps, config.combine, selection.select)
    weights = loader.weights(model)
    _check_recorded(loader.run, model, weights)
    pairs = {arm: store.text(split, arm) for arm in store.languages}
    paths: dict[Arm, Path] = {}
    if config.translated:
        translations = Translations(loader, split, config, processes=processes, convert=convert)
        paths = _translate(translations, model, pairs, progress)
    losses = Losses(loader, model, split, store, progress)
    scores: dict[Arm, list[Score]] = {}
    hashes: dict[Arm, dict[str, str]] = {}
    for arm in store.languages:
        references = [reference for _, reference in pairs[arm]]
        hashes[arm] = {"weights": weights, "references": text_hash(references)}
        scores[arm] = score(read_lines(paths[arm]), references, metrics=config.translated) if config.translated else []
        if "loss" in config.metrics:
            scores[arm].append(losses.of(arm))
    sentences = {arm: len(each) for arm, each in pairs.items()}
    run, low = loader.run, store.low_resource
    evaluation = Evaluation(model, split, scores, low, paths, sentences, selection, run.goal, run.routes)
    _record(loader.run, evaluation, config, hashes)
    return evaluation


def _converter(loader: Loader, config: EvaluationConfig, processes: int) -> Callable[[Translator], Translator] | None:
    """How a translator becomes that of the config's engine; None: it stays as it is."""
    if config.engine == "rota":
        return None
    from rota.evaluation.ctranslate import Converted, require_library

    require_library()
    tokenizer = read_json(loader.run.subwords_path, remedy=REMEDY)
    return lambda translator: Converted(translator, tokenizer, threads=processes)


def _translate(
    translations: Translations, model: Model, pairs: Mapping[Arm, Sequence[Pair]], progress: Progress
) -> dict[Arm, Path]:
    """The files of all languages, with a progress bar for each."""
    counters = {arm: Counter(f"translating {arm}", len(each), progress) for arm, each in pairs.items()}
    sources = {arm: [source for source, _ in each] for arm, each in pairs.items()}
    paths = translations.of(model, sources, lambda arm, finished: counters[arm].add(finished))
    for counter in counters.values():
        counter.reach(counter.total)
    return paths


def check_data(run: Run, store: Store, split: Split) -> None:
    """Raises an error if the references, or the vocabulary of the run, are not what they were when it was trained."""
    store.check(split)
    if sha256_of(run.subwords_path) != store.manifest.files[SUBWORDS].sha256:
        remedy = f"copy {store.folder / SUBWORDS} over it"
        raise damaged(run.subwords_path, "the run was trained with other subwords", remedy)


def _check_recorded(run: Run, model: Model, weights: str) -> None:
    """Scores that were recorded under the same steps must be of the same weights. Earlier versions wrote no hashes."""
    for number, entry in enumerate(run.read("evals"), start=1):
        recorded = entry.get("hashes", {}).get("weights", weights)
        if model_of(entry).name == model.name and recorded != weights:
            place = f"{run.record_path('evals')}, line {number}"
            other = f"{place} has a score of other weights than the checkpoints of {model} have now"
            files = "evals.jsonl, written.json, translations/ and losses/"
            raise ValueError(f"{other}; put those back, or delete {files} in {run}")


def _record(
    run: Run, evaluation: Evaluation, config: EvaluationConfig, hashes: Mapping[Arm, Mapping[str, str]]
) -> None:
    """Every score once, however often the evaluation is repeated."""
    known = [_identity(entry) for entry in run.read("evals")]
    entries = [
        _entry(run, evaluation, config, arm, found) | {"hashes": dict(hashes[arm])}
        for arm, scores in evaluation.scores.items()
        for found in scores
    ]
    run.append("evals", [with_hash(run, entry) for entry in entries if _identity(entry) not in known])


def with_hash(run: Run, entry: Entry) -> Entry:
    """An entry with the hashes of the files that it names beside those that it has."""
    files = {
        name: short_hash(run.folder / entry[name]) for name in ("translations", "sentence_scores") if name in entry
    }
    return entry | {"hashes": entry.get("hashes", {}) | files}


def _entry(run: Run, evaluation: Evaluation, config: EvaluationConfig, arm: Arm, found: Score) -> Entry:
    entry = {
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
    }
    if found.metric == "loss":
        return entry | dict(found.details)
    return entry | {"translations": evaluation.translations[arm].relative_to(run.folder).as_posix()}


def _identity(entry: Entry) -> dict[str, Any]:
    """An entry without what follows from the rest; older ones lack some keys: they are of single checkpoints."""
    early = {"steps": [entry["step"]], "combine": "last", "select": None}
    rest = ("sentences", "translations", "hashes", *DETAILS)
    return {key: value for key, value in (early | entry).items() if key not in rest}


def open_data(run: Run) -> Store:
    """The prepared data that a run was trained on."""
    store = Store.open(Path(run.setting("data.folder")))
    if store.fingerprint != run.setting("data.fingerprint"):
        raise ValueError(
            f"{store.folder} holds other data than {run} was trained on; prepare those again, or train a new run"
        )
    return store


def translations_path(run: Run, scores: Scores, arm: Arm) -> Path:
    """The file whose lines were scored; entries of the first version do not name it."""
    entry = translated_entry(run, scores, arm)
    beam, penalty = scores.search["beam"], scores.search["length_penalty"]
    old = f"translations/{scores.model.step}.{scores.split}.{arm}.beam{beam}-{penalty:g}.txt"
    return run.folder / str(entry.get("translations", old))


def translated_entry(run: Run, scores: Scores, arm: Arm) -> Entry:
    """A score of a language that was made from translations."""
    for metric in METRICS:
        if (arm, metric) in scores.entries:
            return scores.entries[arm, metric]
    lacks = f"{run} has no translations of {arm}, {scores.model}"
    raise ValueError(f"{lacks}; run rota evaluate {run} --metrics bleu,chrf,loss first")


def read_translations(run: Run, scores: Scores, arm: Arm, sentences: int) -> list[str]:
    """The translations of a test set, in its order."""
    path = translations_path(run, scores, arm)
    check_unchanged(run, path, translated_entry(run, scores, arm), "translations")
    return _lines(path, sentences, run)


def read_comet(run: Run, scores: Scores, arm: Arm, sentences: int) -> list[float]:
    """The COMET score of each sentence, x 100, as :func:`add_comet` wrote them."""
    entry = scores.entries.get((arm, "comet"))
    if entry is None:
        lacks = f"{run} has no COMET scores of {arm}, {scores.model}"
        raise ValueError(f"{lacks}; run rota evaluate {run} --comet MODEL first")
    path = run.folder / str(entry["sentence_scores"])
    check_unchanged(run, path, entry, "sentence_scores")
    return [float(line) for line in _lines(path, sentences, run)]


def _lines(path: Path, sentences: int, run: Run) -> list[str]:
    if not path.is_file():
        raise ValueError(f"{path} is missing; run rota evaluate {run} again")
    lines = read_lines(path)
    if len(lines) != sentences:
        raise ValueError(f"{path} has {len(lines)} lines for {sentences} sentences; delete it and evaluate {run} again")
    return lines


def with_comet(
    folder: Path, evaluation: Evaluation, comet: Comet, *, progress: Progress = lambda *_: None
) -> Evaluation:
    """The scores of an evaluation and those of COMET beside them."""
    run = Run(folder)
    if not evaluation.translations:
        raise ValueError("COMET scores translations; add bleu or chrf to --metrics")
    made = [
        scores
        for scores in evaluated(run, evaluation.split)
        if scores.model == evaluation.model
        and all(translations_path(run, scores, arm) == path for arm, path in evaluation.translations.items())
    ]
    assert made, "an evaluation has been recorded"
    found = add_comet(run, made[-1], open_data(run), comet, progress=progress)
    return replace(evaluation, scores={arm: [*scores, found[arm]] for arm, scores in evaluation.scores.items()})


def add_comet(
    run: Run, scores: Scores, store: Store, comet: Comet, *, progress: Progress = lambda *_: None
) -> dict[Arm, Score]:
    """COMET of translations that exist, added to the records; what this COMET model has scored is not repeated."""
    found = {}
    for arm in scores.languages:
        known = scores.entries.get((arm, "comet"))
        if known is None or known["signature"] != comet.signature:
            known = _score_with_comet(run, scores, arm, store, comet, progress)
            run.append("evals", [known])
            scores.entries[arm, "comet"] = known
        found[arm] = Score("comet", float(known["score"]), comet.signature)
    return found


def _score_with_comet(run: Run, scores: Scores, arm: Arm, store: Store, comet: Comet, progress: Progress) -> Entry:
    sources, references = zip(*store.text(scores.split, arm), strict=True)
    counter = Counter(f"COMET of {arm}", len(sources), progress)
    hypotheses = read_translations(run, scores, arm, len(sources))
    value, by_sentence = comet.score(sources, hypotheses, references, progress=counter.add)
    path = translations_path(run, scores, arm).with_suffix(f".{comet.name}.txt")
    write_atomically(path, "".join(f"{score:.4f}\n" for score in by_sentence))
    found = {"metric": "comet", "score": value, "signature": comet.signature, "sentences": len(sources)}
    entry = {**translated_entry(run, scores, arm), **found, "sentence_scores": str(path.relative_to(run.folder))}
    return with_hash(run, entry)
