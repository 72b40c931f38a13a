"""Processes that do units: each takes one after the other over a pipe, and ends when nobody holds the other end."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from queue import SimpleQueue
from types import TracebackType
from typing import Any, Final, NoReturn, Self

from rota.data.partial import Unit
from rota.data.units import Tell
from rota.settings import ConfigError

MISTAKES: Final[Mapping[str, type[Exception]]] = {
    kind.__name__: kind for kind in (ConfigError, ValueError, OSError, MemoryError)
}
"""Errors that a worker passes on; of the classes that fit one, the first."""


def cores() -> int:
    """Those that this process may use: a scheduler or ``taskset`` may leave it fewer than the machine has."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class Workers:
    """A fixed number of processes; ``about`` is what each of them is told first (see ``worker.py``)."""

    def __init__(self, processes: int, about: Mapping[str, Any]) -> None:
        self._messages: SimpleQueue[tuple[subprocess.Popen[str], str]] = SimpleQueue()
        self._processes = [_start() for _ in range(processes)]
        for process in self._processes:
            threading.Thread(target=self._listen, args=(process,), daemon=True).start()
            _send(process, about)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """What they have not finished is of no use to anybody, so they need not be asked politely."""
        for process in self._processes:
            process.kill()
        for process in self._processes:
            process.wait()
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    pipe.close()

    def do(self, units: Sequence[Unit], tell: Tell) -> None:
        """Returns when all are done; raises the first error of any worker."""
        waiting = list(reversed(units))
        busy: dict[subprocess.Popen[str], Unit] = {}
        for process in self._processes[: len(waiting)]:
            busy[process] = _hand(process, waiting.pop())
        while busy:
            process, line = self._messages.get()
            message = _parse(line, process, busy.get(process))
            if "pairs" in message:
                tell(message["pairs"])
            elif "error" in message:
                raise MISTAKES[message["error"]](message["message"])
            elif waiting:
                busy[process] = _hand(process, waiting.pop())
            else:
                del busy[process]

    def _listen(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            self._messages.put((process, line))
        self._messages.put((process, ""))


def _start() -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "rota.data.worker"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        encoding="utf-8",
        bufsize=1,
        env=_environment(),
        start_new_session=True,  # Ctrl-C in the terminal is for us
    )


def _environment() -> dict[str, str]:
    """Each worker has one thread: there are as many workers as cores."""
    threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "RAYON_NUM_THREADS"), "1")
    path = os.pathsep.join(part for part in sys.path if part)  # where this process finds rota, the worker does too
    return {**os.environ, **threads, "TOKENIZERS_PARALLELISM": "false", "PYTHONPATH": path}


def _hand(process: subprocess.Popen[str], unit: Unit) -> Unit:
    _send(process, asdict(unit))
    return unit


def _send(process: subprocess.Popen[str], message: Mapping[str, Any]) -> None:
    assert process.stdin is not None
    try:
        process.stdin.write(json.dumps(message) + "\n")
    except BrokenPipeError:
        _report_end(process, None)


def _parse(line: str, process: subprocess.Popen[str], unit: Unit | None) -> dict[str, Any]:
    if not line:
        _report_end(process, unit)
    message: dict[str, Any] = json.loads(line)
    return message


def _report_end(process: subprocess.Popen[str], unit: Unit | None) -> NoReturn:
    code = process.wait()
    how = f"with code {code}" if code >= 0 else f"by {signal.Signals(-code).name}"
    memory = " (perhaps for want of memory)" if code == -signal.SIGKILL else ""
    where = "" if unit is None else f" in the middle of {unit}"
    raise ChildProcessError(f"a process that prepared data was ended {how}{where}{memory}; the same command goes on")
