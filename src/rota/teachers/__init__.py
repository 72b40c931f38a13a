"""The teachers: each chooses the language of the next updates through ``ask`` and listens through ``tell``."""

from __future__ import annotations

from typing import Annotated

import numpy as np
from pydantic import BeforeValidator, Field, SerializeAsAny, WrapValidator

from rota.teachers.base import Classroom, Measurements, SizeChange, TeacherConfig, WarmupConfig
from rota.teachers.choice import epsilon_greedy
from rota.teachers.dqn import DQN
from rota.teachers.dqn_config import DQNConfig
from rota.teachers.matiisen import Naive, Sampling, Window
from rota.teachers.own import own_or_known
from rota.teachers.replay_run import (
    ReplayProportions,
    ReplayProportionsConfig,
    ReplayShuffled,
    ReplayShuffledConfig,
)
from rota.teachers.rewards import dev_losses
from rota.teachers.static import (
    FixedConfig,
    Mixed,
    MixedConfig,
    Proportional,
    ProportionalConfig,
    Static,
    Temperature,
    TemperatureConfig,
    TwoPhase,
    TwoPhaseConfig,
    Uniform,
    UniformConfig,
    named,
)
from rota.teachers.tscl import TSCL, TSCLConfig
from rota.teachers.visits import FirstVisits
from rota.teachers.warmup import Warmup
from rota.types import Teacher

TEACHERS: dict[str, type[TeacherConfig]] = {
    "uniform": UniformConfig,
    "proportional": ProportionalConfig,
    "temperature": TemperatureConfig,
    "fixed": FixedConfig,
    "mixed": MixedConfig,
    "two-phase": TwoPhaseConfig,
    "tscl": TSCLConfig,
    "dqn": DQNConfig,
    "replay-proportions": ReplayProportionsConfig,
    "replay-shuffled": ReplayShuffledConfig,
}


AnyTeacherConfig = Annotated[
    UniformConfig
    | ProportionalConfig
    | TemperatureConfig
    | FixedConfig
    | MixedConfig
    | TwoPhaseConfig
    | TSCLConfig
    | DQNConfig
    | ReplayProportionsConfig
    | ReplayShuffledConfig,
    Field(discriminator="name"),
    WrapValidator(own_or_known),
    BeforeValidator(named),
    SerializeAsAny(),
]
"""What a config may say under ``teacher``; a test holds it equal to ``TEACHERS``. ``module:Class`` is a user's own."""


def build_teacher(config: TeacherConfig, classroom: Classroom, rng: np.random.Generator) -> Teacher:
    """The teacher of a config, inside its warm-up if it has one, and what the config puts around both."""
    own, warmup_rng, around_rng = rng.spawn(3)
    teacher = config.build(classroom, own)
    if config.warmup is not None:
        arms = config.warmup_arms(classroom, config.warmup.languages)
        until = config.warmup.until.steps(classroom.steps)
        teacher = Warmup(teacher, arms, warmup_rng, until=until, inform=config.warmup.inform)
    return config.around_warmup(teacher, classroom, around_rng)


__all__ = [
    "DQN",
    "TEACHERS",
    "TSCL",
    "AnyTeacherConfig",
    "Classroom",
    "FirstVisits",
    "Measurements",
    "Mixed",
    "Naive",
    "Proportional",
    "ReplayProportions",
    "ReplayShuffled",
    "Sampling",
    "SizeChange",
    "Static",
    "TeacherConfig",
    "Temperature",
    "TwoPhase",
    "Uniform",
    "Warmup",
    "WarmupConfig",
    "Window",
    "build_teacher",
    "dev_losses",
    "epsilon_greedy",
]
