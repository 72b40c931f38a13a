"""Wrappers of any teacher: the warm-up of the languages, and first visits. (The learning rate has its own warm-up.)"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol, get_args, runtime_checkable

import numpy as np

from rota.measures import Measure
from rota.teachers.base import Inform
from rota.types import Alarm, Arm, Decision, Mixture, Observation, State, Teacher


@runtime_checkable
class HearsRewards(Protocol):
    """A teacher that can fill its reward history without learning from a choice it did not make."""

    @property
    def reward_watches(self) -> Sequence[Measure]:
        """Those of its measures of which rewards are made."""
        ...

    def hear_reward(self, observation: Observation) -> Mapping[Arm, float] | None: ...


def alarms_of(teacher: Teacher, step: int) -> Iterable[Alarm]:
    """What a teacher says about itself, if it says anything; every wrapper passes on what the one inside says."""
    say = getattr(teacher, "alarms", None)  # isinstance(teacher, RaisesAlarms) takes longer than all alarms
    found: Iterable[Alarm] = () if say is None else say(step)
    return found


class Warmup:
    """Draws uniformly from ``arms``, or mixtures by name, while ``step < until``; then the wrapped teacher decides.

    ``inform`` says what the wrapped teacher is told of the warm-up: ``none`` of it, the ``rewards`` only (through
    ``hear_reward``), or ``all``, as if the choices had been its own.
    """

    def __init__(
        self,
        teacher: Teacher,
        arms: Sequence[Arm] | Mapping[Arm, Mixture],
        rng: np.random.Generator,
        *,
        until: int,
        inform: Inform = "none",
    ) -> None:
        if not arms:
            raise ValueError("the warm-up has no arms; name at least one language")
        if inform not in get_args(Inform):
            raise ValueError(f"inform is {inform!r}; it is one of {', '.join(get_args(Inform))}")
        if inform == "rewards" and not isinstance(teacher, HearsRewards):
            raise ValueError(f"{type(teacher).__name__} keeps no reward history; use inform none or all")
        self.teacher, self.arms, self.until, self.inform = teacher, tuple(arms), until, inform
        self._mixtures = arms if isinstance(arms, Mapping) else {}
        self._rng = rng
        self._warming = False  # whether the decision in progress is one of ours

    @property
    def watches(self) -> Sequence[Measure]:
        """Nothing is measured for a teacher that is not told, and no state for one that is told the rewards alone."""
        if self._warming and self.inform == "none":
            return ()
        if self._warming and self.inform == "rewards":
            assert isinstance(self.teacher, HearsRewards)
            return self.teacher.reward_watches
        return self.teacher.watches

    def ask(self, step: int) -> Decision:
        self._warming = step < self.until
        if not self._warming:
            return self.teacher.ask(step)
        arm = self.arms[int(self._rng.integers(len(self.arms)))]
        return Decision(arm, why="warmup", probability=1 / len(self.arms), mixture=self._mixtures.get(arm))

    def tell(self, observation: Observation) -> Mapping[Arm, float] | None:
        if not self._warming or self.inform == "all":
            return self.teacher.tell(observation)
        if self.inform == "rewards":
            assert isinstance(self.teacher, HearsRewards)
            return self.teacher.hear_reward(observation)
        return None

    def alarms(self, step: int) -> Iterable[Alarm]:
        return alarms_of(self.teacher, step)

    def state_dict(self) -> State:
        rng = self._rng.bit_generator.state
        return {"rng": rng, "warming": self._warming, "teacher": self.teacher.state_dict()}

    def load_state_dict(self, state: State) -> None:
        self._rng.bit_generator.state = state["rng"]
        self._warming = state["warming"]
        self.teacher.load_state_dict(state["teacher"])


class FirstVisits:
    """Plays ``arms`` one after the other, a choice each; afterwards the wrapped teacher decides.

    The wrapped teacher is told of every visit as if the choice had been its own: the visits are there for its sake.
    """

    def __init__(self, teacher: Teacher, arms: Sequence[Arm]) -> None:
        self.teacher = teacher
        self._left = list(arms)

    @property
    def watches(self) -> Sequence[Measure]:
        return self.teacher.watches

    def ask(self, step: int) -> Decision:
        if self._left:
            return Decision(self._left.pop(0), why="first visit", probability=1.0)
        return self.teacher.ask(step)

    def tell(self, observation: Observation) -> Mapping[Arm, float] | None:
        return self.teacher.tell(observation)

    def alarms(self, step: int) -> Iterable[Alarm]:
        return alarms_of(self.teacher, step)

    def state_dict(self) -> State:
        return {"left": list(self._left), "teacher": self.teacher.state_dict()}

    def load_state_dict(self, state: State) -> None:
        self._left = list(state["left"])
        self.teacher.load_state_dict(state["teacher"])
