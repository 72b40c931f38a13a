"""What is measured of this machine: a list of pieces, each small enough to run in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from importlib import import_module
from pathlib import Path
from typing import Final

from rota.data.store import MANIFEST
from rota.student.config import PRESETS as STUDENTS
from rota.teachers.curricula import CURRICULA
from rota.teachers.weights.presets import PRESETS
from rows import Row

BENCHMARKS: Final = {
    "limit": "training beside the machine's own matrix products",
    "time": "where the time of an update goes",
    "data": "the batch streams alone, and beside an update",
    "teachers": "what deciding and observing cost, beside the arithmetic",
    "memory": "peak memory of training",
}

MODULES: Final = {
    "limit": "machine.limit",
    "time": "machine.spending",
    "data": "machine.streams",
    "teachers": "machine.teaching",
    "memory": "machine.memory",
}

TEACHERS: Final = ("uniform", "tscl", "tscl, variant paper", "dqn", "dqn, variant paper", "dqn, refresh 1/5")
"""Measured with every number of threads; what follows the name are settings."""

OTHERS: Final = (
    *("proportional", "temperature", "mixed", "cooldown", "unimax", "two-phase", "late"),
    *("tscl, variant rota", "dqn, variant rota", "kumar", "caps", "ccl-m", "weight-change", "align"),
    *("weights", *PRESETS),
    *(f"uniform, curriculum {name}" for name in CURRICULA),
    "spot checks",
)
"""Measured with one thread, at two sizes. The spot checks of every run are no teacher, but cost as one does."""

SIZES: Final = ((4_000, 8_000), (4_000, 32_000), (8_000, 8_000), (8_000, 32_000))
"""Target tokens in a batch and subwords, of the benchmark of memory."""


@dataclass(frozen=True, slots=True)
class Piece:
    """One benchmark in one setting."""

    benchmark: str
    preset: str
    tokens: int  # real target tokens of a batch
    vocabulary: int
    threads: int
    repetitions: int
    teacher: str | None = None
    data: str | None = None  # a prepared data folder; None: a generated corpus

    @property
    def setting(self) -> str:
        """How rows of this piece are marked."""
        size = f"{self.preset}, {self.tokens:,} tokens, {self.vocabulary:,} subwords"
        threads = f"{self.threads} thread{'s' if self.threads > 1 else ''}"
        return ", ".join([*([self.teacher] if self.teacher else []), size, threads])


def plan(
    names: Sequence[str], presets: Sequence[str], threads: Sequence[int], *, data: str | None, quick: bool
) -> list[Piece]:
    """The pieces of these benchmarks (of all, if none is named), in the order of the list above."""
    _check(names, presets, threads)
    if data is not None and not (Path(data) / MANIFEST).is_file():
        raise ValueError(f"--data {data} holds no prepared data; make them with rota prepare")
    pieces = []
    for name in BENCHMARKS:
        if not names or name in names:
            pieces += _pieces(name, presets, threads, data=data, quick=quick)
    return pieces


def _pieces(name: str, presets: Sequence[str], threads: Sequence[int], *, data: str | None, quick: bool) -> list[Piece]:
    tokens, vocabulary, repetitions = (300, 500, 2) if quick else (4_000, 8_000, 7)
    if name == "memory":
        sizes = ((tokens, vocabulary),) if quick else SIZES
        # More threads take more for small students alone, which compute two pieces at once with them.
        return [Piece(name, preset, *size, threads[0], 3) for preset in presets for size in sizes]
    if name in ("limit", "time"):
        rounds = repetitions if name == "limit" else min(repetitions, 3)
        return [Piece(name, preset, tokens, vocabulary, count, rounds) for preset in presets for count in threads]
    if name == "data":
        return [Piece(name, presets[0], tokens, vocabulary, count, repetitions, data=data) for count in threads]
    batch = tokens if quick else 8_000  # the paper's smallest
    rounds = min(repetitions, 5)
    own = [
        Piece(name, presets[0], batch, vocabulary, count, rounds, teacher, data)
        for teacher in TEACHERS
        for count in threads
    ]
    small = [] if quick else [("tiny", 750)]
    return own + [
        Piece(name, preset, size, vocabulary, threads[0], rounds, schedule, data)
        for schedule in (*TEACHERS, *OTHERS)
        for preset, size in (*small, *([(presets[0], batch)] if schedule in OTHERS else []))
    ]


def _check(names: Sequence[str], presets: Sequence[str], threads: Sequence[int]) -> None:
    for name in names:
        if name not in BENCHMARKS:
            raise ValueError(f"unknown benchmark {name!r}; there are {', '.join(BENCHMARKS)}")
    for preset in presets:
        if preset not in STUDENTS:
            raise ValueError(f"unknown preset {preset!r}; there are {', '.join(STUDENTS)}")
    if not presets or not threads or min(threads) < 1:
        raise ValueError("give at least one preset, and thread counts from 1 on, such as --threads 1,2")


def measure(piece: Piece) -> list[Row]:
    """The rows of a piece, in this process."""
    # Imported by name, so that the benchmark of memory does not load what the others need.
    rows: list[Row] = import_module(MODULES[piece.benchmark]).measure(piece)
    return rows


def measure_apart(piece: Piece) -> list[Row]:
    """The rows of a piece, measured by a fresh process with the threads that it asks for."""
    paths = [str(Path(__file__).parents[1]), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {
        "GOMP_SPINCOUNT": "30000",  # as in rota.cli
        "KINETO_LOG_LEVEL": "99",
        **os.environ,
        "OMP_NUM_THREADS": str(piece.threads),
        "PYTHONPATH": os.pathsep.join(paths),
    }
    with tempfile.TemporaryDirectory() as scratch:
        found = Path(scratch) / "rows.json"
        command = [sys.executable, "-m", "machine.pieces", json.dumps(asdict(piece)), str(found)]
        ended = subprocess.run(command, env=environment, stderr=subprocess.PIPE, text=True, check=False)
        if ended.returncode or not found.exists():
            said = ended.stderr.strip().splitlines() or [f"it ended with code {ended.returncode}"]
            raise ValueError(f"benchmark {piece.benchmark} ({piece.setting}) failed: {said[-1]}")
        return [Row(**each) for each in json.loads(found.read_text(encoding="utf-8"))]


def main() -> None:
    """The fresh process: reads a piece as JSON, writes its rows as JSON."""
    piece = Piece(**json.loads(sys.argv[1]))
    try:
        rows = measure(piece)
    except ValueError as error:  # a mistake of the user: one line, which the parent repeats
        sys.exit(f"{error}")
    Path(sys.argv[2]).write_text(json.dumps([asdict(each) for each in rows]), encoding="utf-8")


if __name__ == "__main__":
    main()
