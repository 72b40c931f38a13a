"""Results as rows: what was measured, its spread, what it is compared with, and what it should be."""

from __future__ import annotations

import json
import os
import platform
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Final

from rota.files import write_atomically

SHARE: Final = "share of the run, decisions and observations"
"""What the row of a teacher's cost is called; that by wall time has more behind it."""


@dataclass(frozen=True, slots=True)
class Row:
    """One measured number: the median of several, with the lowest and the highest."""

    benchmark: str
    setting: str  # size, batch, threads: rows of the same benchmark and setting were measured together
    what: str
    value: float
    low: float
    high: float
    unit: str
    ratio: float | None = None  # to what ``what`` names: the limit, the prediction, the fastest of the others
    goal: str | None = None


def row(
    benchmark: str,
    setting: str,
    what: str,
    values: Sequence[float],
    unit: str,
    *,
    ratio: float | None = None,
    goal: str | None = None,
) -> Row:
    """The row of several measurements of the same thing."""
    if not values:
        raise ValueError(f"{benchmark}, {what}: nothing was measured")
    return Row(benchmark, setting, what, statistics.median(values), min(values), max(values), unit, ratio, goal)


class Results:
    """Rows in a JSON file, written after every piece, so that an interrupted benchmark goes on where it was."""

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self.rows: list[Row] = [] if path is None or not path.exists() else _read(path)

    def has(self, benchmark: str, setting: str) -> bool:
        return any((each.benchmark, each.setting) == (benchmark, setting) for each in self.rows)

    def add(self, rows: Iterable[Row]) -> None:
        """Rows of the same benchmark and setting that were there before are replaced."""
        new = list(rows)
        replaced = {(each.benchmark, each.setting) for each in new}
        self.rows = [each for each in self.rows if (each.benchmark, each.setting) not in replaced] + new
        if self.path is not None:
            content = {"machine": machine(), "rows": [asdict(each) for each in self.rows]}
            self.path.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(self.path, json.dumps(content, ensure_ascii=False, indent=1) + "\n")


def _read(path: Path) -> list[Row]:
    known = {field.name for field in fields(Row)}
    try:
        found = json.loads(path.read_text(encoding="utf-8"))["rows"]
        return [Row(**{name: value for name, value in each.items() if name in known}) for each in found]
    except (ValueError, KeyError, TypeError, AttributeError):
        raise ValueError(f"{path} holds no results of a benchmark; name another file, or remove it") from None


def machine() -> dict[str, Any]:
    """What a reader of the figures must know: processor, cores, versions."""
    from importlib.metadata import version

    versions = {name: version(name) for name in ("torch", "numpy", "rota-nmt")}
    return {"processor": _processor(), "cores": os.cpu_count(), "python": platform.python_version(), **versions}


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def written(each: Row) -> str:
    """``1,367 (1,176 to 1,420)``; one measurement has no spread."""
    digits = _digits(each)
    middle = f"{each.value:,.{digits}f}"
    return middle if each.low == each.high else f"{middle} ({each.low:,.{digits}f} to {each.high:,.{digits}f})"


def _digits(each: Row) -> int:
    largest = max(abs(each.low), abs(each.high))
    if each.unit == "%":
        return 2 if largest < 1 else 1
    return 0 if largest >= 100 else 1 if largest >= 10 else 2
