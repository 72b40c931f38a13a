"""Processes that do units, and what runs in them: ``python -m rota.data.preparation.workers``.

Each worker gets one JSON line after the other over a pipe. The first says which preparation: its recipe, the cache of
named corpora, the partial folder and the length of a piece. Every other line is a unit. The answers are pairs done, an
error, or that the unit is done. A worker ends when its parent is gone.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from queue import SimpleQueue
from types import TracebackType
from typing import Any, Final, NoReturn, Self

from rota.data.corpora.sources import open_corpus
from rota.data.preparation.units import Advance, Executor, Partial, Recipe, Unit
from rota.settings import ConfigError

ERRORS: Final[Mapping[str, type[Exception]]] = {
    kind.__name__: kind for kind in (ConfigError, ValueError, OSError, MemoryError)
}
"""Errors that a worker passes on; of the classes that fit one, the first."""


def cores() -> int:
    """Those that this process may use: a scheduler or ``taskset`` may leave it fewer than the machine has."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class WorkerPool:
    """A fixed number of processes; ``about`` is the first line that each of them gets."""

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
        """Kills them: an unfinished unit is done again anyway."""
        for process in self._processes:
            process.kill()
        for process in self._processes:
            process.wait()
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    pipe.close()

    def run(self, units: Sequence[Unit], advance: Advance) -> None:
        """Returns when all units are done; raises the first error of any worker."""
        waiting = list(reversed(units))
        busy: dict[subprocess.Popen[str], Unit] = {}
        for process in self._processes[: len(waiting)]:
            busy[process] = _hand(process, waiting.pop())
        while busy:
            process, line = self._messages.get()
            message = _parse(line, process, busy.get(process))
            if "pairs" in message:
                advance(message["pairs"])
            elif "error" in message:
                raise ERRORS[message["error"]](message["message"])
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
    # Not multiprocessing: its processes import the caller's main module, which may be a script without a guard.
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "rota.data.preparation.workers"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        encoding="utf-8",
        bufsize=1,
        env=_environment(),
        start_new_session=True,  # Ctrl-C in the terminal is for the parent
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
    how = f"exited with code {code}" if code >= 0 else f"was killed by {signal.Signals(-code).name}"
    memory = " (perhaps out of memory)" if code == -signal.SIGKILL else ""
    where = "" if unit is None else f" while it prepared {unit}"
    raise ChildProcessError(f"a worker process {how}{where}{memory}; the same command resumes")


def main() -> None:
    """What a worker does: units for its parent, until that is gone."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8", buffering=1)
    os.dup2(2, 1)  # anything else that is written to standard output must not be taken for an answer

    def answer(message: dict[str, Any]) -> None:
        answers.write(json.dumps(message) + "\n")

    executor = None
    for message in _received():
        try:
            if executor is None:
                executor = _executor(message)
            else:
                executor.do(Unit(**message), lambda pairs: answer({"pairs": pairs}))
                answer({"done": message})
        except tuple(ERRORS.values()) as error:
            kind = next(name for name, known in ERRORS.items() if isinstance(error, known))
            answer({"error": kind, "message": str(error)})


def _executor(about: dict[str, Any]) -> Executor:
    recipe = Recipe.from_settings(about["recipe"])
    partial = Partial(Path(about["folder"]), recipe)
    return Executor(recipe, open_corpus(recipe.corpus, Path(about["cache"])), partial, about["piece"])


def _received() -> Iterator[dict[str, Any]]:
    """What the parent sends; when it is gone, perhaps killed, this process ends at once, even during a unit."""
    received: SimpleQueue[str] = SimpleQueue()

    def listen() -> None:
        for line in sys.stdin:
            received.put(line)
        os._exit(1)

    threading.Thread(target=listen, daemon=True).start()
    while True:
        yield json.loads(received.get())


if __name__ == "__main__":
    main()
