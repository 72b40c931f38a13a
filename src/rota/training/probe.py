"""Measures the student: only what the teacher watches, always on the same sentences. Leaves no trace on the student.

``GAUGES`` has one gauge for each measure; a teacher of a user's own can bring more (``TeacherConfig.gauges``).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, Generic, TypeVar

import numpy as np

from rota.measures import DevLoss, GroupLosses, JointLoss, Measure, TrainLoss, Weights, mean_train_loss
from rota.student.nmt import NotFiniteError
from rota.training.devsets import DevSets, Groups
from rota.training.turns import Window
from rota.types import Arm, Batch, Decision, FloatArray, ProbedStudent, SentenceLosses, State

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


class TrainLossGauge(Gauge[TrainLoss]):
    def read(self, window: Window) -> float | dict[Arm, float]:
        return mean_train_loss(self.measure, window.losses)


class DevLossGauge(Gauge[DevLoss]):
    def __init__(self, measure: DevLoss, student: ProbedStudent, sets: DevSets) -> None:
        super().__init__(measure, student, sets)
        self._before: dict[Arm, float] = {}

    @cached_property
    def batches(self) -> dict[Arm, Batch]:
        return self.sets.by_arm(self.measure)

    def begin(self, decision: Decision) -> None:
        if self.measure.when == "around" and decision.arm not in self._before:
            self._before[decision.arm] = self._loss(decision.arm)

    def read(self, window: Window) -> dict[Arm, float] | dict[Arm, tuple[float, float]]:
        arms = self.batches if self.measure.arms == "all" else window.arms
        after = {arm: self._loss(arm) for arm in arms}
        if self.measure.when == "after":
            return after
        before, self._before = self._before, {}
        return {arm: (before[arm], loss) for arm, loss in after.items() if arm in before}

    def _loss(self, arm: Arm) -> float:
        return _losses(self.student, self.batches[arm], self.measure.weights, smoothed=self.measure.smoothed).per_token

    def state_dict(self) -> State:
        return {"before": dict(self._before)} if self._before else {}

    def load_state_dict(self, state: State) -> None:
        self._before = dict(state.get("before", {}))


class JointLossGauge(Gauge[JointLoss]):
    @cached_property
    def batch(self) -> Batch:
        return self.sets.joint(self.measure)

    def read(self, window: Window) -> float:  # noqa: ARG002 - whatever was played
        return _losses(self.student, self.batch, self.measure.weights, smoothed=self.measure.smoothed).per_token


class GroupLossesGauge(Gauge[GroupLosses]):
    """Remembers the losses of groups that are not measured every time."""

    def __init__(self, measure: GroupLosses, student: ProbedStudent, sets: DevSets) -> None:
        super().__init__(measure, student, sets)
        self._losses: FloatArray | None = None
        self._turn = 0

    @cached_property
    def groups(self) -> Groups:
        return self.sets.groups(self.measure)

    def read(self, window: Window) -> FloatArray:  # noqa: ARG002 - whatever was played
        """All groups the first time, then one turn of them at each observation."""
        turns = len(self.groups.batches)
        if self._losses is None:
            self._losses = np.zeros(self.groups.count)
            due = range(turns)
        else:
            due = range(self._turn, self._turn + 1)
        for turn in due:
            self._losses[turn::turns] = self._of_turn(turn)
        self._turn = (due[-1] + 1) % turns
        return self._losses.copy()

    def _of_turn(self, turn: int) -> FloatArray:
        summed = self.measure.summed
        losses = _losses(self.student, self.groups.batches[turn], self.measure.weights, smoothed=summed)
        starts = np.concatenate([[0], np.cumsum(self.groups.sizes[turn])[:-1]])
        sums: FloatArray = np.add.reduceat(losses.sums, starts)
        return sums if summed else sums / np.add.reduceat(losses.tokens, starts)

    def state_dict(self) -> State:
        return {"prototype": self._losses, "turn": self._turn}

    def load_state_dict(self, state: State) -> None:
        self._losses, self._turn = state["prototype"], state["turn"]


Gauges = Mapping[type[Measure], type[Gauge[Any]]]

GAUGES: Gauges = {
    TrainLoss: TrainLossGauge,
    DevLoss: DevLossGauge,
    JointLoss: JointLossGauge,
    GroupLosses: GroupLossesGauge,
}


class Probe:
    """The gauges of one run. ``gauges`` are those of measures that a user's own teacher brings."""

    def __init__(self, student: ProbedStudent, sets: DevSets, gauges: Gauges | None = None) -> None:
        self.student, self.sets = student, sets
        self._kinds = {**GAUGES, **(gauges or {})}
        self._gauges: dict[Measure, Gauge[Any]] = {}
        self._states: dict[str, State] = {}  # loaded, of gauges that were not needed since

    def prepare(self, measures: Sequence[Measure]) -> None:
        """Before the run begins: everything that the teacher will watch, so that what cannot be measured is refused."""
        for measure in measures:
            self._gauge(measure)

    def begin(self, measures: Sequence[Measure], decision: Decision) -> None:
        """Before the first update of a decision."""
        for measure in measures:
            self._gauge(measure).begin(decision)

    def updated(self, measures: Sequence[Measure], decision: Decision) -> None:
        """After each update."""
        for measure in measures:
            self._gauge(measure).updated(decision)

    def read(self, step: int, measures: Sequence[Measure], window: Window) -> dict[Measure, Any]:
        """What the teacher is told after the updates up to ``step``."""
        measured = {measure: self._gauge(measure).read(window) for measure in measures}
        for value in measured.values():
            _check_finite(step, value)
        return measured

    def validate(self, step: int) -> dict[Arm, float]:
        """The dev loss of every language on the sentences no teacher sees, nats per token."""
        losses = self.student.losses(list(self.sets.validation.values()))
        ends = np.cumsum([batch.sentences for batch in self.sets.validation.values()])
        sums, tokens = (np.add.reduceat(values, [0, *ends[:-1]]) for values in losses)
        _check_finite(step, sums)
        return dict(zip(self.sets.validation, (sums / tokens).tolist(), strict=True))

    def _gauge(self, measure: Measure) -> Gauge[Any]:
        if measure not in self._gauges:
            kind = self._kinds.get(type(measure))
            if kind is None:
                known = ", ".join(known.__name__ for known in self._kinds)
                remedy = "return its gauge from the method 'gauges' of the teacher's config"
                raise ValueError(f"no gauge for {measure}; there is one for {known}; {remedy}")
            self._gauges[measure] = gauge = kind(measure, self.student, self.sets)
            if _key(measure) in self._states:
                gauge.load_state_dict(self._states.pop(_key(measure)))
        return self._gauges[measure]

    def state_dict(self) -> State:
        """The group losses lie at the top, where version 0.1 had them; the others under the names of the measures."""
        states = {**self._states, **{_key(measure): gauge.state_dict() for measure, gauge in self._gauges.items()}}
        top = states.pop(_GROUPS, {"prototype": None, "turn": 0})
        others = {name: state for name, state in states.items() if state}
        return {**top, "gauges": others} if others else top

    def load_state_dict(self, state: State) -> None:
        states = dict(state.get("gauges", {}))
        if state["prototype"] is not None:
            states[_GROUPS] = {name: state[name] for name in ("prototype", "turn")}
        for measure, gauge in self._gauges.items():
            if _key(measure) in states:
                gauge.load_state_dict(states.pop(_key(measure)))
        self._states = states


_GROUPS = GroupLosses.__name__


def _key(measure: Measure) -> str:
    """Of a gauge's state in a checkpoint; a teacher has one prototype at most."""
    return _GROUPS if isinstance(measure, GroupLosses) else str(measure)


def _losses(student: ProbedStudent, batch: Batch, weights: Weights, *, smoothed: bool) -> SentenceLosses:
    return student.losses([batch], smoothed=smoothed, weights=weights)


def _check_finite(step: int, value: Any) -> None:
    """A student that has diverged must not be saved as if all were well."""
    if isinstance(value, Mapping):
        value = list(value.values())
    if not np.isfinite(np.asarray(value, dtype=float)).all():
        raise NotFiniteError(f"a dev loss at step {step} is not a finite number; try a lower learning rate.")
