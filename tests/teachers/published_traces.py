"""Presets with ``variant: source``, from their formulas in plain Python, without floors.

As in ``weight_traces.py`` nothing comes from ``rota.teachers.weights``; the formulas are written out a second time
here, without those of Rota's variants.
"""

import math
from typing import ClassVar

from weight_traces import Gradients, Trace, UncertainAdam, normalised


class Published(Trace):
    floor = 0.0


class ChiIBR(Published):
    """Zhou et al. 2021, with the bracket of their bisection: the q with the largest sum q x in a ball around p.

    The ball: 1/2 sum p (q/p - 1)^2 is at most rho. x is the smoothed training loss (0.1 of the newest) over that of a
    baseline; q/p is at least 0.2, and q at least the smallest p.
    """

    every, rho = 5, 0.05
    baseline: ClassVar = {"az": 1.0, "be": 2.0, "tr": 1.5, "ru": 0.5}

    def prior(self):
        return dict(self.sizes)

    def start_up(self):
        self.history = {}

    def after(self, decision, train_losses):
        self.history.setdefault(decision.arm, []).extend(train_losses)
        if self.room.step % self.every == 0:
            self.change()
            self.history = {}

    def change(self):
        s = {arm: smoothed(losses, 0.1) for arm, losses in self.history.items()}
        x = {arm: loss - self.baseline[arm] for arm, loss in s.items()}
        x = s if max(x.values()) < 0 else x
        x |= dict.fromkeys(set(self.arms) - set(x), sum(x.values()) / len(x))  # not played since the last change
        p = normalised(self.sizes)
        q = p if max(x.values()) == min(x.values()) else self.worst(x, p)
        self.q = normalised({arm: max(share, min(p.values())) for arm, share in q.items()})

    def worst(self, x, p):
        low, high = -max(x.values()) / (math.sqrt(2 * self.rho + 1) - 1), max(x.values())
        assert self.distance(low, x, p) <= self.rho
        for _ in range(200):
            eta = (low + high) / 2
            if self.distance(eta, x, p) > self.rho:
                high = eta
            else:
                low = eta
        return self.mixture(low, x, p)

    def mixture(self, eta, x, p):
        q = normalised({arm: p[arm] * max(0.0, x[arm] - eta) for arm in self.arms})
        return normalised({arm: max(q[arm], 0.2 * p[arm]) for arm in self.arms})

    def distance(self, eta, x, p):
        if eta >= max(x.values()):
            return math.inf
        q = self.mixture(eta, x, p)
        return 0.5 * math.fsum(p[arm] * (q[arm] / p[arm] - 1) ** 2 for arm in self.arms)


class JeanExplicit(Published):
    """Jean et al. 2019 at every validation: p proportional to 1 / (min(1, s/b)^3 + 0.05), with s = exp(-loss)."""

    every = 10
    baseline: ClassVar = {"az": 2.0, "be": 2.5, "tr": 6.0, "ru": 1.5}

    def change(self, decision):
        weights = {}
        for arm, loss in self.dev().items():
            behind = min(1.0, math.exp(self.baseline[arm] - loss))
            weights[arm] = 1 / (0.05 + behind * behind * behind)
        self.q = normalised(weights)


class JeanImplicit(JeanExplicit):
    """The same number, mean 1 over the arms and between 1/5 and 5, multiplies the loss; the sampling is constant."""

    def weights(self):
        return {arm: min(5.0, max(0.2, len(self.arms) * share)) for arm, share in self.q.items()}


class RelativeDecrease(Published):
    """d = (loss before - loss now) / loss before, in deviations from the mean of the arms; p = prior x exp(d)."""

    def prior(self):
        return self.temperature_5()

    def start_up(self):
        self.losses = []

    def change(self, decision):
        self.losses.append(self.dev())
        if len(self.losses) < 2:
            return
        before, now = self.losses[-2:]
        d = {arm: 1 - now[arm] / before[arm] for arm in self.arms}
        mean = sum(d.values()) / len(d)
        deviation = math.sqrt(sum((value - mean) ** 2 for value in d.values()) / len(d))
        self.q = normalised({arm: self.sizes[arm] ** 0.2 * math.exp((d[arm] - mean) / deviation) for arm in self.arms})


class Zaremoodi(Gradients):
    """p proportional to <g_k, gradient of the low-resource dev loss>, at least a thousandth of the most."""

    floor = 0.0

    def change(self, decision):
        product = {arm: (self.room.effect(arm, "az") + self.room.effect(arm, "be")) / 2 for arm in self.arms}
        most = max(product.values())
        self.q = normalised({arm: max(product[arm], most / 1000) if most > 0 else 1.0 for arm in self.arms})


class DynamixSFT(Gradients):
    """p = prior x exp(Q), Q from 0 to 1 over the arms: |g|^2 / loss, of which 0.3 of the newest counts."""

    newest, beta, floor = 0.3, 1.0, 0.0

    def prior(self):
        return dict(self.sizes)

    def start_up(self):
        self.gains = {arm: [] for arm in self.arms}

    def change(self, decision):
        for arm in self.arms:
            self.gains[arm].append(self.room.effect(arm, arm) / (self.room.loss(arm) + 1e-8))
        r = {arm: smoothed(gains, self.newest) for arm, gains in self.gains.items()}
        worst, best = min(r.values()), max(r.values())
        tilt = {arm: math.exp(self.beta * (value - worst) / (best - worst)) for arm, value in r.items()}
        self.q = normalised({arm: self.sizes[arm] * tilt[arm] for arm in self.arms})


class DynamixSFTOfThePaper(DynamixSFT):
    """p = 0.7 prior x exp(4 Q) + 0.3 / K, with 0.05 of the newest, but smoothed before it is scaled."""

    newest, beta, every, floor = 0.05, 4.0, 10, 0.3 / 4


class MultiUATFromTemperature5(UncertainAdam):
    """The actor starts at size ^ (1 / temperature), as that of the published code does with --temperature 5."""

    def prior(self):
        return self.temperature_5()


def smoothed(values, weight):
    """Exponentially, from the first value on."""
    found = values[0]
    for value in values[1:]:
        found = (1 - weight) * found + weight * value
    return found
