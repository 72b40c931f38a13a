"""How large the student is and how it learns: its settings and the learning-rate schedule. No torch."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Final, Literal, get_args

from pydantic import Field, SerializerFunctionWrapHandler, model_serializer, model_validator

from rota.settings import ConfigError, Count, Duration, DurationField, Settings, where_used

logger = logging.getLogger(__name__)

PRESETS: Final = {"tiny": (2, 128, 4, 512), "small": (3, 256, 4, 1024), "base": (6, 512, 8, 2048)}
"""Layers per side, width, heads, feed-forward width."""


@dataclass(frozen=True)
class Shape:
    """How large a network is."""

    vocabulary: int
    encoder_layers: int
    decoder_layers: int
    width: int
    heads: int
    feedforward: int
    tie_embeddings: bool = True  # the output projection is the embedding matrix; both sides always share theirs

    def __post_init__(self) -> None:
        if self.width % self.heads or self.width % 2 or self.width < 4:
            raise ValueError(
                f"width {self.width} with {self.heads} heads: choose an even width that the number of heads divides"
            )

    @property
    def parameters(self) -> int:
        """Of all matrices; vectors hardly count."""
        block = 2 * self.width * self.feedforward
        layers = self.encoder_layers * (4 * self.width**2 + block) + self.decoder_layers * (8 * self.width**2 + block)
        return layers + (1 if self.tie_embeddings else 2) * self.vocabulary * self.width


Decay = Literal["inverse-sqrt", "hold-then-inverse-sqrt", "linear", "cosine", "warmup-stable-decay"]
"""The shapes of the learning rate; :class:`Schedule` says what they mean."""


Part = Literal["embeddings", "encoder", "decoder"]
"""What can be frozen, or have a learning rate of its own."""


@dataclass(frozen=True)
class Schedule:
    """A rate that rises linearly to ``peak`` at step ``warmup`` and then falls, in one of these shapes:

    - ``inverse-sqrt``: with the inverse square root of the step, for ever; at four times the warm-up it is half the
      peak.
    - ``hold-then-inverse-sqrt``: the same without the rise; it is at the peak from the first step to step ``warmup``.
    - ``linear``, ``cosine``: along a line, or half a wave, to 0 just after step ``end``.
    - ``warmup-stable-decay``: at the peak until the last ``cooldown`` steps, then along a line to 0 just after ``end``.

    With a ``restart`` the run is two, one after the other: the first ends there, and the second begins with a warm-up
    of its own. Nothing is remembered, so a run that resumes is on the same curve.
    """

    peak: float
    warmup: int  # 0 and 1 mean the same: the first step has the highest rate
    end: int = 0  # of the shapes that know one
    decay: Decay = "inverse-sqrt"
    cooldown: int = 0
    restart: int | None = None

    @staticmethod
    def peak_from_scale(scale: float, *, width: int, warmup: int) -> float:
        """The highest rate of the curve with that factor: the longer the warm-up, the lower."""
        peak: float = scale * (width * max(warmup, 1)) ** -0.5
        return peak

    def __call__(self, step: int) -> float:
        """The learning rate of the given update; the first one is 1."""
        if self.restart is not None:
            passed, end = (0, self.restart) if step <= self.restart else (self.restart, self.end - self.restart)
            return replace(self, end=end, restart=None)(step - passed)
        warmup = max(self.warmup, 1)
        if step <= warmup:
            return self.peak if self.decay == "hold-then-inverse-sqrt" else self.peak * step / warmup
        if self.decay in ("inverse-sqrt", "hold-then-inverse-sqrt"):
            return self.peak * math.sqrt(warmup / step)
        falling = warmup if self.decay != "warmup-stable-decay" else max(warmup, self.end + 1 - self.cooldown)
        left = min(1.0, max(0.0, (self.end + 1 - step) / (self.end + 1 - falling)))
        return self.peak * (0.5 - 0.5 * math.cos(math.pi * left) if self.decay == "cosine" else left)


_COOLDOWN: Final = Duration("20%")


class LearningRate(Settings):
    """How high the rate rises, by exactly one of ``scale`` and ``peak``, and how it falls.

    ``scale`` is the factor of Vaswani et al. and of OpenNMT-py's ``noam``: the rate is ``scale * width ** -0.5 *
    min(step ** -0.5, step * warmup ** -1.5)``. ``peak`` is the rate at the end of the warm-up, whatever the width.
    """

    scale: float | None = Field(default=None, gt=0)
    peak: float | None = Field(default=None, gt=0)
    decay: Decay = "inverse-sqrt"  # linear and cosine: to 0 at the end of the run, for short runs
    cooldown: DurationField = _COOLDOWN  # of warmup-stable-decay: the last steps, in which the rate falls
    restart: DurationField | None = None  # the step after which it begins again, as in a new run, warm-up included

    @model_validator(mode="after")
    def _one_of_two(self) -> LearningRate:
        if (self.scale is None) == (self.peak is None):
            raise ValueError("give either scale (paper: 10) or peak (for example 0.001), not both and not neither")
        if self.cooldown != _COOLDOWN and self.decay != "warmup-stable-decay":
            raise ValueError(f"cooldown is {self.cooldown}, but decay {self.decay} has none; use warmup-stable-decay")
        if self.cooldown.amount == 0:
            raise ValueError("cooldown is 0; write for example 20% of the run")
        return self

    @model_serializer(mode="wrap")
    def _without_default_cooldown(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Only the shape that has a cool-down names it: fingerprints of other configs stay what they were."""
        written = where_used(self, write(self), "restart")
        if self.decay != "warmup-stable-decay":
            del written["cooldown"]
        return written


