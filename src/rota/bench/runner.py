"""Runs the pieces one after the other, each in a process of its own, and shows what they found."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path

from rich.console import Group
from rich.table import Table
from rich.text import Text

from rota.bench.pieces import BENCHMARKS, Piece
from rota.bench.rows import Results, Row, written

Progress = Callable[[str, int, int | None], None]
WIDEST = 46
"""Characters of a row's name; the longest ones are folded."""


def run(pieces: Sequence[Piece], results: Results, *, again: bool = False, progress: Progress | None = None) -> int:
    """Measure what ``results`` does not have, or all of it ``again``; how many pieces were found done."""
    due = [piece for piece in pieces if again or not results.has(piece.benchmark, piece.setting)]
    for number, piece in enumerate(due):
        if progress is not None:
            progress(f"{piece.benchmark}: {piece.setting}", number, len(due))
        results.add(measure_apart(piece))
    return len(pieces) - len(due)


def measure_apart(piece: Piece) -> list[Row]:
    """The rows of a piece, measured by a fresh process with the threads that it asks for."""
    environment = {
        "GOMP_SPINCOUNT": "30000",  # as in rota.cli
        "KINETO_LOG_LEVEL": "99",
        **os.environ,
        "OMP_NUM_THREADS": str(piece.threads),
    }
    with tempfile.TemporaryDirectory() as scratch:
        found = Path(scratch) / "rows.json"
        command = [sys.executable, "-m", "rota.bench.child", json.dumps(asdict(piece)), str(found)]
        ended = subprocess.run(command, env=environment, stderr=subprocess.PIPE, text=True, check=False)
        if ended.returncode or not found.exists():
            said = ended.stderr.strip().splitlines() or [f"it ended with code {ended.returncode}"]
            raise ValueError(f"benchmark {piece.benchmark} ({piece.setting}) failed: {said[-1]}")
        return [Row(**each) for each in json.loads(found.read_text(encoding="utf-8"))]


def tables(rows: Sequence[Row], names: Sequence[str] = ()) -> Group:
    """One part for each benchmark, one table for each setting."""
    parts: list[Text | Table] = []
    for benchmark in dict.fromkeys(each.benchmark for each in rows):
        if names and benchmark not in names:
            continue
        mine = [each for each in rows if each.benchmark == benchmark]
        parts.append(Text(f"{benchmark}: {BENCHMARKS.get(benchmark, '')}".rstrip(": "), style="bold"))
        for setting in dict.fromkeys(each.setting for each in mine):
            parts += [Text(setting, style="cyan"), _table([each for each in mine if each.setting == setting])]
    return Group(*parts)


def _table(rows: Sequence[Row]) -> Table:
    """Columns that no row fills are left out."""
    table = Table(box=None, padding=(0, 1), show_edge=False, show_header=False)
    table.add_column(width=WIDEST, overflow="fold")
    table.add_column(justify="right", no_wrap=True)
    for _ in range(2):
        table.add_column(no_wrap=True)
    for each in rows:
        ratio = "" if each.ratio is None else f"ratio {each.ratio:.2f}"
        goal = "" if each.goal is None else f"goal: {each.goal}"
        compared = ", ".join(part for part in (ratio, goal) if part)
        table.add_row(each.what, written(each), each.unit, compared, style="bold" if each.goal else "")
    return table
