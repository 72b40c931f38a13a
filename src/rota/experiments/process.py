"""One run in processes of its own: ``rota train``, then ``rota evaluate``, with pinned threads and a log."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Literal, Protocol

from rota.evaluation.translator import read_run
from rota.experiments.jobs import Job
from rota.experiments.status import last_lines
from rota.runs.records import Record

Phase = Literal["train", "evaluate"]
LOG = "log.txt"


class Work(Protocol):
    """A job in progress, here or on another machine."""

    def poll(self) -> int | None:
        """The exit code of the job once it is over, 0 if all went well."""
        ...

    def stop(self) -> None:
        """Ask it to save and to end soon."""
        ...

    def kill(self) -> None: ...


class LocalWork:
    """The processes of one job, one after the other; ``poll`` starts the next one."""

    def __init__(self, job: Job, *, trained: bool, threads: int) -> None:
        job.write_config()
        self.job, self._threads = job, threads
        self._waiting: list[Phase] = ["evaluate"] if trained else ["train", "evaluate"]
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
        """SIGTERM, which a process in the background heeds too: a script's ``&`` makes it deaf to SIGINT."""
        self._stopped = True
        self._process.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self._stopped = True
        self._process.kill()

    def _start(self) -> None:
        self._phase: Phase | None = self._waiting.pop(0)
        arguments = _train(self.job) if self._phase == "train" else evaluate_command(self.job)
        self._since = time.perf_counter()
        with (self.job.folder / LOG).open("a", encoding="utf-8") as log:
            log.write(f"$ rota {' '.join(arguments)}\n")
            log.flush()
            self._process = subprocess.Popen(
                [sys.executable, "-m", "rota.experiments.child", str(os.getpid()), *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=_environment(self._threads),
                start_new_session=True,  # Ctrl-C in the terminal is ours to pass on, once
            )

    def _record(self, phase: Phase, code: int) -> None:
        record = Record(self.job.folder / "phases.jsonl")
        record.write({"phase": phase, "seconds": round(time.perf_counter() - self._since, 1), "code": code})
        record.close()
        self._phase = None


def _train(job: Job) -> list[str]:
    return ["train", str(job.folder / "config.yaml"), "--run", str(job.folder)]


def evaluate_command(job: Job) -> list[str]:
    """The run knows how it is to be scored; what has changed since it began is said."""
    before = read_run(job.folder)["config"]["evaluation"]
    now = job.config.evaluation.model_dump(mode="json")
    changed = [key for key in now if before.get(key) != now[key]]
    if "select" in changed:
        changed.append("combine")  # it would follow the selection
    pointless = {"window"} if now["combine"] == "last" else set()
    pointless |= {"select_beam"} if now["select"] is None else set()
    now |= {"select": now["select"] or "none", "select_beam": now["select_beam"] or now["beam"]}
    options = ((f"--{key.replace('_', '-')}", str(now[key])) for key in dict.fromkeys(changed) if key not in pointless)
    return ["evaluate", str(job.folder), *(part for option in options for part in option)]


def _environment(threads: int) -> dict[str, str]:
    """Threads are pinned: several runs that each take all cores are slower than one after the other."""
    names = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "RAYON_NUM_THREADS")
    return {**os.environ, **dict.fromkeys(names, str(threads)), "PYTHONUNBUFFERED": "1"}


def what_went_wrong(run: Path, code: int) -> str:
    """The last line of the log, and how the process ended if it had no say in it."""
    line = next(last_lines(run / LOG), "its log is empty").removeprefix("error: ")
    if code < 0:
        name = signal.Signals(-code).name
        memory = ", perhaps for want of memory" if name == "SIGKILL" else ""
        return f"ended by {name}{memory}; last line: {line}"
    return line
