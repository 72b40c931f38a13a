"""What every teacher of the registry must do, whatever it is."""

import copy
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from pydantic import TypeAdapter
from replay_cases import make_run

from rota.runs.checkpoints import Checkpoints
from rota.teachers import TEACHERS, AnyTeacherConfig, Classroom, build_teacher
from rota.types import MIXED, MIXED_HIGH_RESOURCE, Observation, Watch

CLASSROOM = Classroom({"az": 5, "be": 4, "tr": 90, "ru": 80}, low_resource=("az", "be"), steps=200)
GROUPS = 2
DQN = {
    "name": "dqn",
    "groups": GROUPS,
    "hidden": [6],
    "replay_minimum": 5,
    "replay_capacity": 12,
    "replay_batch": 4,
    "warmup": 60,
    "epsilon_steps": 100,
    "epsilon_floor": 0.2,
}
CASES = {
    "uniform": {"name": "uniform"},
    "uniform after a warm-up": {"name": "uniform", "warmup": 10},
    "proportional": {"name": "proportional"},
    "temperature": {"name": "temperature"},
    "fixed": {"name": "fixed", "shares": {"az": 1, "tr": 2}},
    "mixed": {"name": "mixed", "warmup": 10},
    "two-phase": {"name": "two-phase", "switch": 15},
    "tscl": {"name": "tscl", "warmup": 10},
    "tscl without a warm-up": {"name": "tscl", "warmup": None, "reward_scale": "quantiles"},
    "tscl naive": {"name": "tscl", "warmup": 10, "algorithm": "naive", "window": 3},
    "tscl window": {"name": "tscl", "warmup": 10, "algorithm": "window", "policy": "boltzmann", "window": 3},
    "tscl sampling": {"name": "tscl", "warmup": 10, "algorithm": "sampling", "first_visits": "after-warmup"},
    "tscl as released": {"name": "tscl", "warmup": 10, "variant": "released"},
    "tscl that observes rarely": {"name": "tscl", "warmup": 12, "observe_every": 3},
    "dqn": DQN,
    "dqn as released": {**DQN, "variant": "released"},
    "dqn on z-scores": {**DQN, "warmup": None, "reward_scale": "z-score", "reward_batch": "current-language"},
    "dqn that does not learn": {**DQN, "learn": False},
    "replay-proportions": {"name": "replay-proportions", "run": "other", "warmup": 10},
    "replay-shuffled": {"name": "replay-shuffled", "run": "other", "window": 7},
    "a user's own": {"name": "own_teacher:WorstFirstConfig", "epsilon": 0.3},
}
every_teacher = pytest.mark.parametrize("case", CASES)


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """A folder with a run to replay: one language after the other."""
    folder = tmp_path_factory.mktemp("project")
    make_run(folder / "other", list(CLASSROOM.arms) * 50)
    return folder


@pytest.fixture(autouse=True)
def in_project(project, monkeypatch):
    monkeypatch.chdir(project)
    monkeypatch.syspath_prepend(Path(__file__).parents[2] / "docs")


class Room:
    """A teacher and a made-up student whose losses depend on what was played; one turn is one choice."""

    def __init__(self, case, seed=1):
        self.config = TypeAdapter(AnyTeacherConfig).validate_python(CASES[case])
        self.teacher = build_teacher(self.config, CLASSROOM, np.random.default_rng(seed))
        self.observe_every = self.config.observe_every or self.config.decide_every
        self.step, self.played, self.decision = 0, {}, None

    def ask(self):
        self.decision = self.teacher.ask(self.step)
        return self.decision

    def tell(self):
        every = self.config.decide_every
        self.step += every
        self.played[self.decision.arm] = self.played.get(self.decision.arm, 0) + every
        if self.step % self.observe_every == 0:
            self.teacher.tell(self.observation())
            self.played = {}

    def turns(self, count):
        decisions = []
        for _ in range(count):
            decisions.append(self.ask())
            self.tell()
        return decisions

    def observation(self):
        """Only what the teacher watches is measured."""
        watches = self.teacher.watches
        losses = {arm: loss(arm, self.step) for arm in (*CLASSROOM.arms, MIXED, MIXED_HIGH_RESOURCE)}
        prototype = np.outer([losses[arm] for arm in CLASSROOM.arms], [0.9, 1.1]).ravel()
        return Observation(
            self.step,
            self.decision,
            dict(self.played),
            train_loss=losses[self.decision.arm] if Watch.TRAIN_LOSS in watches else None,
            dev_loss={arm: losses[arm] for arm in self.played} if Watch.DEV_LOSS in watches else None,
            joint_loss=float(np.mean(list(losses.values()))) if Watch.JOINT_LOSS in watches else None,
            prototype=prototype if Watch.PROTOTYPE in watches else None,
        )


def loss(arm, step):
    number = sum(map(ord, arm)) % 7
    return 2.0 + 5.0 / (1 + 0.01 * (number + 1) * step) + 0.3 * np.sin(step + number)


