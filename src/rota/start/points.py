"""What a folder holds that a run starts from, and the settings of the student that follow from it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from rota.data.ready_made.adopting import as_it_is
from rota.data.subwords import Subwords
from rota.runs import Run
from rota.runs.standing import Model, standing_model
from rota.settings import ConfigError, Duration
from rota.student.config import OF_START, SIZES, LearningRate, Shape, StudentConfig
from rota.student.pretrained import is_ctranslate2, is_pretrained, read_pretrained

if TYPE_CHECKING:
    from torch import Tensor

    Weights = dict[str, Tensor]

logger = logging.getLogger(__name__)

PEAK: Final = 0.0001
"""The learning rate of a student that has learned before, unless the config names one; with a warm-up of 10 %."""


@dataclass(frozen=True)
class Start:
    """A starting point whose weights have not been read yet."""

    folder: Path
    shape: Shape
    dropout: float
    attention_dropout: float
    weights: Callable[[], Weights]
    check: Callable[[], None]  # refuses weights that cannot be read, before anything is prepared for them

    @property
    def subwords(self) -> Subwords:
        return as_it_is(self.folder)


def open_start(folder: Path) -> Start:
    """What the folder holds, with its sizes."""
    if Run(folder).exists:
        return _of_run(Run(folder))
    if not is_pretrained(folder):
        what = "has neither run.json nor config.json" if folder.is_dir() else "does not exist"
        what = "is a file, not a folder" if folder.is_file() else what
        raise ConfigError(f"student.start: {folder} {what}; give a run, its export, or an M2M100 or NLLB checkpoint")
    if is_ctranslate2(folder):
        what = "is a model of CTranslate2, which can translate but not be trained"
        raise ConfigError(f"student.start: {folder} {what}; give the run, or its export with --to hf")
    found = read_pretrained(folder)
    return Start(folder, found.shape, found.dropout, found.attention_dropout, found.weights, found.check)


def _of_run(run: Run) -> Start:
    if not run.subwords_path.is_file():
        raise ConfigError(f"student.start: {run} has no {run.subwords_path.name}; copy the run again, with that file")
    config = StudentConfig.model_validate(run.setting("config.student"))
    shape = config.shape(Subwords.load(run.subwords_path).vocabulary)

    def weights() -> Weights:
        from rota.evaluation.translator import Translator

        model = standing_model(run)
        logger.info("starting from %s: %s", run, _which(model, run.saved_step()))
        if model.select is None:
            found = Translator.load(run.folder, device="cpu")
        else:  # what rota evaluate --select found best; of an ensemble, the mean of its weights
            combine = "average" if model.combine == "ensemble" else model.combine
            found = Translator.load(run.folder, steps=model.steps, combine=combine, device="cpu")
        return found.networks[0].state_dict()

    def check() -> None:
        try:
            for step in standing_model(run).steps:
                run.checkpoint(step)
        except ValueError as error:
            raise ConfigError(f"student.start: {error}") from None

    return Start(run.folder, shape, config.dropout, config.dropout_of_attention, weights, check)


def _which(model: Model, last: int) -> str:
    """The checkpoints that the weights are of, and why those; of an ensemble they are the mean."""
    if model.select is None:
        return f"its last checkpoint, step {last:,}"
    steps = ", ".join(f"{step:,}" for step in model.steps)
    of = f"the mean of the weights of steps {steps}" if len(model.steps) > 1 else f"step {steps}"
    of = f"the moving average of step {steps}" if model.combine == "moving-average" else of
    return f"{of}, found best by rota evaluate --select {model.select}"


def with_start(student: StudentConfig, run: Path) -> StudentConfig:
    """The settings with the sizes of what it starts from, and with what a student wants that has learned before.

    A run that has begun has these on record, so that it needs its starting point no longer.
    """
    if student.start is None:
        return student
    if Run(run).exists:
        recorded = StudentConfig.model_validate(Run(run).setting("config.student"))
        return student.completed({name: getattr(recorded, name) for name in OF_START})
    start = open_start(student.start)
    _check_sizes(student, start)
    start.check()
    wanted: dict[str, Any] = {"dropout": start.dropout, "attention_dropout": start.attention_dropout}
    wanted |= {"learning_rate": LearningRate(peak=PEAK), "lr_warmup": Duration("10%")}
    return student.completed({name: getattr(start.shape, name) for name in OF_START[:SIZES]} | wanted)


def _check_sizes(student: StudentConfig, start: Start) -> None:
    """Of the sizes that the config writes itself, each must be that of the start."""
    written = set(student.model_fields_set)
    if "preset" in written:
        written.update(OF_START[:SIZES])
    if "layers" in written:
        written.update(("encoder_layers", "decoder_layers"))
    wanted = student.shape(start.shape.vocabulary)
    for name in [each for each in OF_START[:SIZES] if each in written]:
        ours, theirs = getattr(wanted, name), getattr(start.shape, name)
        if ours != theirs:
            found = f"student.{name} is {ours} and that of {start.folder} is {theirs}"
            raise ConfigError(f"{found}; leave the sizes of the student out, they are those of student.start")
