"""``rota train --processes``: the same command in several processes that train one run, as torchrun starts them.

Unlike torchrun it is for one machine, passes a signal on to all of its processes, and leaves messages to them.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Final

GRACE: Final = 60.0
"""Seconds that the others have for saving when one process has failed; then they are asked, and then killed."""

LAUNCHER: Final = "ROTA_LAUNCHER"
"""The environment variable with the id of the process that started the others."""

SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


def train_in(count: int, arguments: Sequence[str], grace: float = GRACE) -> int:
    """``rota ARGUMENTS`` in ``count`` processes of one team; the exit code of the command."""
    ranks = [_start(rank, environment, arguments) for rank, environment in enumerate(_environments(count))]
    try:
        with _passing_on(ranks):
            _wait(ranks, grace)
    finally:
        for rank in ranks:
            if rank.poll() is None:
                rank.kill()
            rank.wait()
    return exit_code([rank.returncode for rank in ranks])


def exit_code(codes: Sequence[int]) -> int:
    """Of the first process if it failed and could say so, else of another one that did; a signal counts as 128 more."""
    said = next((code for code in codes if code > 0), 0)
    return said or next((128 - code for code in codes if code), 0)


def _environments(count: int) -> Iterator[dict[str, str]]:
    from rota.data.preparation.workers import cores

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    team = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(count), LAUNCHER: str(os.getpid())}
    threads = {"OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS") or str(max(1, cores() // count))}
    for rank in map(str, range(count)):
        yield {**os.environ, **threads, **team, "RANK": rank, "LOCAL_RANK": rank, "LOCAL_WORLD_SIZE": str(count)}


def _start(rank: int, environment: dict[str, str], arguments: Sequence[str]) -> subprocess.Popen[bytes]:
    """In a process group of its own: Ctrl-C reaches this process alone, which passes it on once."""
    output = None if rank == 0 else subprocess.DEVNULL
    command = [sys.executable, "-m", "rota", *arguments]
    return subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stdout=output, process_group=0)


@contextmanager
def _passing_on(ranks: Sequence[subprocess.Popen[bytes]]) -> Iterator[None]:
    def pass_on(number: int, _: FrameType | None) -> None:
        for rank in ranks:
            with suppress(ProcessLookupError):
                rank.send_signal(number)

    before = {number: signal.signal(number, pass_on) for number in SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _wait(ranks: Sequence[subprocess.Popen[bytes]], grace: float) -> None:
    """Until all have ended; if one has failed, those that hang are asked to stop, and killed if they do not."""
    failed_at, asked = None, False
    while any(rank.poll() is None for rank in ranks):
        time.sleep(0.05)
        if failed_at is None and any(rank.poll() for rank in ranks):
            failed_at = time.monotonic()
        if failed_at is None or time.monotonic() - failed_at < grace:
            continue
        if asked:
            return
        asked, failed_at = True, time.monotonic()
        for rank in ranks:
            rank.terminate()
