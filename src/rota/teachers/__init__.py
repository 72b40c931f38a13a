"""The teachers: each decides what the student trains on (``ask``) and may learn from how that went (``tell``).

A config (``base.py``) is looked up by its name (``lookup.py``) in the registry below and builds its teacher from the
classroom; ``build_teacher`` puts the warm-up around it (``wrappers.py``). Its card (``card.py``) is what ``rota
teachers`` shows. Open-loop schedules are in ``static.py`` and, changing on the way, in ``scripted/``; ``controls.py``
repeats another run. Those that learn are in ``bandits/``, ``weights/``, ``paced/`` and ``dqn/``; that of ``sb3.py`` has
learned elsewhere. They turn losses into rewards (``rewards.py``) and values into choices (``choice.py``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from pydantic import PlainValidator, SerializeAsAny

from rota.teachers.align import AlignConfig
from rota.teachers.bandits.matiisen import Naive, Sampling, Window
from rota.teachers.bandits.tscl import TSCL, TSCLConfig
from rota.teachers.base import Classroom, SizeChange, TeacherConfig, WarmupConfig
from rota.teachers.caps import CapsConfig
from rota.teachers.card import Card
from rota.teachers.choice import epsilon_greedy
from rota.teachers.controls import (
    ReplayExactConfig,
    ReplayProportions,
    ReplayProportionsConfig,
    ReplayShuffled,
    ReplayShuffledConfig,
)
from rota.teachers.curricula.base import Pace
from rota.teachers.dqn.config import DQNConfig, KumarConfig
from rota.teachers.lookup import look_up
from rota.teachers.paced.ccl_m import CCLMConfig
from rota.teachers.paced.weight_change import WeightChangeConfig
from rota.teachers.rewards import dev_losses, measured
from rota.teachers.sb3 import SB3Config
from rota.teachers.scripted.late import LateConfig
from rota.teachers.scripted.temperature import AnnealedTemperature, CooldownConfig, TemperatureConfig
from rota.teachers.scripted.two_phase import TwoPhase, TwoPhaseConfig
from rota.teachers.scripted.unimax import UniMaxConfig
from rota.teachers.static import (
    FixedConfig,
    Mixed,
    MixedConfig,
    Proportional,
    ProportionalConfig,
    Static,
    Temperature,
    Uniform,
    UniformConfig,
)
from rota.teachers.weights.config import PRESET_CONFIGS, WeightsConfig
from rota.teachers.wrappers import FirstVisits, Warmup
from rota.types import Teacher

if TYPE_CHECKING:
    from rota.teachers.dqn.agent import DQN

TEACHERS: dict[str, type[TeacherConfig]] = {
    "uniform": UniformConfig,
    "proportional": ProportionalConfig,
    "temperature": TemperatureConfig,
    "fixed": FixedConfig,
    "mixed": MixedConfig,
    "cooldown": CooldownConfig,
    "unimax": UniMaxConfig,
    "two-phase": TwoPhaseConfig,
    "late": LateConfig,
    "tscl": TSCLConfig,
    "weights": WeightsConfig,
    **PRESET_CONFIGS,
    "dqn": DQNConfig,
    "kumar": KumarConfig,
    "sb3": SB3Config,
    "caps": CapsConfig,
    "align": AlignConfig,
    "ccl-m": CCLMConfig,
    "weight-change": WeightChangeConfig,
    "replay-proportions": ReplayProportionsConfig,
    "replay-shuffled": ReplayShuffledConfig,
    "replay-exact": ReplayExactConfig,
}
"""Every teacher that Rota brings. Installed packages add theirs by the entry point group ``rota.teachers``."""


def teacher_from(value: Any) -> TeacherConfig:
    """What a config says under ``teacher``: a name, a mapping with a name, or the config itself."""
    return look_up(value, TEACHERS)


AnyTeacherConfig = Annotated[TeacherConfig, PlainValidator(teacher_from), SerializeAsAny()]
"""A field that holds the config of any teacher: of Rota, of an installed package, or of a user's own module."""


def __getattr__(name: str) -> Any:
    """``DQN`` alone needs torch, so it is imported when somebody asks for it."""
    if name != "DQN":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from rota.teachers.dqn.agent import DQN

    return DQN


def build_teacher(config: TeacherConfig, classroom: Classroom, rng: np.random.Generator) -> Teacher:
    """The teacher of a config, inside its warm-up and its curriculum if it has them."""
    own, warmup_rng, around_rng = rng.spawn(3)
    teacher = config.build(classroom, own)
    if config.warmup is not None:
        arms = config.warmup_arms(classroom, config.warmup.languages)
        until = config.warmup.until.steps(classroom.steps)
        teacher = Warmup(teacher, arms, warmup_rng, until=until, inform=config.warmup.inform)
    teacher = config.around_warmup(teacher, classroom, around_rng)
    if config.curriculum is None:
        return teacher
    observe_every = config.observes_every(classroom.steps) or config.decide_every
    pace = Pace(classroom.steps, observe_every, rng.spawn(1)[0])
    return config.curriculum.wrap(teacher, classroom, pace)


__all__ = [
    "DQN",
    "TEACHERS",
    "TSCL",
    "AnnealedTemperature",
    "AnyTeacherConfig",
    "Card",
    "Classroom",
    "FirstVisits",
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
    "measured",
    "teacher_from",
]
