"""From a full-size run to one that a laptop finishes: the one place that says what shrinks, and how."""

from __future__ import annotations

import math
from typing import Any

from pydantic import Field

from rota.checks import check_durations
from rota.config import RunConfig, parse_config
from rota.experiments.values import Values, merged
from rota.settings import ConfigError, Count, Duration, Settings
from rota.student.config import Schedule, StudentConfig
from rota.teachers import TeacherConfig
from rota.teachers.bandits.tscl import TSCLConfig
from rota.teachers.controls import ReplayProportionsConfig, ReplayShuffledConfig
from rota.teachers.dqn.config import DQNConfig


class Scale(Settings):
    """The size of the small run."""

    steps: Count | None = Field(None, ge=1, description="updates; null: as many as in the full-size run")
    tokens: Count | None = Field(None, ge=1, description="target tokens of a batch; null: as in the full-size run")
    peak: float | None = Field(None, gt=0, description="highest learning rate; null: that of the full-size run")
    more_decisions: int = Field(
        1, ge=1, description="how many times as often DQN decides, with as small a part renewed"
    )


def scaled(values: Values, scale: Scale) -> Values:
    """The config ``values`` in the size of ``scale``; all numbers that follow from it are written out.

    Durations (those of the teacher, warm-up and checkpoints of the training) keep their share of the run. Beyond that:

    - The learning rate keeps its *peak*: that of ``values``, or ``scale.peak``, tuned for the small run. The Noam
      factor would raise it: its peak falls with the square root of the warm-up, which is shorter here.
    - TSCL decides as often as before, counted in updates. DQN decides ``scale.more_decisions`` times as often and
      renews as small a part of its state each time: the whole is as old as before, at about the same cost. A teacher
      that replays it decides as often.
    - Replay minimum and capacity keep their share of the decisions after the warm-up (the paper's 1k and 10k of
      13,400: 7.5 % and 75 %); a minibatch is at most the minimum.
    - ``tau`` moves the target network as far in the same share of a run: ``1 - (1 - tau) ** (updates of the Q network
      before / now)``. A large ``tau`` saturates: the paper's 0.5 and 0.995 become 1 within a millionth at 1,500 steps.
    - A reward batch has as many tokens as a training batch.

    ``gamma`` and the Q network's learning rate stay: they belong to a decision and to an update, not to a run.
    """
    full = parse_config(values)
    check_durations(full)
    steps, tokens = scale.steps or full.training.steps, scale.tokens or full.training.tokens
    share = steps / full.training.steps
    training = {
        "steps": steps,
        "tokens": tokens,
        "checkpoint_every": max(1, _in_proportion(full.training.checkpoint_every, full, share)),
        "validate_every": max(1, _in_proportion(full.training.validate_every, full, share)),
    }
    lr_warmup = _in_proportion(full.student.lr_warmup, full, share)
    result = merged(values, {"student": {"lr_warmup": lr_warmup}, "training": training})
    rate = {"peak": scale.peak or _peak(full), "decay": full.student.learning_rate.decay}
    result["student"]["learning_rate"] = rate
    result["teacher"] = _teacher(values, full, steps, tokens, scale.more_decisions)
    return result


def _in_proportion(duration: Duration, full: RunConfig, share: float) -> int:
    return round(duration.steps(full.training.steps) * share)


def _peak(full: RunConfig) -> float:
    """The highest learning rate of the full-size run."""
    student: StudentConfig = full.student
    if student.learning_rate.peak is not None:
        return student.learning_rate.peak
    assert student.learning_rate.scale is not None
    warmup = student.lr_warmup.steps(full.training.steps)
    width = student.shape(vocabulary=4).width
    return Schedule.from_scale(student.learning_rate.scale, width=width, warmup=warmup).peak


def _teacher(values: Values, full: RunConfig, steps: int, tokens: int, more_decisions: int) -> Values:
    teacher: TeacherConfig = full.teacher
    written = values.get("teacher", "uniform")
    result: Values = {"name": written} if isinstance(written, str) else dict(written)
    share = steps / full.training.steps
    result |= _durations(teacher, full, share)
    if teacher.warmup is not None:
        given = teacher.warmup.model_dump(mode="json")
        result["warmup"] = given | {"until": _in_proportion(teacher.warmup.until, full, share)}
    if isinstance(teacher, DQNConfig | TSCLConfig):
        result["reward_tokens"] = tokens
    if isinstance(teacher, ReplayProportionsConfig | ReplayShuffledConfig):
        result["decide_every"] = max(1, teacher.decide_every // more_decisions)
    if isinstance(teacher, DQNConfig):
        result |= _dqn(teacher, full, steps, more_decisions)
    return result


def _durations(teacher: TeacherConfig, full: RunConfig, share: float) -> Values:
    """The settings of a teacher, its own and those of teachers inside it, that change with the length of the run."""
    before = teacher.model_dump(mode="json")
    now = _resized(teacher, full, share).model_dump(mode="json")
    return {name: value for name, value in now.items() if value != before[name]}


def _resized(value: Any, full: RunConfig, share: float) -> Any:
    """The value with every number of steps in it in proportion; a share of the run is that already."""
    if isinstance(value, Duration):
        fixed = value.is_share or value.amount == 0
        return value if fixed else Duration(max(1, _in_proportion(value, full, share)))
    if isinstance(value, Settings):
        return value.model_copy(update={name: _resized(inner, full, share) for name, inner in value})
    if isinstance(value, dict):
        return {key: _resized(inner, full, share) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return type(value)([_resized(inner, full, share) for inner in value])
    return value


def _dqn(teacher: DQNConfig, full: RunConfig, steps: int, more_decisions: int) -> dict[str, Any]:
    share = steps / full.training.steps
    every = max(1, teacher.decide_every // more_decisions)
    parts = teacher.state_measure.refresh_every * (teacher.decide_every // every)
    warmup = 0 if teacher.warmup is None else teacher.warmup.until.steps(full.training.steps)
    before = _decisions(teacher, full.training.steps, warmup)
    now = (steps - round(warmup * share)) // every
    minimum = max(1, round(teacher.replay_minimum * now / before))
    # The first decision after the warm-up has no state yet, and an update needs the minimum of transitions.
    updates_before, updates_now = before - teacher.replay_minimum, now - minimum
    return {
        "decide_every": every,
        "refresh": "1" if parts == 1 else f"1/{parts}",
        "epsilon_steps": _in_proportion(teacher.epsilon_steps, full, share),
        "replay_minimum": minimum,
        "replay_capacity": max(minimum, round(teacher.replay_capacity * now / before)),
        "replay_batch": min(teacher.replay_batch, minimum),
        "tau": same_fraction(teacher.tau, updates_before, updates_now),
    }


def _decisions(teacher: DQNConfig, steps: int, warmup: int) -> int:
    """How many follow the warm-up; where there is none, a replay memory has nothing to keep a share of."""
    decisions = (steps - warmup) // teacher.decide_every
    if not decisions:
        left = f"teacher.warmup leaves {steps - warmup:,} of {steps:,} steps"
        remedy = "shorten teacher.warmup, for example to 10%, or lower teacher.decide_every"
        raise ConfigError(f"{left} and DQN decides every {teacher.decide_every}: too few for another size; {remedy}")
    return decisions


def same_fraction(tau: float, updates_before: int, updates_now: int) -> float:
    """The ``tau`` with which ``updates_now`` soft updates move a network as far as ``updates_before`` did."""
    if updates_before == updates_now or updates_before <= 0 or updates_now <= 0:
        return tau
    return 1.0 - math.pow(1.0 - tau, updates_before / updates_now)
