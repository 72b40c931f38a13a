"""What a teacher costs: the share of a run that goes into decisions and observations, beside the arithmetic."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from functools import partial
from itertools import pairwise

import numpy as np
import torch

from machine.pieces import Piece
from machine.work import CLOCKS, forward_flops, make_student, open_data, timed, update_flops
from rota.data.batches import make_stream
from rota.data.store import Store
from rota.student.nmt import NMT
from rota.teachers import Classroom, TeacherConfig
from rota.teachers.dqn_config import DQNConfig
from rota.teachers.static import UniformConfig
from rota.teachers.tscl import TSCLConfig
from rota.training.devsets import DevSets
from rota.training.probe import Probe
from rota.types import Decision, Watch
from rows import Row, row

STEPS = 150_000
UPDATES = 2
"""Updates that are timed before each observation; the paper's number between two is reached by multiplying."""


def teacher_config(name: str) -> TeacherConfig:
    """The paper's settings, without warm-ups; DQN begins to learn at once, so that its own updates are in the time."""
    if name.startswith("dqn"):
        refresh = name.rpartition(" ")[2] if "refresh" in name else "1"
        return DQNConfig(refresh=refresh, warmup=None, replay_minimum=2)
    return {"uniform": UniformConfig(), "tscl": TSCLConfig(warmup=None)}[name]


def measure(piece: Piece) -> list[Row]:
    """Updates and observations in turn; shares by processor time and by wall time."""
    torch.set_num_threads(piece.threads)
    store = open_data(piece)
    assert piece.teacher is not None
    student = make_student(piece.preset, store.manifest.vocabulary)
    lesson = Lesson(store, student, teacher_config(piece.teacher))
    streams = [make_stream(store, arm, piece.tokens, seed=1) for arm in store.languages]
    lesson.observe()
    lesson.observe()
    student.update([next(streams[0])])
    measured: dict[str, list[float]] = {clock: [] for clock in CLOCKS}
    predicted = []
    for number in range(piece.repetitions):
        batches = [next(streams[(number + turn) % len(streams)]) for turn in range(UPDATES)]
        updates = [timed(partial(student.update, [batch])) for batch in batches]
        observing = timed(lesson.observe)
        for clock, shares in measured.items():
            update = statistics.mean(getattr(each, clock) for each in updates)
            shares.append(100 * lesson.share(getattr(observing, clock), update))
        operations = statistics.mean(update_flops(student.network.shape, batch) for batch in batches)
        predicted.append(100 * lesson.share(lesson.flops(), operations))
    return _rows(piece, measured, predicted)


def _rows(piece: Piece, measured: Mapping[str, list[float]], predicted: list[float]) -> list[Row]:
    about, expected = (piece.benchmark, piece.setting), statistics.median(predicted)
    goal = "about 0" if piece.teacher == "uniform" else None
    rows = []
    for clock, shares in measured.items():
        ratio = statistics.median(shares) / expected if expected else None
        what = f"share of the run, decisions and observations{CLOCKS[clock]}"
        rows.append(row(*about, what, shares, "%", ratio=ratio, goal=goal if clock == "processor" else None))
    return [*rows, row(*about, "predicted from operations", predicted, "%")]


class Lesson:
    """A teacher, the student it observes, and what that takes."""

    def __init__(self, store: Store, student: NMT, config: TeacherConfig) -> None:
        self.config = config
        classroom = Classroom(store.sizes, store.low_resource, STEPS)
        self.teacher = config.build(classroom, np.random.default_rng(1))
        self.probe = Probe(student, DevSets(store, config.measurements(), teacher_share=0.5, validate_tokens=4_000))
        self.shape, self.arms = student.network.shape, store.languages
        self.decision = Decision(store.languages[0], "benchmark")
        self.step = 0

    @property
    def updates(self) -> int:
        """Between two observations."""
        return self.config.observe_every or self.config.decide_every

    def observe(self) -> None:
        """An observation, and all decisions up to the next one."""
        self.step += self.updates
        played = {self.decision.arm: self.updates}
        watches = self.teacher.watches
        self.teacher.tell(self.probe.observe(self.step, self.decision, watches, played=played, train_loss=0.0))
        for _ in range(self.updates // self.config.decide_every):
            self.teacher.ask(self.step)

    def share(self, observing: float, updating: float) -> float:
        """Of a run with so much for an observation and its decisions, and so much for one update."""
        return observing / (observing + self.updates * updating)

    def flops(self) -> float:
        """Operations of an observation: forward only, one turn of the groups; then the teacher's own learning."""
        watches, sets = self.teacher.watches, self.probe.sets
        total = 0.0
        if Watch.DEV_LOSS in watches:
            total += forward_flops(self.shape, sets.reward[self.decision.arm])
        if Watch.JOINT_LOSS in watches:
            total += forward_flops(self.shape, sets.joint)
        if Watch.PROTOTYPE in watches:
            total += statistics.mean(forward_flops(self.shape, batch) for batch in sets.prototype.batches)
        return total + learning_flops(self.config, len(self.arms))


def learning_flops(config: TeacherConfig, arms: int) -> float:
    """One update of the Q network: forward and backward, and the target network forward."""
    if not isinstance(config, DQNConfig):
        return 0.0
    sizes = [arms * config.groups, *config.hidden, arms]
    weights = sum(before * after for before, after in pairwise(sizes))
    return 2.0 * weights * config.replay_batch * (3 + 1)
