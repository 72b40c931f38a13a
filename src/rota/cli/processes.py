"""``rota train --processes``: the same command in several processes that train one run, as torchrun starts them.

Two are the default where they are faster than two threads and train the same batches. Unlike torchrun it is for one
machine, passes a signal on to all of its processes, and leaves messages to them.
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
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from rota.config import RunConfig

GRACE: Final = 60.0
"""Seconds that the others have for saving when one process has failed; then they are asked, and then killed."""

LAUNCHER: Final = "ROTA_LAUNCHER"
"""The environment variable with the id of the process that started the others."""

GAIN: Final = "1.08 (0.85-1.16) times as fast as two threads in the benchmark (docs/benchmarks.md)"
"""What two processes were; of the preset ``small``."""

SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


def default_processes(config: RunConfig) -> int:
    """Two, each with half of the cores, where docs/benchmarks.md shows that this is faster than threads; else one.

    That is on a CPU, for preset ``small``, if an update has an even number of batches, which are the same either way,
    and the curriculum is not for one process alone.
    """
    from rota.data.preparation.workers import cores

    training, student = config.training, config.student
    decided = training.threads is not None or any(name in os.environ for name in ("OMP_NUM_THREADS", "WORLD_SIZE"))
    alone = config.teacher.for_one_process is not None or training.accumulate % 2
    if decided or alone or cores() < 2 or student.preset != "small":
        return 1
    return 2 if student.device == "cpu" or (student.device == "auto" and not _has_gpu()) else 1


def advice_for_one(config: RunConfig) -> str | None:
    """What would start two processes by itself; nothing where the benchmark says nothing, or one process was chosen."""
    import torch

    training = config.training
    chosen = training.threads is not None or training.accumulate % 2 == 0 or "OMP_NUM_THREADS" in os.environ
    if (
        chosen
        or config.teacher.for_one_process is not None
        or config.student.preset != "small"
        or torch.get_num_threads() < 2
        or torch.cuda.is_available()
    ):
        return None
    settings = f"--set training.accumulate={2 * training.accumulate} --set training.tokens={training.tokens // 2}"
    return f"one process; two were {GAIN}, and a new run with updates of the same size starts them with {settings}"


def _has_gpu() -> bool:
    import torch

    return torch.cuda.is_available()


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
