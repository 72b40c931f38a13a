"""Safe interruption: SIGTERM or the first Ctrl-C lets the step finish and saves; a Ctrl-C after that stops at once."""

from __future__ import annotations

import signal
from types import FrameType, TracebackType


class StopSignal:
    """Says whether somebody asked to stop: inside ``with``, SIGINT and SIGTERM set it instead of ending the process."""

    def __init__(self) -> None:
        self.received: str | None = None

    def __call__(self) -> bool:
        return self.received is not None

    def __enter__(self) -> StopSignal:
        self._before = {number: signal.signal(number, self._handle) for number in (signal.SIGINT, signal.SIGTERM)}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _handle(self, number: int, _: FrameType | None) -> None:
        # SIGTERM may come several times, from a scheduler or from each thread of a killed parent.
        if self.received is None:
            self.received = signal.Signals(number).name
        elif number == signal.SIGINT:
            raise KeyboardInterrupt
