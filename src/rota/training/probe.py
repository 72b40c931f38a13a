"""Measures the student: only what the teacher watches, always on the same sentences. Leaves no trace on the student."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from rota.student.nmt import NotFiniteError
from rota.training.devsets import DevSets
from rota.types import Arm, Decision, FloatArray, Observation, State, Student, Watch


class Probe:
    """Dev sets to observations. It remembers the prototype losses of groups that are not measured every time."""

    def __init__(self, student: Student, sets: DevSets) -> None:
        self.student, self.sets = student, sets
        self._prototype: FloatArray | None = None
        self._turn = 0

    def observe(
        self, step: int, decision: Decision, watches: Watch, *, played: Mapping[Arm, int], train_loss: float
    ) -> Observation:
        """What the teacher is told after the updates up to ``step``."""
        dev_loss = {arm: self._reward_loss(arm) for arm in played} if Watch.DEV_LOSS in watches else None
        joint_loss = self._joint_loss() if Watch.JOINT_LOSS in watches else None
        prototype = self._prototype_losses() if Watch.PROTOTYPE in watches else None
        _check_finite(step, [*(dev_loss or {}).values(), *([] if joint_loss is None else [joint_loss])])
        _check_finite(step, [] if prototype is None else prototype)
        return Observation(
            step,
            decision,
            played,
            train_loss=train_loss if Watch.TRAIN_LOSS in watches else None,
            dev_loss=dev_loss,
            joint_loss=joint_loss,
            prototype=prototype,
        )

    def validate(self, step: int) -> dict[Arm, float]:
        """The dev loss of every language on the sentences no teacher sees, nats per token."""
        losses = self.student.losses(list(self.sets.validation.values()))
        ends = np.cumsum([batch.sentences for batch in self.sets.validation.values()])
        sums, tokens = (np.add.reduceat(values, [0, *ends[:-1]]) for values in losses)
        _check_finite(step, sums)
        return dict(zip(self.sets.validation, (sums / tokens).tolist(), strict=True))

    def _reward_loss(self, arm: Arm) -> float:
        smoothed = self.sets.how.reward_loss == "smoothed"
        return self.student.losses([self.sets.reward[arm]], smoothed=smoothed).per_token

    def _joint_loss(self) -> float:
        smoothed = self.sets.how.reward_loss == "smoothed"
        return self.student.losses([self.sets.joint], smoothed=smoothed).per_token

    def _prototype_losses(self) -> FloatArray:
        """All groups the first time, then one turn of them at each observation."""
        prototype = self.sets.prototype
        turns = len(prototype.batches)
        if self._prototype is None:
            self._prototype = np.zeros(prototype.groups)
            due = range(turns)
        else:
            due = range(self._turn, self._turn + 1)
        for turn in due:
            self._prototype[turn::turns] = self._group_losses(turn)
        self._turn = (due[-1] + 1) % turns
        return self._prototype.copy()

    def _group_losses(self, turn: int) -> FloatArray:
        summed = self.sets.how.state_loss == "summed"
        losses = self.student.losses([self.sets.prototype.batches[turn]], smoothed=summed)
        starts = np.concatenate([[0], np.cumsum(self.sets.prototype.sizes[turn])[:-1]])
        sums: FloatArray = np.add.reduceat(losses.sums, starts)
        return sums if summed else sums / np.add.reduceat(losses.tokens, starts)

    def state_dict(self) -> State:
        return {"prototype": self._prototype, "turn": self._turn}

    def load_state_dict(self, state: State) -> None:
        self._prototype, self._turn = state["prototype"], state["turn"]


def _check_finite(step: int, losses: Sequence[float] | FloatArray) -> None:
    """A student that has diverged must not be saved as if all were well."""
    if not np.isfinite(losses).all():
        raise NotFiniteError(f"a dev loss at step {step} is not a finite number; try a lower learning rate.")
