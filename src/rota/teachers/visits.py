"""First visits: every language once, in order, before the teacher decides for the first time."""

from __future__ import annotations

from collections.abc import Sequence

from rota.types import Arm, Decision, Observation, State, Teacher, Watch


class FirstVisits:
    """Plays ``arms`` one after the other, a choice each; afterwards the wrapped teacher decides.

    The wrapped teacher is told of every visit as if the choice had been its own: the visits are there for its sake.
    """

    def __init__(self, teacher: Teacher, arms: Sequence[Arm]) -> None:
        self.teacher = teacher
        self._left = list(arms)

    @property
    def watches(self) -> Watch:
        return self.teacher.watches

    def ask(self, step: int) -> Decision:
        if self._left:
            return Decision(self._left.pop(0), why="first visit", probability=1.0)
        return self.teacher.ask(step)

    def tell(self, observation: Observation) -> None:
        self.teacher.tell(observation)

    def state_dict(self) -> State:
        return {"left": list(self._left), "teacher": self.teacher.state_dict()}

    def load_state_dict(self, state: State) -> None:
        self._left = list(state["left"])
        self.teacher.load_state_dict(state["teacher"])
