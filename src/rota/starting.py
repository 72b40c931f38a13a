"""What a run starts from (``student.start``): a Hugging Face checkpoint, another run, or an export.

Its sizes become those of the student, its tokenizer divides the text (unless ``data.subwords.model`` names another),
and its weights are the first ones. The rows of the embeddings are found by the names of their tokens, because the
vocabulary may have been cut, or have tags and subwords that are new.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from rota.config import RunConfig
from rota.data.ready_made.adopting import as_it_is
from rota.data.subwords import UNK, Subwords
from rota.runs import Run
from rota.runs.standing import standing_model
from rota.settings import ConfigError, Duration
from rota.student.config import LearningRate, Shape, StudentConfig
from rota.student.pretrained import is_pretrained, read_pretrained

if TYPE_CHECKING:
    from torch import Tensor

    Weights = dict[str, Tensor]

logger = logging.getLogger(__name__)

PEAK: Final = 0.0001
"""The learning rate of a student that has learned before, unless the config names one; with a warm-up of 10 %."""

_SIZES: Final = ("encoder_layers", "decoder_layers", "width", "heads", "feedforward", "tie_embeddings")
_OVERLAP: Final = 0.5
"""The share of the vocabulary whose tokens the starting point must know."""


@dataclass(frozen=True)
class Start:
    """A starting point whose weights have not been read yet."""

    folder: Path
    shape: Shape
    dropout: float
    attention_dropout: float
    weights: Callable[[], Weights]

    @property
    def subwords(self) -> Subwords:
        return as_it_is(self.folder)


def open_start(folder: Path) -> Start:
    """What the folder holds, with its sizes."""
    if Run(folder).exists:
        return _of_run(Run(folder))
    if not is_pretrained(folder):
        what = "has neither run.json nor config.json" if folder.is_dir() else "does not exist"
        raise ConfigError(f"student.start: {folder} {what}; give a run, its export, or an M2M100 or NLLB checkpoint")
    found = read_pretrained(folder)
    return Start(folder, found.shape, found.dropout, found.attention_dropout, found.weights)


def _of_run(run: Run) -> Start:
    config = StudentConfig.model_validate(run.setting("config.student"))
    shape = config.shape(Subwords.load(run.subwords_path).vocabulary)

    def weights() -> Weights:
        from rota.evaluation.translator import Translator

        model = standing_model(run)
        if model.select is None:
            found = Translator.load(run.folder, device="cpu")
        else:  # what rota evaluate --select found best; of an ensemble, the mean of its weights
            combine = "average" if model.combine == "ensemble" else model.combine
            found = Translator.load(run.folder, steps=model.steps, combine=combine, device="cpu")
        return found.networks[0].state_dict()

    return Start(run.folder, shape, config.dropout, config.dropout_of_attention, weights)


def with_start(config: RunConfig, run: Path) -> RunConfig:
    """The config with the sizes of what it starts from, and with what a student wants that has learned before.

    A run that has begun has these on record, so that it needs its starting point no longer.
    """
    student = config.student
    if student.start is None:
        return config
    if Run(run).exists:
        recorded = StudentConfig.model_validate(Run(run).setting("config.student"))
        filled = {name: getattr(recorded, name) for name in (*_SIZES, *_WANTED)}
    else:
        start = open_start(student.start)
        _check_sizes(student, start)
        filled = {name: getattr(start.shape, name) for name in _SIZES}
        filled |= {"dropout": start.dropout, "attention_dropout": start.attention_dropout}
        filled |= {"learning_rate": LearningRate(peak=PEAK), "lr_warmup": Duration("10%")}
    written = student.model_fields_set - set(_SIZES)
    changes = {name: value for name, value in filled.items() if name not in written}
    return config.model_copy(update={"student": student.model_copy(update=changes)})


_WANTED: Final = ("dropout", "attention_dropout", "learning_rate", "lr_warmup")


def _check_sizes(student: StudentConfig, start: Start) -> None:
    if student.model_fields_set.isdisjoint((*_SIZES, "preset", "layers")):
        return
    wanted = student.shape(start.shape.vocabulary)
    for name in _SIZES:
        ours, theirs = getattr(wanted, name), getattr(start.shape, name)
        if ours != theirs:
            found = f"student.{name} is {ours} and that of {start.folder} is {theirs}"
            raise ConfigError(f"{found}; leave the sizes of the student out, they are those of student.start")


def first_weights(student: StudentConfig, subwords: Subwords) -> Weights:
    """The weights of the starting point for a network with this vocabulary."""
    assert student.start is not None
    start = open_start(student.start)
    weights, origins = start.weights(), rows(start.subwords, subwords, start.folder)
    for name in ("embedding.weight", "output.weight"):
        if name in weights:
            weights[name] = _gathered(weights[name], origins)
    return weights


def rows(old: Subwords, new: Subwords, folder: Path) -> list[list[int]]:
    """For each token of the new vocabulary the old ids whose vectors it starts from, as their mean.

    Its own, if there was one; of a new tag those of all tags; of a new subword those of its pieces.
    """
    ids = {token: number for number, token in enumerate(old.tokens) if token is not None}
    tags, new_tags = old.tag_ids, set(new.tag_ids)
    found: list[list[int]] = []
    unknown = 0
    for number, token in enumerate(new.tokens):
        if token in ids:
            found.append([ids[token]])
        elif token is None:
            found.append([number if number < old.vocabulary else UNK])
        elif number in new_tags:
            found.append(tags or [UNK])
        else:
            found.append([piece for piece in old.pieces(token) if piece != UNK] or [UNK])
            unknown += 1
    if unknown > (1 - _OVERLAP) * len(found):
        differ = f"{unknown:,} of the {len(found):,} subwords of the data are not in the vocabulary of {folder}"
        raise ConfigError(f"{differ}; leave data.subwords.model out, so that its tokenizer is used")
    if unknown:
        logger.info("%d new subwords start from the mean of their pieces", unknown)
    return found


def _gathered(matrix: Tensor, origins: list[list[int]]) -> Tensor:
    import torch

    result = matrix[torch.tensor([origin[0] for origin in origins])]
    for number, origin in enumerate(origins):
        if len(origin) > 1:
            result[number] = matrix[torch.tensor(origin)].mean(0)
    return result
