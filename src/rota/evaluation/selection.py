"""Which checkpoints stand for a run: every window of consecutive ones is judged on dev sentences no teacher saw."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from rota.data.corpora.parallel import Pair
from rota.data.division import Division, selection_part
from rota.data.store import Store
from rota.evaluation.config import EvaluationConfig
from rota.evaluation.metrics import groups, score
from rota.evaluation.translator import SELECTION_PART, Counter, Loader, Progress, Translations, Translator, read_lines
from rota.files import write_json
from rota.goal import Goal, goal_mean, is_alike
from rota.runs import Run
from rota.runs.standing import Model, Select
from rota.student.search import EncoderCache
from rota.types import Arm


@dataclass(frozen=True)
class Window:
    """Consecutive checkpoints as one model, and how well it does on dev sentences."""

    steps: tuple[int, ...]
    bleu: Mapping[Arm, float]  # of the languages that were translated
    averages: Mapping[str, float]  # by group, where all its languages were translated
    loss: float | None
    """Nats per token, the goal's mean over languages, and over checkpoints; None: no validation came that early."""

    @property
    def step(self) -> int:
        return self.steps[-1]

    def merit(self, select: Select) -> float | None:
        """What is compared; higher is better. None: this window cannot be judged."""
        if select == "loss":
            return None if self.loss is None else -self.loss
        return self.averages[select]


@dataclass(frozen=True)
class Selection:
    """All windows of a run and the best of them: what ``selection.json`` holds."""

    config: EvaluationConfig
    select: Select
    sentences: Mapping[Arm, int]  # dev sentences that were translated for it
    teacher_share: float  # of each dev set, seen by the teacher and not translated; 1: it saw all, and all were used
    windows: tuple[Window, ...]

    @property
    def best(self) -> Window:
        """The window with the most merit; of equal ones that of the lowest dev loss, then the earliest."""
        judged = [window for window in self.windows if window.merit(self.select) is not None]
        if not judged:
            raise ValueError("--select loss needs dev losses, and the run has none so early; use --select low-resource")
        return max(judged, key=lambda window: (window.merit(self.select) or 0.0, -(window.loss or math.inf)))

    def write(self, run: Run) -> None:
        windows = [
            {"steps": list(window.steps), "step": window.step, "bleu": dict(window.bleu)}
            | {"averages": dict(window.averages), "loss": window.loss}
            for window in self.windows
        ]
        content = {
            "select": self.select,
            "combine": self.config.combine,
            "window": self.config.window,
            "search": self.config.selecting.search,
            "split": "dev",
            "sentences": dict(self.sentences),
            "windows": windows,
            "best": {"steps": list(self.best.steps), "step": self.best.step},
        }
        write_json(run.selection_path, content, checked=True)


def select_window(
    loader: Loader,
    store: Store,
    config: EvaluationConfig,
    progress: Progress = lambda *_: None,
    *,
    processes: int = 1,
    convert: Callable[[Translator], Translator] | None = None,
) -> Selection:
    """Judge every window, write ``selection.json``, and return it; what has been translated already is reused.

    ``progress`` counts the sentences of all windows. For ``loss`` nothing is translated: the run's records have the
    dev losses.
    """
    if config.select is None:
        raise ValueError("nothing is to be selected; set select, or evaluate without it")
    run, share = loader.run, loader.run.setting("config.training.teacher_dev")
    division: Division = run.setting("config.training.dev_division")
    pairs = selection_pairs(store, judged_languages(store, config.select, run.goal), share, division)
    sentences = {arm: len(each) for arm, each in pairs.items()}
    losses = dev_losses(run)
    # Every network is in several windows: its encoder need not read the sentences again.
    translations = Translations(
        loader,
        SELECTION_PART,
        config.selecting,
        cache=EncoderCache(),
        processes=processes,
        together=True,
        convert=convert,
    )
    windows = run.checkpoints().windows(config.checkpoints)
    counter = Counter(f"selecting ({len(windows)} windows)", len(windows) * sum(sentences.values()), progress)
    found: list[Window] = []
    for steps in windows:
        bleu = dev_bleu(translations, Model(steps, config.combine), pairs, counter)
        found.append(Window(steps, bleu, _averages(bleu, store, config.select, run.goal), _window_loss(steps, losses)))
        counter.reach(len(found) * sum(sentences.values()))
    selection = Selection(config, config.select, sentences, share, tuple(found))
    selection.write(run)
    return selection


def judged_languages(store: Store, select: Select, goal: Goal) -> Sequence[Arm]:
    """The languages whose dev sets are translated to select by this."""
    if select == "loss":
        return ()
    if select == "goal":
        return list(goal)
    found = groups(store.languages, store.low_resource)
    if select not in found:
        raise ValueError(f"--select {select}: the data have no {select} languages; use --select macro")
    return found[select]


def selection_pairs(
    store: Store, arms: Sequence[Arm], teacher_share: float, division: Division
) -> dict[Arm, list[Pair]]:
    """Dev sentences that the teacher of the run did not see, unless it was given all (``training.teacher_dev: 1``)."""
    everything = {arm: store.text("dev", arm) for arm in arms}
    dev = store.split("dev")
    return {
        arm: [pairs[index] for index in selection_part(dev, arm, teacher_share, division)]
        for arm, pairs in everything.items()
    }


def dev_losses(run: Run) -> dict[int, float]:
    """By step of validation, the goal's mean of the dev losses (by default over all languages), in nats per token."""
    goal = run.goal
    return {entry["step"]: goal_mean(entry["dev_loss"], goal) for entry in run.read("validations")}


def _window_loss(steps: Sequence[int], losses: Mapping[int, float]) -> float | None:
    """The mean over the checkpoints, each with the last validation up to its step."""
    nearest = [max((measured for measured in losses if measured <= step), default=None) for step in steps]
    known = [losses[measured] for measured in nearest if measured is not None]
    return _mean(known) if len(known) == len(steps) else None


def dev_bleu(
    translations: Translations, model: Model, pairs: Mapping[Arm, Sequence[Pair]], counter: Counter
) -> dict[Arm, float]:
    """Corpus BLEU of each language's sentences, which are translated first unless that was done before."""
    sources = {arm: [source for source, _ in each] for arm, each in pairs.items()}
    paths = translations.of(model, sources, lambda _, finished: counter.add(finished))
    references = {arm: [reference for _, reference in each] for arm, each in pairs.items()}
    return {arm: score(read_lines(path), references[arm], metrics=("bleu",))[0].value for arm, path in paths.items()}


def _averages(bleu: Mapping[Arm, float], store: Store, select: Select, goal: Goal) -> dict[str, float]:
    found = groups(store.languages, store.low_resource)
    means = {name: _mean([bleu[arm] for arm in arms]) for name, arms in found.items() if set(arms) <= set(bleu)}
    if set(goal) <= set(bleu) and (select == "goal" or not is_alike(goal, store.languages)):
        means["goal"] = goal_mean(bleu, goal)
    return means


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
