"""From the lines of the drivers to rows: speed, padding and memory of each toolkit, and ours beside them."""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

from ratios import Run, ratio_row

from rows import Row, row

WARM_UP = 2
"""Updates before the clock starts: caches, allocator, first compilations."""

OURS = "rota"

MEASURED = "real target tokens a second of processor time"
MEMORY = "peak memory"
AT_USUAL_SPEED = "the same at the usual speed of the machine"
"""The usual speed is the median of the fixed matrix product over all toolkits and rounds."""


def read_run(path: Path) -> Run:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def speed(updates: Run, clock: str) -> float:
    """Real target tokens a second, from the end of the warm-up to the end of the last update."""
    warm = min(WARM_UP, len(updates) - 1)
    tokens = sum(update["tokens"] for update in updates[warm:])
    return tokens / (updates[-1][clock] - updates[warm - 1][clock])


def steady_speed(updates: Run) -> float:
    """Real target tokens for each floating-point operation that the machine could have done in the processor time.

    What it could do in an update is the mean of what it did before and after.
    """
    timed = [(before, after) for before, after in pairwise(updates) if after["update"] > WARM_UP]
    able = sum(
        (after["processor"] - before["processor"]) * (before["machine"] + after["machine"]) / 2
        for before, after in timed
    )
    return sum(after["tokens"] for _, after in timed) / able


def padded(updates: Run) -> float:
    """Share of the target positions that hold no token, in percent."""
    return 100 * (1 - sum(each["tokens"] for each in updates) / sum(each["positions"] for each in updates))


def rows_of(runs: Path, rounds: int, about: str) -> list[Row]:
    """Of the first ``rounds``, as far as they went; ours first, then the fastest."""
    found: dict[str, dict[int, Run]] = {}
    for number in range(1, rounds + 1):
        for path in sorted(runs.glob(f"{number}/*.jsonl")):
            updates = read_run(path)
            if len(updates) > WARM_UP:
                found.setdefault(path.stem, {})[number] = updates
    if not found:
        return []
    usual = statistics.median(each["machine"] for of in found.values() for run in of.values() for each in run)
    measures: dict[str, Callable[[Run], float]] = {
        MEASURED: lambda run: speed(run, "processor"),
        AT_USUAL_SPEED: lambda run: usual * steady_speed(run),
        MEMORY: lambda run: max(each["peak"] for each in run) / 2**20,
    }
    values = {
        what: {name: [measure(run) for run in of.values()] for name, of in found.items()}
        for what, measure in measures.items()
    }
    names = sorted(found, key=lambda name: (name != OURS, -statistics.median(values[MEASURED][name])))
    rows: list[Row] = []
    for name in names:
        rows += [_compared(name, what, values[what], f"{name}, {about}") for what in measures]
        rows += _rows(f"{name}, {about}", list(found[name].values()))
    ours = found.get(OURS, {})
    beside = [name for name in names if name != OURS and set(ours) & set(found[name])]
    return rows + [ratio_row(ours, found[name], name, f"{OURS}, {about}", WARM_UP) for name in beside]


def _compared(name: str, what: str, values: dict[str, list[float]], setting: str) -> Row:
    """A row; ours with the ratio to the fastest, or to the leanest, of the others."""
    others = [statistics.median(values[other]) for other in values if other != OURS]
    unit = "MB" if what == MEMORY else "tokens/s"
    if name != OURS or not others:
        return row("peers", setting, what, values[name], unit)
    best = min(others) if what == MEMORY else max(others)
    goal = "ratio to the leanest at most 0.5" if what == MEMORY else "ratio to the fastest at least 1.4"
    return row("peers", setting, what, values[name], unit, ratio=statistics.median(values[name]) / best, goal=goal)


def _rows(setting: str, rounds: list[Run]) -> list[Row]:
    about = ("peers", setting)
    per_update = [statistics.mean(each["tokens"] for each in run) for run in rounds]
    machine = [each["machine"] / 1e9 for run in rounds for each in run]
    return [
        row(*about, "real target tokens a second of wall time", [speed(run, "wall") for run in rounds], "tokens/s"),
        row(*about, "the machine meanwhile: a fixed matrix product", machine, "GFLOP/s"),
        row(*about, "real target tokens in an update", per_update, "tokens"),
        row(*about, "padded target positions", [padded(run) for run in rounds], "%"),
    ]
