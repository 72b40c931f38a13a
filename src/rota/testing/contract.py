"""What every teacher must do, whatever it is. Plain asserts: any test runner that knows pytest's classes can run it."""

from __future__ import annotations

import copy
import math
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from rota.measures import Measure, Scene
from rota.runs.checkpoints import Checkpoints
from rota.teachers import Classroom, TeacherConfig, build_teacher, teacher_from
from rota.training.turns import Turns
from rota.types import Arm, Decision, Observation, State

CLASSROOM = Classroom(
    {"az": 5, "be": 4, "tr": 90, "ru": 80},
    low_resource=("az", "be"),
    steps=200,
    tokens={"az": 100, "be": 80, "tr": 900, "ru": 1600},
    update_tokens=20,
)


class Rehearsal:
    """A teacher and a made-up student; one turn is one decision with all its updates."""

    def __init__(
        self, config: TeacherConfig | Mapping[str, Any] | str, classroom: Classroom = CLASSROOM, seed: int = 1
    ) -> None:
        self.config, self.classroom = teacher_from(config), classroom
        self.teacher = build_teacher(self.config, classroom, np.random.default_rng(seed))
        self.turns = Turns(
            self.teacher,
            decide_every=self.config.decide_every,
            observe_every=self.config.observes_every(classroom.steps),
            listens=self.config.listens,
        )
        self.step = 0

    def ask(self) -> Decision:
        return self.turns.decide(self.step)

    def play(self) -> None:
        """The updates of the decision in progress."""
        assert self.turns.decision is not None
        arm = self.turns.decision.arm
        for _ in range(self.config.decide_every):
            self.turns.played(self.loss(arm), {arm: 1})
            self.step += 1

    def tell(self) -> None:
        """What was measured, if it is time for that."""
        measures = self.turns.due(self.step)
        if measures is not None:
            self.turns.tell(self.step, self.measured())

    def run(self, count: int) -> list[Decision]:
        decisions = []
        for _ in range(count):
            decisions.append(self.ask())
            self.play()
            self.tell()
        return decisions

    def measured(self) -> dict[Measure, Any]:
        """Only what the teacher watches."""
        arms = (*self.classroom.arms, *(arm for arm in self.turns.window().arms if arm not in self.classroom.sizes))
        losses = {arm: self.loss(arm) for arm in arms}
        before = {arm: self.loss(arm, self.step - self.turns.observe_every) for arm in arms}
        effects = {arm: {language: self.effect(arm, language) for language in self.classroom.arms} for arm in arms}
        scene = Scene(losses, before, self.turns.window().losses, effects)
        return {measure: measure.imagine(scene) for measure in self.turns.due(self.step) or ()}

    def observation(self) -> Observation:
        return Observation(self.step, self.turns.window().plays, self.measured(), dict(self.turns.seen))

    def loss(self, arm: Arm, step: int | None = None) -> float:
        """Falls at a speed of the arm's own, with waves."""
        step, number = self.step if step is None else step, sum(map(ord, arm)) % 7
        return 2.0 + 5.0 / (1 + 0.01 * (number + 1) * step) + 0.3 * math.sin(step + number)

    def effect(self, arm: Arm, language: Arm) -> float:
        """How far an update on the arm would lower the loss of the language: its own most, with waves."""
        number = sum(map(ord, arm + language)) % 7
        return (0.02 if arm == language else 0.005) + 0.001 * number + 0.01 * math.sin(self.step + number)