SIZES: Final = 6
OF_START: Final = (
    *("encoder_layers", "decoder_layers", "width", "heads", "feedforward", "tie_embeddings"),
    *("dropout", "attention_dropout", "learning_rate", "lr_warmup"),
)
"""Settings that follow from the model that a student starts from; the first ``SIZES`` are its sizes."""


class StudentConfig(Settings):
    """Size of the network and how it learns. Defaults are the paper's, except for the size."""

    preset: Literal["tiny", "small", "base"] = "small"
    layers: int | None = Field(default=None, ge=1)  # of the encoder and of the decoder each
    encoder_layers: int | None = Field(default=None, ge=1)
    decoder_layers: int | None = Field(default=None, ge=1)
    width: int | None = Field(default=None, ge=4)
    heads: int | None = Field(default=None, ge=1)
    feedforward: int | None = Field(default=None, ge=1)
    tie_embeddings: bool = True
    dropout: float = Field(default=0.3, ge=0, lt=1)
    attention_dropout: float | None = Field(default=None, ge=0, lt=1)  # None: as dropout
    word_dropout: float = Field(
        default=0.0, ge=0, lt=1
    )  # tokens read as unknown; not in the paper, helps small corpora
    label_smoothing: float = Field(default=0.1, ge=0, lt=1)
    learning_rate: LearningRate = LearningRate(scale=10)
    # 0: the first step has the highest rate and the second 0.71 of it. With scale that rate is scale * width ** -0.5
    # (0.44 for base), which no student survives; to start at the usual peak and stay there: hold-then-inverse-sqrt.
    lr_warmup: DurationField = Duration("16k")
    betas: tuple[float, float] = (0.9, 0.998)
    clip_norm: float = Field(default=5.0, gt=0)
    precision: Literal["float32", "tf32", "bf16"] = "float32"  # tf32: on CUDA, as float32 elsewhere
    device: str = "auto"
    piece_tokens: Count | None = Field(default=None, ge=1)  # run at once; None: 1.5k on a CPU, elsewhere a batch
    average: float | None = Field(default=None, gt=0, lt=1)  # decay of averaged weights kept beside the others
    start: Path | None = None  # a Hugging Face M2M100 or NLLB checkpoint, a run, or the export of one: docs/start.md
    freeze: tuple[Part, ...] = ()  # parts that are not trained
    rates: dict[Part, Annotated[float, Field(gt=0)]] = Field(default_factory=dict)  # factors of the learning rate

    @model_validator(mode="before")
    @classmethod
    def _without_compile(cls, values: Any) -> Any:
        """Version 0.1 had ``compile``, which changed no result: configs and runs that name it are still read."""
        if not isinstance(values, Mapping) or "compile" not in values:
            return values
        if values["compile"]:
            logger.warning("student.compile no longer exists and is ignored; delete it from the config")
        return {key: value for key, value in values.items() if key != "compile"}

    @model_serializer(mode="wrap")
    def _as_version_0_1_wrote_it(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """With its ``compile``, and later settings only where used: fingerprints of configs stay what they were."""
        written: dict[str, Any] = write(self)
        if self.start is not None and self.width is None:  # not known yet; a copy must not take defaults for wishes
            unset = {*OF_START, "preset", "layers"} - self.model_fields_set
            written = {name: value for name, value in written.items() if name not in unset}
        later = {name: written.pop(name) for name in ("average", "start", "freeze", "rates")}
        return written | {"compile": False} | {name: value for name, value in later.items() if value}

    @model_validator(mode="after")
    def _buildable(self) -> StudentConfig:
        self.shape(vocabulary=4)
        if not all(0 <= beta < 1 for beta in self.betas):
            raise ValueError(f"betas {self.betas} must lie between 0 and 1; the paper has 0.9 and 0.998")
        if set(self.freeze) == set(get_args(Part)):
            raise ValueError("freeze names every part, so that nothing is trained; leave one out")
        both = [part for part in self.rates if part in self.freeze]
        if both:
            raise ValueError(f"{both[0]} is frozen and has a rate; remove it from freeze or from rates")
        return self

    def awaits(self, name: str) -> bool:
        """Whether this setting follows from a starting point that has not been opened yet."""
        return self.start is not None and name in OF_START and name not in self.model_fields_set

    def completed(self, of_start: Mapping[str, Any]) -> StudentConfig:
        """With what the starting point says of ``OF_START``, except for what the config says itself."""
        sizes = set(OF_START[:SIZES])
        return self.model_copy(
            update={name: of_start[name] for name in OF_START if name in sizes or name not in self.model_fields_set}
        )

    @property
    def dropout_of_attention(self) -> float:
        """Dropout of the attention weights."""
        return self.dropout if self.attention_dropout is None else self.attention_dropout

    def schedule(self, steps: int, restart: int | None = None) -> Schedule:
        """The learning rate of a run of so many steps; a teacher may say after which one it begins again."""
        rate, warmup = self.learning_rate, self.lr_warmup.steps(steps)
        cooldown = rate.cooldown.steps(steps) if rate.decay == "warmup-stable-decay" else 0
        if rate.restart is not None and restart is not None:
            both = f"student.learning_rate.restart is {rate.restart} and teacher.restart_learning_rate is true"
            raise ConfigError(f"{both}; keep one of them")
        restart = rate.restart.steps(steps) if rate.restart is not None else restart
        return Schedule(self.peak(steps), warmup, steps, rate.decay, cooldown, restart)

    def peak(self, steps: int) -> float:
        """The highest learning rate of a run of so many steps."""
        rate, warmup = self.learning_rate, self.lr_warmup.steps(steps)
        if rate.peak is not None:
            return rate.peak
        assert rate.scale is not None
        return Schedule.peak_from_scale(rate.scale, width=self.shape(vocabulary=4).width, warmup=warmup)

    def shape(self, vocabulary: int) -> Shape:
        """The sizes of the preset, unless overridden."""
        layers, width, heads, feedforward = PRESETS[self.preset]
        layers = self.layers or layers
        return Shape(
            vocabulary=vocabulary,
            encoder_layers=self.encoder_layers or layers,
            decoder_layers=self.decoder_layers or layers,
            width=self.width or width,
            heads=self.heads or heads,
            feedforward=self.feedforward or feedforward,
            tie_embeddings=self.tie_embeddings,
        )
