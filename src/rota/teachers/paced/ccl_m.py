"""CCL-M (Zhang et al. 2021): low-resource languages join when the others are learned; weak ones are drawn more often.

Our reading: the formulas are from notes on the paper, no code of its authors was found.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

import numpy as np
from pydantic import Field

from rota.measures import DevLoss, Measure, Weights
from rota.settings import Count, Duration, DurationField
from rota.teachers.base import Classroom, TeacherConfig
from rota.teachers.card import Card
from rota.teachers.choice import named
from rota.teachers.rewards import measured
from rota.teachers.weights.baselines import read_baseline
from rota.teachers.weights.rules import floored
from rota.types import Arm, Decision, FloatArray, Observation, State

LEAST = 1e-3
"""The smallest competence: a student that knows nothing would otherwise have an infinite share."""


class CCLM:
    """Draws from the admitted arms with shares inverse to their competence, exp(target - dev loss), at most 1.

    ``teachers_of`` names for each arm that joins later those whose mean competence admits it. ``every`` is the number
    of updates between two looks at the dev losses.
    """

    def __init__(
        self,
        targets: Mapping[Arm, float],
        teachers_of: Mapping[Arm, Sequence[Arm]],
        rng: np.random.Generator,
        measure: DevLoss,
        *,
        threshold: float,
        floor: float,
        every: int,
        observe_every: int = 1,
    ) -> None:
        self.targets, self.teachers_of = dict(targets), dict(teachers_of)
        self.threshold, self.floor = threshold, floor
        self._measure, self._every, self._observe_every = measure, every, observe_every
        self._rng = rng
        self.admitted = [arm for arm in self.targets if arm not in self.teachers_of]
        self.competences = dict.fromkeys(self.targets, LEAST)
        self._next = every
        self._due = True

    @property
    def watches(self) -> Sequence[Measure]:
        return (self._measure,) if self._due else ()

    @property
    def shares(self) -> dict[Arm, float]:
        """Of all arms; those that are not admitted have 0."""
        inverse = np.array([1 / self.competences[arm] for arm in self.admitted])
        shares: FloatArray = floored(inverse / inverse.sum(), self.floor)
        return dict.fromkeys(self.targets, 0.0) | named(self.admitted, shares)

    def ask(self, step: int) -> Decision:
        self._due = (step // self._observe_every + 1) * self._observe_every >= self._next
        shares = self.shares
        ends = np.cumsum([shares[arm] for arm in self.admitted])
        index = min(int(np.searchsorted(ends, self._rng.random(), side="right")), len(self.admitted) - 1)
        arm = self.admitted[index]
        return Decision(arm, why="sampled", probability=shares[arm], scores=shares)

    def tell(self, observation: Observation) -> Mapping[Arm, float] | None:
        """Returns the competences."""
        if not self._due:
            return None
        losses = measured(observation, self._measure)
        for arm in self.targets:
            loss = losses.get(arm)
            if loss is None or not math.isfinite(loss):
                raise ValueError(f"step {observation.step}: the dev loss of {arm} is {loss}; lower the learning rate")
        self.competences = {
            arm: min(1.0, max(LEAST, math.exp(target - losses[arm]))) for arm, target in self.targets.items()
        }
        self._next = observation.step + self._every
        self.admitted = [arm for arm in self.targets if arm in self.admitted or self._ready(arm)]
        return dict(self.competences)

    def _ready(self, arm: Arm) -> bool:
        known = [self.competences[other] for other in self.teachers_of[arm]]
        return math.fsum(known) / len(known) >= self.threshold

    def state_dict(self) -> State:
        return {
            "rng": self._rng.bit_generator.state,
            "admitted": list(self.admitted),
            "competences": dict(self.competences),
            "next": self._next,
            "due": self._due,
        }

    def load_state_dict(self, state: State) -> None:
        self._rng.bit_generator.state = state["rng"]
        self.admitted, self.competences = list(state["admitted"]), dict(state["competences"])
        self._next, self._due = state["next"], state["due"]


class CCLMConfig(TeacherConfig):
    """Low-resource languages join when the others are learned; weak ones are drawn more often (Zhang et al. 2021)."""

    card = Card(
        family="policies",
        line="joins when others know",
        observes="dev losses",
        cost=("12%", "0.1%"),
        source="Zhang '21",
        reference="Zhang et al. 2021, Competence-based Curriculum Learning for Multilingual Machine Translation; "
        "our reading of notes on it",
    )
    name: Literal["ccl-m"] = "ccl-m"
    baseline: dict[Arm, float] | Path = Field(
        description="dev loss of each language that counts as learned, or the folder of a finished run",
        examples=["baseline: runs/uniform"],
    )
    threshold: float = Field(
        0.85, gt=0, le=1, description="mean competence of the high-resource languages that admits a low-resource one"
    )
    relatives: dict[Arm, tuple[Arm, ...]] = Field(
        default_factory=dict,
        description="for a low-resource language, the high-resource ones that admit it; by default all of them",
    )
    floor: float = Field(0.01, ge=0, lt=1, description="least share of an admitted language")
    every: DurationField = Field(Duration("2%"), description="steps between two looks at the dev losses")
    tokens: Count = Field(2_000, ge=1, description="dev tokens of each language, at most")
    weights: Weights = Field("average", description="of the student that is measured: average or raw")

    def build(self, classroom: Classroom, rng: np.random.Generator) -> CCLM:
        language_of, low = classroom.language_of, classroom.low_resource
        losses = read_baseline(self.baseline, {name: name for name in classroom.languages}, of="dev")
        assert losses is not None
        high = classroom.select("high-resource")
        for language, relatives in self.relatives.items():
            if language not in {language_of[arm] for arm in low}:
                raise ValueError(f"teacher.relatives: {language!r} is not a low-resource language; leave it out")
            if not relatives or not set(classroom.select(relatives)) <= set(high):
                known, named_here = ", ".join(high), ", ".join(relatives) or "none"
                raise ValueError(
                    f"teacher.relatives: {language!r} has {named_here}; name high-resource languages ({known})"
                )
        return CCLM(
            {arm: losses[language_of[arm]] for arm in classroom.arms},
            {arm: classroom.select(self.relatives.get(language_of[arm], high)) for arm in low},
            rng,
            DevLoss(arms="all", tokens=self.tokens, weights=self.weights),
            threshold=self.threshold,
            floor=self.floor,
            every=max(1, self.every.steps(classroom.steps)),
            observe_every=self.observes_every(classroom.steps) or self.decide_every,
        )

    def reads(self) -> Sequence[Path]:
        return (self.baseline,) if isinstance(self.baseline, Path) else ()
