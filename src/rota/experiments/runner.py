"""Starts the runs of a suite, several at once, each after those that it reads; one that fails stops no other."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from rota.api import only_holder
from rota.experiments.jobs import Job
from rota.experiments.process import Work, what_went_wrong
from rota.experiments.status import Status, is_held, is_saved, last_dev_loss, last_step, look

Doing = Literal["waiting", "running", "done", "failed", "stopped"]

ANOTHER: Final = "choose another folder with --out, or delete what is there"
"""The remedy where a folder holds a run with other settings."""

Start = Callable[[Job, bool], Work]
"""Begins the work on a job; the second argument says whether it is trained already."""


@dataclass
class Entry:
    """A job and what has become of it."""

    job: Job
    status: Status
    doing: Doing = "waiting"
    note: str = ""  # why it waits, what went wrong
    work: Work | None = None
    step: int = 0
    dev_loss: float | None = None
    mark: tuple[float, int] | None = None  # time and step at which the first progress was seen

    @property
    def steps(self) -> int:
        return self.job.config.training.steps

    @property
    def over(self) -> bool:
        return self.doing in ("done", "failed", "stopped")

    @property
    def trained(self) -> bool:
        """Whether others may read its records.

        Those of a run that was killed before its last checkpoint reach the last step too, until it goes on and cuts
        them back.
        """
        if self.doing == "done" or self.status.state in ("trained", "done"):
            return True
        return self.step >= self.steps and is_saved(self.job.folder, self.steps)

    def refresh(self) -> None:
        """Reads how far the run is."""
        step = max(last_step(self.job.folder), self.status.step)
        if step != self.step and self.mark is None:
            self.mark = (time.monotonic(), step)
        self.step, self.dev_loss = step, last_dev_loss(self.job.folder)

    def seconds_left(self) -> float | None:
        """Of its training, at the speed since it was started."""
        if self.mark is None or self.step <= self.mark[1]:
            return None
        return (self.steps - self.step) * (time.monotonic() - self.mark[0]) / (self.step - self.mark[1])


class Runner:
    """All jobs of a suite. ``changed`` hears of every entry that begins or ends."""

    def __init__(
        self, jobs: Sequence[Job], start: Start, *, at_once: int, changed: Callable[[Entry], None] = lambda _: None
    ) -> None:
        self.entries = {job.name: _entry(job) for job in jobs}
        self._start, self._at_once, self._changed = start, at_once, changed

    def run(self, stop: Callable[[], bool], watch: Callable[[], None] = lambda: None, pause: float = 0.5) -> None:
        """Until all are over, or ``stop`` says so: then every run is asked to save, and waited for.

        ``watch`` is called about every ``pause`` seconds. A KeyboardInterrupt, as from a second Ctrl-C, kills them.
        """
        try:
            while not stop() and not all(entry.over for entry in self.entries.values()):
                self._begin()
                self._collect()
                watch()
                time.sleep(pause)
            for entry in self._running():
                assert entry.work is not None
                entry.work.stop()
            while self._running():
                self._collect(stopping=True)
                watch()
                time.sleep(pause)
        finally:
            for entry in self._running():
                assert entry.work is not None
                entry.work.kill()
                self._becomes(entry, "stopped", "killed")

    def _running(self) -> list[Entry]:
        return [entry for entry in self.entries.values() if entry.doing == "running"]

    def _begin(self) -> None:
        """Starts what can be started."""
        for entry in [entry for entry in self.entries.values() if entry.doing == "waiting"]:
            needed = self._needed(entry)
            if any(other.over for other in needed):
                self._becomes(entry, "failed", f"it reads {needed[0].job.name}, which is not trained")
            elif needed:
                entry.note = f"reads {needed[0].job.name}"
            elif is_held(entry.job.folder):
                entry.note = "another process is training it"
            elif len(self._running()) < self._at_once:
                entry.work = self._start(entry.job, entry.status.state == "trained")
                self._becomes(entry, "running")

    def _needed(self, entry: Entry) -> list[Entry]:
        """The jobs whose records it reads that are not trained yet; runs of other commands have been checked."""
        if entry.status.state == "trained":
            return []
        others = [self.entries[name] for name in entry.job.needs if name in self.entries]
        return [other for other in others if not other.trained]

    def _collect(self, *, stopping: bool = False) -> None:
        for entry in self._running():
            assert entry.work is not None
            code = entry.work.poll()
            entry.refresh()
            if code is None:
                continue
            entry.status = look(entry.job)
            if code == 0:
                self._becomes(entry, "done")
            elif stopping:
                self._becomes(entry, "stopped")
            else:
                self._becomes(entry, "failed", what_went_wrong(entry.job.folder, code))

    def _becomes(self, entry: Entry, doing: Doing, note: str = "") -> None:
        entry.doing, entry.note = doing, note
        self._changed(entry)

    def failures(self) -> list[Entry]:
        return [entry for entry in self.entries.values() if entry.doing == "failed"]

    def fail(self, name: str, why: str) -> None:
        """A job that need not be tried."""
        self._becomes(self.entries[name], "failed", why)


def _entry(job: Job) -> Entry:
    status = look(job)
    entry = Entry(job, status, step=status.step, dev_loss=status.dev_loss)
    if status.state == "done":
        entry.doing = "done"
    if status.state == "another":
        entry.doing, entry.note = "failed", f"{job.folder} holds another run: {status.why}; {ANOTHER}"
    if status.state == "damaged":
        entry.doing, entry.note = "failed", status.why
    return entry


def alone(out: Path) -> AbstractContextManager[None]:
    """Only one ``rota compare`` works on a folder; the lock goes with the process, however it ends."""
    return only_holder(out, f"another rota compare works on {out}; wait for it, or choose another --out")
