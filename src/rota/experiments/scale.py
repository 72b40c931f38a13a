"""From a full-size run to one that a laptop can finish: what shrinks, and how."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from pydantic import Field

from rota.config import RunConfig, check_durations, parse_config
from rota.settings import Count, Settings
from rota.teachers import SizeChange

Values = dict[str, Any]
"""A config or a part of it as plain values, as they are written in YAML, not checked yet."""


def merged(base: Mapping[str, Any], changes: Mapping[str, Any]) -> Values:
    """The base with the changes on top, mappings key by key; a teacher is replaced as a whole."""
    result = copy.deepcopy(dict(base))
    for key, value in changes.items():
        below = result.get(key)
        if key != "teacher" and isinstance(below, dict) and isinstance(value, Mapping):
            result[key] = merged(below, value)
        else:
            result[key] = copy.deepcopy(value)
    return result


class Scale(Settings):
    """The size of the small run."""

    steps: Count | None = Field(None, ge=1, description="updates; null: as many as in the full-size run")
    tokens: Count | None = Field(None, ge=1, description="target tokens of a batch; null: as in the full-size run")
    peak: float | None = Field(None, gt=0, description="highest learning rate; null: that of the full-size run")
    more_decisions: int = Field(
        1, ge=1, description="how many times as often DQN decides, with as small a part renewed"
    )
    decide_every: int | None = Field(
        None, ge=1, description="updates between two choices of every row; null: as each teacher's rule says"
    )
    reward_tokens: Count | None = Field(
        None, ge=1, description="tokens of a reward batch; null: at most four training batches"
    )


def scaled(values: Values, scale: Scale) -> Values:
    """The config ``values`` in the size of ``scale``; all numbers that follow from it are written out.

    Durations (warm-ups, checkpoints, validations, those of the teacher) keep their share of the run. The learning rate
    keeps its *peak*: that of ``values``, or ``scale.peak``, tuned for the small run. The Noam factor would raise it:
    its peak falls with the square root of the warm-up, which is shorter here. The method ``scaled`` of a
    teacher's config says what else changes in the teacher.
    """
    full = parse_config(values)
    check_durations(full)
    to = SizeChange(
        steps_before=full.training.steps,
        steps=scale.steps or full.training.steps,
        tokens=scale.tokens or full.training.tokens,
        more_decisions=scale.more_decisions,
        decide_every=scale.decide_every,
        reward_tokens=scale.reward_tokens,
    )
    training = {
        "steps": to.steps,
        "tokens": to.tokens,
        "checkpoint_every": max(1, to.in_proportion(full.training.checkpoint_every)),
        "validate_every": max(1, to.in_proportion(full.training.validate_every)),
    }
    student = {"lr_warmup": to.in_proportion(full.student.lr_warmup)}
    result = merged(values, {"student": student, "training": training})
    result["student"]["learning_rate"] = _rate(full, scale, to)
    written = values.get("teacher", "uniform")
    teacher = {"name": written} if isinstance(written, str) else dict(written)
    result["teacher"] = teacher | full.teacher.scaled(to)
    return result


def _rate(full: RunConfig, scale: Scale, to: SizeChange) -> Values:
    """The learning rate of the small run: the same shape, with its parts in proportion."""
    rate = full.student.learning_rate
    written: Values = {"peak": scale.peak or full.student.peak(full.training.steps), "decay": rate.decay}
    if rate.decay == "warmup-stable-decay":
        written["cooldown"] = max(1, to.in_proportion(rate.cooldown))
    if rate.restart is not None:
        written["restart"] = max(1, to.in_proportion(rate.restart))
    return written
