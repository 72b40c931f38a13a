"""Copies of this process that compute with one thread each, for work that two threads cannot share.

A copy (``fork``) has the networks of this process without loading them, and shares its memory until one of them writes
to it. PyTorch's own data loaders work in the same way. Only Linux can copy a process that has threads; elsewhere, and
on a GPU, there is one process.
"""

from __future__ import annotations

import multiprocessing
import signal
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import Connection, wait
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

import torch

from rota.student.hardware import TooLargeError

Task = TypeVar("Task")
Result = TypeVar("Result")


def can_fork() -> bool:
    """Whether this process can have copies; multiprocessing's own daemons may not."""
    return sys.platform == "linux" and not multiprocessing.current_process().daemon


class Workers(Generic[Task, Result]):
    """So many processes that ``work``; what that refers to stays as it is when they begin."""

    def __init__(self, count: int, work: Callable[[Task], Result]) -> None:
        context = multiprocessing.get_context("fork")
        self._pipes: list[Connection[Any, Any]] = []
        self._processes = []
        for _ in range(count):
            ours, theirs = context.Pipe()
            self._pipes.append(ours)
            process = context.Process(target=_serve, args=(work, theirs, tuple(self._pipes)), daemon=True)
            with warnings.catch_warnings():
                # Python 3.12 warns of threads. Ours draw a progress bar, or wait in libraries that the copies call
                # with one thread; none of them holds a lock that a copy needs.
                warnings.simplefilter("ignore", DeprecationWarning)
                process.start()
            self._processes.append(process)
            theirs.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Kills them: the results of unfinished tasks are not needed."""
        for process in self._processes:
            process.kill()
        for process, pipe in zip(self._processes, self._pipes, strict=True):
            process.join()
            pipe.close()

    def run(self, draw: Callable[[], Task | None]) -> Iterator[tuple[Task, Result]]:
        """Tasks and their results as they come, until all are done and ``draw`` has no more."""
        busy: dict[Any, Task] = {}
        while True:
            for pipe in self._pipes:
                if pipe not in busy and (task := draw()) is not None:
                    busy[pipe] = task
                    self._send(pipe, task)
            if not busy:
                return
            for answered in wait(list(busy)):
                result = self._receive(answered)
                yield busy.pop(answered), result

    def _send(self, pipe: Connection[Any, Any], task: Task) -> None:
        try:
            pipe.send(task)
        except BrokenPipeError:
            raise self._ended(pipe) from None

    def _receive(self, pipe: Any) -> Result:
        try:
            failure, result = pipe.recv()
        except (EOFError, ConnectionResetError):
            raise self._ended(pipe) from None
        if failure is not None:
            raise failure
        received: Result = result
        return received

    def _ended(self, pipe: Any) -> Exception:
        """A process has gone without an answer."""
        process = self._processes[self._pipes.index(pipe)]
        process.join()
        if process.exitcode == -signal.SIGKILL:
            return TooLargeError("a process that translates was killed, perhaps for its memory; use --threads 1.")
        return ChildProcessError(f"a process that translates ended with code {process.exitcode}; use --threads 1")


def _serve(work: Callable[[Any], Any], pipe: Connection[Any, Any], inherited: Sequence[Connection[Any, Any]]) -> None:
    """Works until the parent has no more for us, or has ended, which closes the other end of the pipe."""
    for other in inherited:
        other.close()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C in the terminal is for the parent, which then kills us
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    torch.set_num_threads(1)
    while True:
        try:
            task = pipe.recv()
        except EOFError:
            return
        answer: tuple[Exception | None, Any]
        try:
            answer = (None, work(task))
        except Exception as failure:
            answer = (failure, None)
        try:
            pipe.send(answer)
        except BrokenPipeError:
            return