def same(first, second):
    """Whether two states are equal to the last bit."""
    if isinstance(first, dict):
        return first.keys() == second.keys() and all(same(first[key], second[key]) for key in first)
    if isinstance(first, list | tuple):
        return len(first) == len(second) and all(map(same, first, second))
    if isinstance(first, torch.Tensor):
        return torch.equal(first, second)
    if isinstance(first, np.ndarray):
        return first.dtype == second.dtype and np.array_equal(first, second)
    return first == second


def test_every_teacher_of_the_registry_is_held_to_the_contract():
    names = {values["name"] for values in CASES.values()}
    assert {name for name in names if ":" not in name} == set(TEACHERS)


@every_teacher
def test_it_chooses_known_arms_only(case):
    chosen = {decision.arm for decision in Room(case).turns(60)}
    assert chosen <= {*CLASSROOM.arms, MIXED, MIXED_HIGH_RESOURCE}


@every_teacher
def test_its_decisions_can_be_written_down(case):
    for decision in Room(case).turns(40):
        assert decision.why
        assert decision.probability is None or 0 < decision.probability <= 1
        assert decision.epsilon is None or 0 <= decision.epsilon <= 1
        assert all(type(score) is float and np.isfinite(score) for score in decision.scores.values())
        assert not decision.scores or set(decision.scores) == set(CLASSROOM.arms)


@every_teacher
def test_the_same_seed_gives_the_same_schedule(case):
    assert Room(case).turns(60) == Room(case).turns(60)


def test_another_seed_gives_another_schedule():
    for case in ("uniform", "tscl", "dqn"):
        assert Room(case, seed=1).turns(60) != Room(case, seed=2).turns(60)


CUTS = (1, 3, 5, 8, 13, 21, 34)
"""Turns with a checkpoint: in the first visits, in the warm-up, around their ends, and while learning."""


@every_teacher
@pytest.mark.parametrize("asked", [False, True], ids=["after tell", "between ask and tell"])
def test_it_resumes_exactly_from_a_checkpoint_on_disk(case, asked, tmp_path):
    checkpoints = Checkpoints(tmp_path, keep=len(CUTS))
    whole, moments = Room(case), {}
    for turn in range(40):
        if turn in CUTS and not asked:
            moments[turn] = save(whole, checkpoints, turn)
        whole.ask()
        if turn in CUTS and asked:
            moments[turn] = save(whole, checkpoints, turn)
        whole.tell()
    assert [checkpoint.step for checkpoint in checkpoints.list()] == list(CUTS)
    for checkpoint in checkpoints.list():
        resumed = Room(case, seed=99)
        resumed.teacher.load_state_dict(checkpoint.load()["teacher"])
        resumed.step, resumed.played, resumed.decision = moments[checkpoint.step]
        if asked:
            resumed.tell()
        resumed.turns(40 - checkpoint.step - asked)
        assert resumed.decision == whole.decision
        assert same(resumed.teacher.state_dict(), whole.teacher.state_dict()), f"cut at turn {checkpoint.step}"


def save(room, checkpoints, turn):
    """A checkpoint of the teacher, and what the loop around it remembers."""
    checkpoints.save(turn, {"teacher": room.teacher})
    return room.step, dict(room.played), room.decision


@every_teacher
def test_it_declares_what_it_watches_before_it_is_told(case):
    room = Room(case)
    for _ in range(30):
        room.ask()
        assert isinstance(room.teacher.watches, Watch)
        room.tell()


def spoil(observation, value):
    """The same observation with every measured loss replaced."""
    measured = {}
    if observation.dev_loss is not None:
        measured["dev_loss"] = None if value is None else dict.fromkeys(observation.dev_loss, value)
    if observation.joint_loss is not None:
        measured["joint_loss"] = value
    if observation.prototype is not None:
        measured["prototype"] = None if value is None else np.full_like(observation.prototype, value)
    return replace(observation, **measured)


@every_teacher
@pytest.mark.parametrize("value", [None, float("nan"), float("inf")])
def test_a_missing_or_non_finite_loss_is_refused_and_leaves_no_trace(case, value):
    room, untouched = Room(case), Room(case)
    for _ in range(30):
        room.ask()
        untouched.ask()
        if room.teacher.watches != Watch.NOTHING and (room.step + room.config.decide_every) % room.observe_every == 0:
            before = copy.deepcopy(room.teacher.state_dict())
            room.played.setdefault(room.decision.arm, 1)  # the turn is not over yet
            with pytest.raises(ValueError, match="step"):
                room.teacher.tell(spoil(room.observation(), value))
            assert same(room.teacher.state_dict(), before)
            room.played = dict(untouched.played)
        room.tell()
        untouched.tell()
    assert same(room.teacher.state_dict(), untouched.teacher.state_dict())


@every_teacher
def test_one_that_does_not_listen_answers_the_same_before_it_is_told(case):
    """Warm-up included: the loop may then ask it one update ahead."""
    usual, ahead = Room(case), Room(case)
    listens = CASES[case]["name"].startswith(("tscl", "dqn", "own_teacher"))
    assert usual.config.listens == listens
    if not listens:
        every, first = usual.config.decide_every, ahead.ask()
        decisions = [first]
        for turn in range(1, 40):
            following = ahead.teacher.ask(turn * every)
            ahead.tell()
            ahead.decision = following
            decisions.append(following)
        assert decisions == usual.turns(40)
