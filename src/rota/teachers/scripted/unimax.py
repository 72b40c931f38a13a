"""UniMax (Chung et al. 2023): as even as possible, but no arm repeats its text more than a given number of times."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np
from pydantic import Field

from rota.measures import Measure
from rota.teachers.base import Classroom, Languages, OpenLoopConfig
from rota.teachers.card import Card
from rota.types import Arm, Decision, Observation, State

logger = logging.getLogger(__name__)

Order = Literal["spread", "early", "late"]


def unimax(tokens: Mapping[Arm, int], budget: float, epochs: float) -> dict[Arm, float]:
    """Tokens of each arm: equal parts of the budget, but at most ``epochs`` times what the arm has.

    What a small arm cannot take is divided among the larger ones. If all arms reach their cap, the sum is smaller than
    the budget.
    """
    given: dict[Arm, float] = {}
    left = budget
    for number, arm in enumerate(sorted(tokens, key=lambda arm: tokens[arm])):
        given[arm] = min(left / (len(tokens) - number), epochs * tokens[arm])
        left -= given[arm]
    return {arm: given[arm] for arm in tokens}


def whole_counts(shares: Mapping[Arm, float], total: int) -> dict[Arm, int]:
    """Whole numbers in the proportions of ``shares`` that sum to ``total``: those with the largest rest round up."""
    exact = np.array(list(shares.values()), dtype=float)
    exact *= total / exact.sum()
    counts = np.floor(exact).astype(int)
    most = np.argsort(-(exact - counts), kind="stable")[: total - int(counts.sum())]
    counts[most] += 1
    return dict(zip(shares, counts.tolist(), strict=True))


def staircase(counts: Mapping[Arm, int]) -> list[dict[Arm, int]]:
    """The same counts in phases: in each, all arms that have some left play equally often.

    With 2 of az, 2 of be and 5 of tr: two of each, then three of tr. The arms of the lowest counts are the first to go.
    """
    phases = []
    done = 0
    for level in sorted({count for count in counts.values() if count}):
        phases.append({arm: level - done for arm, count in counts.items() if count >= level})
        done = level
    return phases


class CountedPhases:
    """Phase by phase, each arm exactly as often as it says, in random order: drawn without replacement."""

    watches: Sequence[Measure] = ()

    def __init__(self, phases: Sequence[Mapping[Arm, int]], rng: np.random.Generator) -> None:
        self.phases = [dict(phase) for phase in phases]
        self._rng = rng
        self._phase = -1
        self._left: Counter[Arm] = Counter()  # of the phase in progress

    def ask(self, step: int) -> Decision:
        while not self._left.total():
            self._phase += 1
            if self._phase >= len(self.phases):
                planned = sum(sum(phase.values()) for phase in self.phases)
                raise ValueError(
                    f"all {planned:,} choices that were planned are made at step {step:,}; plan a longer run"
                )
            self._left = Counter(self.phases[self._phase])
        arms, total = list(self.phases[self._phase]), self._left.total()
        ends = np.cumsum([self._left[arm] for arm in arms])
        arm = arms[int(np.searchsorted(ends, self._rng.integers(total), side="right"))]
        probability = self._left[arm] / total
        self._left[arm] -= 1
        return Decision(arm, why="sampled", probability=probability)

    def tell(self, observation: Observation) -> None:
        """An open-loop schedule does not listen."""

    def state_dict(self) -> State:
        return {"rng": self._rng.bit_generator.state, "phase": self._phase, "left": dict(self._left)}

    def load_state_dict(self, state: State) -> None:
        self._rng.bit_generator.state = state["rng"]
        self._phase, self._left = state["phase"], Counter(state["left"])


class UniMaxConfig(OpenLoopConfig):
    """As even as possible, but no language repeats its text more than so many times (Chung et al. 2023)."""

    card = Card(
        family="scripted",
        line="even, epochs capped",
        observes="nothing",
        cost=("0.2%", "0"),
        source="Chung '23",
        reference="Chung et al. 2023, UniMax: Fairer and More Effective Language Sampling",
    )
    name: Literal["unimax"] = "unimax"
    languages: Languages = Field("all", description="all, high-resource, low-resource, or a list")
    epochs: float = Field(16.0, gt=0, description="how often a language may be seen in the whole run, at most")
    when: Order = Field(
        "spread",
        description="spread: all the time; early: all languages alike until one has had its share; late: the reverse",
    )

    def build(self, classroom: Classroom, rng: np.random.Generator) -> CountedPhases:
        counts = self.counts(classroom)
        phases = {"spread": [counts], "early": staircase(counts), "late": staircase(counts)[::-1]}[self.when]
        return CountedPhases(phases, rng)

    def counts(self, classroom: Classroom) -> dict[Arm, int]:
        """Choices of each language; those of the warm-up come before and do not count."""
        tokens = {arm: classroom.target_tokens()[arm] for arm in classroom.select(self.languages)}
        until = 0 if self.warmup is None else self.warmup.until.steps(classroom.steps)
        choices = -(-classroom.steps // self.decide_every) - -(-until // self.decide_every)
        budget = choices * self.decide_every * classroom.tokens_per_update()
        given = unimax(tokens, budget, self.epochs)
        if sum(given.values()) < 0.999 * budget:
            seen = {arm: budget * given[arm] / sum(given.values()) / tokens[arm] for arm in given}
            _warn_of_repetition(self.epochs, seen)
        return whole_counts(given, choices)


def _warn_of_repetition(epochs: float, seen: Mapping[Arm, float]) -> None:
    shown = ", ".join(f"{arm} {count:.1f}" for arm, count in seen.items())
    logger.warning(
        "the run is longer than %g epochs of all languages, so they are repeated more often: %s epochs", epochs, shown
    )
