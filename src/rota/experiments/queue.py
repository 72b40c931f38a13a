"""Starts the runs of a suite, several at once, each after those that it reads; one that fails stops no other.

A run is a ``rota train`` and a ``rota evaluate``, one after the other, in processes of their own with pinned threads
and a log. They are started as ``python -m rota.experiments.queue PARENT ...``, so that they save and stop when their
parent dies.
"""

from __future__ import annotations

import ctypes
import os
import runpy
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, Protocol

from rota import api
from rota.data.preparation.stages import Progress
from rota.experiments.jobs import Job, Status, look
from rota.files import locked
from rota.runs.standing import DEFAULT_METRICS

Phase = Literal["train", "evaluate"]
JobState = Literal["waiting", "running", "done", "failed", "stopped"]

ANOTHER: Final = "choose another folder with --out, or delete what is there"
"""What to do if a folder holds a run with other settings."""

PR_SET_PDEATHSIG = 1  # linux/prctl.h


class Work(Protocol):
    """A job in progress, here or on another machine."""

    def poll(self) -> int | None:
        """The exit code of the job once it is over, 0 if all went well."""
        ...

    def stop(self) -> None:
        """Ask it to save and to end soon."""
        ...

    def kill(self) -> None: ...


Start = Callable[[Job, bool], Work]
"""Begins the work on a job; the second argument says whether it is trained already."""


class LocalWork:
    """The processes of one job, one after the other; ``poll`` starts the next one."""

    def __init__(self, job: Job, *, trained: bool, threads: int) -> None:
        job.write_config()
        self.job, self._threads = job, threads
        self._waiting: list[Phase] = ["evaluate"] if trained else ["train"] if job.is_stem else ["train", "evaluate"]
        self._stopped = False
        self._start()

    def poll(self) -> int | None:
        code = self._process.poll()
        if code is None:
            return None
        if self._phase is not None:
            self._record(self._phase, code)
        if code or not self._waiting or self._stopped:
            return code or (1 if self._waiting else 0)
        self._start()
        return None

    def stop(self) -> None:
        """SIGTERM, which a process in the background gets too: one that a script starts with ``&`` ignores SIGINT."""
        self._stopped = True
        self._process.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self._stopped = True
        self._process.kill()

    def _start(self) -> None:
        self._phase: Phase | None = self._waiting.pop(0)
        arguments = _train(self.job) if self._phase == "train" else evaluate_command(self.job)
        self._since = time.perf_counter()
        with self.job.run.log_path.open("a", encoding="utf-8") as log:
            log.write(f"$ rota {' '.join(arguments)}\n")
            log.flush()
            self._process = subprocess.Popen(
                [sys.executable, "-m", "rota.experiments.queue", str(os.getpid()), *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=_environment(self._threads),
                start_new_session=True,  # Ctrl-C in the terminal is ours to pass on, once
            )

    def _record(self, phase: Phase, code: int) -> None:
        record = self.job.run.record("phases")
        record.write({"phase": phase, "seconds": round(time.perf_counter() - self._since, 1), "code": code})
        record.close()
        self._phase = None


def _train(job: Job) -> list[str]:
    options = {"--run": job.folder, "--until": job.until, "--stem": job.stem, "--plan": job.plan}
    given = (part for name, value in options.items() if value is not None for part in (name, str(value)))
    return ["train", str(job.run.config_path), *given]


def evaluate_command(job: Job) -> list[str]:
    """The run knows how it is to be scored; options say what has changed since it began."""
    later = {"metrics": list(DEFAULT_METRICS), "engine": "rota"}
    before = later | job.run.setting("config.evaluation")
    now = later | job.config.evaluation.model_dump(mode="json")
    changed = [key for key in now if before.get(key) != now[key]]
    if "select" in changed:
        changed.append("combine")  # it would follow the selection
    pointless = {"window"} if now["combine"] in ("last", "moving-average") else set()
    pointless |= {"select_beam"} if now["select"] is None else set()
    now |= {"select": now["select"] or "none", "select_beam": now["select_beam"] or now["beam"]}
    now["metrics"] = ",".join(now["metrics"])
    options = ((f"--{key.replace('_', '-')}", str(now[key])) for key in dict.fromkeys(changed) if key not in pointless)
    return ["evaluate", str(job.folder), *(part for option in options for part in option)]


def _environment(threads: int) -> dict[str, str]:
    """Threads are pinned: several runs that each take all cores are slower than one after the other."""
    names = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "RAYON_NUM_THREADS")
    return {**os.environ, **dict.fromkeys(names, str(threads)), "PYTHONUNBUFFERED": "1"}


