"""How far the updates on each arm lead towards the goal: their gradients along the gradient of the goal's dev loss.

The gradient of an update is there anyway; only the direction costs something, once every so many updates. All
processes compute the same direction from the same sentences. The student keeps it with its optimiser, and saves it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from rota.measures import Aligned, Alignment
from rota.training.devsets import DevSets
from rota.training.gauges.base import Gauge
from rota.training.gauges.source import mismatched_pairs
from rota.training.turns import Window
from rota.types import Arm, Batch, Decision, Gradient, ProbedStudent, State

FACTORS = {"loss": (1.0, 0.0), "source-gain": (1.0, -1.0), "both": (2.0, -1.0)}
"""By direction: those of the loss with the right sources, and of the loss with the sources of other sentences."""


class AlignmentGauge(Gauge[Alignment]):
    """Adds up the dot products of each arm's updates until they are read."""

    def __init__(self, measure: Alignment, student: ProbedStudent, sets: DevSets) -> None:
        if measure.weights == "average":
            student.keep_average(measure.decay)
        super().__init__(measure, student, sets)
        self._turn = 0  # directions taken so far
        self._followed = 0  # updates since the last one was taken
        self._sums: dict[Arm, Aligned] = {}

    def begin(self, decision: Decision) -> None:  # noqa: ARG002 - whatever is played
        if self._turn == 0 or self._followed >= self.measure.refresh:
            self.student.follow(self._direction())
            self._turn, self._followed = self._turn + 1, 0

    def updated(self, decision: Decision) -> None:
        projection = self.student.projection
        if projection is None:  # of an update before the first direction
            return
        self._followed += 1
        so_far = self._sums.get(decision.arm, Aligned(0.0, 0.0, 0))
        self._sums[decision.arm] = Aligned(
            so_far.total + projection.dot, so_far.squares + projection.dot**2, so_far.updates + 1
        )

    def read(self, window: Window) -> dict[Arm, Aligned]:  # noqa: ARG002 - the sums are of the same updates
        sums, self._sums = self._sums, {}
        return sums

    def _direction(self) -> Gradient:
        gradient = self.student.gradient(self._batches(), weights=self.measure.weights)
        return gradient.in_adams_metric() if self.measure.metric == "adam" else gradient

    def _batches(self) -> list[Batch]:
        """Their weighted loss is the goal's mean of the languages' losses, or what else is to fall."""
        right, wrong = FACTORS[self.measure.direction]
        goal = goal_of(self.sets)
        if not wrong:
            batches = {
                language: [self.sets.sample("teacher", language, self.measure.tokens, self._turn).batch()]
                for language in goal
            }
        else:
            pairs = mismatched_pairs(self.sets, "teacher", goal, self.measure.tokens, self._turn)
            batches = {language: list(pair) for language, pair in pairs.items()}
        return _weighted(batches, goal, (right, wrong))

    def state_dict(self) -> State:
        sums = {arm: list(aligned[:3]) for arm, aligned in self._sums.items()}
        return {"turn": self._turn, "followed": self._followed, "sums": sums}

    def load_state_dict(self, state: State) -> None:
        self._turn, self._followed = state["turn"], state["followed"]
        self._sums = {arm: Aligned(*values) for arm, values in state["sums"].items()}


def goal_of(sets: DevSets) -> Mapping[Arm, float]:
    """What each language counts; they sum to one."""
    return dict.fromkeys(sets.languages, 1 / len(sets.languages))


def _weighted(
    batches: Mapping[Arm, Sequence[Batch]], goal: Mapping[Arm, float], factors: tuple[float, float]
) -> list[Batch]:
    """Sentences weighted so that the mean over all tokens is the sum of factor x goal x the batch's own mean."""
    total = sum(batch.tokens for of_language in batches.values() for batch in of_language)
    return [
        replace(batch, weights=np.full(batch.sentences, factor * goal[language] * total / batch.tokens))
        for language, of_language in batches.items()
        for factor, batch in zip(factors, of_language, strict=False)
    ]
