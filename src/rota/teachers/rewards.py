"""Loss histories to rewards, each a named choice. Losses are nats per token; a gain is a loss that went down.

A positive gain is good. The paper's score X is the negative loss, so its R = X now - X before is our
``gain = loss before - loss now``.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from typing import Any, Final, Literal, Protocol

import numpy as np

from rota.measures import DevLoss, JointGain, JointLoss, Measure
from rota.types import Arm, Checkpointable, FloatArray, Observation, State

FirstReward = Literal["raw", "skip", "untried"]
RewardName = Literal["same-arm-gain", "step-gain", "gain-over-mean"]
ScaleName = Literal["none", "quantiles", "z-score", "advantage"]

HORIZON: Final = 20
"""Gains over which the expectation of an advantage reaches back, about: two or three of each of eight arms."""


class Reward(Checkpointable, Protocol):
    """Remembers losses and says what the newest one gained."""

    def __call__(self, arm: Arm, loss: float) -> float | None:
        """The gain of playing ``arm`` after which its loss is ``loss``; None if there is nothing to compare with."""
        ...


class SameArmGain:
    """Previous loss minus loss, both after playing the same arm (TSCL: H in Algorithm 1).

    Algorithm 1 starts with a history of 0: the first reward of an arm is then minus its loss (``raw``), which its
    absolute value turns into a strong invitation. ``skip`` waits for the second loss instead.
    """

    def __init__(self, first_reward: FirstReward = "raw") -> None:
        self.first_reward = first_reward
        self._losses: dict[Arm, float] = {}

    def __call__(self, arm: Arm, loss: float) -> float | None:
        previous_loss = self._losses.get(arm, 0.0 if self.first_reward == "raw" else None)
        self._losses[arm] = loss
        return None if previous_loss is None else previous_loss - loss

    def state_dict(self) -> State:
        return {"losses": dict(self._losses)}

    def load_state_dict(self, state: State) -> None:
        self._losses = dict(state["losses"])


class StepGain:
    """Previous loss minus loss, whatever was played (DQN: X_t - X_{t-1} in Algorithm 2)."""

    def __init__(self) -> None:
        self._loss: float | None = None

    def __call__(self, arm: Arm, loss: float) -> float | None:  # noqa: ARG002 - whatever was played
        previous_loss, self._loss = self._loss, loss
        return None if previous_loss is None else previous_loss - loss

    def state_dict(self) -> State:
        return {"loss": self._loss}

    def load_state_dict(self, state: State) -> None:
        self._loss = state["loss"]


class GainOverMean:
    """Mean of the last losses, at most ``window`` of them, minus the loss now (DQN in the released code)."""

    def __init__(self, window: int = 100) -> None:
        self._losses: deque[float] = deque(maxlen=window)

    def __call__(self, arm: Arm, loss: float) -> float | None:  # noqa: ARG002 - whatever was played
        gain = sum(self._losses) / len(self._losses) - loss if self._losses else None
        self._losses.append(loss)
        return gain

    def state_dict(self) -> State:
        return {"losses": list(self._losses)}

    def load_state_dict(self, state: State) -> None:
        self._losses = deque(state["losses"], maxlen=self._losses.maxlen)


class MeasuredGain:
    """The gain itself, where loss before and loss now were measured together (:class:`rota.measures.JointGain`)."""

    def __call__(self, arm: Arm, loss: float) -> float | None:  # noqa: ARG002 - whatever was played
        return loss

    def state_dict(self) -> State:
        return {}

    def load_state_dict(self, state: State) -> None:
        """There is nothing to remember."""


class QuantileScaled:
    """A gain mapped so that the 20 % and 80 % quantiles of the last gains become -1 and 1, clipped there.

    Graves et al. 2017 scale so; they keep a sample of all gains, we the last ``window``. While all are equal it is 0.
    """

    def __init__(self, reward: Reward, *, lower: float = 0.2, upper: float = 0.8, window: int = 1_000) -> None:
        self.reward, self.lower, self.upper = reward, lower, upper
        self._gains: deque[float] = deque(maxlen=window)

    def __call__(self, arm: Arm, loss: float) -> float | None:
        gain = self.reward(arm, loss)
        if gain is None:
            return None
        self._gains.append(gain)
        low, high = np.quantile(self._gains, [self.lower, self.upper])
        return float(np.clip(2 * (gain - low) / (high - low) - 1, -1, 1)) if high > low else 0.0

    def state_dict(self) -> State:
        return {"reward": self.reward.state_dict(), "gains": list(self._gains)}

    def load_state_dict(self, state: State) -> None:
        self.reward.load_state_dict(state["reward"])
        self._gains = deque(state["gains"], maxlen=self._gains.maxlen)


class ZScored:
    """A gain minus the mean of all gains so far, in units of their standard deviation; 0 while that is 0."""

    def __init__(self, reward: Reward) -> None:
        self.reward = reward
        self._count, self._mean, self._squares = 0, 0.0, 0.0  # squares: sum of squared deviations (Welford)

    def __call__(self, arm: Arm, loss: float) -> float | None:
        gain = self.reward(arm, loss)
        if gain is None:
            return None
        self._count += 1
        deviation = gain - self._mean
        self._mean += deviation / self._count
        self._squares += deviation * (gain - self._mean)
        spread = math.sqrt(self._squares / self._count)
        return (gain - self._mean) / spread if spread > 0 else 0.0

    def state_dict(self) -> State:
        sums = {"count": self._count, "mean": self._mean, "squares": self._squares}
        return {"reward": self.reward.state_dict(), **sums}

    def load_state_dict(self, state: State) -> None:
        self.reward.load_state_dict(state["reward"])
        self._count, self._mean, self._squares = state["count"], state["mean"], state["squares"]


class Advantage:
    """A gain minus the gain that was to be expected, in units of the usual error of that expectation.

    The loss falls anyway, fast at first and slowly later, so most of a gain says when it was measured and not what was
    played. The expectation is the exponentially smoothed mean of the gains before this one: the n-th gain enters with
    the weight max(1 / n, 1 / ``horizon``). The unit is the root of the squared errors, smoothed in the same way, this
    one included, so that no advantage exceeds the root of ``horizon``. The first gain has no advantage.
    """

    def __init__(self, reward: Reward, *, horizon: int = HORIZON) -> None:
        self.reward, self.horizon = reward, horizon
        self._count, self._mean, self._square = 0, 0.0, 0.0

    def __call__(self, arm: Arm, loss: float) -> float | None:
        gain = self.reward(arm, loss)
        if gain is None:
            return None
        error = gain - self._mean
        self._count += 1
        self._mean += error * max(1 / self._count, 1 / self.horizon)
        if self._count == 1:
            return 0.0
        self._square += (error**2 - self._square) * max(1 / (self._count - 1), 1 / self.horizon)
        return error / math.sqrt(self._square) if self._square > 0 else 0.0

    def state_dict(self) -> State:
        sums = {"count": self._count, "mean": self._mean, "square": self._square}
        return {"reward": self.reward.state_dict(), **sums}

    def load_state_dict(self, state: State) -> None:
        self.reward.load_state_dict(state["reward"])
        self._count, self._mean, self._square = state["count"], state["mean"], state["square"]


REWARDS: dict[RewardName, Callable[[], Reward]] = {
    "same-arm-gain": lambda: SameArmGain("skip"),
    "step-gain": StepGain,
    "gain-over-mean": GainOverMean,
}
SCALES: dict[ScaleName, Callable[[Reward], Reward]] = {
    "none": lambda reward: reward,
    "quantiles": QuantileScaled,
    "z-score": ZScored,
    "advantage": Advantage,
}


def gain_per_step(steps: FloatArray, losses: FloatArray) -> float:
    """How much the loss falls in a step: minus the slope of the least-squares line through the points."""
    centred = steps - steps.mean()
    return -float(centred @ (losses - losses.mean()) / (centred @ centred))


def measured(observation: Observation, measure: Measure) -> Any:
    """The value of a measure; refuses an observation without it."""
    if measure not in observation.measured:
        raise ValueError(f"step {observation.step}: the observation has no {measure}; measure what the teacher watches")
    return observation.measured[measure]


def dev_losses(observation: Observation, measure: DevLoss | None = None) -> dict[Arm, float]:
    """The dev loss of every arm played since the last observation; refuses what was not measured.

    ``measure`` may be left out where the teacher watches only one dev loss.
    """
    if measure is None:
        measure = next((found for found in observation.measured if isinstance(found, DevLoss)), DevLoss())
    losses = measured(observation, measure)
    return {arm: _finite(losses.get(arm), f"dev loss of {arm}", observation.step) for arm in observation.played}


def joint_loss(observation: Observation, measure: JointLoss) -> float:
    """The loss on the multilingual dev batch; refuses what was not measured."""
    return _finite(measured(observation, measure), "joint loss", observation.step)


def joint_gain(observation: Observation, measure: JointGain) -> float:
    """How far the goal's dev loss has fallen; refuses what was not measured."""
    return _finite(measured(observation, measure), "joint gain", observation.step)


def _finite(loss: float | None, name: str, step: int) -> float:
    if loss is None:
        raise ValueError(f"step {step}: the observation has no {name}; measure what the teacher watches")
    if not math.isfinite(loss):
        raise ValueError(f"step {step}: the {name} is {loss}: the student diverged; lower the learning rate")
    return float(loss)
