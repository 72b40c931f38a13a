"""Runs ``rota`` as two processes of one team and does them harm: a script, so that torch is imported once for all.

    python two_processes.py FOLDER

Every case leaves what each rank said in ``FOLDER/<case>.<rank>``, the threads it had at its very end beside that, and
its exit codes in ``FOLDER/<case>.codes``.
"""

from __future__ import annotations

import atexit
import json
import os
import signal
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch._dynamo  # noqa: F401

# What takes long to import, before the forks; torch imports the second of these when it makes an optimiser.
import rota.training.distributed
import rota.training.listeners  # noqa: F401
from rota.cli import main
from rota.training.progress import stopping


def start(case: str, size: int, arguments: list[str], killed_at: str = "") -> list[int]:
    """Forks ``size`` ranks as torchrun would start them; their process ids. ``killed_at``: an audit event of rank 0."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    return [os.fork() or _be(case, rank, size, port, arguments, killed_at) for rank in range(size)]


def _be(case: str, rank: int, size: int, port: int, arguments: list[str], killed_at: str) -> int:
    output = os.open(f"{case}.{rank}", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    for stream in (1, 2):
        os.dup2(output, stream)
    if size > 1:
        os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(size)}
        os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    sys.argv = ["rota", *arguments]
    if killed_at and rank == 0:
        sys.addaudithook(lambda event, _: os.kill(os.getpid(), signal.SIGKILL) if event == killed_at else None)
    code = 70
    try:
        main()
        code = 0
    except SystemExit as end:
        code = int(end.code or 0)
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        atexit._run_exitfuncs()
        Path(f"{case}.{rank}.threads").write_text(json.dumps(thread_names()))
        os._exit(code)


def thread_names() -> list[str]:
    """Of this process; Linux only."""
    return [name.read_text().strip() for name in Path("/proc/self/task").glob("*/comm")]


def run(
    case: str,
    size: int,
    *arguments: str,
    harm: Callable[[list[int]], None] = lambda _: None,
    killed_at: str = "",
) -> None:
    ranks = start(case, size, [*arguments, *([] if "--run" in arguments else ["--run", f"runs/{case}"])], killed_at)
    harm(ranks)
    codes = [os.waitstatus_to_exitcode(os.waitpid(rank, 0)[1]) for rank in ranks]
    Path(f"{case}.codes").write_text(json.dumps(codes))


def harm(case: str, rank: int, number: signal.Signals) -> Callable[[list[int]], None]:
    """A signal to one rank once the run has its first checkpoint and has got a little further."""

    def strike(ranks: list[int]) -> None:
        deadline = time.monotonic() + 60
        while not Path(f"runs/{case}/checkpoints/5").exists() and time.monotonic() < deadline:
            time.sleep(0.01)
        time.sleep(0.05)
        os.kill(ranks[rank], number)

    return strike


if __name__ == "__main__":
    os.chdir(sys.argv[1])
    train = ("train", "run.yaml")
    dqn = (
        "--set",
        "teacher={name: dqn, warmup: 6, decide_every: 2, epsilon_steps: 6, replay_minimum: 3, hidden: [8]}",
    )
    align = ("--set", "teacher={name: align, observe_every: 2, refresh: 3, tokens: 40, start: 6, gate_every: 4}")
    dds = ("--set", "teacher={name: multidds-s, reweight_every: 3, tokens: 40, map: true}")
    long = ("--set", "training.steps=100k")
    run("one", 1, *train)
    run("two", 2, *train)
    run("one-dqn", 1, *train, *dqn)
    run("two-dqn", 2, *train, *dqn)
    run("one-align", 1, *train, *align)
    run("two-align", 2, *train, *align)
    run("one-dds", 1, *train, *dds)
    run("two-dds", 2, *train, *dds)
    stem = ("--set", "teacher={name: uniform, warmup: 6, decide_every: 2}")
    run("stem", 2, *train, *stem, "--until", "6")
    run("branch-dqn", 2, *train, *dqn, "--stem", "runs/stem")
    run("branch-refused", 2, *train, *dqn, "--stem", "runs/stem", "--set", "seed=2")
    # A branch links the weights of its stem, so that this is in the middle of it.
    run("branch-killed", 2, *train, *dqn, "--stem", "runs/stem", killed_at="os.link")
    run("branch-on", 2, *train, *dqn, "--stem", "runs/stem", "--run", "runs/branch-killed")
    stops = ("--set", "training.validate_every=3", "--set", "training.early_stopping={patience: 1, smallest_change: 5}")
    run("one-stop", 1, *train, *stops)
    run("two-stop", 2, *train, *stops)
    run("two-stop-again", 2, *train, *stops, "--run", "runs/two-stop")
    scored = ("--set", "training.dev_sentences=2", "--set", "training.validate_every=4")
    on_chrf = ("--set", "training.early_stopping={on: chrf, patience: 2, smallest_change: 100}")
    stopping.HARDLY = 0.0  # these students translate nothing
    run("two-stop-chrf", 2, *train, *scored, *on_chrf, "--until", "7")
    run("two-stop-chrf-on", 2, *train, *scored, *on_chrf, "--run", "runs/two-stop-chrf")
    run("uneven", 2, *train, "--set", "training.accumulate=3")
    run("mistake", 2, *train, "--set", "training.step=3")
    run("parts", 2, *train, "--until", "7")
    run("parts-on", 1, *train, "--until", "12", "--run", "runs/parts")
    run("parts-three", 3, *train, "--until", "14", "--run", "runs/parts")
    run("parts-five", 5, *train, "--until", "16", "--run", "runs/parts")
    run("parts-end", 2, *train, "--run", "runs/parts")
    run("interrupted", 2, *train, *long, harm=harm("interrupted", 1, signal.SIGTERM))
    for rank in (0, 1):
        run(f"killed-{rank}", 2, *train, *long, harm=harm(f"killed-{rank}", rank, signal.SIGKILL))
    run("killed-on", 1, *train, *long, "--until", "15", "--run", "runs/killed-1")
