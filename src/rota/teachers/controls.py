"""The mix of another run, without its timing: what a learned schedule must beat to show that its choices mattered."""

from __future__ import annotations

import hashlib
import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
from pydantic import Field, model_validator

from rota.files import read_json
from rota.measures import Measure
from rota.runs import Run
from rota.runs.records import REMEDY, forms_of, read_record
from rota.settings import Duration, DurationField
from rota.teachers.base import Classroom, OpenLoopConfig, SizeChange
from rota.teachers.card import Card
from rota.teachers.static import Static
from rota.types import Arm, Decision, Observation, State

logger = logging.getLogger(__name__)


class ReplayProportions(Static):
    """Static, with the shares of another run. A checkpoint holds them, so that a run cannot resume with others."""

    def ask(self, step: int) -> Decision:
        return replace(super().ask(step), why="replayed")

    def state_dict(self) -> State:
        return {**super().state_dict(), "shares": dict(self.shares)}

    def load_state_dict(self, state: State) -> None:
        if state["shares"] != self.shares:
            raise ValueError(f"teacher.run holds another run now: {_ANOTHER}")
        super().load_state_dict(state)


class ReplayShuffled:
    """The choices of another run, drawn without replacement from each window of them: equal shares, another order.

    ``arms`` is the language of each update of that run, ``window`` a number of choices. A window ends at update
    ``border`` too: the end of that run's warm-up, which draws from other languages. Updates after the last whole choice
    stay where they are.
    """

    watches: Sequence[Measure] = ()

    def __init__(
        self, arms: Sequence[Arm], rng: np.random.Generator, *, window: int, decide_every: int = 1, border: int = 0
    ) -> None:
        self.window, self.decide_every = window, decide_every
        self._border = -(-border // decide_every)  # in choices
        self._choices = list(arms[::decide_every])
        self._whole = len(arms) // decide_every
        self._arms = list(dict.fromkeys(arms))
        self._rng = rng
        self._left: Counter[Arm] = Counter()  # of the window in progress

    def ask(self, step: int) -> Decision:
        number = step // self.decide_every
        if number == self._whole:
            self._left = Counter(self._choices[number:])
        elif number < self._border and number % self.window == 0:
            self._left = Counter(self._choices[number : min(number + self.window, self._border, self._whole)])
        elif number >= self._border and (number - self._border) % self.window == 0:
            self._left = Counter(self._choices[number : min(number + self.window, self._whole)])
        total = self._left.total()
        assert total, f"step {step} is beyond the other run"
        ends = np.cumsum([self._left[arm] for arm in self._arms])
        arm = self._arms[int(np.searchsorted(ends, self._rng.integers(total), side="right"))]
        probability = self._left[arm] / total
        self._left[arm] -= 1
        return Decision(arm, why="replayed", probability=probability)

    def tell(self, observation: Observation) -> None:
        """An open-loop schedule does not listen."""

    def state_dict(self) -> State:
        return {"rng": self._rng.bit_generator.state, "left": dict(self._left), "choices": self._fingerprint()}

    def load_state_dict(self, state: State) -> None:
        if state["choices"] != self._fingerprint():
            raise ValueError(f"teacher.run holds another run now: {_ANOTHER}")
        self._rng.bit_generator.state = state["rng"]
        self._left = Counter(state["left"])

    def _fingerprint(self) -> str:
        return hashlib.sha256(" ".join(self._choices).encode()).hexdigest()[:16]


_ANOTHER = "give the folder of the run that this one was begun with, or start again in another folder"


@dataclass(frozen=True, slots=True)
class Past:
    """What a finished run trained on."""

    arms: list[Arm]  # the language of each update, from step 1 on
    decide_every: int
    warmup: int  # updates until the last one that was drawn by a warm-up


def read_past(run: Path, classroom: Classroom) -> Past:
    """The choices of a run, from its records; a run that cannot be repeated with these languages is refused."""
    if not (run / "run.json").is_file():
        raise ValueError(f"teacher.run is {str(run)!r}, which is not a run folder (no run.json); train that run first")
    about = read_json(
        run / "run.json", "config.training.steps", "config.teacher.decide_every", "data.sizes", remedy=REMEDY
    )
    _check_languages(run, about["data"].get("arms", about["data"]["sizes"]), classroom)
    (arms, warmup), steps = _played(run), about["config"]["training"]["steps"]
    for arm in dict.fromkeys(arms):
        if arm not in classroom.sizes:
            raise ValueError(f"{run} has batches of arm {arm!r}; replay a run that trains on one language at a time")
    if len(arms) < Run(run).end_of(steps):  # fewer if it stopped early
        raise ValueError(f"{run} is at step {len(arms):,} of {steps:,}; finish it first with rota train")
    return Past(arms, about["config"]["teacher"]["decide_every"], warmup)


def _check_languages(run: Path, sizes: Mapping[Arm, Any], classroom: Classroom) -> None:
    if set(sizes) != set(classroom.arms):
        here = f"this corpus has {', '.join(classroom.arms)}"
        raise ValueError(f"{run} was trained on {', '.join(sizes)} and {here}; replay a run with the same languages")


def _played(run: Path) -> tuple[list[Arm], int]:
    """The language of each update, and the last update of a warm-up."""
    paths = [path for path in forms_of(run / "steps.jsonl") if path.is_file()]
    if not paths:
        raise ValueError(f"{run} has no step records (steps.jsonl or steps.jsonl.xz); copy them there, or train it")
    found = [(entry["arm"], entry["why"] == "warmup") for entry in read_record(paths[0])]
    return [arm for arm, _ in found], max((step for step, (_, warm) in enumerate(found, start=1) if warm), default=0)


class _ReplayConfig(OpenLoopConfig):
    """What all replays have: the run that is replayed."""

    run: Path = Field(description="folder of a finished run with the same languages", examples=["run: runs/dqn"])

    def past(self, classroom: Classroom) -> Past:
        past = read_past(self.run, classroom)
        if past.decide_every != self.decide_every:
            chosen = f"{self.run} chose every {past.decide_every} updates and this teacher every {self.decide_every}"
            logger.warning("%s; decide_every: %d keeps them together", chosen, past.decide_every)
        return past

    def reads(self) -> Sequence[Path]:
        return (self.run,)

    def scaled(self, to: SizeChange) -> dict[str, Any]:
        """It decides as often as the run that it replays, a DQN run with the paper's warm-up of 16k of 150k steps."""
        every = to.block(self.decide_every, round(to.steps * 16 / 150))
        return super().scaled(to) | {"decide_every": max(1, every // to.more_decisions)}


class ReplayProportionsConfig(_ReplayConfig):
    """Control: static, with the shares of the updates of another run; those of its own warm-up do not count."""

    card = Card(
        family="controls",
        line="the mix of another run",
        observes="nothing",
        cost=("~0.1%", "~0"),
        source="-",
        reference="no source: a control of this toolkit",
    )
    name: Literal["replay-proportions"] = "replay-proportions"

    def build(self, classroom: Classroom, rng: np.random.Generator) -> ReplayProportions:
        counted = Counter(self.past(classroom).arms[self._warmup_steps(classroom) :])
        if not counted:
            raise ValueError(f"{self.run} has no step after teacher.warmup ({self.warmup and self.warmup.until})")
        return ReplayProportions({arm: counted[arm] for arm in classroom.arms if counted[arm]}, rng)

    def _warmup_steps(self, classroom: Classroom) -> int:
        """The warm-up ends with a choice: that in progress at its last step is played to its end."""
        until = 0 if self.warmup is None else self.warmup.until.steps(classroom.steps)
        return -(-until // self.decide_every) * self.decide_every


class ReplayExactConfig(_ReplayConfig):
    """Control: exactly the choices of another run, in a random order; those of its warm-up come first."""

    card = Card(
        family="controls",
        line="its counts, another order",
        observes="nothing",
        cost=("~0.1%", "~0"),
        source="-",
        reference="no source: a control of this toolkit",
    )
    name: Literal["replay-exact"] = "replay-exact"

    @model_validator(mode="after")
    def _check_warmup(self) -> Self:
        if self.warmup is not None:
            raise ValueError("warmup is set, but the warm-up of the other run is replayed too; leave it out")
        return self

    def build(self, classroom: Classroom, rng: np.random.Generator) -> ReplayShuffled:
        past, every = self.past_of_same_length(classroom), self.decide_every
        return ReplayShuffled(past.arms, rng, window=len(past.arms), decide_every=every, border=past.warmup)

    def past_of_same_length(self, classroom: Classroom) -> Past:
        """The other run, if its choices can be made again one by one."""
        past, every = self.past(classroom), self.decide_every
        if len(past.arms) != classroom.steps:
            remedy = f"write training.steps: {len(past.arms)}, or use replay-proportions"
            raise ValueError(f"{self.run} has {len(past.arms):,} steps and this run {classroom.steps:,}; {remedy}")
        if past.decide_every % every:
            known = f"{self.run} chose every {past.decide_every} updates"
            raise ValueError(f"teacher.decide_every is {every}, but {known}; write {past.decide_every} or a divisor")
        return past


class ReplayShuffledConfig(ReplayExactConfig):
    """Control: the choices of another run, warm-up included, in a new order within each window of steps."""

    card = Card(
        family="controls",
        line="its mix, window by window",
        observes="nothing",
        cost=("~0.1%", "~0"),
        source="-",
        reference="no source: a control of this toolkit",
    )
    name: Literal["replay-shuffled"] = "replay-shuffled"  # type: ignore[assignment]
    window: DurationField = Field(
        Duration("1%"), description="steps whose shares are kept; 1: the very order of the other run"
    )
    split_at_warmup: bool = Field(
        True, description="a window ends where the warm-up of the other run ends; false: it may go on (version 0.1)"
    )

    @model_validator(mode="after")
    def _check_window(self) -> Self:
        if self.window.amount == 0:
            raise ValueError("window is 0; write at least 1, or a share of the run such as 1%")
        return self

    def build(self, classroom: Classroom, rng: np.random.Generator) -> ReplayShuffled:
        past, every = self.past_of_same_length(classroom), self.decide_every
        window = max(1, round(self.window.steps(classroom.steps) / every))
        border = past.warmup if self.split_at_warmup else 0
        return ReplayShuffled(past.arms, rng, window=window, decide_every=every, border=border)
