"""Two pieces of an update at once, each with half of torch's threads.

Two threads that share every operation wait for each other after each of them, and do nothing while Python or a random
generator is at work. Two that work on different pieces wait once for each pair of pieces.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from functools import partial
from typing import TypeVar

import torch

Item = TypeVar("Item")
Result = TypeVar("Result")


class Pairs:
    """Two threads of Python. How many threads of torch each has is fixed, since rounding may depend on it."""

    def __init__(self) -> None:
        self._threads = 0
        self._pool: ThreadPoolExecutor | None = None

    @staticmethod
    def suit(items: int) -> bool:
        """Whether so many items can be divided among torch's threads; an odd number of threads has no halves."""
        return items > 1 and torch.get_num_threads() % 2 == 0

    def map(self, work: Callable[[Item], Result], items: Sequence[Item]) -> Iterator[Result]:
        """The result of each item, in their order. The first of an odd number has all threads to itself."""
        alone = len(items) % 2
        yield from map(work, items[:alone])
        pool, under_way = self._halves(), deque[Future[Result]]()
        try:
            for item in items[alone:]:
                if len(under_way) == 2:
                    yield under_way.popleft().result()
                under_way.append(pool.submit(work, item))
            while under_way:
                yield under_way.popleft().result()
        finally:
            wait(under_way)  # after an error, the other piece is still at work

    def _halves(self) -> ThreadPoolExecutor:
        threads = torch.get_num_threads()
        if self._pool is None or threads != self._threads:
            # In torch this number belongs to the thread that sets it.
            halve = partial(torch.set_num_threads, threads // 2)
            self._pool = ThreadPoolExecutor(2, thread_name_prefix="piece", initializer=halve)
            self._threads = threads
        return self._pool