def what_went_wrong(job: Job, code: int) -> str:
    """The last line of the log, and the signal that ended the process, if one did."""
    line = next(job.run.last_log_lines(), "its log is empty").removeprefix("error: ")
    if code < 0:
        name = signal.Signals(-code).name
        memory = ", perhaps because memory ran out" if name == "SIGKILL" else ""
        return f"ended by {name}{memory}; last line: {line}"
    return line


@dataclass
class Entry:
    """A job and its state."""

    job: Job
    status: Status
    state: JobState = "waiting"
    note: str = ""  # why it waits, what went wrong
    work: Work | None = None
    step: int = 0
    dev_loss: float | None = None
    mark: tuple[float, int] | None = None  # time and step at which the first progress was seen

    @property
    def steps(self) -> int:
        return self.job.steps

    @property
    def over(self) -> bool:
        return self.state in ("done", "failed", "stopped")

    @property
    def trained(self) -> bool:
        """Whether others may read its records.

        Those of a run that was killed before its last checkpoint reach the last step too, until it resumes and cuts
        them back.
        """
        if self.state == "done" or self.status.state in ("trained", "done"):
            return True
        end = self.job.run.end_of(self.steps)
        return self.step >= end and self.job.run.is_saved(end)

    def refresh(self) -> None:
        """Read how far the run is."""
        run = self.job.run
        step = max(run.last_step(), self.status.step)
        if step != self.step and self.mark is None:
            self.mark = (time.monotonic(), step)
        self.step, self.dev_loss = step, run.last_dev_loss()

    def seconds_left(self) -> float | None:
        """Until its training ends, at the speed since it was started."""
        if self.mark is None or self.step <= self.mark[1]:
            return None
        return (self.steps - self.step) * (time.monotonic() - self.mark[0]) / (self.step - self.mark[1])


class Queue:
    """All jobs of a suite. ``changed`` is called with every entry that begins or ends."""

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
        return [entry for entry in self.entries.values() if entry.state == "running"]

    def _begin(self) -> None:
        """Start what can be started."""
        for entry in [entry for entry in self.entries.values() if entry.state == "waiting"]:
            needed = sorted(self._needed(entry), key=lambda other: not other.over)
            if any(other.over for other in needed):
                self._becomes(entry, "failed", f"it {_verb(needed[0])} {needed[0].job.name}, which is not trained")
            elif needed:
                entry.note = f"{_verb(needed[0])} {needed[0].job.name}"
            elif entry.job.run.is_locked:
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
                self._becomes(entry, "failed", what_went_wrong(entry.job, code))

    def _becomes(self, entry: Entry, state: JobState, note: str = "") -> None:
        entry.state, entry.note = state, note
        self._changed(entry)

    def failures(self) -> list[Entry]:
        return [entry for entry in self.entries.values() if entry.state == "failed"]

    def prepare(self, progress_bar: Callable[[], AbstractContextManager[Progress]]) -> None:
        """Every data folder once, before the runs ask for it at the same time; jobs whose data cannot be made fail."""
        mistakes: dict[Path, str | None] = {}
        for entry in [entry for entry in self.entries.values() if not entry.over]:
            folder = entry.job.config.data_folder
            if folder not in mistakes:
                mistakes[folder] = _mistake_of_preparing(entry.job, progress_bar)
            why = mistakes[folder]
            if why is not None:
                self._becomes(entry, "failed", why)


def _verb(needed: Entry) -> str:
    return "begins with" if needed.job.is_stem else "reads"


def _mistake_of_preparing(job: Job, progress_bar: Callable[[], AbstractContextManager[Progress]]) -> str | None:
    try:
        with progress_bar() as progress:
            api.prepare(job.config, progress=progress)
    except (ValueError, OSError) as error:
        return str(error)
    return None


def _entry(job: Job) -> Entry:
    status = look(job)
    entry = Entry(job, status, step=status.step, dev_loss=status.dev_loss)
    if status.state == "done":
        entry.state = "done"
    if status.state == "another":
        entry.state, entry.note = "failed", f"{job.folder} holds another run: {status.why}; {ANOTHER}"
    if status.state == "damaged":
        entry.state, entry.note = "failed", status.why
    return entry


def alone(out: Path) -> AbstractContextManager[None]:
    """Only one ``rota compare`` works on a folder; the lock ends with the process, however that ends."""
    return locked(out / ".lock", refusal=f"another rota compare works on {out}; wait for it, or choose another --out")


def stop_with_parent(parent: int) -> None:
    """Ask Linux for a SIGTERM when ``parent`` ends, even if it is killed; elsewhere nothing happens."""
    if not sys.platform.startswith("linux"):
        return
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    if os.getppid() != parent:  # it ended before the call
        sys.exit(128 + signal.SIGTERM)


if __name__ == "__main__":
    stop_with_parent(int(sys.argv[1]))
    sys.argv = ["rota", *sys.argv[2:]]
    runpy.run_module("rota", run_name="__main__", alter_sys=False)
