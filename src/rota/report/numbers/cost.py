"""What a run spent: seconds on the wall, of the processors and by phase, and the target tokens it saw."""

from __future__ import annotations

from collections.abc import Callable

from rota.report.study import Row, StudyRun

PHASES = ("updates", "observations", "validations", "batches", "rest")
"""Phases of training on the wall; ``rest`` is what the records do not name: checkpoints, records, display."""

Spending = Callable[[StudyRun], float | None]
"""One number of a run; None where its records do not have it."""


def clock(name: str) -> Spending:
    """Seconds of training by the clock ``wall`` or ``cpu``."""
    return lambda run: _total(run, name) or None


def phase(name: str) -> Spending:
    """Wall seconds of one of the ``PHASES``."""
    return lambda run: _phases(run).get(name, 0.0) if run.timings else None


def updates(run: StudyRun) -> int:
    return run.history.updates


def tokens(run: StudyRun) -> int:
    """Real target tokens of all updates."""
    return sum(run.history.tokens.values())


def _total(run: StudyRun, name: str) -> float:
    return float(sum(entry[name] for entry in run.timings))


def _phases(run: StudyRun) -> dict[str, float]:
    seconds = dict.fromkeys(PHASES[:-1], 0.0)
    for entry in run.timings:
        for phase_name, spent in entry["phases"].items():
            name = "validations" if phase_name in ("spot checks", "dev scores") else phase_name  # parts of one
            seconds[name] = seconds.get(name, 0.0) + spent
    return {**seconds, "rest": max(0.0, _total(run, "wall") - sum(seconds.values()))}


def by_seed(row: Row, name: str, spending: Spending) -> list[dict[str, object]]:
    """One line for each finished run, for CSV."""
    return [
        {"row": row.name, "seed": seed, "measure": name, "value": "" if value is None else value}
        for seed, run in row.finished.items()
        for value in [spending(run)]
    ]
