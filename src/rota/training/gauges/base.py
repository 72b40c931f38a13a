"""What every gauge starts from: how one measure of a real student is taken."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Generic, TypeVar

from rota.measures import Measure
from rota.training.devsets import DevSets
from rota.training.turns import Window
from rota.types import Decision, ProbedStudent, State

M = TypeVar("M", bound=Measure)

AVERAGE_DECAY = 0.99
"""Of the averaged weights that a measure asks for, unless ``student.average`` says otherwise: about 100 updates."""


class Gauge(ABC, Generic[M]):
    """How one measure is taken. A subclass says how in :meth:`read`, and may follow the updates in between."""

    def __init__(self, measure: M, student: ProbedStudent, sets: DevSets) -> None:
        self.measure, self.student, self.sets = measure, student, sets
        if getattr(measure, "weights", "raw") == "average":
            student.keep_average(AVERAGE_DECAY)

    @abstractmethod
    def read(self, window: Window) -> Any:
        """The value now, after the updates of the window."""

    def begin(self, decision: Decision) -> None:
        """Before the first update of a decision."""

    def updated(self, decision: Decision) -> None:
        """After each update."""

    def state_dict(self) -> State:
        return {}

    def load_state_dict(self, state: State) -> None:
        """What :meth:`state_dict` gave."""
