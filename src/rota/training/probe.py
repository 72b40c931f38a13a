"""Measures the student: only what the teacher watches, always on the same dev sentences."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from rota.types import Arm, Batch, Decision, Observation, Student, Watch

DevBatches = Mapping[Arm, Sequence[Batch]]
"""Fixed dev batches by language; all of a language's batches are measured together."""


class Probe:
    """Dev batches to observations. Measuring leaves no trace on the student."""

    def __init__(self, student: Student, dev: DevBatches, joint: Sequence[Batch] = ()) -> None:
        self.student, self.dev, self.joint = student, dev, joint

    def observe(
        self, step: int, decision: Decision, watches: Watch, *, played: Mapping[Arm, int], train_loss: float
    ) -> Observation:
        """What the teacher is told after the updates up to ``step``."""
        return Observation(
            step,
            decision,
            played,
            train_loss=train_loss if Watch.TRAIN_LOSS in watches else None,
            dev_loss=self.dev_losses(played) if Watch.DEV_LOSS in watches else None,
            joint_loss=self.student.losses(self.joint).per_token if Watch.JOINT_LOSS in watches else None,
        )

    def validate(self) -> dict[Arm, float]:
        """The dev loss of every language, nats per token."""
        return self.dev_losses(self.dev)

    def dev_losses(self, arms: Iterable[Arm]) -> dict[Arm, float]:
        return {arm: self.student.losses(self.dev[arm]).per_token for arm in arms}
