"""The batches of each update, from one stream for each arm; those of the next update may be drawn ahead."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from rota.types import Arm, Batch, BatchStream, Decision, State


class Ahead(NamedTuple):
    """Batches that no update has had yet, and the state of their stream before they were drawn."""

    arm: Arm
    before: State
    batches: list[Batch]


class Streams(dict[Arm, BatchStream]):
    """One stream for each arm, made when the arm is first played. Its state knows nothing of what is drawn ahead."""

    def __init__(self, make: Callable[[Arm], BatchStream]) -> None:
        super().__init__()
        self._make = make
        self._ahead: Ahead | None = None

    def __missing__(self, arm: Arm) -> BatchStream:
        self[arm] = self._make(arm)
        return self[arm]

    def draw(self, decision: Decision, ours: Sequence[bool]) -> list[Batch]:
        """The batches of one update, in order; those that are not ours are counted but not read."""
        if self._ahead is not None:
            ahead, self._ahead = self._ahead, None
            assert ahead.arm == decision.arm, f"batches of {ahead.arm} were drawn ahead, not of {decision.arm}"
            return ahead.batches
        stream = self[decision.arm]
        return [next(stream) if mine else stream.skip() for mine in ours]

    def draw_ahead(self, decision: Decision, ours: Sequence[bool]) -> list[Batch]:
        """What :meth:`draw` will give next time."""
        before = self[decision.arm].state_dict()
        self._ahead = Ahead(decision.arm, before, self.draw(decision, ours))
        return self._ahead.batches

    def state_dict(self) -> State:
        states = {arm: stream.state_dict() for arm, stream in self.items()}
        return states if self._ahead is None else {**states, self._ahead.arm: self._ahead.before}

    def load_state_dict(self, state: State) -> None:
        self._ahead = None
        for arm, stream_state in state.items():
            self[arm].load_state_dict(stream_state)
