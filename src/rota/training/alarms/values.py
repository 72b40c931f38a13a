"""Detectors of a teacher that learns nothing or loses its measure: rewards of zero, values that stand still or explode.

They look at what every teacher shows: the scores of its decisions, and the rewards that ``tell`` returns.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from rota.training.alarms.base import Detector
from rota.training.alarms.shares import BEFORE_CHOICES
from rota.types import Alarm, Arm, Decision, State

A_WHILE = 50
"""Observations after which something must have moved."""

EXPLODED = 1_000.0
"""The factor by which scores may outgrow the largest of the first ones, or 1 if that is larger."""


class NoRewards(Detector):
    """Every reward has been exactly zero for a while."""

    name = "no-rewards"

    def __init__(self) -> None:
        self._zeros = 0  # observations in a row

    def told(self, step: int, rewards: Mapping[Arm, float] | None) -> Iterator[Alarm]:
        if not rewards:
            return
        self._zeros = 0 if any(rewards.values()) else self._zeros + 1
        if self._zeros >= A_WHILE:
            seen = f"all rewards of the last {self._zeros} observations are 0"
            yield Alarm(
                step, self.name, None, f"{seen}; the teacher cannot learn: look at its dev sets and its reward."
            )

    def state_dict(self) -> State:
        return {"zeros": self._zeros}

    def load_state_dict(self, state: State) -> None:
        self._zeros = state["zeros"]


class Scores(Detector):
    """The scores of the decisions do not change although there are rewards, or have grown beyond all measure."""

    name = "scores"

    def __init__(self, steps: int, decide_every: int = 1) -> None:
        self._patience, self._every = steps // 5, decide_every
        self._scores: dict[Arm, float] = {}
        self._since = 0  # the step at which they changed
        self._rewarded = 0  # observations with rewards since then
        self._decisions, self._first = 0, 1.0

    def told(self, step: int, rewards: Mapping[Arm, float] | None) -> Iterable[Alarm]:  # noqa: ARG002
        self._rewarded += any((rewards or {}).values())
        return ()

    def updated(self, step: int, decision: Decision, loss: float, seen: Mapping[Arm, int]) -> Iterable[Alarm]:  # noqa: ARG002
        if (step - 1) % self._every or not decision.scores or decision.why in BEFORE_CHOICES:
            return ()
        return list(self._look(step, dict(decision.scores)))

    def _look(self, step: int, scores: dict[Arm, float]) -> Iterator[Alarm]:
        if scores != self._scores:
            self._scores, self._since, self._rewarded = scores, step, 0
        elif self._rewarded >= A_WHILE and step - self._since >= self._patience:
            still = f"the teacher's values have not changed since step {self._since:,}, in spite of its rewards"
            yield Alarm(step, "values-stand-still", None, f"{still}; look at its learning rate or its smoothing.")
        largest = max(map(abs, scores.values()))
        self._decisions += 1
        if self._decisions <= A_WHILE:
            self._first = max(self._first, largest)
        elif not largest < EXPLODED * self._first:
            grown = f"the teacher's values have grown to {largest:.3g}; the first ones were at most {self._first:.3g}"
            yield Alarm(step, "values-explode", None, f"{grown}; lower its learning rate or scale its rewards.")

    def state_dict(self) -> State:
        counts = {"since": self._since, "rewarded": self._rewarded, "decisions": self._decisions}
        return {"scores": dict(self._scores), **counts, "first": self._first}

    def load_state_dict(self, state: State) -> None:
        self._scores, self._first = dict(state["scores"]), state["first"]
        self._since, self._rewarded, self._decisions = state["since"], state["rewarded"], state["decisions"]
