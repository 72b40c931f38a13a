"""Gradients of training sentences beside those of dev sentences, and their norms and variances.

Every process computes the same gradients from the same sentences. At most three are in memory at once, unless the
products with every dev language are asked for.
"""

from __future__ import annotations

from abc import ABC
from collections.abc import Mapping
from typing import TypeVar

from rota.measures import GradientMoments, GradientProducts, Measure, Moments, Products
from rota.training.devsets import DevSets, Sample
from rota.training.gauges.base import Gauge
from rota.training.turns import Window
from rota.types import Arm, Gradient, ProbedStudent, State

M = TypeVar("M", bound=Measure)


class RotatingGauge(Gauge[M], ABC):
    """Measures other sentences every time; remembers which come next."""

    def __init__(self, measure: M, student: ProbedStudent, sets: DevSets) -> None:
        super().__init__(measure, student, sets)
        self._turn = 0

    def state_dict(self) -> State:
        return {"turn": self._turn}

    def load_state_dict(self, state: State) -> None:
        self._turn = int(state["turn"])


class GradientProductsGauge(RotatingGauge[GradientProducts]):
    def read(self, window: Window) -> dict[Arm, Products]:  # noqa: ARG002 - whatever was played
        towards = self._directions()
        found, norms = {}, {}
        for arm in self.sets.arms:
            gradient = self._gradient(self.sets.sample("train", arm, self.measure.tokens, self._turn))
            norms[arm] = gradient.norm()
            found[arm] = {name: gradient.dot(direction) for name, direction in towards.items()}
        self._turn += 1
        return {arm: self._products(products, self._divisor(norms, arm)) for arm, products in found.items()}

    def _directions(self) -> dict[Arm, Gradient]:
        """Of each dev language, times its weight; their sum alone under the name "" if no more is asked for."""
        sums: dict[Arm, Gradient] = {}
        for name, weight in self._wanted().items():
            gradient = self._gradient(self.sets.sample("teacher", name, self.measure.tokens, self._turn))
            norm = gradient.norm() if self.measure.divided_by == "norms" else 1.0
            direction = gradient.scaled(weight / norm if norm else 0.0)
            key = name if self.measure.languages else ""
            sums[key] = sums[key].plus(direction) if key in sums else direction
        return sums

    def _wanted(self) -> Mapping[Arm, float]:
        targets = self.measure.targets
        return dict.fromkeys(targets, 1 / len(targets)) if targets else self.sets.goal

    def _gradient(self, sample: Sample) -> Gradient:
        return self.student.gradient([sample.batch()], weights=self.measure.weights)

    def _divisor(self, norms: Mapping[Arm, float], arm: Arm) -> float:
        if self.measure.divided_by == "nothing":
            return 1.0
        return (norms[arm] if self.measure.divided_by == "norms" else sum(norms.values()) / len(norms)) or 1.0

    def _products(self, products: Mapping[Arm, float], divisor: float) -> Products:
        mean = sum(products.values()) / divisor
        if not self.measure.languages:
            return Products(mean)
        weights = self._wanted()
        return Products(mean, {name: product / divisor / weights[name] for name, product in products.items()})


class GradientMomentsGauge(RotatingGauge[GradientMoments]):
    def read(self, window: Window) -> dict[Arm, Moments]:  # noqa: ARG002 - whatever was played
        found = {arm: self._moments(arm) for arm in self.sets.arms}
        self._turn += 1
        return found

    def _moments(self, arm: Arm) -> Moments:
        sample = self.sets.sample("train", arm, self.measure.tokens, self._turn)
        halves = [sample._replace(indices=sample.indices[part::2]) for part in (0, 1)]
        batches = [half.batch() for half in halves if len(half.indices)]
        first, *rest = [self.student.gradient([batch], weights=self.measure.weights) for batch in batches]
        second = rest[0] if rest else first  # a corpus of one sentence does not vary
        each = sum(batch.sentences for batch in batches) / len(batches)
        loss = self.student.losses(batches, weights=self.measure.weights).per_token
        return Moments(first.dot(second), each * first.minus(second).norm() ** 2 / 2, loss)
