"""The runs of a suite as tasks of a Ray cluster. All machines see the same folders and have Rota installed."""

from __future__ import annotations

import logging
import os
import time
from pathlib import Path
from typing import Any

from rota.experiments.jobs import Job
from rota.experiments.queue import LocalWork

STOP = ".stop"
"""A file in the run folder that asks a run on another machine to save and end."""

PAUSE = 0.5  # seconds between two polls of a task's process


def connect() -> Any:
    """Ray, connected to the cluster of ``RAY_ADDRESS`` or of this machine; if there is none, one is started."""
    try:
        import ray
    except ImportError:
        raise ValueError("--on ray needs Ray; install it with: pip install ray") from None
    if not ray.is_initialized():
        ray.init(include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)
    try:
        ray.put(None)  # loads what Ray needs to pack a task
    except ImportError as error:
        raise ValueError(f"Ray does not work with the packages that are installed: {error}") from None
    return ray


def cluster_jobs(threads: int) -> int:
    """As many runs at once as the cluster has cores for."""
    cores = int(connect().cluster_resources().get("CPU", 1))
    if cores < threads:
        raise ValueError(f"--threads is {threads} and the cluster has {cores} cores; give fewer threads")
    return cores // threads


def carry_out(job: Job, trained: bool, threads: int, folder: str) -> int:
    """The task: does on its machine what a local run does here, and returns the exit code."""
    os.chdir(folder)  # paths of a config may be relative
    stop, asked = job.folder / STOP, False
    if stop.exists():  # while it waited for a free core
        return 1
    work = LocalWork(job, trained=trained, threads=threads)
    while (code := work.poll()) is None:
        if not asked and stop.exists():
            work.stop()
            asked = True
        time.sleep(PAUSE)
    return code


class RayWork:
    """A job that waits for free cores in the cluster, or runs there."""

    def __init__(self, job: Job, *, trained: bool, threads: int) -> None:
        self._ray, self._job = connect(), job
        (job.folder / STOP).unlink(missing_ok=True)
        # No retries for a task that died with its machine: the next rota compare resumes from its checkpoint.
        task = self._ray.remote(num_cpus=threads, max_retries=0)(carry_out)
        self._task = task.remote(job, trained, threads, str(Path.cwd()))

    def poll(self) -> int | None:
        ready, _ = self._ray.wait([self._task], timeout=0)
        if not ready:
            return None
        (self._job.folder / STOP).unlink(missing_ok=True)
        try:
            code: int = self._ray.get(self._task)
        except self._ray.exceptions.RayError as error:
            self._note(error)
            return 1
        return code

    def stop(self) -> None:
        self._job.folder.mkdir(parents=True, exist_ok=True)
        (self._job.folder / STOP).touch()

    def kill(self) -> None:
        """Ends the worker; the kernel then signals its process, which saves."""
        self._ray.cancel(self._task, force=True)

    def _note(self, error: Exception) -> None:
        """Ray's message goes to the log of the run, where people look for it."""
        self._job.folder.mkdir(parents=True, exist_ok=True)
        with self._job.run.log_path.open("a", encoding="utf-8") as log:
            lines = [line for line in str(error).splitlines() if line.strip()]
            log.write(f"Ray: {lines[-1] if lines else type(error).__name__}\n")
