"""What a teacher costs: the share of a run that goes into decisions and observations, beside the arithmetic."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping
from functools import partial
from itertools import pairwise

import numpy as np
import torch

from machine.pieces import Piece
from machine.work import CLOCKS, forward_flops, make_student, open_data, timed, update_flops
from rota.data.batches import make_stream
from rota.data.store import Store
from rota.measures import (
    Alignment,
    DevLoss,
    GradientMoments,
    GradientProducts,
    GroupLosses,
    JointLoss,
    Measure,
    SourceGain,
    TrainLoss,
    Uncertainty,
)
from rota.student.nmt import NMT
from rota.teachers import Classroom, TeacherConfig, teacher_from
from rota.teachers.align import AlignConfig
from rota.teachers.bandits.tscl import TSCLConfig
from rota.teachers.dqn.config import DQNConfig
from rota.teachers.static import UniformConfig
from rota.training.devsets import DevSets, Part
from rota.training.gauges.alignment import SERVED_EVERY
from rota.training.probe import Probe
from rota.training.turns import Turns
from rota.types import Batch
from rows import Row, row

STEPS = {8_000: 150_000, 0: 3_000}
"""Updates of the run, by the least tokens of an update: the paper's, and a laptop's."""

TIMES = 10
"""How often in a row something that takes a thousandth of an update is done."""

UPDATES = 2
"""Updates that are timed before each observation; the paper's number between two is reached by multiplying."""


def teacher_config(name: str) -> TeacherConfig:
    """The paper's settings, without warm-ups; DQN begins to learn at once, so that its own updates are in the time."""
    if name.startswith("dqn"):
        refresh = name.rpartition(" ")[2] if "refresh" in name else "1"
        return DQNConfig(refresh=refresh, warmup=None, replay_minimum=2)
    own = {"uniform": UniformConfig(), "tscl": TSCLConfig(warmup=None), "align": AlignConfig()}
    return own[name] if name in own else teacher_from({"name": name, "start": 0} if name == "odm" else name)


def measure(piece: Piece) -> list[Row]:
    """Updates and observations in turn; shares by processor time and by wall time."""
    torch.set_num_threads(piece.threads)
    store = open_data(piece)
    assert piece.teacher is not None
    student = make_student(piece.preset, store.manifest.vocabulary)
    steps = next(steps for tokens, steps in STEPS.items() if piece.tokens >= tokens)
    lesson = Lesson(store, student, teacher_config(piece.teacher), steps)
    streams = [make_stream(store, arm, piece.tokens, seed=1) for arm in store.languages]
    lesson.observe()
    lesson.observe()
    student.update([next(streams[0])])
    measured: dict[str, list[float]] = {clock: [] for clock in CLOCKS}
    predicted = []
    for number in range(piece.repetitions):
        batches = [next(streams[(number + turn) % len(streams)]) for turn in range(UPDATES)]
        updates = [timed(partial(student.update, [batch])) for batch in batches]
        observing, following = timed(lesson.observe_all), timed(partial(follow, student, TIMES))
        for clock, shares in measured.items():
            update = statistics.mean(getattr(each, clock) for each in updates)
            seconds = getattr(observing, clock) / lesson.cycle, getattr(following, clock) / TIMES
            shares.append(100 * lesson.share(seconds[0], update, seconds[1]))
        operations = statistics.mean(update_flops(student.network.shape, batch) for batch in batches)
        predicted.append(100 * lesson.share(lesson.flops(), operations))
    return _rows(piece, measured, predicted)


