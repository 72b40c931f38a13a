"""Schedules that learn nothing: every choice is drawn from shares that are fixed beforehand."""

from __future__ import annotations

import math
from abc import ABC
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import ClassVar, Literal

import numpy as np
from pydantic import Field

from rota.measures import Measure
from rota.teachers.base import Classroom, Languages, OpenLoopConfig
from rota.teachers.card import Card
from rota.types import MIXED, MIXED_HIGH_RESOURCE, Arm, Decision, Mixture, Observation, State


class Static:
    """Draws each choice independently from the given shares, which need not sum to one."""

    watches: Sequence[Measure] = ()

    def __init__(self, shares: Mapping[Arm, float], rng: np.random.Generator) -> None:
        _check_shares(shares)
        total = sum(shares.values())
        self.shares = {arm: share / total for arm, share in shares.items()}
        self._arms = list(self.shares)
        self._ends = np.cumsum(list(self.shares.values()))
        self._ends[-1] = 1.0  # rounding must not leave a gap above the last arm
        self._rng = rng

    def ask(self, step: int) -> Decision:  # noqa: ARG002 - a static schedule does not look at the clock
        arm = self._arms[int(np.searchsorted(self._ends, self._rng.random(), side="right"))]
        return Decision(arm, why="sampled", probability=self.shares[arm])

    def tell(self, observation: Observation) -> None:
        """An open-loop schedule does not listen."""

    def state_dict(self) -> State:
        return {"rng": self._rng.bit_generator.state}

    def load_state_dict(self, state: State) -> None:
        self._rng.bit_generator.state = state["rng"]


def _check_shares(shares: Mapping[Arm, float]) -> None:
    for arm, share in shares.items():
        if not (math.isfinite(share) and share >= 0):
            raise ValueError(f"the share of {arm!r} is {share}; shares are numbers from 0 up")
    if not sum(shares.values()) > 0:
        raise ValueError("all shares are 0; give at least one language a share above 0")


class Uniform(Static):
    """Every language with the same probability."""

    def __init__(self, arms: Iterable[Arm], rng: np.random.Generator) -> None:
        super().__init__(dict.fromkeys(arms, 1.0), rng)


class Proportional(Static):
    """Every language with its share of the training sentences, or of whatever ``sizes`` count.

    Batches have equal numbers of tokens, so with shares of sentences a language of long sentences repeats its corpus
    less often than others; with shares of tokens all repeat theirs equally often.
    """

    def __init__(self, sizes: Mapping[Arm, int], rng: np.random.Generator) -> None:
        super().__init__(sizes, rng)


class Temperature(Static):
    """Shares proportional to ``size ** (1 / temperature)``: 1 is proportional, infinity is uniform.

    ``lengths``, mean target tokens of a sentence: shares as if sentences were drawn so, and not updates, which have
    equal numbers of tokens.
    """

    def __init__(
        self,
        sizes: Mapping[Arm, int],
        rng: np.random.Generator,
        temperature: float,
        lengths: Mapping[Arm, float] | None = None,
    ) -> None:
        if not temperature > 0:
            raise ValueError(f"the temperature is {temperature}; it must be above 0 (1 is proportional)")
        drawn = {arm: float(size) ** (1 / temperature) for arm, size in sizes.items()}
        super().__init__(drawn if lengths is None else {arm: drawn[arm] * lengths[arm] for arm in drawn}, rng)


class Mixed(Static):
    """Multilingual batches at every step, with every arm in proportion to its size: the shuffled baseline."""

    def __init__(self, sizes: Mapping[Arm, int], rng: np.random.Generator) -> None:
        super().__init__({MIXED: 1.0}, rng)
        self.mixture = in_proportion(sizes)

    def ask(self, step: int) -> Decision:
        return replace(super().ask(step), mixture=self.mixture)


def in_proportion(sizes: Mapping[Arm, int]) -> Mixture:
    """Sentences of several arms as they come in their pooled corpus."""
    return Mixture(dict(sizes), "sentence", fixed=True)


