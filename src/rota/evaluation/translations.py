"""Translations of dev and test sets as files: made once, then read; the name of a file says what made it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rota.evaluation.config import Combine, EvaluationConfig
from rota.evaluation.translator import Loader
from rota.files import write_atomically
from rota.student.search import EncoderCache
from rota.types import Arm

SELECTION_PART = "dev-selection"
"""The dev sentences that choose checkpoints, in file names: not the whole of ``dev``."""


Progress = Callable[[str, int, int], None]
"""Hears (what is being done, sentences done, sentences in all)."""


class Counter:
    """Adds up the sentences just translated and tells a progress bar; a total of 0 is not worth a bar."""

    def __init__(self, stage: str, total: int, progress: Progress) -> None:
        self.stage, self.total, self.done, self._progress = stage, total, 0, progress

    def add(self, finished: int) -> None:
        self.reach(self.done + finished)

    def reach(self, done: int) -> None:
        self.done = done
        if self.total:
            self._progress(self.stage, done, self.total)


@dataclass(frozen=True)
class Combination:
    """Checkpoints of a run that translate as one model."""

    steps: tuple[int, ...]
    combine: Combine = "last"

    @property
    def step(self) -> int:
        return self.steps[-1]

    @property
    def name(self) -> str:
        """``1700`` for one checkpoint, else for example ``1530+1700.ensemble``."""
        if len(self.steps) == 1:
            return str(self.step)  # the average and the ensemble of one checkpoint are that checkpoint
        return f"{'+'.join(map(str, self.steps))}.{self.combine}"


def translation_path(run: Path, model: Combination, part: str, arm: Arm, config: EvaluationConfig) -> Path:
    """One sentence a line, in the order of the set; ``part`` is ``dev``, ``test`` or the selection part of dev."""
    return run / "translations" / f"{model.name}.{part}.{arm}.beam{config.beam}-{config.length_penalty:g}.txt"


class Translations:
    """One part of a run's dev or test sets, translated by one search; what is there already is not made again."""

    def __init__(self, loader: Loader, part: str, config: EvaluationConfig, cache: EncoderCache | None = None) -> None:
        self.loader, self.part, self.config, self._cache = loader, part, config, cache

    def of(self, model: Combination, texts: Mapping[Arm, Sequence[str]], counter: Counter) -> dict[Arm, Path]:
        """Files with the translations of every language; all that are missing are translated together."""
        paths = {arm: translation_path(self.loader.run, model, self.part, arm, self.config) for arm in texts}
        missing = {arm: texts[arm] for arm, path in paths.items() if not path.exists()}
        if missing:
            found = iter(self._translate(model, missing, counter))
            for arm, each in missing.items():
                lines = (" ".join(next(found).split()) for _ in each)  # a model may produce a line break
                write_atomically(paths[arm], "".join(f"{line}\n" for line in lines))
        return paths

    def _translate(self, model: Combination, texts: Mapping[Arm, Sequence[str]], counter: Counter) -> list[str]:
        return self.loader.translator(model.steps, model.combine).translate(
            [text for each in texts.values() for text in each],
            [arm for arm, each in texts.items() for _ in each],
            beam=self.config.beam,
            length_penalty=self.config.length_penalty,
            progress=counter.add,
            cache=self._cache,
        )


def read_translations(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").split("\n")[:-1]
