"""The guard: when a teacher plays one arm only and the goal gets worse, choices fall back to a prior for a time.

:class:`Guard` decides when, from the detectors, at validations; :class:`Guarded` is the teacher that obeys it. What is
played then has ``why: guard`` in the records, so that it is not taken for a choice of the algorithm.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

import numpy as np

from rota.goal import is_alike
from rota.measures import Measure
from rota.teachers.base import Classroom
from rota.teachers.static import Temperature
from rota.teachers.wrappers import alarms_of
from rota.training.alarms.base import Alarms, Detector
from rota.training.alarms.losses import RisingLoss
from rota.training.alarms.shares import NoUpdates, OneArm
from rota.training.alarms.values import NoRewards, Scores
from rota.types import Alarm, Arm, Decision, Observation, State, Teacher

TEMPERATURE: Final = 5.0
"""Of the prior: shares proportional to size ** (1 / 5)."""

STALLED: Final = 3
"""Validations since the last clearly best one."""

FLOOR: Final = 0.5
"""The smallest share of an arm in the prior, in units of the uniform share."""


class Guard(Detector):
    """On when one arm has nearly all updates, or one has none, and the goal gets worse, until it is better than ever.

    Worse means that the loss rises for sure (:class:`RisingLoss`), or that it has had no new best for ``STALLED``
    validations: what a collapse does may be no more than that the others learn nothing any longer. A teacher that has
    been stopped once is stopped again after a single one.

    A switch holds for choices after the step of the validation, not at it: some choices are asked for one update ahead.
    """

    name = "guard"

    def __init__(self, one_arm: OneArm, never: NoUpdates, rising: RisingLoss) -> None:
        self.one_arm, self.never, self.rising = one_arm, never, rising
        self.on, self._times = False, 0
        self._since, self._before = -1, False  # the step of the last switch, and what held until then

    def holds(self, step: int) -> bool:
        """Whether the choice for the update after ``step`` completed ones is the guard's."""
        return self.on if step > self._since else self._before

    def validated(self, step: int, dev_loss: Mapping[Arm, float]) -> Iterator[Alarm]:  # noqa: ARG002 - the detectors have it
        collapsed = self._collapsed
        worse = self.rising.rising or self.rising.stalled >= (1 if self._times else STALLED)
        switched = self.rising.stalled > 0 if self.on else worse and collapsed is not None
        if switched == self.on:
            return
        self._since, self._before, self.on = step, self.on, switched
        self._times += self.on
        if self.on:
            seen = f"the teacher trains {collapsed} and the dev loss no longer falls"
            does = "until it recovers, choices are drawn from all languages instead (why: guard)"
            yield Alarm(step, self.name, None, f"{seen}; {does}. training.guard: false leaves the teacher alone.")

    @property
    def _collapsed(self) -> str | None:
        """How, in words; None if it has not."""
        if self.one_arm.arm is not None:
            return f"almost only on {self.one_arm.arm}"
        return f"not at all on {', '.join(self.never.arms_without)}" if self.never.arms_without else None

    def state_dict(self) -> State:
        return {"on": self.on, "times": self._times, "since": self._since, "before": self._before}

    def load_state_dict(self, state: State) -> None:
        self.on, self._times = state["on"], state["times"]
        self._since, self._before = state["since"], state["before"]


class Guarded:
    """A teacher under a guard. It is told everything, also what came of choices that were not its own."""

    def __init__(self, teacher: Teacher, guard: Guard, sizes: Mapping[Arm, int], rng: np.random.Generator) -> None:
        self.teacher, self.guard = teacher, guard
        self.shares = prior(sizes)
        self._arms, self._rng = list(self.shares), rng

    @property
    def watches(self) -> Sequence[Measure]:
        return self.teacher.watches

    def ask(self, step: int) -> Decision:
        if not self.guard.holds(step):
            return self.teacher.ask(step)
        arm = self._arms[int(self._rng.choice(len(self._arms), p=list(self.shares.values())))]
        return Decision(arm, why="guard", probability=self.shares[arm])

    def tell(self, observation: Observation) -> Mapping[Arm, float] | None:
        return self.teacher.tell(observation)

    def alarms(self, step: int) -> Iterable[Alarm]:
        return alarms_of(self.teacher, step)

    def state_dict(self) -> State:
        """The teacher's own, with the guard's generator beside it: what reads a teacher's state need not know."""
        return {**self.teacher.state_dict(), "guard": self._rng.bit_generator.state}

    def load_state_dict(self, state: State) -> None:
        inner = dict(state)
        if "guard" in inner:
            self._rng.bit_generator.state = inner.pop("guard")
        self.teacher.load_state_dict(inner)


def prior(sizes: Mapping[Arm, int]) -> dict[Arm, float]:
    """Shares at temperature 5, none below half the uniform share."""
    shares = Temperature(sizes, np.random.default_rng(0), TEMPERATURE).shares
    floor = FLOOR / len(shares)
    above = {arm: max(share - floor, 0.0) for arm, share in shares.items()}
    left = 1 - floor * len(shares)
    return {arm: floor + left * over / sum(above.values()) for arm, over in above.items()}


def watch_over(
    teacher: Teacher,
    classroom: Classroom,
    *,
    listens: bool,
    guard: bool,
    decide_every: int,
    rng: np.random.Generator,
    more: Iterable[Detector] = (),
) -> tuple[Teacher, Alarms]:
    """The detectors of a run, and its teacher, under the guard if ``guard``; ``more`` are further detectors."""
    goal = None if is_alike(classroom.goal, classroom.languages) else classroom.goal
    rising = RisingLoss(goal, listens=listens, language_of=classroom.language_of)
    if not listens:
        return teacher, Alarms([rising, *more])
    arms = classroom.arms
    one_arm = OneArm(arms, max(classroom.steps // 10, 10 * decide_every))
    never = NoUpdates(arms, max(2 * classroom.steps // 5, 5 * len(arms) * decide_every))
    detectors = [one_arm, never, rising, NoRewards(), Scores(classroom.steps, decide_every)]
    if not guard:
        return teacher, Alarms([*detectors, *more])
    guarding = Guard(one_arm, never, rising)
    return Guarded(teacher, guarding, classroom.sizes, rng), Alarms([*detectors, guarding, *more])
