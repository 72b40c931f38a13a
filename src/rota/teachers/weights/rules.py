"""Update rules: from a number for each arm to the distribution that arms are drawn from.

Every rule starts from a prior. Rules with full information use the number of every arm; bandits (EXP3, EXP3.S, ODM)
only those of the arms that were played, each divided by the probability with which it was chosen.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar, Literal

import numpy as np

from rota.types import FloatArray, State

# K arms

TRAVEL = 5.0
"""How far a log-weight can move in a run by a reward of 1 at every change: the default step size is this over them."""

Actor = Literal["closed-form", "adam"]


class Rule(ABC):
    """Holds what it learned of the arms; ``changes`` is how often it will be told in the whole run."""

    settings: ClassVar[tuple[str, ...]] = ()
    """The settings of the teacher that this rule takes as keywords."""

    def __init__(self, prior_K: FloatArray, changes: int) -> None:
        self.prior_K, self.changes = prior_K, max(1, changes)

    @property
    @abstractmethod
    def shares_K(self) -> FloatArray:
        """The distribution now, before the floor."""

    @abstractmethod
    def update(self, values_K: FloatArray, inverse_K: FloatArray) -> None:
        """Learn from a value of each arm; NaN where none is known.

        ``inverse_K``: mean over the choices since the last change of 1 / probability of the arm chosen, 0 elsewhere.
        """

    def state_dict(self) -> State:
        """Every array and number that changes over time, by name without its underscore."""
        return {name.removeprefix("_"): _copied(value) for name, value in vars(self).items() if name.startswith("_")}

    def load_state_dict(self, state: State) -> None:
        for name, value in state.items():
            setattr(self, f"_{name}", np.array(value) if isinstance(getattr(self, f"_{name}"), np.ndarray) else value)


class Proportional(Rule):
    """p proportional to prior x value; values below a thousandth of the largest count as that."""

    def __init__(self, prior_K: FloatArray, changes: int) -> None:
        super().__init__(prior_K, changes)
        self._shares_K = prior_K.copy()

    @property
    def shares_K(self) -> FloatArray:
        return self._shares_K

    def update(self, values_K: FloatArray, inverse_K: FloatArray) -> None:  # noqa: ARG002
        values_K = known(values_K)
        largest = values_K.max()
        nothing = largest < 1e-100  # no arm is worth anything
        self._shares_K = self.prior_K if nothing else normalised(self.prior_K * np.maximum(values_K, largest / 1000))


class Softmax(Rule):
    """p proportional to prior x exp(value / temperature): only the newest values count."""

    settings: ClassVar[tuple[str, ...]] = ("temperature",)

    def __init__(self, prior_K: FloatArray, changes: int, *, temperature: float) -> None:
        super().__init__(prior_K, changes)
        self.temperature = temperature
        self._shares_K = prior_K.copy()

    @property
    def shares_K(self) -> FloatArray:
        return self._shares_K

    def update(self, values_K: FloatArray, inverse_K: FloatArray) -> None:  # noqa: ARG002
        self._shares_K = softmax(np.log(self.prior_K) + known(values_K) / self.temperature)


class LogWeights(Rule, ABC):
    """Base of the rules that move log-weights, which start at the logarithm of the prior."""

    def __init__(self, prior_K: FloatArray, changes: int) -> None:
        super().__init__(prior_K, changes)
        self._logs_K = np.log(prior_K)

    @property
    def shares_K(self) -> FloatArray:
        return softmax(self._logs_K)


class Mirror(LogWeights):
    """Mirror descent: log w += eta x value, after log w has moved towards the prior by the share ``pull``."""

    settings: ClassVar[tuple[str, ...]] = ("eta", "pull")

    def __init__(self, prior_K: FloatArray, changes: int, *, eta: float | None, pull: float) -> None:
        super().__init__(prior_K, changes)
        self.eta, self.pull = TRAVEL / self.changes if eta is None else eta, pull

    def update(self, values_K: FloatArray, inverse_K: FloatArray) -> None:  # noqa: ARG002
        logs_K = np.log(self.shares_K)
        self._logs_K = logs_K + self.pull * (np.log(self.prior_K) - logs_K) + self.eta * known(values_K)


class EXP3(LogWeights):
    """log w += (eta / K) x reward / probability for the arms played; ``epsilon`` of the choices are uniform."""

    settings: ClassVar[tuple[str, ...]] = ("eta", "epsilon", "cap")

    def __init__(
        self, prior_K: FloatArray, changes: int, *, eta: float | None, epsilon: float, cap: float | None
    ) -> None:
        super().__init__(prior_K, changes)
        self.eta = TRAVEL * len(prior_K) / self.changes if eta is None else eta
        self.epsilon, self.cap = epsilon, cap

    @property
    def shares_K(self) -> FloatArray:
        return (1 - self.epsilon) * super().shares_K + self.epsilon / len(self.prior_K)

    def update(self, values_K: FloatArray, inverse_K: FloatArray) -> None:
        self._logs_K = self._logs_K + self.eta / len(self.prior_K) * rewards(values_K, inverse_K, self.cap)


class EXP3S(LogWeights):
    """EXP3 that shares weight among the arms, so that none falls so low that it cannot come back (Auer et al. 2002).

    A share 1/t of every weight goes to the others at the t-th change, and never less than 1 / ``horizon``.
    """

    settings: ClassVar[tuple[str, ...]] = ("eta", "epsilon", "cap", "horizon")

    def __init__(
        self, prior_K: FloatArray, changes: int, *, eta: float | None, epsilon: float, cap: float | None, horizon: float
    ) -> None:
        super().__init__(prior_K, changes)
        self.epsilon, self.cap, self.horizon = epsilon, cap, max(1.0, horizon * self.changes)
        self.eta = TRAVEL / min(self.changes, self.horizon) if eta is None else eta
        self._count = 0

    @property
    def shares_K(self) -> FloatArray:
        return (1 - self.epsilon) * super().shares_K + self.epsilon / len(self.prior_K)

    def update(self, values_K: FloatArray, inverse_K: FloatArray) -> None:
        self._count += 1
        weights_K = softmax(self._logs_K + self.eta * rewards(values_K, inverse_K, self.cap))
        if len(weights_K) > 1:
            given = max(1 / self._count, 1 / self.horizon)
            others_K = (weights_K.sum() - weights_K) / (len(weights_K) - 1)
            weights_K = (1 - given) * weights_K + given * others_K
        self._logs_K = np.log(np.maximum(weights_K, 1e-300))


class ODM(Rule):
    """Online data mixing (Albalak et al. 2023): EXP3 on smoothed rewards, with exploration that decays by itself.

    R += (1 - memory) x (reward / probability - R) for the arms played; at the t-th change
    p = (1 - K e_t) softmax(e_(t-1) R) + e_t, where e_t = min(1/K, sqrt(ln K / (K t))).
    """

    settings: ClassVar[tuple[str, ...]] = ("memory", "cap")

    def __init__(self, prior_K: FloatArray, changes: int, *, memory: float, cap: float | None) -> None:
        super().__init__(prior_K, changes)
        self.memory, self.cap = memory, cap
        self._rewards_K = np.zeros(len(prior_K))
        self._count = 0

    @property
    def shares_K(self) -> FloatArray:
        if self._count == 0:
            return self.prior_K
        now, before = self._exploration(self._count), self._exploration(self._count - 1)
        return (1 - len(self.prior_K) * now) * softmax(before * self._rewards_K) + now

    def _exploration(self, count: int) -> float:
        arms = len(self.prior_K)
        return 1 / arms if count == 0 else min(1 / arms, float(np.sqrt(np.log(arms) / (arms * count))))

    def update(self, values_K: FloatArray, inverse_K: FloatArray) -> None:
        self._count += 1
        moved_K = self.memory * self._rewards_K + (1 - self.memory) * rewards(values_K, inverse_K, self.cap)
        self._rewards_K = np.where(inverse_K > 0, moved_K, self._rewards_K)


class ChiSquare(Rule):
    """The worst mixture within a chi-square ball around the prior (Zhou et al. 2021).

    q proportional to prior x max(0, value - h), each at least ``least_ratio`` of its prior, with h such that
    1/2 sum prior (q/prior - 1)^2 = ``rho``; then at least the smallest share of the prior.
    """

    settings: ClassVar[tuple[str, ...]] = ("rho", "least_ratio")

    def __init__(self, prior_K: FloatArray, changes: int, *, rho: float, least_ratio: float) -> None:
        super().__init__(prior_K, changes)
        self.rho, self.least_ratio = rho, least_ratio
        self._shares_K = prior_K.copy()

    @property
    def shares_K(self) -> FloatArray:
        return self._shares_K

    def update(self, values_K: FloatArray, inverse_K: FloatArray) -> None:  # noqa: ARG002
        worst_K = self._worst(known(values_K))
        self._shares_K = normalised(np.maximum(worst_K, self.prior_K.min()))

    def _worst(self, values_K: FloatArray) -> FloatArray:
        """By bisection: the divergence grows with h, from 0 far below the values to its most at the largest.

        Neither the zero nor the scale of the values matters, so they are counted down from 0, in units of their span.
        """
        span = float(np.ptp(values_K))
        if span <= 1e-12 * float(np.abs(values_K).max()):
            return self.prior_K
        below_K = (values_K - values_K.max()) / span
        low, high = -1.0, 0.0
        while self._divergence(self._beyond(below_K, low)) > self.rho:
            low *= 2
        for _ in range(200):
            middle = (low + high) / 2
            if self._divergence(self._beyond(below_K, middle)) > self.rho:
                high = middle
            else:
                low = middle
        return self._beyond(below_K, low)

    def _beyond(self, values_K: FloatArray, threshold: float) -> FloatArray:
        mass_K = normalised(self.prior_K * np.maximum(0, values_K - threshold))
        return normalised(np.maximum(mass_K, self.least_ratio * self.prior_K))

    def _divergence(self, shares_K: FloatArray) -> float:
        return 0.5 * float((self.prior_K * (shares_K / self.prior_K - 1) ** 2).sum())


class ActorRule(LogWeights):
    """The scorer of MultiDDS and MultiUAT: logits that drift towards "proportional to the value".

    ``adam`` is their code: 200 steps of Adam (learning rate 1e-4) on - sum value x log p, whose fixed point is
    p = value / sum of values. ``closed-form`` goes there directly, by at most ``max_step`` in each logit.
    """

    settings: ClassVar[tuple[str, ...]] = ("actor", "max_step")

    def __init__(self, prior_K: FloatArray, changes: int, *, actor: Actor, max_step: float) -> None:
        super().__init__(prior_K, changes)
        self.actor, self.max_step = actor, max_step
        self._mean_K, self._square_K = np.zeros(len(prior_K)), np.zeros(len(prior_K))  # Adam's moments
        self._count = 0  # its steps

    def update(self, values_K: FloatArray, inverse_K: FloatArray) -> None:  # noqa: ARG002
        values_K = known(values_K)
        if self.actor == "closed-form":
            goal_K = np.log(normalised(np.maximum(values_K, 1e-3)))
            logs_K = np.log(self.shares_K)
            self._logs_K = logs_K + np.clip(goal_K - logs_K, -self.max_step, self.max_step)
            return
        for _ in range(200):
            self._adam_step(self.shares_K * values_K.sum() - values_K)

    def _adam_step(self, gradient_K: FloatArray) -> None:
        self._count += 1
        self._mean_K = 0.9 * self._mean_K + 0.1 * gradient_K
        self._square_K = 0.999 * self._square_K + 0.001 * gradient_K**2
        mean_K = self._mean_K / (1 - 0.9**self._count)
        root_K = np.sqrt(self._square_K / (1 - 0.999**self._count))
        self._logs_K = self._logs_K - 1e-4 * mean_K / (root_K + 1e-8)


RuleName = Literal["proportional", "softmax", "mirror", "exp3", "exp3-s", "odm", "chi-square", "actor"]

RULES: dict[RuleName, type[Rule]] = {
    "proportional": Proportional,
    "softmax": Softmax,
    "mirror": Mirror,
    "exp3": EXP3,
    "exp3-s": EXP3S,
    "odm": ODM,
    "chi-square": ChiSquare,
    "actor": ActorRule,
}


def rewards(values_K: FloatArray, inverse_K: FloatArray, cap: float | None) -> FloatArray:
    """Value x 1 / probability of the arms played, within +-cap; 0 for the others."""
    estimates_K = np.where(inverse_K > 0, np.nan_to_num(values_K) * inverse_K, 0.0)
    return estimates_K if cap is None else np.clip(estimates_K, -cap, cap)


def known(values_K: FloatArray) -> FloatArray:
    """An arm of which nothing is known yet counts as the mean of the others."""
    return np.where(np.isnan(values_K), np.nanmean(values_K), values_K)


def softmax(logs_K: FloatArray) -> FloatArray:
    return normalised(np.exp(logs_K - logs_K.max()))


def normalised(weights_K: FloatArray) -> FloatArray:
    shares_K: FloatArray = weights_K / weights_K.sum()
    return shares_K


def floored(shares_K: FloatArray, floor: float) -> FloatArray:
    """Every arm at least ``floor``, or half of the uniform share where that is less."""
    least = min(floor, 0.5 / len(shares_K))
    return (1 - len(shares_K) * least) * shares_K + least


def _copied(value: FloatArray | float) -> FloatArray | float:
    return value.copy() if isinstance(value, np.ndarray) else value
