"""Which examples come next, for any PyTorch loop: a sampler that asks a teacher before every update.

Data loaders draw batches before the model has trained on the last ones. The sampler therefore tells the teacher what
was *played*, not what was drawn, and its state is that of the last update that was played. When the next decision is
due, one update of the decision in progress is usually drawn and not played: the teacher is told without it.
"""

from __future__ import annotations

import math
import zlib
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from torch.utils.data import Sampler

from rota.goal import ALL, Setting, resolve
from rota.measures import Measure
from rota.runs.earlier import mixture_named
from rota.teachers import Classroom, TeacherConfig, build_teacher, teacher_from
from rota.training.turns import Turns, Window
from rota.types import Arm, Decision, IntArray, State

Measuring = Callable[[int, Sequence[Measure], Window], Mapping[Measure, Any]]
"""From the updates played so far, what the teacher watches, and what was played since it was last told: the values."""

LOW_RESOURCE_SHARE = 0.2
"""An arm with fewer examples than this share of the largest counts as low-resource, unless it is said which do."""


def _cannot_measure(step: int, measures: Sequence[Measure], window: Window) -> Mapping[Measure, Any]:  # noqa: ARG001
    wanted = ", ".join(map(str, measures))
    raise ValueError(f"the teacher watches {wanted}; give LessonSampler a function that measures it: measure=...")


