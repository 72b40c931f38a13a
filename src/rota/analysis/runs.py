"""Run folders as a study: which rows (schedules) with which seeds, and what each run wrote down."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from rota.analysis.alike import first_difference, written
from rota.analysis.folders import about_run, read_json, record_path, run_folders, suite_of
from rota.analysis.history import History, read_history
from rota.analysis.printed import PaperRow, has_row, paper_row
from rota.runs.records import Entry, read_record
from rota.types import Arm

Progress = Callable[[str, int, int | None], None]
"""Hears (stage, done, in all)."""


def entries(folder: Path, name: str) -> list[Entry]:
    return list(read_record(record_path(folder, name)))


@dataclass(frozen=True, eq=False)
class RunRecords:
    """What one run wrote down; nothing of its model."""

    folder: Path
    row: str
    seed: int
    about: dict[str, Any]

    @cached_property
    def validations(self) -> list[Entry]:
        return entries(self.folder, "validations.jsonl")

    @cached_property
    def timings(self) -> list[Entry]:
        return entries(self.folder, "timings.jsonl")

    @cached_property
    def evals(self) -> list[Entry]:
        return entries(self.folder, "evals.jsonl")

    @cached_property
    def observations(self) -> list[Entry]:
        return entries(self.folder, "observations.jsonl")

    @cached_property
    def selection(self) -> dict[str, Any] | None:
        path = self.folder / "selection.json"
        return read_json(path) if path.exists() else None

    @cached_property
    def probes(self) -> list[dict[str, Any]]:
        """Probes of the Q network by ``rota policy``, in the order of their steps."""
        found = [read_json(path) for path in sorted((self.folder / "policy").glob("*.json"))]
        return sorted((probe for probe in found if probe["step"] is not None), key=lambda probe: int(probe["step"]))

    @cached_property
    def history(self) -> History:
        return read_history(record_path(self.folder, "steps.jsonl"), list(self.sizes), self.steps)

    @property
    def sizes(self) -> dict[Arm, int]:
        sizes: dict[Arm, int] = self.about["data"]["sizes"]
        return sizes

    @property
    def low_resource(self) -> list[Arm]:
        return [arm for arm in self.sizes if arm in self.about["data"]["low_resource"]]

    @property
    def high_resource(self) -> list[Arm]:
        return [arm for arm in self.sizes if arm not in self.about["data"]["low_resource"]]

    @property
    def teacher(self) -> dict[str, Any]:
        teacher: dict[str, Any] = self.about["config"]["teacher"]
        return teacher

    @property
    def steps(self) -> int:
        return int(self.about["config"]["training"]["steps"])

    @property
    def finished(self) -> bool:
        """Trained to its end; a run that is not counts in no table."""
        return self.history.updates >= self.steps


@dataclass(frozen=True, eq=False)
class Row:
    """One schedule of a study with its runs, one for each seed."""

    name: str
    label: str
    warmup: str
    table: str = "main"
    paper: str | None = None
    runs: dict[int, RunRecords] = field(default_factory=dict)

    @property
    def title(self) -> str:
        """Label and warm-up together, as they stand in a sentence."""
        if not self.warmup:
            return self.label
        return f"{self.label} ({'no warm-up' if self.warmup == 'no' else f'warm-up {self.warmup}'})"

    @property
    def short(self) -> str:
        """The same beside a curve, where there is little room."""
        return self.label if self.warmup in ("", "no") else f"{self.label} ({self.warmup})"

    @property
    def finished(self) -> dict[int, RunRecords]:
        return {seed: run for seed, run in self.runs.items() if run.finished}

    @property
    def printed(self) -> PaperRow | None:
        """The paper's numbers; None also where the suite names a row that the paper does not have."""
        return paper_row(self.paper) if self.paper is not None and has_row(self.paper) else None

    @property
    def teacher(self) -> str:
        return "" if not self.runs else str(next(iter(self.runs.values())).teacher["name"])


