"""Measures the student: only what the teacher watches, always on the same sentences. Leaves no trace on the student."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rota.measures import GroupLosses, Measure, Weights
from rota.student.likelihood import TEMPERATURES, Fit, fits
from rota.student.optimiser import NotFiniteError
from rota.training.devsets import DevSets
from rota.training.gauges import GAUGES, Gauge, Gauges
from rota.training.turns import Window
from rota.types import Arm, Decision, ProbedStudent, State

__all__ = ["Gauge", "Probe"]


@dataclass(frozen=True)
class Validation:
    """How well every language is predicted, and how well with averaged weights if the student keeps them."""

    fits: Mapping[Arm, Fit]
    averaged: Mapping[Arm, Fit] | None = None

    @property
    def dev_loss(self) -> dict[Arm, float]:
        """Nats per token."""
        return {arm: fit.loss for arm, fit in self.fits.items()}

    @property
    def calibrated_loss(self) -> dict[Arm, float]:
        """The same at the best softmax temperature."""
        return {arm: fit.calibrated for arm, fit in self.fits.items()}

    def record(self) -> dict[str, Any]:
        """For ``validations.jsonl``."""
        averaged = {} if self.averaged is None else {"average": _by_measure(self.averaged)}
        return {**_by_measure(self.fits), **averaged}


def _by_measure(fits: Mapping[Arm, Fit]) -> dict[str, dict[Arm, float]]:
    return {
        "dev_loss": {arm: fit.loss for arm, fit in fits.items()},
        "calibrated_loss": {arm: fit.calibrated for arm, fit in fits.items()},
        "temperature": {arm: fit.temperature for arm, fit in fits.items()},
        "accuracy": {arm: fit.accuracy for arm, fit in fits.items()},
    }


class Probe:
    """The gauges of one run. ``gauges`` are those of measures that a user's own teacher brings.

    ``averaged``: the student keeps a moving average of its weights, which is validated too.
    """

    def __init__(
        self, student: ProbedStudent, sets: DevSets, gauges: Gauges | None = None, *, averaged: bool = False
    ) -> None:
        self.student, self.sets, self._averaged = student, sets, averaged
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

    def validate(self, step: int) -> Validation:
        """Every language on the sentences no teacher sees, in one pass; in a second one the averaged weights."""
        return Validation(self._fits(step, "raw"), self._fits(step, "average") if self._averaged else None)

    def _fits(self, step: int, weights: Weights) -> dict[Arm, Fit]:
        sets = self.sets.validation
        examined = self.student.examine(list(sets.values()), temperatures=TEMPERATURES, weights=weights)
        _check_finite(step, examined.sums)
        return dict(zip(sets, fits(examined, [batch.sentences for batch in sets.values()]), strict=True))

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


def _check_finite(step: int, value: Any) -> None:
    """A student that has diverged must not be saved as if all were well."""
    if isinstance(value, Mapping | tuple):
        for inner in value.values() if isinstance(value, Mapping) else value:
            _check_finite(step, inner)
    elif not np.isfinite(np.asarray(value, dtype=float)).all():
        raise NotFiniteError(f"a dev loss at step {step} is not a finite number; try a lower learning rate.")
