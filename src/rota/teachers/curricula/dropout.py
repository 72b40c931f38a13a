"""Self-paced learning: what the student predicts steadily under dropout counts more (Wan et al. 2020)."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import Field

from rota.settings import Duration, DurationField
from rota.teachers.card import Card
from rota.teachers.curricula.base import Curriculum, CurriculumConfig, Pace
from rota.types import Decision, Pacing, Teacher

if TYPE_CHECKING:
    from rota.teachers.base import Classroom


class DropoutVariance(Curriculum):
    """Adds a :class:`Pacing` to every decision before step ``until``; the loop measures and weights the batches."""

    def __init__(self, teacher: Teacher, pacing: Pacing, *, until: int) -> None:
        super().__init__(teacher)
        self.pacing, self.until = pacing, until

    def added(self, step: int, decision: Decision) -> Decision:
        return replace(decision, pacing=self.pacing) if step < self.until else decision


class DropoutVarianceConfig(CurriculumConfig):
    """Weights of the loss by how steady predictions are under dropout (Wan et al. 2020); takes two thirds of a run."""

    card: ClassVar[Card | None] = Card(
        family="curricula",
        line="steady predictions first",
        observes="dropout",
        cost=("64%", "66%"),
        source="Wan '20",
        reference="Wan et al. 2020, Self-Paced Learning for Neural Machine Translation; our reading of notes "
        "on its code",
    )
    for_one_process: ClassVar[str | None] = (
        "weights by dropout variance are for one; train in one process, or leave teacher.curriculum out"
    )
    name: Literal["dropout-variance"] = "dropout-variance"
    samples: int = Field(5, ge=2, description="passes with dropout over every batch, before its update")
    power: float = Field(2.0, gt=0, description="of the confidence, 1 - variance")
    until: DurationField = Field(Duration("100%"), description="the step from which on all tokens count alike")

    def wrap(self, teacher: Teacher, classroom: Classroom, pace: Pace) -> DropoutVariance:  # noqa: ARG002
        return DropoutVariance(teacher, Pacing(self.samples, self.power), until=self.until.steps(pace.steps))
