"""Run folders as a study: its rows (schedules), the runs of each row by seed, and the records of each run."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np

from rota.report.folders import Progress, check_described, is_suite, run_folders, suite_of
from rota.report.history import History, read_history
from rota.runs import Entry, Run
from rota.runs.standing import Scores, standing_scores
from rota.settings import FREE, leaves, with_earlier
from rota.types import Arm


class StudyRun(Run):
    """A run with its place in a study: of which row it is. Its records are read once."""

    def __init__(self, folder: Path, row: str) -> None:
        super().__init__(folder)
        self.row = row

    @cached_property
    def validations(self) -> list[Entry]:
        return list(self.read("validations"))

    @cached_property
    def timings(self) -> list[Entry]:
        return list(self.read("timings"))

    @cached_property
    def evals(self) -> list[Entry]:
        return list(self.read("evals"))

    @cached_property
    def observations(self) -> list[Entry]:
        return list(self.read("observations"))

    @cached_property
    def rewards(self) -> list[Entry]:
        """Empty also for a run of version 0.1, which did not record them."""
        return list(self.read("rewards"))

    @cached_property
    def spot_checks(self) -> list[Entry]:
        """What sampled sentences showed; empty also for a run that did not look."""
        return list(self.read("spot_checks"))

    @property
    def epochs(self) -> Mapping[Arm, float]:
        """How often the text of each arm was gone through; empty if neither a validation nor a spot check says it.

        Runs of earlier versions have it in their spot checks alone, of which the last may come before the end.
        """
        recorded = (entries[-1].get("epochs") for entries in (self.validations, self.spot_checks) if entries)
        return next((epochs for epochs in recorded if epochs), {})

    @cached_property
    def alarms(self) -> list[Entry]:
        """What training noticed; empty also for a run of a version that noticed nothing."""
        return list(self.read("alarms"))

    @cached_property
    def scores(self) -> Scores | None:
        """The test scores of the model that stands for the run; None if nothing was scored."""
        return standing_scores(self)

    @cached_property
    def history(self) -> History:
        return read_history(self.read("steps"), list(self.arms), self.steps)

    @property
    def teacher(self) -> dict[str, Any]:
        teacher: dict[str, Any] = self.setting("config.teacher")
        return teacher

    @property
    def version(self) -> str:
        """Of Rota, when the run began."""
        return str(self.setting("versions").get("rota-nmt", ""))

    @property
    def has_q_network(self) -> bool:
        """Whether the teacher's scores are values of a Q network, which ``rota policy`` can probe.

        Version 0.1 did not write it down; its one teacher of that kind was DQN.
        """
        return bool(self.about.get("teacher", {}).get("q_network", self.teacher["name"] == "dqn"))

    @property
    def finished(self) -> bool:
        """Whether the run was trained to its end, or stopped early; tables leave out those that were not."""
        return self.history.updates >= self.end


@dataclass(frozen=True, eq=False)
class Row:
    """One schedule of a study with its runs, one for each seed."""

    name: str
    label: str
    warmup: str
    table: str = "main"
    paper: str | None = None
    runs: dict[int, StudyRun] = field(default_factory=dict)
    seeds: tuple[int, ...] | None = None  # its own, that the suite gives it; None: as other rows

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
    def finished(self) -> dict[int, StudyRun]:
        return {seed: run for seed, run in self.runs.items() if run.finished}

    @property
    def teacher(self) -> str:
        return "" if not self.runs else str(self.first.teacher["name"])

    @property
    def first(self) -> StudyRun:
        return next(iter(self.runs.values()))

    @property
    def replays(self) -> str:
        """The row of the suite whose runs the teacher repeats (``runs/dqn/seed-1``); empty if it repeats none."""
        return Path(self.first.teacher.get("run") or "").parent.name

    @property
    def learned(self) -> bool:
        """Whether the choices came with scores of the languages, in at least one run."""
        scores = [found for run in self.runs.values() for found in run.history.scores.values()]
        return any(not np.isnan(found).all() for found in scores)


@dataclass(frozen=True, eq=False)
class Study:
    """All rows of a report, on the same data."""

    rows: dict[str, Row]
    seeds: list[int]  # which a suite asked for; empty for runs without a suite

    @property
    def runs(self) -> list[StudyRun]:
        return [run for row in self.rows.values() for run in row.runs.values()]

    @property
    def any_run(self) -> StudyRun:
        return self.runs[0]

    @property
    def with_runs(self) -> list[Row]:
        return [row for row in self.rows.values() if row.runs]

    def of_tables(self, *tables: str) -> list[Row]:
        return [row for row in self.with_runs if row.table in tables]

    @property
    def main(self) -> list[Row]:
        """The schedules that are compared with the baseline."""
        return self.of_tables(*MAIN_TABLES)

    @property
    def ablations(self) -> dict[str, list[Row]]:
        """By teacher: the rows that change one of its settings. Their table has the name of the teacher."""
        changed = [row for row in self.with_runs if row.table not in MAIN_TABLES]
        return {table: self.of_tables(table) for table in dict.fromkeys(row.table for row in changed)}

    def baseline(self, name: str | None) -> Row:
        """The row that others are compared with: as named, else uniform with warm-up, else the first one."""
        known = {row.name: row for row in self.with_runs}
        if name is not None:
            if name not in known:
                raise ValueError(f"--baseline is {name!r}; the rows with runs are {', '.join(known)}")
            return known[name]
        warmed = [row for row in known.values() if row.teacher == "uniform" and row.warmup not in ("", "no")]
        return (warmed or list(known.values()))[0]

    def default_of(self, teacher: str) -> Row | None:
        """The row of which an ablation of this teacher changes one setting; never a control, which changes one too."""
        rows = [row for row in self.of_tables("main", "other") if row.teacher == teacher]
        named = [row for row in rows if row.name == teacher]
        return next(iter(named or rows), None)

    def control_of(self, row: Row) -> Row | None:
        """The row that a control varies: the one whose runs it replays, else the default of its own teacher."""
        replayed = self.rows.get(row.replays)
        return replayed if replayed is not None and replayed.runs else self.default_of(row.teacher)


MAIN_TABLES = ("main", "control", "other")


def short_labels(study: Study) -> dict[str, str]:
    """Names of rows for small places: the label, and the warm-up where two rows have the same label."""
    labels = Counter(row.label for row in study.rows.values())
    return {name: row.label if labels[row.label] == 1 else row.short for name, row in study.rows.items()}


def own_seeds(studies: Iterable[Study]) -> dict[str, tuple[int, ...]]:
    """Of the rows to which their suite gives seeds of their own; suites of earlier versions do not say it."""
    found: dict[str, tuple[int, ...]] = {}
    for study in studies:
        for name, row in study.rows.items():
            if row.seeds is not None:
                found[name] = found.get(name, ()) + row.seeds  # of all corpora, if they do not agree
    return found


def read_study(paths: Sequence[Path], progress: Progress = lambda *_: None) -> Study:
    """The study in some folders: suites, folders of runs, or runs."""
    rows: dict[str, Row] = {}
    seeds: list[int] = []
    names = _RowNames()
    for path in paths:
        suite = suite_of(path)
        described = {about["name"]: about for about in suite.get("rows", [])}
        if is_suite(path):  # in its order, and with the rows that are not there yet
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

    def read(self, folder: Path) -> StudyRun:
        run = Run(folder)
        check_described(run)
        name, above = folder.resolve().name, folder.resolve().parent.name
        return StudyRun(folder, above if name == f"seed-{run.seed}" else self._row(run.about, name, run.seed))

    def _row(self, about: dict[str, Any], name: str, seed: int) -> str:
        settings = written(about)
        if settings not in self._by_settings:
            plain = re.sub(rf"[-_.](seed[-_.]?)?{seed}$", "", name)
            self._by_settings[settings] = name if plain in self._by_settings.values() else plain
        return self._by_settings[settings]


def _new_row(name: str, about: dict[str, Any]) -> Row:
    label, warmup, paper = about.get("label") or name, about.get("warmup") or "", about.get("paper")
    table, seeds = str(about.get("table") or "main"), about.get("seeds")
    own = None if seeds is None else tuple(seeds)
    return Row(name, str(label), str(warmup), table, None if paper is None else str(paper), seeds=own)


def _add(rows: dict[str, Row], run: StudyRun, about: dict[str, Any]) -> None:
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


def _same_settings(one: StudyRun, other: StudyRun) -> None:
    """Runs of one row differ in their seed alone: a mean over runs of 1,000 and of 3,000 updates would mean nothing."""
    found = first_difference(one.about, other.about)
    if found is not None:
        key, ours, theirs = found
        raise ValueError(
            f"{one.folder} and {other.folder} are both of the row {one.row!r}, but {key} is {ours!r} in the first and "
            f"{theirs!r} in the second; make a report for each"
        )


def _same_data(runs: list[StudyRun]) -> None:
    first = runs[0]
    for run in runs:
        if run.about["data"]["fingerprint"] != first.about["data"]["fingerprint"]:
            raise ValueError(f"{run.folder} was trained on other data than {first.folder}; make a report for each")


SECTIONS = ("training", "student", "teacher")
"""The sections of a config in which seeds of one row must agree. How a run was evaluated does not matter here, and the
data are compared by their fingerprint."""

BUDGET = {
    "training.steps": "updates",
    "training.tokens": "target tokens in a batch",
    "training.accumulate": "batches in an update",
    "student.preset": "preset",
}
"""Settings that must agree before a difference between two rows is one between schedules."""


def settings(about: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a run as its ``run.json`` has them, without its seed and where it was trained."""
    config = with_earlier(about["config"])
    parts = leaves({name: config[name] for name in SECTIONS})
    return {key: _without_seed(value, about["seed"]) for key, value in parts.items() if not _may_differ(key)}


