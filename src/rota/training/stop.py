"""Safe interruption: SIGTERM or the first Ctrl-C lets the step finish and saves; a Ctrl-C after that stops at once."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class StopSignal:
    """Says whether somebody asked the run to stop."""

    def __init__(self) -> None:
        self.received: str | None = None

    def __call__(self) -> bool:
        return self.received is not None

    def _handle(self, number: int, _: FrameType | None) -> None:
        # SIGTERM may come several times, from a scheduler or from each thread of a killed parent.
        if self.received is None:
            self.received = signal.Signals(number).name
        elif number == signal.SIGINT:
            raise KeyboardInterrupt


@contextmanager
def stop_on_signals() -> Iterator[StopSignal]:
    """Within this block, SIGINT and SIGTERM set the flag instead of ending the process."""
    stop = StopSignal()
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = [signal.signal(number, stop._handle) for number in numbers]
    try:
        yield stop
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)
