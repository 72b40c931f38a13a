"""The teacher: draws arms from a distribution that a signal and an update rule change in the course of a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np

from rota.measures import Measure
from rota.teachers.rewards import SCALES, Reward
from rota.teachers.weights.rules import Rule, floored
from rota.teachers.weights.signals import Signal
from rota.types import Arm, Decision, FloatArray, Observation, State

Scale = Literal["none", "across-arms", "min-max", "quantiles", "z-score"]


class WeightedTeacher:
    """Draws arms from a distribution; ``signal`` and ``rule`` change it every ``reweight_every`` updates.

    ``bound``: draw from the prior instead, and weigh the loss of each arm by share / prior within this bound.
    """

    def __init__(
        self,
        arms: Sequence[Arm],
        rng: np.random.Generator,
        signal: Signal,
        rule: Rule,
        *,
        scale: Scale = "none",
        floor: float = 0.01,
        bound: float | None = None,
        start: int = 0,
        reweight_every: int = 1,
        observe_every: int = 1,
        corpus: Sequence[Arm] = (),
    ) -> None:
        self.arms, self.signal, self.rule = tuple(arms), signal, rule
        self.scale, self.floor, self.bound = scale, floor, bound
        self.start, self.reweight_every, self.observe_every = start, reweight_every, observe_every
        self._rng = rng
        self._nothing = dict.fromkeys(corpus, 0.0)  # the share of arms that are never played
        self._over_time: Reward | None = SCALES[scale](_AsItIs()) if scale in ("quantiles", "z-score") else None
        self._inverse = dict.fromkeys(self.arms, 0.0)  # sums of 1 / probability, by arm played since the last change
        self._choices = 0
        self._new: dict[Arm, None] = {}  # arms with a new value since then, in order
        self._measuring = True  # whether the choice in progress will be measured

    @property
    def shares_K(self) -> FloatArray:
        """The distribution that the signal and the rule ask for."""
        return floored(self.rule.shares_K, self.floor)

    @property
    def watches(self) -> Sequence[Measure]:
        return self.signal.measures if self._measuring else ()

    def ask(self, step: int) -> Decision:
        self._measuring = (step // self.observe_every + 1) * self.observe_every >= self.start
        shares_K = self.shares_K
        drawn_K = shares_K if self.bound is None else self.rule.prior_K
        index = min(int(np.searchsorted(np.cumsum(drawn_K), self._rng.random(), side="right")), len(self.arms) - 1)
        scores = self._nothing | dict(zip(self.arms, shares_K.tolist(), strict=True))
        weights = None if self.bound is None else self._loss_weights(shares_K, self.bound)
        return Decision(self.arms[index], "sampled", float(drawn_K[index]), scores, weights=weights)

    def _loss_weights(self, shares_K: FloatArray, bound: float) -> dict[Arm, float]:
        weights_K = np.clip(shares_K / self.rule.prior_K, 1 / bound, bound)
        return dict(zip(self.arms, weights_K.tolist(), strict=True))

    def tell(self, observation: Observation) -> dict[Arm, float] | None:
        """Every observation is heard; the weights change when it is time. Returns the values that changed them."""
        if not self._measuring:
            return None
        self._new |= dict.fromkeys(self.signal.hear(observation))
        for decision, _ in observation.plays:
            self._choices += 1
            if decision.arm in self._inverse and decision.probability is not None:
                self._inverse[decision.arm] += 1 / decision.probability
        if observation.step < self.start or observation.step % self.reweight_every:
            return None
        values = self._scaled(self.signal.values())
        if values:
            values_K = np.array([values.get(arm, np.nan) for arm in self.arms])
            self.rule.update(values_K, np.array([self._inverse[arm] for arm in self.arms]) / self._choices)
        self.signal.weights_changed()
        self._inverse, self._choices, self._new = dict.fromkeys(self.arms, 0.0), 0, {}
        return values

    def _scaled(self, values: Mapping[Arm, float]) -> dict[Arm, float]:
        if self._over_time is not None:
            scaled = {arm: self._over_time(arm, values[arm]) for arm in self._new}
            return {arm: value for arm, value in scaled.items() if value is not None}
        if not values or self.scale == "none":
            return dict(values)
        array = np.array(list(values.values()))
        if self.scale == "across-arms":
            array = (array - array.mean()) / (array.std() or 1.0)
        else:
            array = (array - array.min()) / (np.ptp(array) or 1.0)
        return dict(zip(values, array.tolist(), strict=True))

    def state_dict(self) -> State:
        return {
            "rng": self._rng.bit_generator.state,
            "signal": self.signal.state_dict(),
            "rule": self.rule.state_dict(),
            "scale": {} if self._over_time is None else self._over_time.state_dict(),
            "inverse": dict(self._inverse),
            "choices": self._choices,
            "new": list(self._new),
            "measuring": self._measuring,
        }

    def load_state_dict(self, state: State) -> None:
        self._rng.bit_generator.state = state["rng"]
        self.signal.load_state_dict(state["signal"])
        self.rule.load_state_dict(state["rule"])
        if self._over_time is not None:
            self._over_time.load_state_dict(state["scale"])
        self._inverse, self._choices = dict(state["inverse"]), state["choices"]
        self._new, self._measuring = dict.fromkeys(state["new"]), state["measuring"]


class _AsItIs:
    """A value that is a reward already."""

    def __call__(self, arm: Arm, loss: float) -> float:  # noqa: ARG002
        return loss

    def state_dict(self) -> State:
        return {}

    def load_state_dict(self, state: State) -> None:
        """It remembers nothing."""
