"""Ask, update, tell, record, checkpoint: the only file that knows both sides."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Protocol, Self

from pydantic import Field, model_validator

from rota.runs.checkpoints import Checkpoint, Checkpoints
from rota.settings import Count, Duration, DurationField, Settings
from rota.student.team import Team
from rota.training.journal import Journal, tokens_by_language
from rota.training.probe import Probe
from rota.training.streams import Streams
from rota.types import Arm, Batch, Checkpointable, Decision, State, Student, Teacher, Watch

logger = logging.getLogger(__name__)


class TrainingConfig(Settings):
    """How long, how much at a time, and how often to look and to save."""

    steps: Count = Field(150_000, ge=1, description="optimiser steps")
    tokens: Count = Field(8_000, ge=1, description="real target tokens in a batch")
    last_arm_tokens: Count | None = Field(
        None, ge=1, description="another batch size for the last language, as by accident in the released code (1000)"
    )
    accumulate: int = Field(1, ge=1, description="batches in one optimiser step, of all processes together")
    validate_every: DurationField = Field(Duration("5%"), description="steps between two looks at the dev losses")
    validate_tokens: Count = Field(4_000, ge=1, description="dev tokens of each language, at most")
    teacher_dev: float = Field(
        0.5,
        gt=0,
        le=1,
        description="share of each dev set that the teacher sees; the rest selects checkpoints; 1: both",
    )
    checkpoint_every: DurationField = Field(Duration("4k"), description="steps between two checkpoints")
    keep: int = Field(2, ge=1, description="complete checkpoints to keep; older ones lose the optimiser's moments")
    threads: int | None = Field(None, ge=1, description="threads of torch; null: as many as there are cores")
    tensorboard: bool = Field(True, description="write TensorBoard events into the run folder")

    @model_validator(mode="after")
    def _from_time_to_time(self) -> Self:
        for name in ("validate_every", "checkpoint_every"):
            if getattr(self, name).amount == 0:
                raise ValueError(f"{name} is 0; write at least 1, or 100% for the end of the run alone")
        return self


class Listener(Protocol):
    """Whoever wants to know how the run goes: the display, TensorBoard."""

    def updated(self, step: int, decision: Decision, loss: float, seen: Mapping[Arm, int]) -> None:
        """After each update; ``seen`` are the real target tokens by language since step 0."""
        ...

    def validated(self, step: int, dev_loss: Mapping[Arm, float]) -> None: ...

    def saved(self, step: int) -> None: ...


class Loop:
    """Trains the student on the languages the teacher chooses; everything it remembers is in its checkpoints."""

    def __init__(
        self,
        student: Student,
        teacher: Teacher,
        streams: Streams,
        probe: Probe,
        journal: Journal,
        checkpoints: Checkpoints,
        config: TrainingConfig,
        *,
        decide_every: int = 1,
        observe_every: int | None = None,
        listens: bool = True,
        team: Team | None = None,
    ) -> None:
        self.student, self.teacher, self.streams, self.probe = student, teacher, streams, probe
        self.journal, self.checkpoints = journal, checkpoints
        self.team = team or Team()
        self.listeners: Sequence[Listener] = ()
        self.steps = config.steps
        self._ours = [self.team.owns(number) for number in range(config.accumulate)]  # which batches of an update
        self.decide_every, self.observe_every = decide_every, observe_every or decide_every
        if self.observe_every % decide_every:
            raise ValueError(
                f"observe_every is {observe_every}; it must be a multiple of decide_every ({decide_every})"
            )
        self.validate_every = max(1, config.validate_every.steps(config.steps))
        self.checkpoint_every = max(1, config.checkpoint_every.steps(config.steps))
        # Whether what the teacher is told changes what it answers; who watches anything may well learn from it.
        self.listens = listens or teacher.watches != Watch.NOTHING
        self.step = 0
        self.decision: Decision | None = None
        self._next: Decision | None = None  # the one after, if it was asked for already
        self.seen: Counter[Arm] = Counter()  # real target tokens by language since step 0
        self._played: Counter[Arm] = Counter()  # updates per arm since the last observation
        self._train_loss = 0.0  # summed over those updates

    def run(self, until: int | None = None, stop: Callable[[], bool] = lambda: False) -> None:
        """Train up to step ``until`` (the end by default), or until ``stop`` says so; then save.

        After an exception the parts are no longer in step: :meth:`resume` before running again.
        """
        until = self.steps if until is None else min(until, self.steps)
        while self.step < until and not self.team.anyone(stop()):
            decided = self.step % self.decide_every == 0
            if decided:
                self.decision, self._next = self._next or self._ask(self.step), None
            assert self.decision is not None
            self._update(self.decision, until, decided=decided)
            if self.step % self.observe_every == 0:
                self._observe(self.decision)
            if self.step % self.validate_every == 0 or self.step == self.steps:
                self._validate()
            if self.step % self.checkpoint_every == 0 or self.step == self.steps:
                self.save()
        if self.step % self.checkpoint_every and self.step != self.steps:
            self.save()

    def _ask(self, step: int) -> Decision:
        return self.team.share(lambda: self.teacher.ask(step))

    def _update(self, decision: Decision, until: int, *, decided: bool) -> None:
        with self.journal.timed("batches"):
            batches = self.streams.draw(decision.arm, self._ours)
        with self.journal.timed("updates"):
            loss = self.student.update(batches, lambda: self._draw_next(decision, until))
        self.step += 1
        self._played[decision.arm] += 1
        self._train_loss += loss
        self.seen.update(tokens_by_language(batches))
        self.journal.step(self.step, decision, loss, batches, decided=decided)
        for listener in self.listeners:
            listener.updated(self.step, decision, loss, self.seen)

    def _draw_next(self, decision: Decision, until: int) -> list[Batch]:
        """The batches of the update after this one, unless its language depends on what the teacher is told between."""
        after = self.step + 1
        if after == until or (self.listens and after % self.observe_every == 0):
            return []
        if after % self.decide_every == 0:
            decision = self._next = self._ask(after)
        with self.journal.timed("batches"):
            return self.streams.draw_ahead(decision.arm, self._ours)

    def _observe(self, decision: Decision) -> None:
        with self.journal.timed("observations"):
            train_loss = self._train_loss / self._played.total()
            # The first process alone asks and tells: what its teacher watches may follow from that.
            watches = self.team.share(lambda: self.teacher.watches)
            observation = self.probe.observe(
                self.step, decision, watches, played=dict(self._played), train_loss=train_loss
            )
            self.team.share(lambda: self.teacher.tell(observation))
        self.journal.observation(observation)
        self._played.clear()
        self._train_loss = 0.0

    def _validate(self) -> None:
        with self.journal.timed("validations"):
            dev_loss = self.probe.validate(self.step)
        self.journal.validation(self.step, dev_loss)
        self.journal.timing(self.step)
        for listener in self.listeners:
            listener.validated(self.step, dev_loss)

    def save(self) -> None:
        """A checkpoint of this very moment; the records it relies on reach the disk first."""
        self.journal.flush()
        self.team.share(lambda: self.checkpoints.save(self.step, self.parts(), drop=self._interruptions()))
        for listener in self.listeners:
            listener.saved(self.step)

    def _interruptions(self) -> list[int]:
        """Steps before this one that were saved because a run was interrupted, not because they were due."""
        return [
            found.step
            for found in self.checkpoints.list()
            if found.step % self.checkpoint_every and found.step < self.step
        ]

    def _steps_after(self, step: int) -> list[int]:
        return [found.step for found in self.checkpoints.list() if found.step > step]

    def parts(self) -> dict[str, Checkpointable]:
        return {
            "student": self.student,
            "teacher": self.teacher,
            "streams": self.streams,
            "probe": self.probe,
            "loop": self,
        }

    def resume(self) -> Checkpoint | None:
        """Go on from the newest intact checkpoint, cutting the records back to it; None if there is none."""
        checkpoint = self.team.share(self.checkpoints.newest)
        self.journal.truncate(0 if checkpoint is None else checkpoint.step)
        if checkpoint is None:
            return None
        # Newer ones are damaged, and would count among those that are kept; they will be written again.
        self.team.share(lambda: self.checkpoints.drop(self._steps_after(checkpoint.step)))
        state = checkpoint.load()
        for name, part in self.parts().items():
            part.load_state_dict(state[name])
        logger.debug("resuming at step %d", self.step)
        return checkpoint

    def state_dict(self) -> State:
        decisions = {"decision": _written(self.decision), "next": _written(self._next)}
        counts = {"seen": dict(self.seen), "played": dict(self._played)}
        return {"step": self.step, **decisions, "train_loss": self._train_loss, **counts}

    def load_state_dict(self, state: State) -> None:
        self.step = state["step"]
        self.decision, self._next = _read(state["decision"]), _read(state.get("next"))
        self.seen = Counter(state["seen"])
        self._played = Counter(state["played"])
        self._train_loss = state["train_loss"]


def _written(decision: Decision | None) -> State | None:
    return None if decision is None else asdict(decision)


def _read(state: State | None) -> Decision | None:
    return None if state is None else Decision(**state)