def follow(student: NMT, times: int) -> None:
    """What an update does besides for a teacher that follows its gradients, again and again."""
    gradients = [parameter.grad for parameter in student.network.parameters() if parameter.grad is not None]
    for _ in range(times):
        for direction in student._directions:
            direction.dot_with(gradients)
        if student._average is not None:
            student._average.update(student.network)


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

    def __init__(self, store: Store, student: NMT, config: TeacherConfig, steps: int) -> None:
        self.config = config
        classroom = Classroom(store.sizes, store.low_resource or store.languages[:1], steps)
        teacher = config.build(classroom, np.random.default_rng(1))
        self.turns = Turns(teacher, decide_every=config.decide_every, observe_every=config.observes_every(steps))
        self.sets = DevSets(store, teacher_share=0.5, division="text", validate_tokens=4_000)
        self.probe = Probe(student, self.sets)
        self.shape, self.arms = student.network.shape, store.languages
        self.step = 0

    @property
    def updates(self) -> int:
        """Between two observations."""
        return self.turns.observe_every

    @property
    def cycle(self) -> int:
        """Observations after which everything that is measured from time to time has been measured."""
        if not isinstance(self.config, AlignConfig):
            return 1
        return self.config.refresh * SERVED_EVERY // self.updates

    def observe_all(self) -> None:
        """All observations of a cycle."""
        for _ in range(self.cycle):
            self.observe()

    def observe(self) -> None:
        """All decisions up to the next observation, and that observation; updates cost nothing here."""
        measures = None
        while measures is None:
            decision = self.turns.decide(self.step)
            if self.turns.decided:
                self.probe.begin(self.turns.watches, decision)
            self.turns.played(0.0, {decision.arm: 1})
            self.step += 1
            self.probe.updated(self.turns.watches, decision)
            measures = self.turns.due(self.step)
        self.turns.tell(self.step, self.probe.read(self.step, measures, self.turns.window()))

    def share(self, observing: float, updating: float, following: float = 0.0) -> float:
        """Of a run with so much for an observation and its decisions, and so much for one update.

        ``following`` is what an update takes longer because its gradient is followed.
        """
        return (observing + self.updates * following) / (observing + self.updates * updating)

    def flops(self) -> float:
        """Operations of an observation, and of the teacher's own learning."""
        total = sum(self._measuring(measure) for measure in self.turns.watches)
        return total + learning_flops(self.config, len(self.arms))

    def _measuring(self, measure: Measure) -> float:
        """Forward only, but for gradients, whose backward pass takes twice as much; one turn of the groups."""
        if isinstance(measure, DevLoss):
            forward = self._forward(self.sets.by_arm(measure).values())
            return (sum(forward) if measure.arms == "all" else statistics.mean(forward)) * (
                1 + (measure.when == "around")
            )
        if isinstance(measure, JointLoss):
            return sum(self._forward([self.sets.joint(measure)]))
        if isinstance(measure, Alignment):
            # A direction takes the operations of an update; dot products and averaged weights are left out.
            batches = [self.sets.sample("teacher", language, measure.tokens).batch() for language in self.sets.goal]
            return 3 * sum(self._forward(batches)) * self.updates / measure.refresh
        if isinstance(measure, GroupLosses):
            return statistics.mean(self._forward(self.sets.groups(measure).batches))
        if isinstance(measure, GradientProducts):
            return 3 * (self._sampled("train", measure.tokens) + self._sampled("teacher", measure.tokens))
        if isinstance(measure, GradientMoments):
            return 4 * self._sampled("train", measure.tokens)
        if isinstance(measure, Uncertainty):
            return measure.samples * self._sampled("teacher", measure.tokens)
        if isinstance(measure, SourceGain):
            return 0.0  # of align's gate: ten times in a run
        assert isinstance(measure, TrainLoss), f"no prediction for {measure}"
        return 0.0

    def _sampled(self, part: Part, tokens: int) -> float:
        return sum(self._forward(self.sets.sample(part, arm, tokens).batch() for arm in self.arms))

    def _forward(self, batches: Iterable[Batch]) -> list[float]:
        return [forward_flops(self.shape, batch) for batch in batches]


def learning_flops(config: TeacherConfig, arms: int) -> float:
    """One update of the Q network: forward and backward, and the target network forward."""
    if not isinstance(config, DQNConfig):
        return 0.0
    sizes = [arms * config.groups, *config.hidden, arms]
    weights = sum(before * after for before, after in pairwise(sizes))
    return 2.0 * weights * config.replay_batch * (3 + 1)
