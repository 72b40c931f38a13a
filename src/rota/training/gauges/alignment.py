"""How far the updates on each arm lead towards the goal: their gradients along the gradient of the goal's dev loss.

The gradient of an update is there anyway; only the direction costs something, once every so many updates. All
processes compute the same direction from the same sentences. The student keeps it with its optimiser, and saves it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from rota.measures import Aligned, Alignment, Alignments
from rota.training.devsets import DevSets
from rota.training.gauges.base import Gauge
from rota.training.gauges.source import mismatched_pairs
from rota.training.turns import Window
from rota.types import Arm, Batch, Decision, Gradient, ProbedStudent, State

SERVED_EVERY = 6
"""Directions between two that are taken language by language, which takes about twice as long as all at once."""


class AlignmentGauge(Gauge[Alignment]):
    """Adds up the dot products of each arm's updates until they are read."""

    def __init__(self, measure: Alignment, student: ProbedStudent, sets: DevSets) -> None:
        if measure.weights == "average":
            student.keep_average(measure.decay)
        super().__init__(measure, student, sets)
        self.goal = sets.goal
        self._turn = 0  # directions taken so far
        self._followed = 0  # updates since the last one was taken
        self._sums: dict[Arm, Aligned] = {}
        self._served: dict[Arm, float] = {}  # found with the last directions, and not read yet

    def begin(self, decision: Decision) -> None:  # noqa: ARG002 - whatever is played
        if self._turn == 0 or self._followed >= self.measure.refresh:
            self._follow()
            self._turn, self._followed = self._turn + 1, 0

    def updated(self, decision: Decision) -> None:
        projection = self.student.projection
        if projection is None:  # of an update before the first direction
            return
        self._followed += 1
        along, source, others = projection.dot, 0.0, projection.others
        if self.measure.direction == "both":
            source, others = others[0], others[1:]
        so_far = self._sums.get(decision.arm, Aligned(0.0, 0.0, 0, dict.fromkeys(self._languages, (0.0, 0.0))))
        languages = {
            name: (so_far.languages[name][0] + dot, so_far.languages[name][1] + dot**2)
            for name, dot in zip(self._languages, others, strict=True)
        }
        self._sums[decision.arm] = Aligned(
            so_far.total + along,
            so_far.squares + along**2,
            so_far.updates + 1,
            languages,
            (so_far.source[0] + source, so_far.source[1] + source**2),
        )

    def read(self, window: Window) -> Alignments:  # noqa: ARG002 - the sums are of the same updates
        found = Alignments(self._sums, served=self._served)
        self._sums, self._served = {}, {}
        return found

    @property
    def _languages(self) -> Sequence[Arm]:
        """Those that have a direction of their own."""
        return tuple(self.goal) if self.measure.languages else ()

    def _follow(self) -> None:
        """Takes the next directions: those of the goal, and those of the languages if they are asked for."""
        measure, turn = self.measure, self._turn
        tokens = measure.tokens if turn else round(measure.tokens / (1 - measure.memory))
        right = {name: self.sets.sample("teacher", name, tokens, turn).batch() for name in self.goal}
        wrong = None if measure.direction == "loss" else self._gradient(self._mismatched(tokens), self.goal)
        if not measure.languages and (turn % SERVED_EVERY or len(self.goal) == 1):
            self._take(self._directions(self._gradient(right, self.goal), wrong))
            return
        losses = {name: self._gradient(right, {name: 1.0}) for name in self.goal}
        loss = _mean(list(losses.values()), list(self.goal.values()))
        self._served = self._how_served(losses, loss)
        languages = [self._unit(each) for each in losses.values()] if measure.languages else []
        self._take([*self._directions(loss, wrong), *languages])

    def _take(self, directions: Sequence[Gradient]) -> None:
        self.student.follow(directions[0], directions[1:], self.measure.memory)

    def _how_served(self, losses: Mapping[Arm, Gradient], goal: Gradient) -> dict[Arm, float]:
        """Cosine, but for a factor that all share, of each language's gradient with the sum of the others'."""
        steep = self._in_metric(goal)
        found = {}
        for name, loss in losses.items():
            own = loss.dot(self._in_metric(loss))
            found[name] = (loss.dot(steep) - self.goal[name] * own) / math.sqrt(own) if own > 0 else 0.0
        return found

    def _mismatched(self, tokens: int) -> dict[Arm, Batch]:
        """The same dev sentences with the sources of others."""
        pairs = mismatched_pairs(self.sets, "teacher", self.goal, tokens, self._turn)
        for name in self.goal:
            if name not in pairs:
                remedy = "use teacher.direction: loss, or a larger dev set"
                raise ValueError(f"the dev sentences of {name} have only one source text; {remedy}")
        return {name: wrong for name, (_, wrong) in pairs.items()}

    def _gradient(self, batches: Mapping[Arm, Batch], goal: Mapping[Arm, float]) -> Gradient:
        """Of the goal's mean of the languages' losses."""
        chosen = {name: batches[name] for name in goal}
        total = sum(batch.tokens for batch in chosen.values())
        weighted = [
            replace(batch, weights=np.full(batch.sentences, goal[name] * total / batch.tokens))
            for name, batch in chosen.items()
        ]
        return self.student.gradient(weighted, weights=self.measure.weights)

    def _directions(self, loss: Gradient, mismatched: Gradient | None) -> list[Gradient]:
        """From the gradients of the loss and, where it is needed, of the loss with the sources of others."""
        if mismatched is None:
            return [self._unit(loss)]
        contrast = self._unit(loss.minus(mismatched))
        return [contrast] if self.measure.direction == "source-gain" else [self._unit(loss), contrast]

    def _unit(self, gradient: Gradient) -> Gradient:
        """Of length one in the metric, so that directions of different times weigh alike in the sums."""
        direction = self._in_metric(gradient)
        norm = direction.norm()
        return direction.scaled(1 / norm) if norm else direction

    def _in_metric(self, gradient: Gradient) -> Gradient:
        return gradient.in_adams_metric() if self.measure.metric == "adam" else gradient

    def state_dict(self) -> State:
        sums = {
            arm: [*aligned[:3], {name: list(pair) for name, pair in aligned.languages.items()}, list(aligned.source)]
            for arm, aligned in self._sums.items()
        }
        return {"turn": self._turn, "followed": self._followed, "sums": sums, "served": dict(self._served)}

    def load_state_dict(self, state: State) -> None:
        self._turn, self._followed, self._served = state["turn"], state["followed"], dict(state["served"])
        self._sums = {
            arm: Aligned(
                total,
                squares,
                updates,
                {name: (pair[0], pair[1]) for name, pair in languages.items()},
                (source[0], source[1]),
            )
            for arm, (total, squares, updates, languages, source) in state["sums"].items()
        }


def _mean(gradients: Sequence[Gradient], weights: Sequence[float]) -> Gradient:
    first, *others = [gradient.scaled(weight) for gradient, weight in zip(gradients, weights, strict=True)]
    for other in others:
        first = first.plus(other)
    return first
