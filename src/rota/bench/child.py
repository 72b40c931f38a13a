"""One piece in a process of its own: reads it as JSON, writes its rows as JSON."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from importlib import import_module
from pathlib import Path

from rota.bench.pieces import Piece
from rota.bench.rows import Row

MODULES = {
    "limit": "rota.bench.limit",
    "time": "rota.bench.spending",
    "data": "rota.bench.streams",
    "teachers": "rota.bench.teaching",
    "memory": "rota.bench.memory",
}


def measure(piece: Piece) -> list[Row]:
    # Imported by name, so that the benchmark of memory does not hold what the others need.
    rows: list[Row] = import_module(MODULES[piece.benchmark]).measure(piece)
    return rows


def main() -> None:
    piece = Piece(**json.loads(sys.argv[1]))
    try:
        rows = measure(piece)
    except ValueError as error:  # a mistake of the user: one line, which the parent repeats
        sys.exit(f"{error}")
    Path(sys.argv[2]).write_text(json.dumps([asdict(each) for each in rows]), encoding="utf-8")


if __name__ == "__main__":
    main()
