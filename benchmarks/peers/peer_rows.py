"""From the lines of the drivers to rows: speed, padding and memory of each toolkit, and ours beside them."""

from __future__ import annotations

import json
import statistics
from pathlib import Path
from typing import Any

from rota.bench.rows import Row, row

WARM_UP = 2
"""Updates before the clock starts: caches, allocator, first compilations."""

OURS = "rota"


def read_run(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def speed(updates: list[dict[str, Any]], clock: str) -> float:
    """Real target tokens a second, from the end of the warm-up to the end of the last update."""
    warm = min(WARM_UP, len(updates) - 1)
    tokens = sum(update["tokens"] for update in updates[warm:])
    return tokens / (updates[-1][clock] - updates[warm - 1][clock])


def padded(updates: list[dict[str, Any]]) -> float:
    """Share of the target positions that hold no token, in percent."""
    return 100 * (1 - sum(each["tokens"] for each in updates) / sum(each["positions"] for each in updates))


def rows_of(runs: Path, about: str) -> list[Row]:
    """Of all rounds that are complete, in the order of the names."""
    found: dict[str, list[list[dict[str, Any]]]] = {}
    for path in sorted(runs.glob("*/*.jsonl")):
        updates = read_run(path)
        if len(updates) > WARM_UP:
            found.setdefault(path.stem, []).append(updates)
    speeds = {name: [speed(updates, "processor") for updates in rounds] for name, rounds in found.items()}
    peaks = {
        name: [max(each["peak"] for each in updates) / 2**20 for updates in rounds] for name, rounds in found.items()
    }
    rows = []
    for name in sorted(found, key=lambda name: (name != OURS, -statistics.median(speeds[name]))):
        rows += _rows(name, f"{name}, {about}", found, speeds, peaks)
    return rows


def _rows(
    name: str, setting: str, found: Any, speeds: dict[str, list[float]], peaks: dict[str, list[float]]
) -> list[Row]:
    others = [other for other in found if other != OURS]
    quick = lean = quick_goal = lean_goal = None
    if name == OURS and others:
        quick = statistics.median(speeds[OURS]) / max(statistics.median(speeds[other]) for other in others)
        lean = statistics.median(peaks[OURS]) / min(statistics.median(peaks[other]) for other in others)
        quick_goal, lean_goal = "ratio to the fastest at least 1.4", "ratio to the leanest at most 0.5"
    rounds = found[name]
    about = ("peers", setting)
    per_update = [statistics.mean(each["tokens"] for each in updates) for updates in rounds]
    return [
        row(
            *about,
            "real target tokens a second of processor time",
            speeds[name],
            "tokens/s",
            ratio=quick,
            goal=quick_goal,
        ),
        row(*about, "real target tokens a second of wall time", [speed(each, "wall") for each in rounds], "tokens/s"),
        row(*about, "real target tokens in an update", per_update, "tokens"),
        row(*about, "padded target positions", [padded(updates) for updates in rounds], "%"),
        row(*about, "peak memory", peaks[name], "MB", ratio=lean, goal=lean_goal),
    ]
