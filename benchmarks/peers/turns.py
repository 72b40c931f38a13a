"""The trainings of a round side by side, of which one computes at a time: each makes one update when it is its turn.

The speed of a shared machine changes within minutes; in turns all toolkits meet the same of it. A driver waits for a
byte from us after every update (drivers/counting.py).
"""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

from installing import Peer

LOOK_EVERY = 0.05
"""Seconds between two looks at the file of the one whose turn it is."""


class Training:
    """A driver in a process of its own, begun when its first turn comes."""

    def __init__(self, peer: Peer, command: list[str], settings: Path, out: Path, environment: dict[str, str]) -> None:
        self.name, self.out = peer.name, out
        self._command, self._settings, self._environment = command, settings, environment
        self._process: subprocess.Popen[bytes] | None = None
        self._turn = -1
        self.code: int | None = None
        """With which it ended by itself; minus the number of a signal if it was killed, 9 when memory ran out."""

    @property
    def log(self) -> Path:
        return self._settings.with_suffix(".log")

    def update(self, seconds: float) -> bool:
        """One more update; false if there was none: it has ended, it failed, or ``seconds`` are over."""
        before = self.done()
        if self._process is None:
            self._start()
        else:
            self._nod()
        limit = time.monotonic() + seconds
        while self.done() == before and self._running() and time.monotonic() < limit:
            time.sleep(LOOK_EVERY)
        return self.done() > before

    def done(self) -> int:
        return self.out.read_bytes().count(b"\n") if self.out.exists() else 0

    def end(self) -> None:
        """Stops it if it runs, and waits until it is gone."""
        if self._process is not None:
            self.code = self._process.poll()
            self._process.kill()
            self._process.wait()
            os.close(self._turn)

    def _running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def _nod(self) -> None:
        if self._running():
            os.write(self._turn, b".")

    def _start(self) -> None:
        theirs, self._turn = os.pipe()
        with self.log.open("w", encoding="utf-8") as log:
            self._process = subprocess.Popen(
                [*self._command, str(self._settings), str(theirs)],
                env=self._environment,
                pass_fds=[theirs],
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        os.close(theirs)


def take_turns(trainings: list[Training], updates: int, timeout: float) -> None:
    """An update of each, again and again; who fails is left out from then on."""
    for training in trainings:
        training.out.unlink(missing_ok=True)
    left = list(trainings)
    try:
        for _ in range(updates):
            left = [training for training in left if training.update(timeout)]
    finally:
        for training in trainings:
            training.end()