@dataclass(frozen=True, eq=False)
class Study:
    """All rows of a report, on the same data."""

    rows: dict[str, Row]
    seeds: list[int]  # which a suite asked for; empty for runs without a suite

    @property
    def runs(self) -> list[RunRecords]:
        return [run for row in self.rows.values() for run in row.runs.values()]

    @property
    def any_run(self) -> RunRecords:
        return self.runs[0]

    def of_tables(self, *tables: str) -> list[Row]:
        return [row for row in self.rows.values() if row.table in tables and row.runs]


MAIN_TABLES = ("main", "control", "other")
ABLATED = ("tscl", "dqn")
"""Teachers with a table of rows that change one of their settings; the table has the name of the teacher."""


def read_study(paths: Sequence[Path], progress: Progress = lambda *_: None) -> Study:
    """The study in some folders: suites, folders of runs, or runs."""
    rows: dict[str, Row] = {}
    seeds: list[int] = []
    names = _RowNames()
    for path in paths:
        suite = suite_of(path)
        described = {about["name"]: about for about in suite.get("rows", [])}
        if (path / "suite.json").exists():  # in its order, and with the rows that are not there yet
            seeds += [seed for seed in suite.get("seeds", []) if seed not in seeds]
            for name, about in described.items():
                rows.setdefault(name, _new_row(name, about))
        for run in map(names.read, run_folders(path)):
            _add(rows, run, described.get(run.row, {}))
    study = Study(rows, sorted(seeds))
    if not study.runs:
        raise ValueError(f"no runs in {', '.join(map(str, paths))}; give run folders or the folder of a suite")
    _same_data(study.runs)
    for done, run in enumerate(study.runs, start=1):
        _ = run.history  # read now, under the progress bar
        progress("reading runs", done, len(study.runs))
    return study


class _RowNames:
    """Names of the rows of runs. Runs outside a suite that differ in nothing but the seed are one row."""

    def __init__(self) -> None:
        self._by_settings: dict[str, str] = {}

    def read(self, folder: Path) -> RunRecords:
        about = about_run(folder)
        seed, name = int(about["seed"]), folder.resolve().name
        row = folder.resolve().parent.name if name == f"seed-{seed}" else self._row(about, name, seed)
        return RunRecords(folder, row, seed, about)

    def _row(self, about: dict[str, Any], name: str, seed: int) -> str:
        settings = written(about)
        if settings not in self._by_settings:
            plain = re.sub(rf"[-_.](seed[-_.]?)?{seed}$", "", name)
            self._by_settings[settings] = name if plain in self._by_settings.values() else plain
        return self._by_settings[settings]


def _new_row(name: str, about: dict[str, Any]) -> Row:
    label, warmup, paper = about.get("label") or name, about.get("warmup") or "", about.get("paper")
    return Row(name, str(label), str(warmup), str(about.get("table") or "main"), None if paper is None else str(paper))


def _add(rows: dict[str, Row], run: RunRecords, about: dict[str, Any]) -> None:
    if run.row not in rows:
        warmup = run.teacher.get("warmup")
        rows[run.row] = _new_row(run.row, {"warmup": warmup and str(warmup["until"]), **about})
    runs = rows[run.row].runs
    if runs:
        _same_settings(next(iter(runs.values())), run)
    if run.seed in runs and runs[run.seed].folder.resolve() != run.folder.resolve():
        both = f"{runs[run.seed].folder} and {run.folder}"
        raise ValueError(f"{both} are both {run.row!r} with seed {run.seed}; rename one folder, or leave it out")
    runs[run.seed] = run


def _same_settings(one: RunRecords, other: RunRecords) -> None:
    """Seeds of one row differ in nothing else: a mean over 1,000 and 3,000 updates is a mean of nothing."""
    found = first_difference(one.about, other.about)
    if found is not None:
        key, ours, theirs = found
        raise ValueError(
            f"{one.folder} and {other.folder} are both of the row {one.row!r}, but {key} is {ours!r} in the first and "
            f"{theirs!r} in the second; make a report for each"
        )


def _same_data(runs: list[RunRecords]) -> None:
    first = runs[0]
    for run in runs:
        if run.about["data"]["fingerprint"] != first.about["data"]["fingerprint"]:
            raise ValueError(f"{run.folder} was trained on other data than {first.folder}; make a report for each")