class TeacherContract:
    """Subclass it, name a config, and let pytest collect the subclass.

    >>> class TestMine(TeacherContract):
    ...     config = {"name": "my_module:MyConfig", "epsilon": 0.3}
    """

    config: ClassVar[TeacherConfig | Mapping[str, Any] | str]
    classroom: ClassVar[Classroom] = CLASSROOM
    turns: ClassVar[int] = 40

    def rehearsal(self, seed: int = 1) -> Rehearsal:
        return Rehearsal(self.config, self.classroom, seed)

    def test_it_chooses_known_arms_only(self) -> None:
        known = set(self.classroom.arms)
        for decision in self.rehearsal().run(self.turns):
            chosen = {decision.arm} if decision.mixture is None else set(decision.mixture.shares)
            assert chosen <= known, f"{sorted(chosen - known)} is not among {sorted(known)}"
            assert decision.mixture is None or decision.arm not in known, f"a mixture has the name {decision.arm!r}"

    def test_its_decisions_can_be_written_down(self) -> None:
        for decision in self.rehearsal().run(self.turns):
            assert decision.why
            assert decision.probability is None or 0 < decision.probability <= 1
            assert decision.epsilon is None or 0 <= decision.epsilon <= 1
            assert all(type(score) is float and math.isfinite(score) for score in decision.scores.values())
            assert not decision.scores or set(decision.scores) == set(self.classroom.arms)
            assert Decision.from_state(decision.state()) == decision

    def test_the_same_seed_gives_the_same_schedule(self) -> None:
        assert self.rehearsal().run(self.turns) == self.rehearsal().run(self.turns)

    def test_it_resumes_exactly_from_a_checkpoint_after_tell(self) -> None:
        self._check_resumption(asked=False)

    def test_it_resumes_exactly_from_a_checkpoint_between_ask_and_tell(self) -> None:
        self._check_resumption(asked=True)

    def _check_resumption(self, *, asked: bool) -> None:
        cuts = [turn for turn in (1, 3, 5, 8, 13, 21, 34) if turn < self.turns]
        whole = self.rehearsal()
        with tempfile.TemporaryDirectory() as folder:
            checkpoints = Checkpoints(Path(folder), keep=len(cuts))
            for turn in range(self.turns):
                if turn in cuts and not asked:
                    checkpoints.save(turn, {"teacher": whole.teacher, "turns": whole.turns})
                whole.ask()
                if turn in cuts and asked:
                    checkpoints.save(turn, {"teacher": whole.teacher, "turns": whole.turns})
                whole.play()
                whole.tell()
            assert [checkpoint.step for checkpoint in checkpoints.list()] == cuts
            for checkpoint in checkpoints.list():
                resumed = self.rehearsal(seed=99)
                state = checkpoint.load()
                resumed.teacher.load_state_dict(state["teacher"])
                resumed.turns.load_state_dict(state["turns"])
                resumed.step = checkpoint.step * resumed.config.decide_every
                if asked:
                    resumed.play()
                    resumed.tell()
                resumed.run(self.turns - checkpoint.step - asked)
                assert resumed.turns.decision == whole.turns.decision
                found, expected = resumed.teacher.state_dict(), whole.teacher.state_dict()
                assert same_state(found, expected), f"cut at turn {checkpoint.step}"

    def test_it_announces_what_it_will_watch(self) -> None:
        rehearsal = self.rehearsal()
        announced = set(rehearsal.teacher.watches)
        for _ in range(self.turns):
            rehearsal.run(1)
            watched = set(rehearsal.teacher.watches)
            assert watched <= announced, f"{watched - announced} was not among its watches before the first ask"

    def test_its_rewards_are_finite_and_of_known_arms(self) -> None:
        rehearsal = self.rehearsal()
        for _ in range(self.turns):
            rehearsal.ask()
            rehearsal.play()
            if rehearsal.turns.due(rehearsal.step) is not None:
                rewards = rehearsal.turns.tell(rehearsal.step, rehearsal.measured()) or {}
                assert set(rewards) <= set(self.classroom.arms)
                assert all(math.isfinite(reward) for reward in rewards.values())

    def test_a_missing_value_is_refused_and_leaves_no_trace(self) -> None:
        self._check_refusal(None)

    def test_a_value_that_is_not_finite_is_refused_and_leaves_no_trace(self) -> None:
        self._check_refusal(math.nan)
        self._check_refusal(math.inf)

    def _check_refusal(self, value: float | None) -> None:
        room, untouched = self.rehearsal(), self.rehearsal()
        for _ in range(self.turns):
            for each in (room, untouched):
                each.ask()
                each.play()
            if room.turns.due(room.step):
                before = copy.deepcopy(room.teacher.state_dict())
                with _refused():
                    room.teacher.tell(_spoiled(room.observation(), value))
                assert same_state(room.teacher.state_dict(), before), "a refused observation has left a trace"
            room.tell()
            untouched.tell()
        assert same_state(room.teacher.state_dict(), untouched.teacher.state_dict())

    def test_one_that_does_not_listen_answers_the_same_before_it_is_told(self) -> None:
        """Warm-up included: the loop may then ask it one update ahead."""
        usual, early = self.rehearsal(), self.rehearsal()
        if usual.turns.listens:
            return
        decisions = []
        for _ in range(self.turns):
            decisions.append(early.ask())
            early.turns.ahead(early.step + early.config.decide_every)
            early.play()
            early.tell()
        assert decisions == usual.run(self.turns)


def observation_of(
    watches: Iterable[Measure],
    step: int,
    plays: Decision | Mapping[Arm, int],
    values: Mapping[type[Measure], Any],
    updates: int = 1,
) -> Observation:
    """An observation for a teacher that watches ``watches``: each measure has the value that its class has here.

    ``plays`` is a decision with ``updates`` updates, or updates by arm. Measures without a value are left out.
    """
    if isinstance(plays, Decision):
        played: tuple[tuple[Decision, int], ...] = ((plays, updates),)
    else:
        played = tuple((Decision(arm, why="told"), count) for arm, count in plays.items())
    measured = {measure: values[type(measure)] for measure in watches if type(measure) in values}
    return Observation(step, played, measured)


@contextmanager
def _refused() -> Iterator[None]:
    refusal = None
    try:
        yield
    except ValueError as error:
        refusal = str(error)
    assert refusal is not None, "an observation that cannot be used was accepted"
    assert "step" in refusal, f"the refusal does not name the step: {refusal}"


def _spoiled(observation: Observation, value: float | None) -> Observation:
    """The same observation with every measured number replaced, or without them if ``value`` is None."""
    measured = {} if value is None else {key: _filled(found, value) for key, found in observation.measured.items()}
    return Observation(observation.step, observation.plays, measured, observation.seen)


def _filled(found: Any, value: float) -> Any:
    if isinstance(found, Mapping):
        return {key: _filled(inner, value) for key, inner in found.items()}
    if isinstance(found, tuple):
        filled = [_filled(inner, value) for inner in found]
        return type(found)(*filled) if hasattr(found, "_fields") else tuple(filled)
    if isinstance(found, np.ndarray):
        return np.full(found.shape, value)
    return value if isinstance(found, float) else found


def same_state(first: State | Any, second: State | Any) -> bool:
    """Whether two states are equal to the last bit."""
    if isinstance(first, dict):
        return first.keys() == second.keys() and all(same_state(first[key], second[key]) for key in first)
    if isinstance(first, list | tuple):
        return len(first) == len(second) and all(map(same_state, first, second))
    if isinstance(first, np.ndarray) or hasattr(first, "numpy"):
        left, right = np.asarray(first), np.asarray(second)
        return left.dtype == right.dtype and np.array_equal(left, right)
    return bool(first == second)
