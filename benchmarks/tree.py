"""Running a command and watching what it and all the processes it starts need together."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

PAGE = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True)
class Use:
    """What a command took: seconds on the wall and of the processors, and the largest resident memory in MB."""

    wall: float
    cpu: float
    memory: float
    processes: int  # at most, the command itself included
    code: int


def watched(
    command: Sequence[str],
    *,
    stop_when: Callable[[], bool] = lambda: False,
    environment: Mapping[str, str] | None = None,
    every: float = 0.1,
) -> Use:
    """Run to the end, or until ``stop_when``, whereupon SIGTERM is sent. Shared pages count for each process."""
    began, before = time.perf_counter(), _children_cpu()
    process = subprocess.Popen(command, env={**os.environ, **(environment or {})})
    memory, processes, told = 0, 1, False
    while process.poll() is None:
        pages = resident(process.pid)
        memory, processes = max(memory, sum(pages) * PAGE), max(processes, len(pages))
        if not told and stop_when():
            process.send_signal(signal.SIGTERM)
            told = True
        time.sleep(every)
    wall = time.perf_counter() - began
    return Use(wall, _children_cpu() - before, memory / 2**20, processes, process.returncode)


def resident(pid: int) -> list[int]:
    """Resident pages of a process and of all below it."""
    try:
        pages = [int(Path(f"/proc/{pid}/statm").read_text().split()[1])]
        children = [
            int(child)
            for tasks in Path(f"/proc/{pid}/task").iterdir()
            for child in (tasks / "children").read_text().split()
        ]
    except (FileNotFoundError, ProcessLookupError, IndexError):
        return []
    return pages + [page for child in children for page in resident(child)]


def _children_cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