def _may_differ(key: str) -> bool:
    """Also the run that is replayed by a teacher within another one: each seed replays its own."""
    return key in FREE or (key.startswith("teacher.") and key.endswith(".run"))


def _without_seed(value: Any, seed: int) -> Any:
    """A suite fills the seed into texts, such as ``runs/dqn/seed-2``."""
    return re.sub(rf"(seed[-_.]?){seed}\b", r"\1{seed}", value) if isinstance(value, str) else value


def written(about: Mapping[str, Any]) -> str:
    """Equal for two runs that differ in their seed alone; without settings that are null, which some versions lack."""
    told = {key: value for key, value in settings(about).items() if value is not None}
    return json.dumps([told, about["data"]["fingerprint"]], sort_keys=True)


def first_difference(one: Mapping[str, Any], other: Mapping[str, Any]) -> tuple[str, Any, Any] | None:
    """The first setting, with both values, by which two runs cannot be seeds of one row; None if there is none."""
    ours, theirs = settings(one), settings(other)
    for key in dict.fromkeys((*ours, *theirs)):
        if ours.get(key) != theirs.get(key) and _asked(key, ours) and _asked(key, theirs):
            return key, ours.get(key), theirs.get(key)
    return None


def _asked(key: str, found: Mapping[str, Any]) -> bool:
    """Whether a run has a setting, or one that switches it off (``teacher.warmup``); an older version may have none."""
    return any(above in found for above in accumulate(key.split("."), "{}.{}".format))
