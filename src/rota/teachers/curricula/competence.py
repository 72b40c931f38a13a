"""Easy sentences first, by the clock (Platanios et al. 2019)."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import Field

from rota.settings import Duration, DurationField
from rota.teachers.card import Card
from rota.teachers.curricula.base import Curriculum, CurriculumConfig, Pace, competence
from rota.types import Decision, Selection, Teacher

if TYPE_CHECKING:
    from rota.teachers.base import Classroom

LEAST = 200
"""Sentences of each language: 1 % of a small corpus would be a handful, seen again and again."""


class Competence(Curriculum):
    """Only the easiest share of each language's sentences, which grows until step ``until``."""

    def __init__(self, teacher: Teacher, *, by: str, until: int, start: float, power: float, least: int) -> None:
        super().__init__(teacher)
        self.by, self.until, self.start, self.power, self.least = by, until, start, power, least

    def added(self, step: int, decision: Decision) -> Decision:
        share = competence(step / self.until, self.start, self.power)
        return decision if share == 1 else replace(decision, selection=Selection(self.by, share, self.least))


class CompetenceConfig(CurriculumConfig):
    """Easy sentences first: the easiest share of each language, which grows by the clock (Platanios et al. 2019)."""

    card: ClassVar[Card | None] = Card(
        family="curricula",
        line="easy sentences first",
        observes="nothing",
        cost=("0", "0"),
        source="Platanios'19",
        reference="Platanios et al. 2019, Competence-based Curriculum Learning for Neural Machine Translation",
    )
    name: Literal["competence"] = "competence"
    by: Literal["length", "rarity", "rarity-sum"] = Field(
        "length", description="what is hard: target tokens; rare source subwords, on average; or summed (the paper's)"
    )
    until: DurationField = Field(Duration("30%"), description="the step from which on all sentences are used")
    start: float = Field(0.01, gt=0, le=1, description="share of the sentences at the first step")
    power: float = Field(2.0, ge=1, description="of the root by which the share grows; 1: linear")
    least: int = Field(LEAST, ge=1, description="sentences of each language, at least")

    def wrap(self, teacher: Teacher, classroom: Classroom, pace: Pace) -> Competence:  # noqa: ARG002
        until = max(1, self.until.steps(pace.steps))
        return Competence(teacher, by=self.by, until=until, start=self.start, power=self.power, least=self.least)
