"""What a teacher costs: the share of a run that goes into decisions and observations, beside the arithmetic."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import torch

from machine.pieces import Piece
from machine.work import CLOCKS, Seconds, forward_flops, make_student, open_data, timed, update_flops
from rota.data.batches import make_stream
from rota.data.store import Store
from rota.measures import (
    Alignment,
    DevLoss,
    GradientMoments,
    GradientProducts,
    GroupLosses,
    JointGain,
    JointLoss,
    Measure,
    SourceGain,
    TrainLoss,
    Uncertainty,
    WeightChange,
)
from rota.student.gradients import dots
from rota.student.nmt import NMT
from rota.teachers import Classroom, TeacherConfig, build_teacher, teacher_from
from rota.teachers.align import AlignConfig
from rota.teachers.dqn.config import DQNConfig
from rota.training.config import TrainingConfig
from rota.training.devsets import DevSets, Part
from rota.training.gauges.alignment import SERVED_EVERY
from rota.training.pacing import paced
from rota.training.probe import Probe
from rota.training.spot_checks import DEV_EVERY, SpotChecks
from rota.training.turns import Turns
from rota.types import Batch
from rows import SHARE, Row, row

STEPS = {8_000: 150_000, 0: 3_000}
"""Updates of the run, by the least tokens of an update: the paper's, and a laptop's."""

TIMES = 10
"""How often in a row something that takes a thousandth of an update is done."""

UPDATES = 2
"""Updates that are timed before each observation; the paper's number between two is reached by multiplying."""


NOW_AND_THEN = ("caps", "ccl-m")
"""Teachers that look at some things only at shares of a run; so do curricula."""

VISITS = 100
"""Places of a run, evenly spread, at which a teacher is watched that measures some things only now and then."""

VALIDATIONS = 20
"""In a run, at each of which there is a spot check."""


def teacher_config(
    name: str, languages: Sequence[str] = (), *, steps: int = 150_000, tokens: int = 8_000
) -> TeacherConfig:
    """A teacher by its name and settings, such as ``dqn, refresh 1/5``, with what else follows from the run.

    Without a warm-up; DQN begins to learn at once, so that its own updates are in the time.
    """
    base, *settings = name.split(", ")
    needed: dict[str, Mapping[str, Any]] = {
        "tscl": {"warmup": None},
        "dqn": {"warmup": None, "replay_minimum": 2},
        "kumar": {"replay_minimum": 2},
        "odm": {"start": 0},
        "ccl-m": {"baseline": dict.fromkeys(languages, 1.0)},
    }
    written = dict(setting.split(" ") for setting in settings)
    return teacher_from({"name": base, **needed.get(base, {}), **written}).fitted(steps, tokens)


def measure(piece: Piece) -> list[Row]:
    """Updates and observations in turn; shares by processor time and by wall time."""
    torch.set_num_threads(piece.threads)
    store = open_data(piece)
    assert piece.teacher is not None
    student = make_student(piece.preset, store.manifest.vocabulary)
    steps = next(steps for tokens, steps in STEPS.items() if piece.tokens >= tokens)
    streams = [make_stream(store, arm, piece.tokens, seed=1) for arm in store.languages]
    student.update([next(streams[0])])
    if piece.teacher == "spot checks":
        return _rows(piece, _checking(piece, store, student, streams, steps), [])
    config = teacher_config(piece.teacher, store.languages, steps=steps, tokens=piece.tokens)
    lesson = Lesson(store, student, config, steps, piece.tokens)
    if piece.teacher.endswith("dropout-variance"):
        return _rows(piece, _pacing(piece, lesson, student, streams), [])
    if piece.teacher in NOW_AND_THEN or config.curriculum is not None:
        return _rows(piece, _visiting(piece, lesson, student, streams), [])
    lesson.observe()
    lesson.observe()
    measured: dict[str, list[float]] = {clock: [] for clock in CLOCKS}
    predicted = []
    for number in range(piece.repetitions):
        batches, updates = _updates(student, streams, number)
        observing, following = timed(lesson.observe_all), timed(partial(follow, student, TIMES))
        for clock, shares in measured.items():
            update = statistics.mean(getattr(each, clock) for each in updates)
            seconds = getattr(observing, clock) / lesson.cycle, getattr(following, clock) / TIMES
            shares.append(100 * lesson.share(seconds[0], update, seconds[1]))
        operations = statistics.mean(update_flops(student.network.shape, batch) for batch in batches)
        predicted.append(100 * lesson.share(lesson.flops(), operations))
    return _rows(piece, measured, predicted)


