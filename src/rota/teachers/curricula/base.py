"""What every curriculum starts from: a wrapper of any teacher that adds to its decisions."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar, NamedTuple

import numpy as np

from rota.measures import Measure
from rota.settings import Settings
from rota.types import Alarm, Arm, Decision, Observation, RaisesAlarms, State, Teacher

if TYPE_CHECKING:
    from rota.teachers.base import Classroom
    from rota.teachers.card import Card

Found = Mapping[Measure, float | Mapping[Arm, float]]
"""What was measured: a number, or one for each arm."""


class Pace(NamedTuple):
    """The clock of a run: how long it is, and how often the teacher is told; and a generator, for those who draw."""

    steps: int
    observe_every: int
    rng: np.random.Generator

    def next_tell(self, step: int) -> int:
        """The step at which the teacher is told of the choice made after ``step`` completed updates."""
        return (step // self.observe_every + 1) * self.observe_every


class CurriculumConfig(Settings, ABC):
    """Base of the configs of curricula; ``wrap`` puts one around a teacher."""

    card: ClassVar[Card | None] = None

    for_one_process: ClassVar[str | None] = None
    """Why several processes cannot train a run with it, and what to do; None if they can."""

    if TYPE_CHECKING:
        name: str

    @abstractmethod
    def wrap(self, teacher: Teacher, classroom: Classroom, pace: Pace) -> Curriculum: ...

    def check(self, steps: int) -> None:
        """Raises ConfigError if these settings cannot work in a run of ``steps`` steps."""


class Curriculum(ABC):
    """Lets the teacher inside choose, and adds to what it has chosen.

    A subclass that watches something itself checks an observation before the teacher inside is told, and learns from it
    afterwards, so that an observation which either of them refuses leaves no trace.
    """

    def __init__(self, teacher: Teacher) -> None:
        self.teacher = teacher

    @property
    def watches(self) -> Sequence[Measure]:
        return (*self.teacher.watches, *(measure for measure in self.due if measure not in self.teacher.watches))

    @property
    def due(self) -> Sequence[Measure]:
        """What it wants to have measured for the next ``tell`` itself; before the first ``ask``, everything."""
        return ()

    def ask(self, step: int) -> Decision:
        return self.added(step, self.teacher.ask(step))

    @abstractmethod
    def added(self, step: int, decision: Decision) -> Decision:
        """The decision of the teacher inside, with a selection or weights."""

    def tell(self, observation: Observation) -> Mapping[Arm, float] | None:
        found = {measure: _checked(observation, measure) for measure in self.due}
        rewards = self.teacher.tell(observation)
        self.learn(observation.step, found)
        return rewards

    def learn(self, step: int, found: Found) -> None:  # noqa: B027 - only some watch anything
        """From what was due, checked already."""

    def alarms(self, step: int) -> Iterable[Alarm]:
        return self.teacher.alarms(step) if isinstance(self.teacher, RaisesAlarms) else ()

    def state_dict(self) -> State:
        return {"teacher": self.teacher.state_dict()}

    def load_state_dict(self, state: State) -> None:
        self.teacher.load_state_dict(state["teacher"])


def competence(passed: float, start: float, power: float = 2.0) -> float:
    """What share of the sentences the student is ready for, after the share ``passed`` of the way to all of them.

    It grows from ``start`` to 1 with the root of the way (Platanios et al. 2019): the more sentences there are, the
    longer it takes to see the new ones.
    """
    first = start**power
    grown: float = (max(0.0, passed) * (1 - first) + first) ** (1 / power)
    return min(1.0, grown)


def _checked(observation: Observation, measure: Measure) -> float | Mapping[Arm, float]:
    step = observation.step
    if measure not in observation.measured:
        raise ValueError(f"step {step}: the observation has no {measure}; measure what the teacher watches")
    found: float | Mapping[Arm, float] = observation.measured[measure]
    values = found.values() if isinstance(found, Mapping) else [found]
    for value in values:
        if not math.isfinite(value):
            raise ValueError(f"step {step}: {measure} has {value}: the student diverged; lower the learning rate")
    return found
