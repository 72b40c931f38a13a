"""Signals that need gradients of the student, or its predictions under dropout."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal

from rota.measures import (
    Aligned,
    Alignment,
    GradientMoments,
    GradientProducts,
    Moments,
    Uncertainty,
    UncertaintyKind,
    Weights,
)
from rota.teachers.rewards import measured
from rota.teachers.weights.signals import Signal, finite, finite_by_arm
from rota.types import Arm, Observation


class GradientSignal(Signal):
    """The gradient of an arm's training sentences along those of the dev languages, weighted by the goal or alike."""

    settings: ClassVar[tuple[str, ...]] = ("divided_by", "targets", "between", "map", "tokens", "weights")

    def __init__(
        self,
        arms: Sequence[Arm],
        *,
        divided_by: Literal["norms", "mean-norm", "nothing"],
        targets: tuple[Arm, ...],
        between: tuple[float, float] | None,
        map: bool,
        tokens: int,
        weights: Weights,
        smoothing: float,
    ) -> None:
        measure = GradientProducts(divided_by, tokens, targets, weights, languages=map)
        super().__init__(arms, measure, smoothing=smoothing)
        self.between = between

    def read(self, observation: Observation) -> dict[Arm, float]:
        found = measured(observation, self.measures[0])
        means = {arm: finite(found[arm].mean, f"gradient of {arm}", observation.step) for arm in self.arms}
        if self.between is None:
            return means
        low, high = self.between
        return {arm: min(high, max(low, mean)) for arm, mean in means.items()}


class Pike(Signal):
    """PiKE: norm_weight x |gradient|^2 - variance_weight / (2 sentences) x variance of a sentence's gradient."""

    settings: ClassVar[tuple[str, ...]] = ("norm_weight", "variance_weight", "sentences", "tokens", "weights")

    def __init__(
        self,
        arms: Sequence[Arm],
        *,
        norm_weight: float,
        variance_weight: float,
        sentences: int,
        tokens: int,
        weights: Weights,
        smoothing: float,
    ) -> None:
        super().__init__(arms, GradientMoments(tokens, weights), smoothing=smoothing)
        self.norm_weight, self.variance_weight = norm_weight, variance_weight / (2 * sentences)

    def read(self, observation: Observation) -> dict[Arm, float]:
        return {
            arm: self.norm_weight * moments.squared_norm - self.variance_weight * moments.variance
            for arm, moments in moments_by_arm(self, observation).items()
        }


class VirtualGain(Signal):
    """DynamixSFT: the relative gain of one step on the arm itself, to first order |gradient|^2 / loss."""

    settings: ClassVar[tuple[str, ...]] = ("tokens", "weights")

    def __init__(self, arms: Sequence[Arm], *, tokens: int, weights: Weights, smoothing: float) -> None:
        super().__init__(arms, GradientMoments(tokens, weights), smoothing=smoothing)

    def read(self, observation: Observation) -> dict[Arm, float]:
        found = moments_by_arm(self, observation)
        return {arm: moments.squared_norm / (moments.loss + 1e-8) for arm, moments in found.items()}


class UncertaintySignal(Signal):
    """MultiUAT: how unsure the student is of the dev sentences of each arm."""

    settings: ClassVar[tuple[str, ...]] = ("uncertainty", "samples", "tokens", "weights")

    def __init__(
        self,
        arms: Sequence[Arm],
        *,
        uncertainty: UncertaintyKind,
        samples: int,
        tokens: int,
        weights: Weights,
        smoothing: float,
    ) -> None:
        super().__init__(arms, Uncertainty(uncertainty, samples, tokens, weights), smoothing=smoothing)

    def read(self, observation: Observation) -> dict[Arm, float]:
        return finite_by_arm(observation, self.measures[0], self.arms)


class AlignmentSignal(Signal):
    """How far the arm's own updates led towards the goal: the mean of their dot products (teacher ``align``)."""

    settings: ClassVar[tuple[str, ...]] = ("tokens", "weights")

    def __init__(self, arms: Sequence[Arm], *, tokens: int, weights: Weights, smoothing: float) -> None:
        super().__init__(arms, Alignment(tokens=tokens, weights=weights, direction="loss"), smoothing=smoothing)

    def read(self, observation: Observation) -> dict[Arm, float]:
        found: dict[Arm, Aligned] = measured(observation, self.measures[0])
        return {
            arm: finite(aligned.total, f"alignment of {arm}", observation.step) / aligned.updates
            for arm, aligned in found.items()
            if arm in self.arms and aligned.updates
        }


def moments_by_arm(signal: Signal, observation: Observation) -> dict[Arm, Moments]:
    """The moments of every arm, all finite."""
    found = measured(observation, signal.measures[0])
    return {
        arm: Moments(*(finite(value, f"gradient of {arm}", observation.step) for value in found[arm]))
        for arm in signal.arms
    }
