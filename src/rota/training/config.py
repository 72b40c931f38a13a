"""The settings of a training run: how long, how much at a time, how often to look and to save."""

from __future__ import annotations

from typing import Any, Self

from pydantic import Field, SerializerFunctionWrapHandler, model_serializer, model_validator

from rota.data.division import Division
from rota.data.order import Mixing
from rota.settings import Count, Duration, DurationField, Settings, where_used
from rota.training.progress.stopping import EarlyStopping


class TrainingConfig(Settings):
    """How long, how much at a time, and how often to look and to save.

    An update has ``tokens`` times ``accumulate`` target tokens, whatever the number of processes.
    """

    steps: Count = Field(150_000, ge=1, description="optimiser steps")
    tokens: Count = Field(8_000, ge=1, description="real target tokens in a batch")
    last_arm_tokens: Count | None = Field(
        None, ge=1, description="another batch size for the last language, as by accident in the released code (1000)"
    )
    accumulate: int = Field(1, ge=1, description="batches in one optimiser step, of all processes together")
    validate_every: DurationField = Field(Duration("5%"), description="steps between two looks at the dev losses")
    validate_tokens: Count = Field(4_000, ge=1, description="dev tokens of each language, at most")
    teacher_dev: float = Field(
        0.5,
        gt=0,
        le=1,
        description="share of each dev set that the teacher sees; the rest selects checkpoints; 1: both",
    )
    dev_division: Division = Field(
        "text", description="by the English, the same in all languages; alternate: by position (runs of version 0.1)"
    )
    mixed_batches: Mixing = Field(
        "even",
        description="every batch has the shares of the mixture; by-length: only lengths count (runs of version 0.1)",
    )
    guard: bool | None = Field(
        None,
        description="take over from a learned teacher that trains on one language while the dev loss rises; null: "
        "yes, unless it repeats an experiment exactly (variant paper or released)",
    )
    checkpoint_every: DurationField = Field(Duration("4k"), description="steps between two checkpoints")
    keep: int = Field(2, ge=1, description="complete checkpoints to keep; older ones lose the optimiser's moments")
    spot_checks: float = Field(
        0.01,
        ge=0,
        le=0.5,
        description="share of the computation for looking at sampled sentences at validations, for alarms; 0: never",
    )
    dev_sentences: Count = Field(
        0, ge=0, description="dev sentences of each language whose BLEU and chrF (greedy) are taken at validations"
    )
    early_stopping: EarlyStopping | None = Field(
        None, description="end when the goal's dev loss, BLEU or chrF no longer gets better; null: never"
    )
    threads: int | None = Field(None, ge=1, description="threads of torch; null: as many as there are cores")
    tensorboard: bool = Field(True, description="write TensorBoard events into the run folder")

    @model_serializer(mode="wrap")
    def _as_before(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return where_used(self, write(self), "spot_checks", "dev_sentences", "early_stopping")

    @model_validator(mode="after")
    def _from_time_to_time(self) -> Self:
        for name in ("validate_every", "checkpoint_every"):
            if getattr(self, name).amount == 0:
                raise ValueError(f"{name} is 0; write at least 1, or 100% for the end of the run alone")
        rule = self.early_stopping
        if rule is not None and rule.on != "loss" and not self.dev_sentences:
            raise ValueError(f"early_stopping.on is {rule.on}, and dev_sentences is 0; write for example 32")
        return self