class LessonSampler(Sampler[int]):
    """Indices into the data sets of all arms, one after the other: as many of one arm as an update has examples.

    ``sizes`` are the examples of each arm, in the order in which the data sets are concatenated; ``update`` is the
    number of examples of an update, over all processes and accumulated batches; ``steps`` the length of the run. Call
    :meth:`played` after each update.
    """

    def __init__(
        self,
        sizes: Mapping[Arm, int],
        teacher: str | Mapping[str, Any] | TeacherConfig = "uniform",
        *,
        update: int,
        steps: int,
        seed: int = 1,
        low_resource: Sequence[Arm] | None = None,
        goal: Setting = ALL,
        tokens: Mapping[Arm, float] | None = None,
        lr_warmup: int = 0,
        measure: Measuring = _cannot_measure,
        begun: Callable[[Sequence[Measure], Decision], object] = lambda *_: None,
        broadcast: Callable[[Callable[[], Any]], Any] = lambda work: work(),
    ) -> None:
        _check_sizes(sizes, update, steps)
        self.sizes, self.update, self.steps, self.seed = dict(sizes), update, steps, seed
        self.tokens = dict(tokens or dict.fromkeys(sizes, 1.0))  # target tokens of an example, on average
        low = _low_resource(sizes) if low_resource is None else tuple(low_resource)
        self.classroom = Classroom(
            self.sizes,
            low,
            steps,
            {arm: max(1, round(self.tokens[arm] * size)) for arm, size in sizes.items()},
            update_tokens=max(1, round(update * float(np.mean(list(self.tokens.values()))))),
            lr_warmup=lr_warmup,
            goal=resolve(goal, tuple(sizes), low),
        )
        fitted = teacher_from(teacher).fitted(steps, self.classroom.update_tokens)
        self.config = fitted if goal == ALL else fitted.with_goal()
        self.config.check(steps)
        teacher_rng = np.random.default_rng([seed, zlib.crc32(b"teacher")])
        self.turns = Turns(
            build_teacher(self.config, self.classroom, teacher_rng),
            decide_every=self.config.decide_every,
            observe_every=self.config.observe_every,
            listens=self.config.listens,
            broadcast=broadcast,
        )
        self._measure, self._begun = measure, begun
        self._starts = dict(zip(sizes, np.cumsum([0, *sizes.values()])[:-1].tolist(), strict=True))
        self._orders: dict[Arm, tuple[int, IntArray]] = {}  # the newest epoch of each arm and its order
        self.played_updates = 0
        self._ahead: deque[tuple[Decision, Counter[Arm]]] = deque()  # drawn, and not played yet
        self._asked: deque[Decision] = deque()  # of updates that an earlier part of the run drew and did not play
        self._examples: Counter[Arm] = Counter()  # drawn
        self.examples: Counter[Arm] = Counter()  # played
        self.last: Counter[Arm] = Counter()  # those of the last update that was played
        self._told: int | None = None  # the decision, by number, that was told before its last update was played
        self.told: list[tuple[int, Mapping[Measure, Any], Mapping[Arm, float] | None]] = []  # to be recorded

    @property
    def updates_of_epoch(self) -> int:
        """So many updates have as many examples as there are."""
        return math.ceil(sum(self.sizes.values()) / self.update)

    def __len__(self) -> int:
        return self.updates_of_epoch * self.update

    def __iter__(self) -> Iterator[int]:
        """The rest of the present epoch."""
        self._forget_ahead()
        for _ in range(self.played_updates % self.updates_of_epoch, self.updates_of_epoch):
            yield from self._next_update().tolist()

    def _forget_ahead(self) -> None:
        """What was drawn for a loop that ended, and never played, is drawn again by the next one."""
        self._asked.extendleft(decision for decision, _ in reversed(self._ahead))
        self._ahead.clear()
        self._examples = Counter(self.examples)

    def _next_update(self) -> IntArray:
        decision = self._asked.popleft() if self._asked else self._decide(self.played_updates + len(self._ahead))
        arms = self._arms(decision, self.played_updates + len(self._ahead))
        counts = Counter(arms)
        parts = {arm: iter(self._draw(arm, count)) for arm, count in counts.items()}
        self._ahead.append((decision, counts))
        return np.array([next(parts[arm]) for arm in arms])

    def _decide(self, number: int) -> Decision:
        """The decision for the update after ``number`` others; first tells the teacher what has been played."""
        measures = self.turns.due(number)
        window = self.turns.window()
        if measures is not None and window.plays:
            measured = self._measure(self.played_updates, measures, window) if measures else {}
            decided, over = divmod(self.played_updates, self.turns.decide_every)
            self._told = decided if over else None
            self.told.append((self.played_updates, measured, self.turns.tell(self.played_updates, measured)))
        decision = self.turns.decide(number)
        if any((decision.selection, decision.weights, decision.emphasis, decision.pacing)):
            raise ValueError(f"teacher {self.config.name} selects or weights sentences, which only rota train can do")
        if self.turns.decided and self.turns.watches:
            self._begun(self.turns.watches, decision)
        return decision

    def _arms(self, decision: Decision, number: int) -> list[Arm]:
        """The arm of each example of an update."""
        mixture = decision.mixture or mixture_named(decision.arm, self.sizes, self.classroom.low_resource)
        if mixture is None:
            return [decision.arm] * self.update
        weights = np.array(list(mixture.shares.values()), dtype=float)
        whole = mixture.unit == "batch"
        rng = np.random.default_rng([self.seed, number])
        drawn = rng.choice(len(weights), size=1 if whole else self.update, p=weights / weights.sum())
        arms = [list(mixture.shares)[index] for index in drawn]
        return arms * self.update if whole else arms

    def _draw(self, arm: Arm, count: int) -> list[int]:
        """The next examples of an arm; every example once per epoch of the arm, in a new order each time."""
        if arm not in self.sizes:
            raise ValueError(f"the teacher chose {arm!r}; the data sets are {', '.join(self.sizes)}")
        found: list[int] = []
        while len(found) < count:
            epoch, position = divmod(self._examples[arm], self.sizes[arm])
            part = self._order(arm, epoch)[position : position + count - len(found)]
            self._examples[arm] += len(part)
            found += (self._starts[arm] + part).tolist()
        return found

    def _order(self, arm: Arm, epoch: int) -> IntArray:
        if self._orders.get(arm, (-1,))[0] != epoch:
            rng = np.random.default_rng([self.seed, zlib.crc32(arm.encode()), epoch])
            self._orders[arm] = epoch, rng.permutation(self.sizes[arm])
        return self._orders[arm][1]

    def played(self, loss: float = math.nan) -> Decision:
        """One update was made of the examples drawn first; returns the decision that they were drawn for."""
        if not self._ahead:
            raise ValueError("an update was played before its examples were drawn; iterate over the sampler first")
        decision, counts = self._ahead.popleft()
        self.last = counts
        tokens = {arm: round(self.tokens[arm] * count) for arm, count in counts.items()}
        decided, over = divmod(self.played_updates, self.turns.decide_every)
        if decided == self._told:
            self.turns.seen.update(tokens)  # the teacher has its observation of this choice
        else:
            self.turns.played(loss, tokens, decision, first=over == 0)
        self.examples.update(counts)
        self.played_updates += 1
        return decision

    def state_dict(self) -> State:
        """Of the last update that was played: what was drawn ahead will be drawn again, by the same decisions."""
        decisions = [decision for decision, _ in self._ahead]
        return {
            "played": self.played_updates,
            "examples": dict(self.examples),
            "ahead": [decision.state() for decision in (*decisions, *self._asked)],
            "told": self._told,
            "turns": self.turns.state_dict(),
            "teacher": self.turns.teacher.state_dict(),
        }

    def load_state_dict(self, state: State) -> None:
        self.played_updates, self.examples = state["played"], Counter(state["examples"])
        self._examples = Counter(self.examples)
        self._ahead.clear()
        self._asked = deque(Decision.from_state(decision) for decision in state["ahead"])
        self._told = state["told"]
        self.turns.teacher.load_state_dict(state["teacher"])
        self.turns.load_state_dict(state["turns"])


def _check_sizes(sizes: Mapping[Arm, int], update: int, steps: int) -> None:
    if not sizes:
        raise ValueError("there are no data sets; give at least one, such as {'az': az_train}")
    for arm, size in sizes.items():
        if size < 1:
            raise ValueError(f"the data set of {arm!r} has {size} examples; leave it out, or give it some")
    if update < 1 or steps < 1:
        raise ValueError(f"update is {update} and steps is {steps}; both must be at least 1")


def _low_resource(sizes: Mapping[Arm, int]) -> tuple[Arm, ...]:
    largest = max(sizes.values())
    return tuple(arm for arm, size in sizes.items() if size < LOW_RESOURCE_SHARE * largest)
