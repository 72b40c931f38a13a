"""How long the runs of a suite will take, from the records of those that are there, else from rough speeds."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Final

from rota.experiments.jobs import Job
from rota.experiments.status import REFUSED, Status
from rota.runs.records import read_record

SPEED: Final = {"tiny": 4_000, "small": 1_300, "base": 170}
"""Real target tokens that one core trains in a second, by preset: measured for `tiny` and `small` (docs/benchmarks.md),
and for `base` from `small`, which has an eighth of its weights. A GPU is much faster: start one run and ask again."""


@dataclass(frozen=True)
class Pace:
    """Seconds that things take, and where these figures come from."""

    by_row: dict[str, float]  # of one update
    evaluation: float | None  # of scoring a run; None: no run has been scored yet

    def seconds(self, job: Job, status: Status) -> float:
        """Of what is still to be done on a job."""
        if status.state == "done" or status.state in REFUSED:
            return 0.0
        left = job.config.training.steps - status.step
        return left * self._update(job) + (self.evaluation or 0.0)

    def _update(self, job: Job) -> float:
        if job.row in self.by_row:
            return self.by_row[job.row]
        return fmean(self.by_row.values()) if self.by_row else rough_update(job)

    @property
    def source(self) -> str:
        """Where the estimate comes from, as a sentence for people."""
        if not self.by_row:
            speeds = ", ".join(f"{preset} {speed:,}" for preset, speed in SPEED.items())
            rough = f"from rough speeds of a CPU core (target tokens a second: {speeds})"
            return f"{rough}; teachers and scoring not counted"
        scoring = "scoring not counted" if self.evaluation is None else "scoring as in these runs"
        begun = "1 row that has" if len(self.by_row) == 1 else f"{len(self.by_row)} rows that have"
        return f"from the times of {begun} begun; {scoring}"


def rough_update(job: Job) -> float:
    """Seconds of one update where there is no record: tokens by the preset's speed, whatever the teacher costs."""
    training = job.config.training
    return training.tokens * training.accumulate / (SPEED[job.config.student.preset] * (training.threads or 1))


def measure_pace(jobs: Sequence[Job], statuses: Iterable[Status]) -> Pace:
    """The pace of every row that has records; runs with other settings, or damaged records, do not count."""
    found: dict[str, list[tuple[int, float]]] = {}
    scoring: list[float] = []
    for job, status in zip(jobs, statuses, strict=True):
        if status.state == "missing" or status.state in REFUSED:
            continue
        with suppress(ValueError, KeyError):  # damaged times: the estimate is from the others
            updates, seconds = _trained(job.folder)
            if updates:
                found.setdefault(job.row, []).append((updates, seconds))
            scoring += _scored(job.folder)
    by_row = {row: sum(seconds for _, seconds in parts) / sum(n for n, _ in parts) for row, parts in found.items()}
    return Pace(by_row, fmean(scoring) if scoring else None)


def _trained(run: Path) -> tuple[int, float]:
    """Updates and seconds, observations and validations included."""
    entries = list(read_record(run / "timings.jsonl"))
    return (entries[-1]["step"] if entries else 0), sum(entry["wall"] for entry in entries)


def _scored(run: Path) -> list[float]:
    """Seconds of each evaluation that came to its end."""
    entries = read_record(run / "phases.jsonl")
    return [entry["seconds"] for entry in entries if entry["phase"] == "evaluate" and entry["code"] == 0]


def together(seconds: Sequence[float], at_once: int) -> float:
    """Of several jobs, ``at_once`` of them side by side: never less than the longest one."""
    return max(sum(seconds) / at_once, *seconds, 0.0) if seconds else 0.0
