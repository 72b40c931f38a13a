"""Self-paced by the change of the weights (Atrio et al. 2024): one language until the weights hardly move any more.

Our reading, from the abstract and notes: how weights become distributions, how often they are compared and when it is
time to move on are our choices.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import median
from typing import ClassVar, Literal

import numpy as np
from pydantic import Field

from rota.measures import Measure, WeightChange
from rota.teachers.base import Classroom, Languages, TeacherConfig, with_enough_choices
from rota.teachers.card import Card
from rota.teachers.rewards import measured
from rota.types import Arm, Decision, Observation, State

CHANGE = WeightChange()


class WeightPaced:
    """Stays on an arm until its smoothed change of weights is below the median over all arms; then the next one.

    At first every arm is played once. ``smoothing`` is the weight of the old value.
    """

    def __init__(self, arms: Sequence[Arm], *, smoothing: float, longest: int) -> None:
        self.arms, self.smoothing, self.longest = tuple(arms), smoothing, longest
        self.changes: dict[Arm, float] = {}
        self._index = 0
        self._stayed = 0  # observations of the arm in progress

    watches: Sequence[Measure] = (CHANGE,)

    def ask(self, step: int) -> Decision:  # noqa: ARG002 - the weights are its clock
        scores = dict.fromkeys(self.arms, 0.0) | self.changes
        why = "stay" if self._stayed else "next"
        return Decision(self.arms[self._index], why=why, probability=1.0, scores=scores)

    def tell(self, observation: Observation) -> Mapping[Arm, float] | None:
        """Returns the smoothed change of the arm; told of a warm-up, it learns only from arms of its own."""
        change = measured(observation, CHANGE)
        if not math.isfinite(change):
            raise ValueError(f"step {observation.step}: the change of weights is {change}; lower the learning rate")
        arm = observation.decision.arm
        if arm not in self.arms:
            return None
        before = self.changes.get(arm, change)
        self.changes[arm] = (1 - self.smoothing) * change + self.smoothing * before
        if arm == self.arms[self._index]:
            self._stayed += 1
            if self._is_learned(arm):
                self._index, self._stayed = (self._index + 1) % len(self.arms), 0
        return {arm: self.changes[arm]}

    def _is_learned(self, arm: Arm) -> bool:
        if len(self.changes) < len(self.arms) or self._stayed >= self.longest:
            return True
        return self.changes[arm] < median(self.changes.values())

    def state_dict(self) -> State:
        return {"changes": dict(self.changes), "index": self._index, "stayed": self._stayed}

    def load_state_dict(self, state: State) -> None:
        self.changes, self._index, self._stayed = dict(state["changes"]), state["index"], state["stayed"]


class WeightChangeConfig(TeacherConfig):
    """One language until the weights hardly change any more, then the next (Atrio et al. 2024; our reading)."""

    card = Card(
        family="policies",
        line="on when weights rest",
        observes="weights",
        cost=("0.5%", "0"),
        source="Atrio '24",
        reference="Atrio et al. 2024, Can the Variation of Model Weights be used as a Criterion for Self-Paced NMT?; "
        "our reading of the abstract",
    )
    name: Literal["weight-change"] = "weight-change"
    follows_run: ClassVar[tuple[str, ...]] = ("decide_every",)
    decide_every: int = Field(
        50, ge=1, description="updates between two choices, over which weights are compared; fewer in a short run"
    )
    languages: Languages = Field("all", description="all, high-resource, low-resource, or a list")
    smoothing: float = Field(0.9, ge=0, lt=1, description="weight of the old value of a language's change")
    longest: int = Field(20, ge=1, description="choices after which the language changes in any case")

    def fitted(self, steps: int, tokens: int) -> TeacherConfig:  # noqa: ARG002 - a matter of updates
        """In runs of fewer than 4,000 updates choices are shorter, so that there are 80: else some arms get none."""
        return with_enough_choices(self, steps)

    def build(self, classroom: Classroom, rng: np.random.Generator) -> WeightPaced:  # noqa: ARG002 - nothing is drawn
        return WeightPaced(classroom.select(self.languages), smoothing=self.smoothing, longest=self.longest)
