"""One static schedule, then another; by default the high-resource languages first (Choi et al. 2023)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal, Self

import numpy as np
from pydantic import BeforeValidator, Field, PlainSerializer, PlainValidator, model_validator

from rota.measures import Measure
from rota.settings import ConfigError, Duration, parse_duration, written_duration
from rota.teachers.base import Classroom, OpenLoopConfig, TeacherConfig
from rota.teachers.card import Card
from rota.teachers.scripted.temperature import TemperatureConfig
from rota.teachers.static import FixedConfig, MixedConfig, ProportionalConfig, UniformConfig
from rota.types import Arm, Decision, Observation, State, Teacher

LONGEST = 0.7
"""Of the run: the longest last phase that is computed from the sizes."""


class TwoPhase:
    """One teacher until ``switch``, another from there on."""

    def __init__(self, first: Teacher, second: Teacher, switch: int) -> None:
        self.first, self.second, self.switch = first, second, switch
        self._current = first

    @property
    def watches(self) -> Sequence[Measure]:
        return self._current.watches

    def ask(self, step: int) -> Decision:
        self._current = self.first if step < self.switch else self.second
        return self._current.ask(step)

    def tell(self, observation: Observation) -> Mapping[Arm, float] | None:
        return self._current.tell(observation)

    def state_dict(self) -> State:
        phase = "first" if self._current is self.first else "second"
        return {"phase": phase, "first": self.first.state_dict(), "second": self.second.state_dict()}

    def load_state_dict(self, state: State) -> None:
        self._current = self.first if state["phase"] == "first" else self.second
        self.first.load_state_dict(state["first"])
        self.second.load_state_dict(state["second"])


def last_phase(classroom: Classroom, share: float, epochs: float) -> int:
    """Updates in which the low-resource languages, with this share of them, are seen ``epochs`` times on average.

    At most 70 % of the run: with more there would be no first phase to speak of.
    """
    low = classroom.select("low-resource")
    if not share > 0:
        raise ValueError("the last phase has no low-resource language, so its length is not known; write switch: 50%")
    wanted = epochs * sum(classroom.target_tokens()[arm] for arm in low)
    return min(round(LONGEST * classroom.steps), round(wanted / (share * classroom.tokens_per_update())))


def named(value: Any) -> Any:
    """``teacher: uniform`` is short for ``teacher: {name: uniform}``."""
    return {"name": value} if isinstance(value, str) else value


def _switch(value: Any) -> Any:
    return value if value == "auto" else parse_duration(value)


def _written(value: Duration | Literal["auto"]) -> int | str:
    return written_duration(value) if isinstance(value, Duration) else value


Switch = Annotated[Duration | Literal["auto"], PlainValidator(_switch), PlainSerializer(_written)]

Phase = Annotated[
    UniformConfig | ProportionalConfig | TemperatureConfig | FixedConfig | MixedConfig, Field(discriminator="name")
]


class TwoPhaseConfig(OpenLoopConfig):
    """One static schedule, then another: by default the high-resource languages first."""

    card = Card(
        family="scripted",
        line="one, then another",
        observes="nothing",
        cost=("0.1%", "0"),
        source="Choi '23",
        reference="Choi et al. 2023, Order Matters in the Presence of Dataset Imbalance; our reading of the abstract "
        "and of a review",
    )
    later: ClassVar[tuple[str, ...]] = ("restart_learning_rate",)
    name: Literal["two-phase"] = "two-phase"
    first: Annotated[Phase, BeforeValidator(named)] = Field(
        ProportionalConfig(languages="high-resource"), description="the schedule until the switch"
    )
    second: Annotated[Phase, BeforeValidator(named)] = Field(
        TemperatureConfig(), description="the schedule from the switch on"
    )
    switch: Switch = Field(
        Duration("50%"), description="the step at which the second one takes over; auto: as late as epochs allow"
    )
    epochs: float = Field(
        16.0, gt=0, description="with switch: auto, how often low-resource text is seen in the second phase, on average"
    )
    restart_learning_rate: bool = Field(
        False, description="whether the learning rate begins again at the switch, warm-up included"
    )

    @model_validator(mode="after")
    def _check_phases(self) -> Self:
        """When to choose, to observe and to warm up is one matter for both."""
        for place, phase in (("first", self.first), ("second", self.second)):
            for name, field in TeacherConfig.model_fields.items():
                if getattr(phase, name) != field.default:
                    remedy = f"set {name!r} on the two-phase teacher itself"
                    raise ValueError(f"{place!r} has {name!r}, which a phase does not use; {remedy}")
        if self.switch != "auto" and "epochs" in self.model_fields_set:
            raise ValueError(f"epochs is {self.epochs:g}, but switch is {self.switch}; epochs needs switch: auto")
        return self

    def written(self, dumped: dict[str, Any]) -> dict[str, Any]:
        written = super().written(dumped)
        return {name: value for name, value in written.items() if name != "epochs" or self.switch == "auto"}

    def build(self, classroom: Classroom, rng: np.random.Generator) -> TwoPhase:
        first, second = (
            phase.build(classroom, child) for phase, child in zip((self.first, self.second), rng.spawn(2), strict=True)
        )
        return TwoPhase(first, second, self.switch_step(classroom))

    def switch_step(self, classroom: Classroom) -> int:
        if isinstance(self.switch, Duration):
            return self.switch.steps(classroom.steps)
        shares = self.second.last_shares(classroom)
        low_resource = sum(share for arm, share in shares.items() if arm in classroom.low_resource)
        return classroom.steps - last_phase(classroom, low_resource, self.epochs)

    def restarts_learning_rate_at(self, classroom: Classroom) -> int | None:
        return self.switch_step(classroom) if self.restart_learning_rate else None

    def check(self, steps: int) -> None:
        super().check(steps)
        if isinstance(self.switch, Duration) and self.switch.steps(steps) >= steps:
            comes = f"teacher.switch comes at step {self.switch.steps(steps):,} and the run has {steps:,}"
            raise ConfigError(f"{comes}: the second schedule would never decide; write for example teacher.switch: 50%")
