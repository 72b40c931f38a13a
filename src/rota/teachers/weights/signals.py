"""Signals: from what was measured to a number for each arm, larger for an arm that deserves more updates.

Losses are nats per token. Values are smoothed here and scaled by the teacher. Those that need gradients or dropout are
in ``gradients.py``.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

import numpy as np

from rota.measures import DevLoss, JointLoss, Measure, TrainLoss, Weights
from rota.teachers.rewards import measured
from rota.types import Arm, Observation, State

GainOf = Literal["own", "joint", "every"]


class Signal(ABC):
    """Hears observations and holds a value for each arm; a subclass says how it reads one."""

    settings: ClassVar[tuple[str, ...]] = ()
    """The settings of the teacher that this signal takes as keywords, besides ``smoothing``."""

    def __init__(self, arms: Sequence[Arm], *measures: Measure, smoothing: float = 1.0) -> None:
        self.arms, self.measures, self.smoothing = tuple(arms), measures, smoothing
        self._smoothed: dict[Arm, float] = {}

    @abstractmethod
    def read(self, observation: Observation) -> Mapping[Arm, float]:
        """New values of some or all arms; must change nothing before everything is checked."""

    def hear(self, observation: Observation) -> tuple[Arm, ...]:
        """Learn from an observation; returns the arms that have a new value."""
        new = self.read(observation)
        for arm, value in new.items():
            old = self._smoothed.get(arm, value)
            self._smoothed[arm] = old + self.smoothing * (value - old)
        return tuple(new)

    def values(self) -> dict[Arm, float]:
        """The smoothed value of each arm that has one."""
        return dict(self._smoothed)

    def weights_changed(self) -> None:  # noqa: B027 - most have nothing to do then
        """After each change of the weights."""

    def state_dict(self) -> State:
        return {"smoothed": dict(self._smoothed)}

    def load_state_dict(self, state: State) -> None:
        self._smoothed = dict(state["smoothed"])


class TrainLosses(Signal):
    """Training loss of each arm, from its own updates: costs nothing, and is told at every choice."""

    settings: ClassVar[tuple[str, ...]] = ("restart",)

    def __init__(self, arms: Sequence[Arm], *, smoothing: float, restart: bool) -> None:
        super().__init__(arms, TrainLoss(by="arm"), smoothing=smoothing)
        self.restart = restart

    def read(self, observation: Observation) -> dict[Arm, float]:
        return finite_by_arm(observation, self.measures[0], observation.played, among=self.arms)

    def weights_changed(self) -> None:
        if self.restart:
            self._smoothed = {}


class DevLosses(Signal):
    """Dev loss of every arm."""

    settings: ClassVar[tuple[str, ...]] = ("tokens", "weights")

    def __init__(self, arms: Sequence[Arm], *, tokens: int, weights: Weights, smoothing: float = 1.0) -> None:
        super().__init__(arms, DevLoss(arms="all", tokens=tokens, weights=weights), smoothing=smoothing)

    def read(self, observation: Observation) -> Mapping[Arm, float]:
        return finite_by_arm(observation, self.measures[0], self.arms)


class Excess(Signal):
    """How far the loss of each arm is above a baseline; where it is below for all, the loss itself.

    Without a baseline the loss itself. Training losses are told at every choice, dev losses when the weights change.
    """

    settings: ClassVar[tuple[str, ...]] = ("loss", "baseline", "restart", "tokens", "weights")

    def __init__(
        self,
        arms: Sequence[Arm],
        *,
        loss: Literal["train", "dev"],
        baseline: Mapping[Arm, float] | None,
        restart: bool,
        tokens: int,
        weights: Weights,
        smoothing: float,
    ) -> None:
        self.inner: Signal = (
            TrainLosses(arms, smoothing=smoothing, restart=restart)
            if loss == "train"
            else DevLosses(arms, tokens=tokens, weights=weights, smoothing=smoothing)
        )
        super().__init__(arms, *self.inner.measures)
        self.baseline = dict(baseline or {})

    def read(self, observation: Observation) -> Mapping[Arm, float]:
        return self.inner.read(observation)

    def hear(self, observation: Observation) -> tuple[Arm, ...]:
        return self.inner.hear(observation)

    def values(self) -> dict[Arm, float]:
        losses = self.inner.values()
        excess = {arm: loss - self.baseline.get(arm, 0.0) for arm, loss in losses.items()}
        return excess if max(excess.values(), default=0.0) >= 0 else losses

    def weights_changed(self) -> None:
        self.inner.weights_changed()

    def state_dict(self) -> State:
        return {"inner": self.inner.state_dict(), "baseline": dict(self.baseline)}

    def load_state_dict(self, state: State) -> None:
        """The baseline of the checkpoint holds, even if the run that it was read from has changed since."""
        self.inner.load_state_dict(state["inner"])
        self.baseline = dict(state["baseline"])


class Shortfall(DevLosses):
    """Jean et al. 2019: 1 / (min(1, score / baseline) ** alpha + softening), with exp(-dev loss) as the score.

    Without a baseline it is the best loss that the arm has had.
    """

    settings: ClassVar[tuple[str, ...]] = ("tokens", "weights", "baseline", "alpha", "softening")

    def __init__(
        self,
        arms: Sequence[Arm],
        *,
        tokens: int,
        weights: Weights,
        baseline: Mapping[Arm, float] | None,
        alpha: float,
        softening: float,
        smoothing: float,
    ) -> None:
        super().__init__(arms, tokens=tokens, weights=weights, smoothing=smoothing)
        self.alpha, self.softening = alpha, softening
        self.best_seen = baseline is None
        self.baseline = dict(baseline or {})

    def hear(self, observation: Observation) -> tuple[Arm, ...]:
        heard = super().hear(observation)
        if self.best_seen:
            for arm, loss in super().values().items():
                self.baseline[arm] = min(loss, self.baseline.get(arm, loss))
        return heard

    def values(self) -> dict[Arm, float]:
        ratios = {arm: min(1.0, math.exp(self.baseline[arm] - loss)) for arm, loss in super().values().items()}
        return {arm: 1 / (ratio**self.alpha + self.softening) for arm, ratio in ratios.items()}

    def state_dict(self) -> State:
        return {**super().state_dict(), "baseline": dict(self.baseline)}

    def load_state_dict(self, state: State) -> None:
        super().load_state_dict(state)
        self.baseline = dict(state["baseline"])


class RelatedLosses(DevLosses):
    """Skill-It: the dev losses of an arm and its relatives, sum over j of A_ij x the last ``window`` losses of j.

    A is 1 for the arm itself, ``kinship`` for the arms of a group in ``related``, ``others`` for all others.
    """

    settings: ClassVar[tuple[str, ...]] = ("tokens", "weights", "window", "related", "kinship", "others")

    def __init__(
        self,
        arms: Sequence[Arm],
        *,
        tokens: int,
        weights: Weights,
        window: int,
        related: Sequence[Sequence[Arm]],
        kinship: float,
        others: float,
        smoothing: float,
    ) -> None:
        super().__init__(arms, tokens=tokens, weights=weights, smoothing=smoothing)
        self.window = window
        kin = {(first, second) for group in related for first in group for second in group}
        self.matrix = np.array([[kinship if (i, j) in kin else others for j in arms] for i in arms], dtype=float)
        np.fill_diagonal(self.matrix, 1.0)
        self._losses: list[list[float]] = []  # of all arms, the newest last

    def hear(self, observation: Observation) -> tuple[Arm, ...]:
        heard = super().hear(observation)
        latest = super().values()
        self._losses = [*self._losses, [latest[arm] for arm in self.arms]][-self.window :]
        return heard

    def values(self) -> dict[Arm, float]:
        if not self._losses:
            return {}
        summed = self.matrix @ np.sum(self._losses, axis=0)
        return dict(zip(self.arms, summed.tolist(), strict=True))

    def state_dict(self) -> State:
        return {**super().state_dict(), "losses": [list(row) for row in self._losses]}

    def load_state_dict(self, state: State) -> None:
        super().load_state_dict(state)
        self._losses = [list(row) for row in state["losses"]]


class Gain(Signal):
    """How far a dev loss fell: positive is good. ``relative``: as a share of the loss before.

    ``own``: of the arm played, around its updates (Graves's self-prediction gain). ``joint``: of the multilingual dev
    batch since the last observation, credited to the arms played. ``every``: of each arm, played or not.
    """

    settings: ClassVar[tuple[str, ...]] = ("of", "relative", "tokens", "weights")

    def __init__(
        self, arms: Sequence[Arm], *, of: GainOf, relative: bool, tokens: int, weights: Weights, smoothing: float
    ) -> None:
        measures: dict[GainOf, Measure] = {
            "own": DevLoss(arms="played", when="around", tokens=tokens, weights=weights),
            "joint": JointLoss(tokens=tokens, weights=weights),
            "every": DevLoss(arms="all", tokens=tokens, weights=weights),
        }
        super().__init__(arms, measures[of], smoothing=smoothing)
        self.of, self.relative = of, relative
        self._before: dict[Arm, float] = {}  # under "" for the joint loss

    def read(self, observation: Observation) -> dict[Arm, float]:
        (measure,) = self.measures
        if self.of == "own":
            return self._own(observation, measure)
        if self.of == "joint":
            now = {"": finite(measured(observation, measure), "joint loss", observation.step)}
        else:
            now = finite_by_arm(observation, measure, self.arms)
        gains = {key: self._gain(self._before[key], loss) for key, loss in now.items() if key in self._before}
        self._before = now
        if self.of == "joint":
            return {arm: gains[""] for arm in observation.played if arm in self.arms and gains}
        return gains

    def _own(self, observation: Observation, measure: Measure) -> dict[Arm, float]:
        found = measured(observation, measure)
        played = [arm for arm in observation.played if arm in self.arms]
        gains = {}
        for arm in played:
            pair = found.get(arm, (None, None))
            before, after = (finite(loss, f"dev loss of {arm}", observation.step) for loss in pair)
            gains[arm] = self._gain(before, after)
        return gains

    def _gain(self, before: float, after: float) -> float:
        return (before - after) / before if self.relative else before - after

    def state_dict(self) -> State:
        return {**super().state_dict(), "before": dict(self._before)}

    def load_state_dict(self, state: State) -> None:
        super().load_state_dict(state)
        self._before = dict(state["before"])


def finite(value: Any, name: str, step: int) -> float:
    """A number that was measured; refuses what is missing or not finite."""
    if value is None:
        raise ValueError(f"step {step}: the observation has no {name}; measure what the teacher watches")
    if not math.isfinite(value):
        raise ValueError(f"step {step}: the {name} is {value}: the student diverged; lower the learning rate")
    return float(value)


def finite_by_arm(
    observation: Observation, measure: Measure, arms: Sequence[Arm] | Mapping[Arm, Any], among: Sequence[Arm] = ()
) -> dict[Arm, float]:
    """The value of each of these arms, of those in ``among`` if it names any."""
    found = measured(observation, measure)
    wanted = [arm for arm in arms if not among or arm in among]
    return {arm: finite(found.get(arm), f"{type(measure).__name__} of {arm}", observation.step) for arm in wanted}
