"""How far the student's weights move between two observations."""

from __future__ import annotations

import numpy as np

from rota.measures import WeightChange
from rota.training.devsets import DevSets
from rota.training.gauges.base import Gauge
from rota.training.turns import Window
from rota.types import Decision, FloatArray, ProbedStudent, State


class WeightChangeGauge(Gauge[WeightChange]):
    """Remembers mean and deviation of every weight matrix before the first update that counts, not the matrices."""

    def __init__(self, measure: WeightChange, student: ProbedStudent, sets: DevSets) -> None:
        super().__init__(measure, student, sets)
        self._before: FloatArray | None = None

    def begin(self, decision: Decision) -> None:  # noqa: ARG002 - whatever is played
        if self._before is None:
            self._before = self.student.weight_moments()

    def read(self, window: Window) -> float:  # noqa: ARG002 - whatever was played
        assert self._before is not None, "no decision came before"
        before, self._before = self._before, None
        return symmetric_divergence(before, self.student.weight_moments())

    def state_dict(self) -> State:
        return {} if self._before is None else {"moments": self._before}

    def load_state_dict(self, state: State) -> None:
        self._before = np.asarray(state["moments"]) if "moments" in state else None


def symmetric_divergence(before: FloatArray, now: FloatArray) -> float:
    """KL(p, q) + KL(q, p) of normal distributions given by rows of mean and deviation, averaged over the rows."""
    variance = [np.maximum(moments[:, 1] ** 2, 1e-24) for moments in (before, now)]
    shift = (before[:, 0] - now[:, 0]) ** 2
    divergence = ((variance[0] + shift) / variance[1] + (variance[1] + shift) / variance[0]) / 2 - 1
    return float(divergence.mean())
