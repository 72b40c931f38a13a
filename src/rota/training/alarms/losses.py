"""The detector of a goal that gets worse: the dev loss is above its best value by more than its noise, and stays so."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

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


class _Validation(NamedTuple):
    step: int
    losses: dict[Arm, float]
    trained: frozenset[Arm]  # languages with tokens since the validation before


class RisingLoss(Detector):
    """The mean dev loss over the goal's languages has been above its best for several validations.

    ``goal`` are the weights of the languages; by default all alike. ``language_of`` gives the language of each arm.
    ``rising`` holds as long as it goes on; ``stalled`` counts the validations since the last one that was clearly the
    best so far, noise or not.

    A schedule without feedback (``listens`` false) leaves languages out because its config says so, for a phase or for
    good. Its mean is over the languages that it trains on now, at the validations since it does. Validations of a
    warm-up do not count.
    """

    name = "rising-loss"

    def __init__(
        self,
        goal: Mapping[Arm, float] | None = None,
        *,
        listens: bool = True,
        language_of: Mapping[Arm, Arm] | None = None,
    ) -> None:
        self.goal, self.listens, self.language_of = goal, listens, language_of or {}
        self.rising, self.stalled, self._lowest = False, 0, math.inf
        self._history: list[_Validation] = []
        self._warming = False
        self._seen: dict[Arm, int] = {}  # at the last validation
        self._now: Mapping[Arm, int] = {}  # after the last update

    def updated(self, step: int, decision: Decision, loss: float, seen: Mapping[Arm, int]) -> tuple[()]:  # noqa: ARG002
        self._warming, self._now = decision.why in BEFORE_CHOICES, seen
        return ()

    def validated(self, step: int, dev_loss: Mapping[Arm, float]) -> Iterator[Alarm]:
        fed = {self.language_of.get(arm, arm) for arm, now in self._now.items() if now > self._seen.get(arm, 0)}
        trained = frozenset(language for language in dev_loss if language in fed)
        self._seen = dict(self._now)
        if self._warming:
            return
        self._history = [*self._history, _Validation(step, dict(dev_loss), trained)][-REMEMBERED:]
        counted = list(dev_loss) if self.listens else [arm for arm in dev_loss if arm in trained]
        looks = [look for look in self._history if self.listens or look.trained.issuperset(counted)]
        curve = self._curve(looks, counted)
        self.rising = worse_than_best(curve)
        self._follow(float(curve[-1]) if len(curve) else math.inf)
        if self.rising:
            best = int(np.argmin(curve))
            risen = f"the mean dev loss has risen from {curve[best]:.3f} at step {looks[best].step:,}"
            remedy = "look at the shares of the languages, or use the checkpoint of that step"
            yield Alarm(step, self.name, None, f"{risen} to {curve[-1]:.3f}; {remedy}.")

    def _follow(self, loss: float) -> None:
        if loss < self._lowest - SMALLEST:
            self._lowest, self.stalled = loss, 0
        else:
            self.stalled += 1

    def _curve(self, looks: Sequence[_Validation], languages: Sequence[Arm]) -> FloatArray:
        if not languages:
            return np.zeros(0)
        weights = [1.0 if self.goal is None else self.goal.get(arm, 0.0) for arm in languages]
        if not sum(weights) > 0:
            weights = [1.0] * len(languages)
        losses = [[look.losses[arm] for arm in languages] for look in looks]
        return np.asarray(np.average(np.array(losses), axis=1, weights=weights))

    def state_dict(self) -> State:
        return {
            "history": [[look.step, dict(look.losses), sorted(look.trained)] for look in self._history],
            "rising": self.rising,
            "stalled": self.stalled,
            "lowest": self._lowest if self._history else None,  # JSON has no infinity
            "warming": self._warming,
            "seen": dict(self._seen),
            "now": dict(self._now),
        }

    def load_state_dict(self, state: State) -> None:
        self._history = [_Validation(step, dict(losses), frozenset(arms)) for step, losses, arms in state["history"]]
        self.rising, self.stalled, self._warming = state["rising"], state["stalled"], state["warming"]
        self._lowest = math.inf if state["lowest"] is None else state["lowest"]
        self._seen, self._now = dict(state["seen"]), dict(state["now"])


def worse_than_best(curve: FloatArray) -> bool:
    """Whether the last values are all above the lowest by more than the noise of the curve."""
    if len(curve) < 2 * IN_A_ROW:
        return False
    few = 1 + 4 / (len(curve) - 2)  # the noise of a short curve is not known well
    margin = max(SMALLEST, NOISES * few * noise_of(curve))
    return bool((curve[-IN_A_ROW:] > curve.min() + margin).all())


def noise_of(curve: FloatArray) -> float:
    """Standard deviation of the noise of a curve of four values or more, from its third differences.

    Their variance is 1 + 9 + 9 + 1 = 20 times that of the noise, where the curve itself is nearly a parabola. Elsewhere
    the noise is overestimated, which makes the detector slower, not more excitable.
    """
    return math.sqrt(float(np.mean(np.diff(curve, 3) ** 2)) / 20)
