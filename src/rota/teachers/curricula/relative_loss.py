"""Phases of the sentences whose loss falls fastest (Xu et al. 2020)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import Field

from rota.measures import DevLoss, Measure, TrainSetLosses
from rota.settings import ConfigError, Duration, DurationField
from rota.teachers.card import Card
from rota.teachers.curricula.base import Curriculum, CurriculumConfig, Found, Pace, competence
from rota.teachers.curricula.competence import LEAST
from rota.types import Decision, Selection, State, Teacher

if TYPE_CHECKING:
    from rota.teachers.base import Classroom

COLUMN = TrainSetLosses()
DEV = DevLoss(arms="all")


class RelativeLoss(Curriculum):
    """After each phase all training sentences are measured; the next has those whose loss has fallen most.

    The first phase that selects is the third: two measurements make a decline. ``target`` is the mean dev loss of a
    finished baseline: the share is then exp(target - dev loss), the baseline's perplexity over the student's. Without
    it the share grows by the clock, until step ``until``.
    """

    def __init__(
        self, teacher: Teacher, pace: Pace, *, every: int, start: float, until: int, target: float | None, least: int
    ) -> None:
        super().__init__(teacher)
        self._pace, self._every, self.start, self.until = pace, every, start, until
        self.target, self.least = target, least
        self._watched: tuple[Measure, ...] = (COLUMN,) if target is None else (COLUMN, DEV)
        self._is_due = True
        self._measured = 0  # how often
        self._next = every
        self._share = 1.0

    @property
    def due(self) -> Sequence[Measure]:
        return self._watched if self._is_due else ()

    def added(self, step: int, decision: Decision) -> Decision:
        self._is_due = self._pace.next_tell(step) >= self._next
        if self._measured < 2 or self._share == 1:
            return decision
        return replace(decision, selection=Selection("relative-loss", self._share, self.least))

    def learn(self, step: int, found: Found) -> None:
        if not found:
            return
        self._measured, self._next = self._measured + 1, step + self._every
        if self.target is None:
            self._share = competence(step / self.until, self.start)
            return
        losses = found[DEV]
        assert isinstance(losses, Mapping)
        mean = math.fsum(losses.values()) / len(losses)
        self._share = min(1.0, max(self.start, math.exp(self.target - mean)))

    def state_dict(self) -> State:
        own = {"due": self._is_due, "measured": self._measured, "next": self._next, "share": self._share}
        return super().state_dict() | own

    def load_state_dict(self, state: State) -> None:
        super().load_state_dict(state)
        self._is_due, self._measured = state["due"], state["measured"]
        self._next, self._share = state["next"], state["share"]


class RelativeLossConfig(CurriculumConfig):
    """Phases of the sentences whose loss has fallen most since the phase before (Xu et al. 2020; our reading)."""

    card: ClassVar[Card | None] = Card(
        family="curricula",
        line="what is being learned",
        observes="train set",
        cost=("85%", "1%"),
        source="Xu '20",
        reference="Xu et al. 2020, Dynamic Curriculum Learning for Low-Resource Neural Machine Translation; our "
        "reading of the abstract",
    )
    name: Literal["relative-loss"] = "relative-loss"
    every: DurationField = Field(
        Duration("10%"), description="steps of a phase; after each, all training sentences are measured"
    )
    start: float = Field(0.1, gt=0, le=1, description="share of the sentences at the first step, or at the least")
    until: DurationField = Field(Duration("70%"), description="the step from which on all sentences are used")
    target: float | None = Field(
        None,
        description="mean dev loss of a finished run; the share is exp(target - dev loss); null: by the clock",
    )
    least: int = Field(LEAST, ge=1, description="sentences of each language, at least")

    def wrap(self, teacher: Teacher, classroom: Classroom, pace: Pace) -> RelativeLoss:  # noqa: ARG002
        return RelativeLoss(
            teacher,
            pace,
            every=max(1, self.every.steps(pace.steps)),
            start=self.start,
            until=max(1, self.until.steps(pace.steps)),
            target=self.target,
            least=self.least,
        )

    def check(self, steps: int) -> None:
        if 2 * self.every.steps(steps) >= steps:
            lasts = f"teacher.curriculum.every is {self.every.steps(steps):,} steps and the run has {steps:,}"
            raise ConfigError(f"{lasts}: nothing would be selected; write for example 10%")
