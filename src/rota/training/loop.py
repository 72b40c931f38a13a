"""Ask, update, tell, record, checkpoint: the only file that knows both sides."""

from __future__ import annotations

import logging
import signal
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import FrameType, TracebackType
from typing import Any

from rota.measures import Measure
from rota.runs.checkpoints import Checkpoint, Checkpoints
from rota.team import Team
from rota.training.alarms import Alarms
from rota.training.config import TrainingConfig
from rota.training.journal import Journal, tokens_by_language
from rota.training.listeners import DevScores, Listener
from rota.training.pacing import paced
from rota.training.probe import Probe
from rota.training.progress.stopping import Stopping
from rota.training.spot_checks import SpotCheck, SpotChecks
from rota.training.streams import Streams
from rota.training.turns import Turns
from rota.types import Alarm, Arm, Batch, Checkpointable, Decision, Pacing, State, Student

logger = logging.getLogger(__name__)


class Loop:
    """Trains the student on what the teacher decides; everything it remembers is in its checkpoints."""

    def __init__(
        self,
        student: Student,
        turns: Turns,
        streams: Streams,
        probe: Probe,
        journal: Journal,
        checkpoints: Checkpoints,
        config: TrainingConfig,
        team: Team | None = None,
        alarms: Alarms | None = None,
        checks: SpotChecks | None = None,
        stopping: Stopping | None = None,
        dev_scores: Callable[[], DevScores] | None = None,
    ) -> None:
        self.student, self.turns, self.streams, self.probe = student, turns, streams, probe
        self.journal, self.checkpoints = journal, checkpoints
        self.team, self.alarms, self.checks = team or Team(), alarms or Alarms(), checks
        self.stopping, self.dev_scores = stopping, dev_scores
        self.listeners: Sequence[Listener] = ()
        self.steps = config.steps
        self._ours = [self.team.owns(number) for number in range(config.accumulate)]  # which batches of an update
        self.validate_every = max(1, config.validate_every.steps(config.steps))
        self.checkpoint_every = max(1, config.checkpoint_every.steps(config.steps))
        self.step = 0
        self.validates_first = False  # before the first update, if the student has learned before
        probe.prepare(turns.watches)

    @property
    def seen(self) -> Mapping[Arm, int]:
        """Real target tokens by arm since step 0."""
        return self.turns.seen

    @property
    def stopped_early(self) -> bool:
        """Whether the goal has not been served better for so long that the run is over."""
        return self.stopping is not None and self.stopping.is_over

    @property
    def is_over(self) -> bool:
        """Whether there is nothing left to train."""
        return self.step >= self.steps or self.stopped_early

    def run(self, until: int | None = None, stop: Callable[[], bool] = lambda: False) -> None:
        """Train up to step ``until`` (the end by default), or until ``stop`` says so; then save.

        After an exception the parts are no longer in step: :meth:`resume` before running again.
        """
        until = self.steps if until is None else min(until, self.steps)
        if self.step == 0 and self.validates_first:
            self._validate_first()
        while self.step < until and not self.stopped_early and not self.team.anyone(stop()):
            self.advance(until)
        if self.step % self.checkpoint_every and self.step != self.steps:
            if self.step % self.validate_every:
                self.journal.timing(self.step)  # else the time since the last validation would not be counted
            self.save()

    def advance(self, until: int) -> None:
        """One update, and whatever is due after it; no update after ``until`` is prepared for."""
        self._update(self._decide(), until)
        self._tell()
        if self.step % self.validate_every == 0 or self.step == self.steps:
            self._validate()
        if self.step % self.checkpoint_every == 0 or self.step == self.steps:
            self.save()

    def _decide(self) -> Decision:
        decision = self.turns.decide(self.step)
        if self.turns.decided and self.turns.watches:
            with self.journal.timed("observations"):
                self.probe.begin(self.turns.watches, decision)
        return decision

    def _update(self, decision: Decision, until: int) -> None:
        with self.journal.timed("batches"):
            batches = self.streams.draw(decision, self._ours)
        if decision.pacing is not None:
            batches = self._paced(batches, decision.pacing)
        with self.journal.timed("updates"):
            loss = self.student.update(batches, lambda: self._draw_next(until))
        self.step += 1
        self.turns.played(loss, tokens_by_language(batches))
        self.probe.updated(self.turns.watches, decision)
        self.journal.step(self.step, decision, loss, batches, decided=self.turns.decided)
        for listener in self.listeners:
            listener.updated(self.step, decision, loss, self.seen)
        self._raise(self.alarms.updated(self.step, decision, loss, self.seen))

    def _paced(self, batches: list[Batch], pacing: Pacing) -> list[Batch]:
        if self.team.size > 1:
            found = f"{self.team.size} processes train this run"
            raise ValueError(f"{found}, and weights by dropout variance are for one; leave teacher.curriculum out")
        with self.journal.timed("observations"):
            return paced(self.probe.student, batches, pacing, self.step)

    def _draw_next(self, until: int) -> list[Batch]:
        """The batches of the update after this one, unless they depend on what the teacher is told between."""
        after = self.step + 1
        decision = None if after == until else self.turns.ahead(after)
        if decision is None:
            return []
        with self.journal.timed("batches"):
            return self.streams.draw_ahead(decision, self._ours)

    def _tell(self) -> None:
        measures = self.turns.due(self.step)
        if measures is not None:
            self.tell(measures)

    def tell(self, measures: Sequence[Measure]) -> None:
        """Measure these now, tell the teacher and write it down."""
        assert self.turns.decision is not None
        with self.journal.timed("observations"):
            measured = self.probe.read(self.step, measures, self.turns.window())
            rewards = self.turns.tell(self.step, measured)
        self.journal.observation(self.step, self.turns.decision, measured, rewards)
        self._raise(self.alarms.told(self.step, rewards, self.turns.teacher))

    def _validate(self) -> None:
        with self.journal.timed("validations"):
            found = self.probe.validate(self.step)
        scores = self._score()
        self.journal.validation(self.step, {**found.record(), **scores, **self._taught()})
        check = self._check(found.calibrated_loss)
        self.journal.timing(self.step)
        for listener in self.listeners:
            if scores:
                listener.scored(self.step, scores)
            listener.validated(self.step, found.dev_loss)
            if check is not None:
                listener.checked(self.step, check)
        self._raise(self.alarms.validated(self.step, found.dev_loss))
        if check is not None:
            self._raise(self.alarms.checked(self.step, check))
        if self.stopping is not None:
            self._look_whether_to_stop(self.stopping, {"loss": found.dev_loss, **scores})

    def _taught(self) -> dict[str, Any]:
        """Target tokens of each arm so far, and how often that is its text."""
        sizes = self.probe.sets.train_tokens
        seen = {arm: self.seen.get(arm, 0) for arm in sizes}
        return {"tokens": seen, "epochs": {arm: round(seen[arm] / max(1, size), 3) for arm, size in sizes.items()}}

    def _score(self) -> DevScores:
        if self.dev_scores is None:
            return {}
        with self.journal.timed("dev scores"):
            return self.team.share(self.dev_scores)

    def _look_whether_to_stop(self, stopping: Stopping, measured: DevScores) -> None:
        stopping.validated(self.step, measured[stopping.config.on])
        if stopping.is_over and self.step < self.steps:
            self.journal.stop(stopping.entry(self.step))

    def _validate_first(self) -> None:
        """What the student knows already: losses that it should not lose."""
        with self.journal.timed("validations"):
            found = self.probe.validate(0)
        self.journal.validation(0, found.record())
        for listener in self.listeners:
            listener.validated(0, found.dev_loss)
        self._raise(self.alarms.validated(0, found.dev_loss))

    def _check(self, dev_loss: Mapping[Arm, float]) -> SpotCheck | None:
        if self.checks is None:
            return None
        with self.journal.timed("spot checks"):
            check = self.checks.take(-(-self.step // self.validate_every), self.seen, dev_loss)
        if check is not None:
            self.journal.spot_check(self.step, check)
        return check

    def _raise(self, alarms: Iterable[Alarm]) -> None:
        """Write it down and say so; training goes on."""
        for alarm in alarms:
            self.journal.alarm(alarm)
            if self.team.first:
                logger.warning("step %d: %s", alarm.step, alarm.text)
            for listener in self.listeners:
                listener.alarmed(alarm)

    def save(self) -> None:
        """A checkpoint of this very moment; the records it relies on reach the disk first."""
        self.journal.flush()
        self.team.share(lambda: self._save())
        for listener in self.listeners:
            listener.saved(self.step)

    def _save(self) -> None:
        drop, lines = self._interruptions(), self.journal.lines
        self.checkpoints.save(self.step, self.parts(), drop=drop, records=lines)

    def _interruptions(self) -> list[int]:
        """Steps before this one that were saved because a run was interrupted, not because they were due."""
        return [
            found.step
            for found in self.checkpoints.list()
            if found.step % self.checkpoint_every and found.step < self.step
        ]

    def parts(self) -> dict[str, Checkpointable]:
        parts: dict[str, Checkpointable] = {
            "student": self.student,
            "teacher": self.turns.teacher,
            "streams": self.streams,
            "probe": self.probe,
            "loop": self,
            "alarms": self.alarms,
        }
        return parts if self.stopping is None else {**parts, "stopping": self.stopping}

    def resume(self) -> Checkpoint | None:
        """Go on from the newest intact checkpoint, cutting the records back to it; None if there is none."""
        self.team.share(self.checkpoints.tidy)
        checkpoint = self.team.share(self.checkpoints.resumed)
        if checkpoint is None:
            self.journal.truncate(-1)
            self.team.share(lambda: self.checkpoints.go_back_to(0))
            return None
        self.journal.truncate(checkpoint.step, checkpoint.records() if self.team.first else None)
        # Newer ones are damaged, and would count among those that are kept; they will be written again.
        self.team.share(lambda: self.checkpoints.go_back_to(checkpoint.step))
        state = checkpoint.load()
        for name, part in self.parts().items():
            if name in state or name not in ("alarms", "stopping"):  # version 0.1 had none; a rule may come later
                part.load_state_dict(state[name])
        logger.debug("resuming at step %d", self.step)
        return checkpoint

    def state_dict(self) -> State:
        return {"step": self.step, **self.turns.state_dict()}

    def load_state_dict(self, state: State) -> None:
        self.step = state["step"]
        self.turns.load_state_dict(state)


class StopSignal:
    """Says whether somebody asked to stop: inside ``with``, SIGINT and SIGTERM set it instead of ending the process."""

    def __init__(self) -> None:
        self.received: str | None = None

    def __call__(self) -> bool:
        return self.received is not None

    def __enter__(self) -> StopSignal:
        self._before = {number: signal.signal(number, self._handle) for number in (signal.SIGINT, signal.SIGTERM)}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _handle(self, number: int, _: FrameType | None) -> None:
        # SIGTERM may come several times, from a scheduler or from each thread of a killed parent.
        if self.received is None:
            self.received = signal.Signals(number).name
        elif number == signal.SIGINT:
            raise KeyboardInterrupt
