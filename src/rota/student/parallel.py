"""Two pieces of an update at once, each with half of torch's threads.

Two threads that share every operation wait for each other after each of them, and one does nothing while the other
runs Python or draws random numbers. Two that work on different pieces wait only when a piece has ended.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from threading import Barrier
from typing import TypeVar

import torch

Item = TypeVar("Item")
Result = TypeVar("Result")


class Pairs:
    """Two Python threads, each with half of torch's: always as many, because rounding may depend on the number."""

    def __init__(self) -> None:
        self._threads = 0
        self._pool: ThreadPoolExecutor | None = None

    @staticmethod
    def threads_can_be_halved() -> bool:
        return torch.get_num_threads() % 2 == 0

    def map(self, work: Callable[[Item], Result], items: Sequence[Item]) -> Iterator[Result]:
        """The result of each item, in their order. The first of an odd number has all threads to itself."""
        unpaired = len(items) % 2
        yield from map(work, items[:unpaired])
        pool, under_way = self._executor(), deque[Future[Result]]()
        try:
            for item in items[unpaired:]:
                if len(under_way) == 2:
                    yield under_way.popleft().result()
                under_way.append(pool.submit(work, item))
            while under_way:
                yield under_way.popleft().result()
        finally:
            wait(under_way)  # after an error, the other piece is still at work

    def _executor(self) -> ThreadPoolExecutor:
        threads = torch.get_num_threads()
        if self._pool is None or threads != self._threads:
            both = Barrier(2)
            self._pool = ThreadPoolExecutor(2, thread_name_prefix="piece", initializer=_begin, initargs=(threads // 2,))
            wait([self._pool.submit(both.wait) for _ in range(2)])
            torch.set_num_threads(threads)  # the default for Python threads that are started later
            self._threads = threads
        return self._pool


def _begin(threads: int) -> None:
    """Set the number of torch's threads for this Python thread alone.

    PyTorch fixes it at the first question for it; without that, a number that another thread sets later replaces it.
    """
    torch.set_num_threads(threads)
    torch.get_num_threads()
