"""Losses of training and dev sentences: what the paper's teachers watch."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property

import numpy as np

from rota.measures import (
    DevLoss,
    GroupLosses,
    JointGain,
    JointLoss,
    TrainLoss,
    TrainSampleLoss,
    Weights,
    mean_train_loss,
)
from rota.student.likelihood import TEMPERATURES, fit
from rota.training.devsets import DevSets, Groups
from rota.training.gauges.base import Gauge
from rota.training.turns import Window
from rota.types import Arm, Batch, Decision, FloatArray, ProbedStudent, SentenceLosses, State


class TrainLossGauge(Gauge[TrainLoss]):
    def read(self, window: Window) -> float | dict[Arm, float]:
        return mean_train_loss(self.measure, window.losses)


class DevLossGauge(Gauge[DevLoss]):
    def __init__(self, measure: DevLoss, student: ProbedStudent, sets: DevSets) -> None:
        super().__init__(measure, student, sets)
        self._before: dict[Arm, float] = {}

    @cached_property
    def batches(self) -> dict[Arm, Batch]:
        return self.sets.by_arm(self.measure)

    def begin(self, decision: Decision) -> None:
        if self.measure.when == "around" and decision.arm not in self._before:
            self._before[decision.arm] = self._loss(decision.arm)

    def read(self, window: Window) -> dict[Arm, float] | dict[Arm, tuple[float, float]]:
        after = self._losses_of(self.batches if self.measure.arms == "all" else window.arms)
        if self.measure.when == "after":
            return after
        before, self._before = self._before, {}
        return {arm: (before[arm], loss) for arm, loss in after.items() if arm in before}

    def _losses_of(self, arms: Iterable[Arm]) -> dict[Arm, float]:
        """Arms of one language have one batch, which is measured once."""
        found: dict[int, float] = {}
        losses = {}
        for arm in arms:
            batch = id(self.batches[arm])
            if batch not in found:
                found[batch] = self._loss(arm)
            losses[arm] = found[batch]
        return losses

    def _loss(self, arm: Arm) -> float:
        if self.measure.calibrated:
            batch, weights = self.batches[arm], self.measure.weights
            return fit(self.student.examine([batch], temperatures=TEMPERATURES, weights=weights)).calibrated
        return _losses(self.student, self.batches[arm], self.measure.weights, smoothed=self.measure.smoothed).per_token

    def state_dict(self) -> State:
        return {"before": dict(self._before)} if self._before else {}

    def load_state_dict(self, state: State) -> None:
        self._before = dict(state.get("before", {}))


class TrainSampleLossGauge(Gauge[TrainSampleLoss]):
    @cached_property
    def batches(self) -> dict[Arm, Batch]:
        sets, tokens = self.sets, self.measure.tokens
        return {arm: sets.sample("train", arm, tokens).batch() for arm in sets.train_tokens}

    def read(self, window: Window) -> dict[Arm, float]:  # noqa: ARG002 - whatever was played
        """In one call, so that sentences of all arms share the passes."""
        losses = self.student.losses(list(self.batches.values()), weights=self.measure.weights)
        starts = np.cumsum([0, *(batch.sentences for batch in self.batches.values())][:-1])
        sums, tokens = (np.add.reduceat(values, starts) for values in losses)
        return dict(zip(self.batches, (sums / tokens).tolist(), strict=True))


class JointLossGauge(Gauge[JointLoss]):
    @cached_property
    def batch(self) -> Batch:
        return self.sets.joint(self.measure)

    def read(self, window: Window) -> float:  # noqa: ARG002 - whatever was played
        losses = _losses(self.student, self.batch, self.measure.weights, smoothed=self.measure.smoothed)
        if self.batch.weights is None:
            return losses.per_token
        return float(losses.sums @ self.batch.weights / losses.tokens.sum())


class JointGainGauge(Gauge[JointGain]):
    """Remembers the loss before the updates; the sentences of the next time are measured with those of this one."""

    def __init__(self, measure: JointGain, student: ProbedStudent, sets: DevSets) -> None:
        super().__init__(measure, student, sets)
        self._turn = 0
        self._before: float | None = None

    def begin(self, decision: Decision) -> None:  # noqa: ARG002 - whatever is played
        if self._before is None:
            if self.measure.weights == "recent":  # not before: a run that begins from a stem has none of its own there
                self.student.keep_recent()
            [self._before] = self._losses_of(self._turn)

    def read(self, window: Window) -> float:  # noqa: ARG002 - whatever was played
        assert self._before is not None
        after, following = self._losses_of(self._turn, self._turn + 1)
        gain = self._before - after
        self._before, self._turn = following, self._turn + 1
        return gain

    def _losses_of(self, *turns: int) -> list[float]:
        """The goal's loss on the sentences of each turn, from one call, so that they share the passes."""
        sets, goal = self.sets, self.sets.goal
        tokens = {language: max(1, int(self.measure.tokens * weight)) for language, weight in goal.items()}
        batches = [
            sets.sample("teacher", language, tokens[language], turn).batch() for turn in turns for language in goal
        ]
        losses = self.student.losses(batches, weights=self.measure.weights)
        starts = np.cumsum([0, *(batch.sentences for batch in batches)][:-1])
        sums, counts = (np.add.reduceat(values, starts).reshape(len(turns), len(goal)) for values in losses)
        return [float(value) for value in (sums / counts) @ np.array(list(goal.values()))]

    def state_dict(self) -> State:
        return {"turn": self._turn, "before": self._before}

    def load_state_dict(self, state: State) -> None:
        self._turn, self._before = int(state["turn"]), state["before"]


class GroupLossesGauge(Gauge[GroupLosses]):
    """Remembers the losses of groups that are not measured every time."""

    def __init__(self, measure: GroupLosses, student: ProbedStudent, sets: DevSets) -> None:
        super().__init__(measure, student, sets)
        self._losses: FloatArray | None = None
        self._turn = 0

    @cached_property
    def groups(self) -> Groups:
        return self.sets.groups(self.measure)

    def read(self, window: Window) -> FloatArray:  # noqa: ARG002 - whatever was played
        """All groups the first time, then one turn of them at each observation."""
        turns = len(self.groups.batches)
        if self._losses is None:
            self._losses = np.zeros(self.groups.count)
            due = range(turns)
        else:
            due = range(self._turn, self._turn + 1)
        for turn in due:
            self._losses[turn::turns] = self._of_turn(turn)
        self._turn = (due[-1] + 1) % turns
        return self._losses.copy()

    def _of_turn(self, turn: int) -> FloatArray:
        summed = self.measure.summed
        losses = _losses(self.student, self.groups.batches[turn], self.measure.weights, smoothed=summed)
        starts = np.concatenate([[0], np.cumsum(self.groups.sizes[turn])[:-1]])
        sums: FloatArray = np.add.reduceat(losses.sums, starts)
        return sums if summed else sums / np.add.reduceat(losses.tokens, starts)

    def state_dict(self) -> State:
        return {"prototype": self._losses, "turn": self._turn}

    def load_state_dict(self, state: State) -> None:
        self._losses, self._turn = state["prototype"], state["turn"]


def _losses(student: ProbedStudent, batch: Batch, weights: Weights, *, smoothed: bool) -> SentenceLosses:
    return student.losses([batch], smoothed=smoothed, weights=weights)
