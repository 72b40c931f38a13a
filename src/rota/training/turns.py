"""When to ask and to tell, and the decision in progress. One cadence for every loop, real or simulated."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from rota.measures import Measure
from rota.runs.earlier import plays_and_losses
from rota.types import Arm, Decision, Observation, State, Teacher

Result = TypeVar("Result")


def _locally(work: Callable[[], Result]) -> Result:
    return work()


class Window(NamedTuple):
    """The updates since the last ``tell``."""

    plays: tuple[tuple[Decision, int], ...]
    losses: Mapping[Arm, tuple[float, int]]  # sum of the training losses, and number of updates, by arm

    @property
    def arms(self) -> tuple[Arm, ...]:
        """In the order in which they were first played."""
        return tuple(self.losses)


class Turns:
    """Asks a teacher every ``decide_every`` updates and tells it every ``observe_every``; knows no student.

    The order for each update: :meth:`decide`, perhaps :meth:`ahead`, :meth:`played`; then, if :meth:`due` names
    measures, :meth:`tell`. ``listens``: whether what the teacher is told can change what it answers; if it cannot,
    the next decision may be asked for ahead. ``broadcast`` does something in the first of several processes
    and gives its result to all.
    """

    def __init__(
        self,
        teacher: Teacher,
        *,
        decide_every: int = 1,
        observe_every: int | None = None,
        listens: bool = True,
        broadcast: Callable[[Callable[[], Any]], Any] = _locally,
    ) -> None:
        self.teacher, self.decide_every, self.observe_every = teacher, decide_every, observe_every or decide_every
        if self.observe_every % decide_every:
            raise ValueError(
                f"observe_every is {observe_every}; it must be a multiple of decide_every ({decide_every})"
            )
        self._broadcast = broadcast
        self.watches: Sequence[Measure] = tuple(teacher.watches)
        self.listens = listens or bool(self.watches)  # a teacher that watches something may learn from it
        self.decision: Decision | None = None
        self.decided = False  # whether the decision in progress was asked for at the present update
        self.seen: Counter[Arm] = Counter()  # target tokens by arm since step 0
        self._next: Decision | None = None  # the decision after this one, if it was asked for ahead
        self._plays: list[tuple[Decision, int]] = []
        self._losses: dict[Arm, tuple[float, int]] = {}

    def decide(self, step: int) -> Decision:
        """The decision that holds for the update after ``step`` completed ones."""
        self.decided = step % self.decide_every == 0
        if self.decided:
            self.decision, self._next = self._next or self._ask(step), None
        assert self.decision is not None
        return self.decision

    def ahead(self, step: int) -> Decision | None:
        """What :meth:`decide` will say at ``step``, the next one; None if that depends on what is told before."""
        if self.listens and step % self.observe_every == 0:
            return None
        if step % self.decide_every:
            return self.decision
        self._next = self._next or self._ask(step)
        return self._next

    def _ask(self, step: int) -> Decision:
        def ask() -> tuple[Decision, Sequence[Measure]]:
            decision = self.teacher.ask(step)
            return decision, tuple(self.teacher.watches)

        decision: Decision
        decision, self.watches = self._broadcast(ask)
        return decision

    def played(
        self, loss: float, tokens: Mapping[Arm, int], made: Decision | None = None, *, first: bool = False
    ) -> None:
        """One update was made: its training loss, and its target tokens by arm.

        It is one of the decision in progress, unless ``made`` names an earlier one: a loop whose batches are drawn
        ahead may have asked for the next decision already. ``first``: it is the first update of that decision.
        """
        made = made or self.decision
        assert made is not None
        if not self._plays or self._plays[-1][1] == self.decide_every or first:
            self._plays.append((made, 0))
        decision, updates = self._plays[-1]
        self._plays[-1] = decision, updates + 1
        total, count = self._losses.get(decision.arm, (0.0, 0))
        self._losses[decision.arm] = total + loss, count + 1
        self.seen.update(tokens)

    def due(self, step: int) -> Sequence[Measure] | None:
        """What to measure now for :meth:`tell`; None if it is not time to tell."""
        return None if step % self.observe_every else self.watches

    def window(self) -> Window:
        return Window(tuple(self._plays), self._losses)

    def tell(self, step: int, measured: Mapping[Measure, Any]) -> Mapping[Arm, float] | None:
        """Tell the teacher; returns the rewards that it made of the observation."""
        observation = Observation(step, tuple(self._plays), measured, dict(self.seen))
        rewards: Mapping[Arm, float] | None = self._broadcast(lambda: self.teacher.tell(observation))
        self._plays, self._losses = [], {}
        return rewards

    def state_dict(self) -> State:
        return {
            "decision": None if self.decision is None else self.decision.state(),
            "next": None if self._next is None else self._next.state(),
            "seen": dict(self.seen),
            # What version 0.1 reads: updates by arm, and the sum of their losses.
            "played": {arm: count for arm, (_, count) in self._losses.items()},
            "train_loss": sum((total for total, _ in self._losses.values()), 0.0),
            "plays": [[decision.state(), updates] for decision, updates in self._plays],
            "losses": {arm: list(pair) for arm, pair in self._losses.items()},
        }

    def load_state_dict(self, state: State) -> None:
        """Also a state of version 0.1, which knew the updates by arm but only the last decision."""
        self.decision, self._next = (_decision(state.get(name)) for name in ("decision", "next"))
        self.seen = Counter(state["seen"])
        if "plays" in state:
            self._plays = [(Decision.from_state(decision), updates) for decision, updates in state["plays"]]
            self._losses = {arm: (total, count) for arm, (total, count) in state["losses"].items()}
        else:
            self._plays, self._losses = plays_and_losses(self.decision, state, self.decide_every)
        self.watches = self._broadcast(lambda: tuple(self.teacher.watches))


def _decision(state: State | None) -> Decision | None:
    return None if state is None else Decision.from_state(state)
