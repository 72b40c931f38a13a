"""From the lines of the drivers to rows: speed, padding and memory of each toolkit, and ours beside them."""

from __future__ import annotations

import json
import statistics
from itertools import pairwise
from pathlib import Path
from typing import Any

from rota.bench.rows import Row, row

WARM_UP = 2
"""Updates before the clock starts: caches, allocator, first compilations."""

OURS = "rota"

AT_USUAL_SPEED = "real target tokens a second of processor time, at the usual speed of the machine"
"""The usual speed is the median of the fixed matrix product over all toolkits and rounds."""


def read_run(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def speed(updates: list[dict[str, Any]], clock: str) -> float:
    """Real target tokens a second, from the end of the warm-up to the end of the last update."""
    warm = min(WARM_UP, len(updates) - 1)
    tokens = sum(update["tokens"] for update in updates[warm:])
    return tokens / (updates[-1][clock] - updates[warm - 1][clock])


def steady_speed(updates: list[dict[str, Any]]) -> float:
    """Real target tokens for each floating-point operation that the machine could have done in the processor time.

    What it could do in an update is the mean of what it did before and after.
    """
    timed = [(before, after) for before, after in pairwise(updates) if after["update"] > WARM_UP]
    able = sum(
        (after["processor"] - before["processor"]) * (before["machine"] + after["machine"]) / 2
        for before, after in timed
    )
    return sum(after["tokens"] for _, after in timed) / able


def padded(updates: list[dict[str, Any]]) -> float:
    """Share of the target positions that hold no token, in percent."""
    return 100 * (1 - sum(each["tokens"] for each in updates) / sum(each["positions"] for each in updates))


def rows_of(runs: Path, about: str) -> list[Row]:
    """Of all rounds that are complete, ours first, then the fastest."""
    found: dict[str, list[list[dict[str, Any]]]] = {}
    for path in sorted(runs.glob("*/*.jsonl")):
        updates = read_run(path)
        if len(updates) > WARM_UP:
            found.setdefault(path.stem, []).append(updates)
    if not found:
        return []
    usual = statistics.median(each["machine"] for rounds in found.values() for run in rounds for each in run)
    speeds = {name: [usual * steady_speed(run) for run in rounds] for name, rounds in found.items()}
    peaks = {name: [max(each["peak"] for each in run) / 2**20 for run in rounds] for name, rounds in found.items()}
    ratios = {name: _ratios(name, speeds, peaks) for name in found}
    rows: list[Row] = []
    for name in sorted(found, key=lambda name: (name != OURS, -statistics.median(speeds[name]))):
        rows += _rows(f"{name}, {about}", found[name], speeds[name], peaks[name], ratios[name])
    return rows


def _ratios(
    name: str, speeds: dict[str, list[float]], peaks: dict[str, list[float]]
) -> tuple[float | None, float | None]:
    """Of our speed to that of the fastest, of our memory to that of the leanest; nothing for the others."""
    others = [other for other in speeds if other != OURS]
    if name != OURS or not others:
        return None, None
    fastest = max(statistics.median(speeds[other]) for other in others)
    leanest = min(statistics.median(peaks[other]) for other in others)
    return statistics.median(speeds[OURS]) / fastest, statistics.median(peaks[OURS]) / leanest


def _rows(
    setting: str,
    rounds: list[list[dict[str, Any]]],
    speeds: list[float],
    peaks: list[float],
    ratios: tuple[float | None, float | None],
) -> list[Row]:
    about = ("peers", setting)
    quick, lean = ratios
    quick_goal = None if quick is None else "ratio to the fastest at least 1.4"
    lean_goal = None if lean is None else "ratio to the leanest at most 0.5"
    measured = {clock: [speed(run, clock) for run in rounds] for clock in ("processor", "wall")}
    per_update = [statistics.mean(each["tokens"] for each in run) for run in rounds]
    machine = [each["machine"] / 1e9 for run in rounds for each in run]
    return [
        row(*about, AT_USUAL_SPEED, speeds, "tokens/s", ratio=quick, goal=quick_goal),
        row(*about, "the same as measured", measured["processor"], "tokens/s"),
        row(*about, "real target tokens a second of wall time", measured["wall"], "tokens/s"),
        row(*about, "the machine meanwhile: a fixed matrix product", machine, "GFLOP/s"),
        row(*about, "real target tokens in an update", per_update, "tokens"),
        row(*about, "padded target positions", [padded(run) for run in rounds], "%"),
        row(*about, "peak memory", peaks, "MB", ratio=lean, goal=lean_goal),
    ]