def _updates(student: NMT, streams: Sequence[Iterator[Batch]], number: int) -> tuple[list[Batch], list[Seconds]]:
    batches = [next(streams[(number + turn) % len(streams)]) for turn in range(UPDATES)]
    return batches, [timed(partial(student.update, [batch])) for batch in batches]


def _visiting(piece: Piece, lesson: Lesson, student: NMT, streams: Sequence[Iterator[Batch]]) -> dict[str, list[float]]:
    """Of a teacher that looks at some things only now and then: the whole run, from visits to some of its places.

    Two observations at each: what is due from time to time is due at the first, which ends there, and what is always
    due at both.
    """
    lesson.visit(0)  # everything for the first time, which takes longer
    found: dict[str, list[float]] = {clock: [] for clock in CLOCKS}
    for number in range(piece.repetitions):
        _, updates = _updates(student, streams, number)
        lesson.restart(number)
        ends = [(visit + 1) * lesson.steps // VISITS for visit in range(VISITS)]
        pairs = [(lesson.visit(end - lesson.updates), lesson.visit()) for end in ends]
        following = timed(partial(follow, student, TIMES))
        for clock, shares in found.items():
            first, second = ([getattr(each[place], clock) for each in pairs] for place in (0, 1))
            always = statistics.mean(second)
            total = always * lesson.steps / lesson.updates + max(0.0, sum(first) - VISITS * always)
            total += lesson.steps * getattr(following, clock) / TIMES
            update = lesson.steps * statistics.mean(getattr(each, clock) for each in updates)
            shares.append(100 * total / (total + update))
    return found


def _pacing(piece: Piece, lesson: Lesson, student: NMT, streams: Sequence[Iterator[Batch]]) -> dict[str, list[float]]:
    """The passes with dropout before every update."""
    pacing = lesson.turns.decide(0).pacing
    assert pacing is not None
    found: dict[str, list[float]] = {clock: [] for clock in CLOCKS}
    for number in range(piece.repetitions):
        batches, updates = _updates(student, streams, number)
        passes = [timed(partial(paced, student, [batch], pacing, number)) for batch in batches]
        for clock, shares in found.items():
            extra, update = (sum(getattr(each, clock) for each in seconds) for seconds in (passes, updates))
            shares.append(100 * extra / (extra + update))
    return found


def _checking(
    piece: Piece, store: Store, student: NMT, streams: Sequence[Iterator[Batch]], steps: int
) -> dict[str, list[float]]:
    """A spot check at each validation."""
    sets = dev_sets(store)
    share = TrainingConfig.model_fields["spot_checks"].default
    checks = SpotChecks(student, sets, share=share, tokens=steps * piece.tokens // VALIDATIONS)
    losses = dict.fromkeys(store.languages, 1.0)
    found: dict[str, list[float]] = {clock: [] for clock in CLOCKS}
    for number in range(piece.repetitions):
        _, updates = _updates(student, streams, number)
        numbers = range(1 + number * DEV_EVERY, 1 + (number + 1) * DEV_EVERY)  # dev sentences are in one of them
        taken = [timed(partial(checks.take, each, {}, losses)) for each in numbers]
        for clock, shares in found.items():
            total = VALIDATIONS * statistics.mean(getattr(each, clock) for each in taken)
            update = steps * statistics.mean(getattr(each, clock) for each in updates)
            shares.append(100 * total / (total + update))
    return found


def follow(student: NMT, times: int) -> None:
    """What an update does besides for a teacher that follows its gradients, again and again."""
    gradients = [parameter.grad for parameter in student.network.parameters() if parameter.grad is not None]
    for _ in range(times):
        dots(student._directions, gradients)
        for average in filter(None, (student._average, student._recent)):
            average.update()


def _rows(piece: Piece, measured: Mapping[str, list[float]], predicted: list[float]) -> list[Row]:
    about, expected = (piece.benchmark, piece.setting), statistics.median(predicted) if predicted else 0.0
    goal = "about 0" if piece.teacher == "uniform" else None
    rows = []
    for clock, shares in measured.items():
        ratio = statistics.median(shares) / expected if expected else None
        what = f"{SHARE}{CLOCKS[clock]}"
        rows.append(row(*about, what, shares, "%", ratio=ratio, goal=goal if clock == "processor" else None))
    return [*rows, *([row(*about, "predicted from operations", predicted, "%")] if predicted else [])]


class Lesson:
    """A teacher, the student it observes, and what that takes."""

    def __init__(self, store: Store, student: NMT, config: TeacherConfig, steps: int, tokens: int) -> None:
        self.config, self.steps = config, steps
        self.sets = dev_sets(store)
        low = store.low_resource or store.languages[:1]
        self.classroom = Classroom(
            store.sizes, low, steps, tokens=self.sets.train_tokens, update_tokens=tokens, lr_warmup=0
        )
        self.probe = Probe(student, self.sets)
        self.shape, self.arms = student.network.shape, store.languages
        self._known: dict[tuple[Measure, ...], tuple[dict[Measure, Any], list[Seconds]]] = {}
        self._measured = 0
        self.restart()

    def restart(self, measured: int = 0) -> None:
        """The teacher begins again. Each set of measures was really ``measured`` so often; one more is to come."""
        teacher = build_teacher(self.config, self.classroom, np.random.default_rng(1))
        observe_every = self.config.observes_every(self.steps)
        self.turns = Turns(teacher, decide_every=self.config.decide_every, observe_every=observe_every)
        self.step, self._measured = 0, measured

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

    def visit(self, step: int | None = None) -> Seconds:
        """The next observation, at ``step`` or after the last one; what was measured often enough is told again."""
        if step is not None:
            self.step = max(self.step, step // self.updates * self.updates)
        begun = time.perf_counter(), time.process_time()
        measures, fresh = None, True
        while measures is None:
            decision = self.turns.decide(self.step)
            fresh = len(self._known.get(tuple(self.turns.watches), ({}, []))[1]) <= self._measured
            if self.turns.decided and fresh:
                self.probe.begin(self.turns.watches, decision)
            self.turns.played(0.0, {decision.arm: 1})
            self.step += 1
            if fresh:
                self.probe.updated(self.turns.watches, decision)
            measures = self.turns.due(self.step)
        key = tuple(measures)
        values, seconds = self._known.setdefault(key, ({}, []))
        if fresh:
            seconds.append(timed(lambda: values.update(self.probe.read(self.step, key, self.turns.window()))))
        told = {measure: self._of_played(measure, value) for measure, value in values.items()}
        self.turns.tell(self.step, told)
        wall, processor = time.perf_counter() - begun[0], time.process_time() - begun[1]
        if fresh:
            return Seconds(wall, processor)
        usual = [statistics.mean(getattr(each, clock) for each in seconds) for clock in ("wall", "processor")]
        return Seconds(wall + usual[0], processor + usual[1])

    def _of_played(self, measure: Measure, value: Any) -> Any:
        """Values of arms, where only those played are measured, are of those played now."""
        if not isinstance(measure, DevLoss) or measure.arms == "all":
            return value
        return dict.fromkeys(self.turns.window().arms, next(iter(value.values())))

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
        if isinstance(measure, JointGain):  # before and after
            parts = [(name, max(1, int(measure.tokens * weight))) for name, weight in self.sets.goal.items()]
            return 2 * sum(self._forward(self.sets.sample("teacher", *part).batch() for part in parts))
        if isinstance(measure, Alignment):
            # A direction takes the operations of an update; dot products and averaged weights are left out.
            batches = [self.sets.sample("teacher", language, measure.tokens).batch() for language in self.sets.goal]
            passes = 1 if measure.direction == "loss" else 2  # the second one with the sources of others
            return 3 * passes * sum(self._forward(batches)) * self.updates / measure.refresh
        if isinstance(measure, GroupLosses):
            return statistics.mean(self._forward(self.sets.groups(measure).batches))
        if isinstance(measure, GradientProducts):
            return 3 * (self._sampled("train", measure.tokens) + self._sampled("teacher", measure.tokens))
        if isinstance(measure, GradientMoments):
            return 4 * self._sampled("train", measure.tokens)
        if isinstance(measure, Uncertainty):
            return measure.samples * self._sampled("teacher", measure.tokens)
        if isinstance(measure, SourceGain | WeightChange):
            return 0.0  # of align's gate: ten times in a run; or without a pass
        assert isinstance(measure, TrainLoss), f"no prediction for {measure}"
        return 0.0

    def _sampled(self, part: Part, tokens: int) -> float:
        return sum(self._forward(self.sets.sample(part, arm, tokens).batch() for arm in self.arms))

    def _forward(self, batches: Iterable[Batch]) -> list[float]:
        return [forward_flops(self.shape, batch) for batch in batches]


def dev_sets(store: Store) -> DevSets:
    return DevSets(store, teacher_share=0.5, division="text", validate_tokens=4_000)


def learning_flops(config: TeacherConfig, arms: int) -> float:
    """One update of the Q network: forward and backward, and the target network forward."""
    if not isinstance(config, DQNConfig):
        return 0.0
    sizes = [arms * config.groups, *config.hidden, arms]
    weights = sum(before * after for before, after in pairwise(sizes))
    return 2.0 * weights * config.replay_batch * (3 + 1)
