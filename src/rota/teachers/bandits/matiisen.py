"""The other bandits of Matiisen et al. 2017: naive, window and sampling. (Their online one is TSCL.)"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Unpack

import numpy as np

from rota.teachers.bandits.base import Bandit, Policy
from rota.teachers.rewards import Reward, gain_per_step
from rota.types import Arm, Decision, FloatArray, State

UNSEEN = 1.0
"""Value of an arm with too few losses for a slope: larger than any real one, so that it is tried (their code)."""


class Naive(Bandit):
    """Plays an arm for ``window`` observations, then smooths their slope into its value.

    Losses heard of a choice that was not its own (first visits, warm-up) are kept and count towards the window.
    """

    def __init__(
        self,
        arms: Sequence[Arm],
        rng: np.random.Generator,
        *,
        alpha: float = 0.1,
        window: int = 10,
        **policy: Unpack[Policy],
    ) -> None:
        super().__init__(arms, rng, **policy)
        self.alpha, self.window = alpha, window
        self._values = dict.fromkeys(self.arms, 0.0)
        self._points: dict[Arm, list[tuple[int, float]]] = {arm: [] for arm in self.arms}
        self._held: Decision | None = None

    def values(self) -> FloatArray:
        return np.array([self._values[arm] for arm in self.arms])

    def ask(self, step: int) -> Decision:
        if self._held is None:
            self._held = super().ask(step)
        return self._held

    def hear(self, arm: Arm, step: int, loss: float) -> None:
        points = self._points[arm]
        points.append((step, loss))
        if len(points) < self.window:
            return
        self._values[arm] += self.alpha * (_slope(points) - self._values[arm])
        points.clear()
        if self._held is not None and self._held.arm == arm:
            self._held = None

    def state_dict(self) -> State:
        held = None if self._held is None else self._held.state()
        points = {arm: [list(point) for point in points] for arm, points in self._points.items()}
        return {**super().state_dict(), "values": dict(self._values), "points": points, "held": held}

    def load_state_dict(self, state: State) -> None:
        super().load_state_dict(state)
        self._values = dict(state["values"])
        self._points = {arm: [(step, loss) for step, loss in points] for arm, points in state["points"].items()}
        self._held = None if state["held"] is None else Decision.from_state(state["held"])


class Window(Bandit):
    """The value of an arm is the slope of its last ``window`` losses."""

    def __init__(
        self, arms: Sequence[Arm], rng: np.random.Generator, *, window: int = 10, **policy: Unpack[Policy]
    ) -> None:
        super().__init__(arms, rng, **policy)
        self.window = window
        self._points: dict[Arm, deque[tuple[int, float]]] = {arm: deque(maxlen=window) for arm in self.arms}

    def values(self) -> FloatArray:
        slopes = (_slope(points) if len(points) > 1 else UNSEEN for points in self._points.values())
        return np.array(list(slopes))

    def hear(self, arm: Arm, step: int, loss: float) -> None:
        self._points[arm].append((step, loss))

    def state_dict(self) -> State:
        points = {arm: [list(point) for point in points] for arm, points in self._points.items()}
        return {**super().state_dict(), "points": points}

    def load_state_dict(self, state: State) -> None:
        super().load_state_dict(state)
        for arm, points in state["points"].items():
            self._points[arm] = deque(((step, loss) for step, loss in points), maxlen=self.window)


class Sampling(Bandit):
    """Draws one of the last ``window`` rewards of each arm as its value, as Thompson sampling would."""

    def __init__(
        self,
        arms: Sequence[Arm],
        rng: np.random.Generator,
        reward: Reward,
        *,
        window: int = 10,
        **policy: Unpack[Policy],
    ) -> None:
        super().__init__(arms, rng, **policy)
        self.window, self.reward = window, reward
        self._gains: dict[Arm, deque[float]] = {arm: deque(maxlen=window) for arm in self.arms}

    def values(self) -> FloatArray:
        draws = (gains[int(self._rng.integers(len(gains)))] if gains else UNSEEN for gains in self._gains.values())
        return np.array(list(draws))

    def hear(self, arm: Arm, step: int, loss: float) -> float | None:  # noqa: ARG002 - a reward has no clock
        gain = self.reward(arm, loss)
        if gain is not None:
            self._gains[arm].append(gain)
        return gain

    def state_dict(self) -> State:
        gains = {arm: list(gains) for arm, gains in self._gains.items()}
        return {**super().state_dict(), "gains": gains, "reward": self.reward.state_dict()}

    def load_state_dict(self, state: State) -> None:
        super().load_state_dict(state)
        self.reward.load_state_dict(state["reward"])
        for arm, gains in state["gains"].items():
            self._gains[arm] = deque(gains, maxlen=self.window)


def _slope(points: Sequence[tuple[int, float]] | deque[tuple[int, float]]) -> float:
    steps, losses = np.array(points, dtype=float).T
    return gain_per_step(steps, losses)
