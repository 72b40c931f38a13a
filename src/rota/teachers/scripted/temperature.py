"""Temperature sampling, with one temperature for the whole run or one that changes on the way."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal, Self

import numpy as np
from pydantic import ConfigDict, Field, SerializerFunctionWrapHandler, model_serializer, model_validator

from rota.measures import Measure
from rota.settings import ConfigError, Duration, DurationField, Settings
from rota.teachers.base import Classroom, Languages, OpenLoopConfig
from rota.teachers.card import Card
from rota.teachers.static import Static, StaticConfig, Temperature
from rota.types import Arm, Decision, Observation, State

Shape = Literal["step", "linear", "cosine"]


class Annealing(Settings):
    """From one temperature to another: in one step, along a line, or along half a wave."""

    model_config = ConfigDict(populate_by_name=True)

    start: float = Field(alias="from", gt=0, description="the temperature at the first step")
    end: float = Field(alias="to", gt=0, description="the temperature from the step `at` on")
    shape: Shape = Field("step", description="step, linear or cosine")
    at: DurationField = Field(Duration("50%"), description="the step from which it has its last value")

    @model_validator(mode="after")
    def _check_at(self) -> Self:
        if self.at.amount == 0:
            raise ValueError("at is 0, so the temperature would never be the first one; write for example at: 50%")
        return self

    @model_serializer(mode="wrap")
    def _as_written(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """With the words of a config, of which one cannot be a name in Python."""
        written: dict[str, Any] = write(self)
        ends = {"from": self.start, "to": self.end}
        return ends | {name: value for name, value in written.items() if name not in ("start", "end", *ends)}

    def temperature(self, step: int, steps: int) -> float:
        """Of the choice after ``step`` completed updates of a run of ``steps``."""
        passed = min(1.0, step / self.at.steps(steps))
        if self.shape == "step":
            passed = math.floor(passed)
        elif self.shape == "cosine":
            passed = 0.5 - 0.5 * math.cos(math.pi * passed)
        return self.start + (self.end - self.start) * passed


class AnnealedTemperature:
    """Shares proportional to ``size ** (1 / temperature)``, with the temperature of the present step."""

    watches: Sequence[Measure] = ()

    def __init__(
        self,
        sizes: Mapping[Arm, int],
        rng: np.random.Generator,
        annealing: Annealing,
        *,
        steps: int,
        lengths: Mapping[Arm, float] | None = None,
    ) -> None:
        self._sizes, self._rng, self._annealing, self._steps = dict(sizes), rng, annealing, steps
        self._lengths = lengths
        self._temperature = annealing.start
        self._static = Temperature(sizes, rng, annealing.start, lengths)

    def shares(self, step: int) -> dict[Arm, float]:
        """Of the choice after ``step`` completed updates."""
        return self._at(step).shares

    def _at(self, step: int) -> Static:
        temperature = self._annealing.temperature(step, self._steps)
        if temperature != self._temperature:
            self._temperature = temperature
            self._static = Temperature(self._sizes, self._rng, temperature, self._lengths)
        return self._static

    def ask(self, step: int) -> Decision:
        return self._at(step).ask(step)

    def tell(self, observation: Observation) -> None:
        """An open-loop schedule does not listen."""

    def state_dict(self) -> State:
        return {"rng": self._rng.bit_generator.state}

    def load_state_dict(self, state: State) -> None:
        self._rng.bit_generator.state = state["rng"]


class TemperatureConfig(StaticConfig):
    """Shares proportional to size ** (1 / temperature) (Arivazhagan et al. 2019), which may change on the way."""

    card = Card(
        family="static",
        line="size ** (1 / temperature)",
        observes="nothing",
        cost=("0.1%", "0"),
        source="Arivazh. '19",
        reference="Arivazhagan et al. 2019, Massively Multilingual Neural Machine Translation in the Wild",
    )
    later: ClassVar[tuple[str, ...]] = ("by",)
    name: Literal["temperature"] = "temperature"
    languages: Languages = Field("all", description="all, high-resource, low-resource, or a list")
    temperature: float = Field(5.0, gt=0, description="1 is proportional, large is uniform")
    by: Literal["sentences", "tokens"] = Field(
        "sentences",
        description="what the shares are of; tokens: as if sentences were drawn, so long ones count for more",
    )
    schedule: Annealing | None = Field(
        None, description="{from: 1, to: 5, shape: linear, at: 50%}; shapes: step, linear, cosine; null: constant"
    )

    @model_validator(mode="after")
    def _one_of_two(self) -> Self:
        if self.schedule is not None and "temperature" in self.model_fields_set:
            raise ValueError("temperature and schedule are both given; keep one of them")
        return self

    def written(self, dumped: dict[str, Any]) -> dict[str, Any]:
        """A constant temperature is written as before there were schedules."""
        unused = "schedule" if self.schedule is None else "temperature"
        return {name: value for name, value in super().written(dumped).items() if name != unused}

    def build(self, classroom: Classroom, rng: np.random.Generator) -> Temperature | AnnealedTemperature:
        sizes = {arm: classroom.sizes[arm] for arm in classroom.select(self.languages)}
        lengths = classroom.mean_lengths() if self.by == "tokens" else None
        if self.schedule is None:
            return Temperature(sizes, rng, self.temperature, lengths)
        return AnnealedTemperature(sizes, rng, self.schedule, steps=classroom.steps, lengths=lengths)

    def last_shares(self, classroom: Classroom) -> Mapping[Arm, float]:
        teacher = self.build(classroom, np.random.default_rng(0))
        return teacher.shares(classroom.steps) if isinstance(teacher, AnnealedTemperature) else teacher.shares

    def check(self, steps: int) -> None:
        super().check(steps)
        _check_annealing(self.schedule, steps)


class CooldownConfig(OpenLoopConfig):
    """Temperature 5 until half time, then 1: low-resource languages often, then in proportion (Li et al. 2024)."""

    card = Card(
        family="scripted",
        line="temperature 5, then 1",
        observes="nothing",
        cost=("0.2%", "0"),
        source="Li '24",
        reference="Li et al. 2024, Upsample or Upweight? Balanced Training on Heavily Imbalanced Datasets",
    )
    name: Literal["cooldown"] = "cooldown"
    languages: Languages = Field("all", description="all, high-resource, low-resource, or a list")
    schedule: Annealing = Field(
        Annealing(start=5, end=1), description="{from: 5, to: 1, shape: step, at: 50%}; shapes: step, linear, cosine"
    )

    def build(self, classroom: Classroom, rng: np.random.Generator) -> AnnealedTemperature:
        sizes = {arm: classroom.sizes[arm] for arm in classroom.select(self.languages)}
        return AnnealedTemperature(sizes, rng, self.schedule, steps=classroom.steps)

    def check(self, steps: int) -> None:
        super().check(steps)
        _check_annealing(self.schedule, steps)


def _check_annealing(annealing: Annealing | None, steps: int) -> None:
    if annealing is not None and annealing.shape == "step" and annealing.at.steps(steps) >= steps:
        comes = f"teacher.schedule.at is step {annealing.at.steps(steps):,} and the run has {steps:,}"
        raise ConfigError(f"{comes}: the temperature would never change; write for example at: 50%")
