"""Detectors of what a teacher plays: one arm nearly always, or an arm never. For teachers that learn.

Schedules without feedback do what their config says, however small a share is, so they raise no such alarm.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence

from rota.training.alarms.base import Detector
from rota.types import Alarm, Arm, Decision, State

NEARLY_ALL = 0.9
"""Share of the tokens of a window that is nearly all of them.

In 22 runs of TSCL and DQN (docs/results/laptop) the largest share of one language in a tenth of a run was 0.77.
"""

BEFORE_CHOICES = ("warmup", "first visit")
"""Why updates are made that are not the teacher's choice."""


class _Window(Detector, ABC):
    """Tokens by arm over the last ``updates`` updates that the teacher chose, looked at ``LOOKS`` times in a window."""

    LOOKS = 5

    def __init__(self, arms: Sequence[Arm], updates: int) -> None:
        self.arms, self._every = tuple(arms), max(1, -(-updates // self.LOOKS))
        self.updates = self._every * self.LOOKS
        self._chosen = 0  # updates since the warm-up
        self._marks: deque[dict[Arm, int]] = deque(maxlen=self.LOOKS + 1)  # tokens so far, every few updates

    def updated(self, step: int, decision: Decision, loss: float, seen: Mapping[Arm, int]) -> Iterable[Alarm]:  # noqa: ARG002
        if decision.why in BEFORE_CHOICES:
            self._chosen = 0
            self._marks.clear()
            return ()
        self._chosen += 1
        if self._chosen % self._every:
            return ()
        self._marks.append(dict(seen))
        if len(self._marks) <= self.LOOKS:
            return ()
        return self.look(step, {arm: seen.get(arm, 0) - self._marks[0].get(arm, 0) for arm in self.arms})

    @abstractmethod
    def look(self, step: int, tokens: Mapping[Arm, int]) -> Iterable[Alarm]:
        """Called with the tokens by arm of a whole window."""

    def state_dict(self) -> State:
        return {"chosen": self._chosen, "marks": [dict(mark) for mark in self._marks]}

    def load_state_dict(self, state: State) -> None:
        self._chosen = state["chosen"]
        self._marks = deque((dict(mark) for mark in state["marks"]), maxlen=self.LOOKS + 1)


class OneArm(_Window):
    """One of several arms has had nearly all tokens of a window. ``arm`` says which, as long as it goes on.

    That alone does not justify an alarm: good teachers stay with an arm for ten choices. It is raised when the same arm
    has had nearly all of every window in twice that long.
    """

    name = "one-arm"

    def __init__(self, arms: Sequence[Arm], updates: int) -> None:
        super().__init__(arms, updates)
        self.arm: Arm | None = None
        self._in_a_row = 0  # looks at which it was this arm

    def look(self, step: int, tokens: Mapping[Arm, int]) -> Iterator[Alarm]:
        most = max(tokens, key=lambda arm: tokens[arm])
        total = sum(tokens.values())
        found = most if len(tokens) > 1 and total and tokens[most] >= NEARLY_ALL * total else None
        self._in_a_row = self._in_a_row + 1 if found is not None and found == self.arm else int(found is not None)
        self.arm = found
        if self._in_a_row > self.LOOKS:
            share = f"{NEARLY_ALL:.0%} or more of the tokens of the last {2 * self.updates:,} updates"
            remedy = "the teacher may be stuck: compare with uniform, and let its settings follow the run's length"
            yield Alarm(step, self.name, most, f"{most} has had {share}; {remedy} (docs/teachers.md).")

    def state_dict(self) -> State:
        return {**super().state_dict(), "arm": self.arm, "in_a_row": self._in_a_row}

    def load_state_dict(self, state: State) -> None:
        super().load_state_dict(state)
        self.arm, self._in_a_row = state["arm"], state.get("in_a_row", 0)


class NoUpdates(_Window):
    """Arms that have had not a single token of a long window; ``arms_without`` has them as long as it goes on."""

    name = "no-updates"

    def __init__(self, arms: Sequence[Arm], updates: int) -> None:
        super().__init__(arms, updates)
        self.arms_without: list[Arm] = []

    def look(self, step: int, tokens: Mapping[Arm, int]) -> Iterator[Alarm]:
        self.arms_without = [arm for arm, count in tokens.items() if count == 0]
        for arm in self.arms_without:
            seen = f"{arm} has had none of the last {self.updates:,} updates"
            remedy = "if it matters, raise the teacher's epsilon or floor, or compare with uniform"
            yield Alarm(step, self.name, arm, f"{seen}; {remedy}.")

    def state_dict(self) -> State:
        return {**super().state_dict(), "without": list(self.arms_without)}

    def load_state_dict(self, state: State) -> None:
        super().load_state_dict(state)
        self.arms_without = list(state["without"])