class StaticConfig(OpenLoopConfig, ABC):
    """Base of the configs of schedules that can be a phase of another one."""

    def last_shares(self, classroom: Classroom) -> Mapping[Arm, float]:
        """How the tokens of the last update of a run are divided among the arms, on average; they sum to one."""
        teacher = self.build(classroom, np.random.default_rng(0))
        assert isinstance(teacher, Static)
        return teacher.shares


class UniformConfig(StaticConfig):
    """Every language with the same probability (the paper's `uniform` rows)."""

    card = Card(
        family="static",
        line="every language equally",
        observes="nothing",
        cost=("0.1%", "0"),
        source="the paper",
        reference="the paper's baseline",
    )
    name: Literal["uniform"] = "uniform"
    languages: Languages = Field("all", description="all, high-resource, low-resource, or a list")

    def build(self, classroom: Classroom, rng: np.random.Generator) -> Uniform:
        return Uniform(classroom.select(self.languages), rng)


class ProportionalConfig(StaticConfig):
    """Every language with its share of the training sentences (the paper's `proportional` rows), or of the tokens."""

    card = Card(
        family="static",
        line="in proportion to its size",
        observes="nothing",
        cost=("0.1%", "0"),
        source="the paper",
        reference="the paper's baseline",
    )
    later: ClassVar[tuple[str, ...]] = ("by",)
    name: Literal["proportional"] = "proportional"
    languages: Languages = Field("all", description="all, high-resource, low-resource, or a list")
    by: Literal["sentences", "tokens"] = Field(
        "sentences", description="what the shares are of; with tokens every sentence is seen equally often"
    )

    def build(self, classroom: Classroom, rng: np.random.Generator) -> Proportional:
        sizes = classroom.sizes if self.by == "sentences" else classroom.tokens
        if not sizes:
            raise ValueError("teacher.by is 'tokens', but no tokens are counted here; use by: sentences")
        return Proportional({arm: sizes[arm] for arm in classroom.select(self.languages)}, rng)


class FixedConfig(StaticConfig):
    """Shares written down in the config, one for each language that is trained on."""

    card = Card(
        family="static",
        line="shares written by hand",
        observes="nothing",
        cost=("~0.1%", "~0"),
        source="-",
        reference="no source: a mixture by hand",
    )
    name: Literal["fixed"] = "fixed"
    shares: dict[Arm, float] = Field(
        description="arm, language or source to share; they need not sum to one",
        examples=["shares: {be: 0.5, ru: 0.5}"],
    )

    def build(self, classroom: Classroom, rng: np.random.Generator) -> Static:
        return Static(classroom.spread(self.shares), rng)


class MixedConfig(StaticConfig):
    """Multilingual batches, sentences in proportion to the corpus (the paper's `shuffled batch` row)."""

    card = Card(
        family="static",
        line="multilingual batches",
        observes="nothing",
        cost=("0.1%", "0"),
        source="the paper",
        reference="the paper's baseline of shuffled batches",
    )
    name: Literal["mixed"] = "mixed"

    def build(self, classroom: Classroom, rng: np.random.Generator) -> Mixed:
        return Mixed(classroom.sizes, rng)

    def last_shares(self, classroom: Classroom) -> Mapping[Arm, float]:
        return Static(classroom.target_tokens(), np.random.default_rng(0)).shares

    def warmup_arms(self, classroom: Classroom, languages: Languages) -> Mapping[Arm, Mixture]:
        names = {"all": MIXED, "high-resource": MIXED_HIGH_RESOURCE}
        if not isinstance(languages, str) or languages not in names:
            raise ValueError(f"teacher mixed warms up on all or high-resource languages, not on {languages!r}")
        sizes = {arm: classroom.sizes[arm] for arm in classroom.select(languages)}
        return {names[languages]: in_proportion(sizes)}
