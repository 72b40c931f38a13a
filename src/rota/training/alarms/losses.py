"""The detector of a goal that gets worse: the dev loss has left its best value by more than its noise, and stays away."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from rota.training.alarms.base import Detector
from rota.training.alarms.shares import BEFORE_CHOICES
from rota.types import Alarm, Arm, Decision, FloatArray, State

IN_A_ROW = 3
"""Validations that must be worse than the best one."""

NOISES = 5.0
"""How many standard deviations of the noise above the best a validation must be to count as worse."""

SMALLEST = 0.03
"""A rise in nats per token that is never worth an alarm."""

REMEMBERED = 100
"""Validations that are compared."""


class RisingLoss(Detector):
    """The mean dev loss over the goal's languages has been above its best for several validations.

    ``goal`` are the weights of the languages; by default all alike. ``rising`` holds as long as it goes on. The noise of
    a validation is taken from the second differences of the curve, whose variance is six times that of the noise
    where the curve itself is nearly straight; elsewhere it is overestimated, which makes the detector slower. Of a
    schedule without feedback (``listens`` false) languages that had no token since the last validation are left out of
    the mean: it does not train on them now because its config says so. Validations of a warm-up do not count.
    """

    name = "rising-loss"

    def __init__(self, goal: Mapping[Arm, float] | None = None, *, listens: bool = True) -> None:
        self.goal, self.listens = goal, listens
        self.rising = False
        self._history: list[tuple[int, dict[Arm, float]]] = []
        self._warming = False
        self._seen: dict[Arm, int] = {}  # at the last validation
        self._now: Mapping[Arm, int] = {}  # after the last update

    def updated(self, step: int, decision: Decision, loss: float, seen: Mapping[Arm, int]) -> tuple[()]:  # noqa: ARG002
        self._warming, self._now = decision.why in BEFORE_CHOICES, seen
        return ()

    def validated(self, step: int, dev_loss: Mapping[Arm, float]) -> Iterator[Alarm]:
        trained = {arm for arm in dev_loss if self._now.get(arm, 0) > self._seen.get(arm, 0)}
        self._seen = dict(self._now)
        if self._warming:
            return
        self._history = [*self._history, (step, dict(dev_loss))][-REMEMBERED:]
        counted = list(dev_loss) if self.listens or not trained else [arm for arm in dev_loss if arm in trained]
        curve = self._curve(counted)
        self.rising = worse_than_best(curve)
        if self.rising:
            best = int(np.argmin(curve))
            risen = f"the mean dev loss has risen from {curve[best]:.3f} at step {self._history[best][0]:,}"
            remedy = "look at the shares of the languages, or use the checkpoint of that step"
            yield Alarm(step, self.name, None, f"{risen} to {curve[-1]:.3f}; {remedy}.")

    def _curve(self, languages: Sequence[Arm]) -> FloatArray:
        weights = [1.0 if self.goal is None else self.goal.get(arm, 0.0) for arm in languages]
        if not sum(weights) > 0:
            weights = [1.0] * len(languages)
        losses = [[dev_loss[arm] for arm in languages] for _, dev_loss in self._history]
        return np.asarray(np.average(np.array(losses), axis=1, weights=weights))

    def state_dict(self) -> State:
        return {
            "history": [[step, dict(dev_loss)] for step, dev_loss in self._history],
            "rising": self.rising,
            "warming": self._warming,
            "seen": dict(self._seen),
            "now": dict(self._now),
        }

    def load_state_dict(self, state: State) -> None:
        self._history = [(step, dict(dev_loss)) for step, dev_loss in state["history"]]
        self.rising, self._warming = state["rising"], state["warming"]
        self._seen, self._now = dict(state["seen"]), dict(state["now"])


def worse_than_best(curve: FloatArray) -> bool:
    """Whether the last values are all above the lowest by more than the noise of the curve."""
    if len(curve) < 2 * IN_A_ROW:
        return False
    few = 1 + 4 / (len(curve) - 2)  # the noise of a short curve is not known well
    margin = max(SMALLEST, NOISES * few * noise_of(curve))
    return bool((curve[-IN_A_ROW:] > curve.min() + margin).all())


def noise_of(curve: FloatArray) -> float:
    """Standard deviation of the noise of a curve of three values or more, from its second differences."""
    return math.sqrt(float(np.mean(np.diff(curve, 2) ** 2)) / 6)
