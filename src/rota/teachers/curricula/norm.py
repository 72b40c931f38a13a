"""Easy sentences first, and hard ones with more weight, by norms of embeddings (Liu et al. 2020)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import Field

from rota.measures import EmbeddingNorm, Measure, SourceNorms
from rota.settings import ConfigError, Duration, DurationField
from rota.teachers.card import Card
from rota.teachers.curricula.base import Curriculum, CurriculumConfig, Found, Pace, competence
from rota.teachers.curricula.competence import LEAST
from rota.types import Decision, Emphasis, Selection, State, Teacher

if TYPE_CHECKING:
    from rota.teachers.base import Classroom

NORM = EmbeddingNorm()
COLUMN = SourceNorms()


class NormCurriculum(Curriculum):
    """The share of the sentences grows with the norm of the embeddings; their difficulty is the sum of their norms.

    It grows at least as fast as by the clock, with step ``until`` as the end: in short runs the norm hardly changes.
    Until the norms of all sentences have been measured for the first time, length takes their place: at the beginning
    all embeddings have nearly the same norm.
    """

    def __init__(
        self,
        teacher: Teacher,
        pace: Pace,
        *,
        growth: float,
        start: float,
        until: int,
        weight_power: float,
        least: int,
        check_every: int,
        refresh_every: int,
    ) -> None:
        super().__init__(teacher)
        self._pace, self.growth, self.start, self.until = pace, growth, start, until
        self.weight_power, self.least = weight_power, least
        self._check_every, self._refresh_every = check_every, refresh_every
        self._first: float | None = None  # the norm at the first observation
        self._competence = start
        self._by = "length"
        self._next_check, self._next_refresh = 0, refresh_every
        self._due: tuple[Measure, ...] = (NORM, COLUMN)

    @property
    def due(self) -> Sequence[Measure]:
        return self._due

    def added(self, step: int, decision: Decision) -> Decision:
        told = self._pace.next_tell(step)
        wanted = ((NORM, self._next_check), (COLUMN, self._next_refresh))
        self._due = tuple(measure for measure, at in wanted if told >= at)
        share = max(self._competence, competence(step / self.until, self.start))
        selection = None if share == 1 else Selection(self._by, share, self.least)
        emphasis = Emphasis(self._by, share, self.weight_power) if self.weight_power else None
        return replace(decision, selection=selection, emphasis=emphasis)

    def learn(self, step: int, found: Found) -> None:
        if NORM in found:
            norm = found[NORM]
            assert not isinstance(norm, Mapping)
            self._first = norm if self._first is None else self._first
            self._competence = competence((norm - self._first) / (self.growth * self._first), self.start)
            self._next_check = step + self._check_every
        if COLUMN in found:
            self._by, self._next_refresh = "norm", step + self._refresh_every

    def state_dict(self) -> State:
        own = {"first": self._first, "competence": self._competence, "by": self._by}
        due = {"check": self._next_check, "refresh": self._next_refresh, "due": [str(measure) for measure in self._due]}
        return super().state_dict() | own | due

    def load_state_dict(self, state: State) -> None:
        super().load_state_dict(state)
        self._first, self._competence, self._by = state["first"], state["competence"], state["by"]
        self._next_check, self._next_refresh = state["check"], state["refresh"]
        self._due = tuple(measure for measure in (NORM, COLUMN) if str(measure) in state["due"])


class NormConfig(CurriculumConfig):
    """Sentences of small embedding norms first, and more weight on large ones (Liu et al. 2020; our reading)."""

    card: ClassVar[Card | None] = Card(
        family="curricula",
        line="by norms of embeddings",
        observes="embeddings",
        cost=("0.2%", "0"),
        source="Liu '20",
        reference="Liu et al. 2020, Norm-Based Curriculum Learning for Neural Machine Translation; our reading",
    )
    name: Literal["norm"] = "norm"
    growth: float = Field(
        2.5, gt=0, description="by how many times its first value the embedding norm grows until all sentences are used"
    )
    start: float = Field(0.01, gt=0, le=1, description="share of the sentences at the first step")
    until: DurationField = Field(
        Duration("70%"), description="the step from which on all sentences are used, even if the norm has not grown so"
    )
    weight_power: float = Field(0.5, ge=0, description="of the weights (rank / share) ** power; 0: none")
    least: int = Field(LEAST, ge=1, description="sentences of each language, at least")
    check_every: DurationField = Field(Duration("1%"), description="steps between two looks at the embedding norm")
    refresh_every: DurationField = Field(
        Duration("10%"), description="steps after which the norms of all sentences are measured again"
    )

    def wrap(self, teacher: Teacher, classroom: Classroom, pace: Pace) -> NormCurriculum:  # noqa: ARG002
        return NormCurriculum(
            teacher,
            pace,
            growth=self.growth,
            start=self.start,
            until=max(1, self.until.steps(pace.steps)),
            weight_power=self.weight_power,
            least=self.least,
            check_every=max(1, self.check_every.steps(pace.steps)),
            refresh_every=max(1, self.refresh_every.steps(pace.steps)),
        )

    def check(self, steps: int) -> None:
        for name in ("check_every", "refresh_every"):
            every: Duration = getattr(self, name)
            if every.steps(steps) >= steps:
                lasts = f"teacher.curriculum.{name} is {every.steps(steps):,} steps and the run has {steps:,}"
                raise ConfigError(f"{lasts}: nothing would be measured; write for example 1%")
