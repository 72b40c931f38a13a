"""The runs of a suite: their folders, configs and order, how far each is by its files, how long the rest will take."""

from __future__ import annotations

import io
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from statistics import fmean
from typing import Any, Final, Literal

from ruamel.yaml import YAML

from rota.api import difference
from rota.config import RunConfig, as_begun, overridden, parse_config, parse_recorded
from rota.experiments.scale import Values
from rota.experiments.suite import Suite, check_own
from rota.files import damaged, read_json, write_atomically, write_json
from rota.mistakes import check_durations
from rota.runs import REMEDY, Run
from rota.runs.standing import Asked
from rota.runs.standing import is_scored as scored
from rota.settings import ConfigError
from rota.teachers import TeacherConfig
from rota.types import Arm

State = Literal["missing", "partial", "trained", "done", "another", "damaged"]
"""``trained``: to the end, but not scored. ``another``: the folder holds a run with other settings."""

REFUSED: Final = ("another", "damaged")
"""The states in which nothing is done to a run, since something of value might be lost."""

SPEED: Final = {"tiny": 4_000, "small": 1_300, "base": 170}
"""Real target tokens that one core trains in a second, by preset: measured for `tiny` and `small` (docs/benchmarks.md),
and for `base` from `small`, which has an eighth of its weights. A GPU is much faster: start one run and ask again."""


@dataclass(frozen=True)
class Job:
    """One run of a suite: a row with one seed."""

    row: str
    seed: int
    folder: Path
    values: Values  # its config as it is written to config.yaml
    config: RunConfig
    needs: tuple[str, ...] = ()  # names of the runs of the suite whose records its teacher reads

    @property
    def name(self) -> str:
        return name_of(self.row, self.seed)

    @property
    def run(self) -> Run:
        """The folder as it is now."""
        return Run(self.folder)

    def write_config(self) -> Path:
        """The config as YAML in the run folder, so that the run can be repeated without its suite."""
        text, yaml = io.StringIO(), YAML(typ="safe", pure=True)
        yaml.width = 120
        yaml.dump(self.values, text)
        write_atomically(self.run.config_path, text.getvalue())
        return self.run.config_path


def name_of(row: str, seed: int) -> str:
    return f"{row}/seed-{seed}"


def plan(
    suite: Suite,
    out: Path,
    *,
    rows: Sequence[str],
    seeds: Sequence[int],
    overrides: Sequence[str] = (),
    threads: int | None = None,
) -> list[Job]:
    """All runs, the first seed of every row before the second, so that what is finished early can be compared.

    Every config is checked here: a mistake in the last row is reported before the first one has run for hours.
    """
    for override in overrides:
        check_own(override.partition("=")[0].strip(), f"--set {override!r}")
    names = {(out / name_of(row, seed)).resolve(): name_of(row, seed) for seed in seeds for row in suite.rows}
    jobs = []
    for seed in seeds:
        for row in rows:
            values = suite.values(row, seed, out)
            if threads is not None:
                values["training"] = {**(values.get("training") or {}), "threads": threads}
            config = parse_config(values, origin=f"row {row!r} of suite {suite.name!r}", overrides=overrides)
            check_durations(config)
            values = overridden(values, overrides)
            needs = [names[path.resolve()] for path in config.teacher.reads() if path.resolve() in names]
            jobs.append(Job(row, seed, out / name_of(row, seed), values, config, tuple(needs)))
    _check_circles(jobs)
    return jobs


def _check_circles(jobs: Sequence[Job]) -> None:
    """Runs that wait for each other would wait for ever."""
    needs = {job.name: job.needs for job in jobs}
    try:
        TopologicalSorter(needs).prepare()
    except CycleError as error:
        name = min(error.args[1])
        raise ConfigError(f"{name} reads {', '.join(needs[name])}, which waits for it; change teacher.run") from None


def describe(suite: Suite, out: Path, jobs: Sequence[Job]) -> dict[str, Any]:
    """What ``suite.json`` says; rows and seeds of earlier calls stay in it."""
    before = _described(out)
    known = {row["name"]: row for row in before.get("rows", [])}
    known |= {job.row: _row(suite, job) for job in reversed(jobs)}
    order = [*suite.rows, *(name for name in known if name not in suite.rows)]
    seeds = sorted({*before.get("seeds", []), *(job.seed for job in jobs)})
    return {"name": suite.name, "seeds": seeds, "rows": [known[name] for name in order if name in known]}


def write_description(suite: Suite, out: Path, jobs: Sequence[Job]) -> None:
    write_json(out / "suite.json", describe(suite, out, jobs))


def _described(out: Path) -> dict[str, Any]:
    path = out / "suite.json"
    return read_json(path, remedy="delete it, it will be written again") if path.is_file() else {}


def _row(suite: Suite, job: Job) -> dict[str, Any]:
    row = suite.rows[job.row]
    return {
        "name": job.row,
        "label": row.label or job.row,
        "warmup": row.warmup or _warmup(job.config.teacher),
        "table": row.table,
        "paper": row.paper,
        "place": row.place,
    }


def _warmup(teacher: TeacherConfig) -> str:
    """The warm-up as the paper's tables name it: ``no``, ``16k``, ``16k, all languages``."""
    if teacher.warmup is None:
        return "no"
    until, languages = teacher.warmup.until, teacher.warmup.languages
    written = str(until)
    if not until.is_share and until.amount and until.amount % 1000 == 0:
        written = f"{int(until.amount) // 1000}k"
    if languages == "high-resource":
        return written
    named = f"{languages} languages" if isinstance(languages, str) else " ".join(languages)
    return f"{written}, {named}"


@dataclass(frozen=True, slots=True)
class Status:
    """How far a run is."""

    state: State
    step: int = 0  # of the newest checkpoint, from which it would resume
    dev_loss: float | None = None  # mean over languages at the last validation, nats per token
    why: str = ""  # why it is refused


def look(job: Job) -> Status:
    """The state of a job that no process is working on."""
    if not job.run.exists:
        return Status("missing")
    try:
        return _look(job)
    except KeyError as error:
        return Status("damaged", why=str(damaged(job.folder, f"an entry has no {error}", REMEDY)))
    except ValueError as error:
        return Status("damaged", why=str(error))


def _look(job: Job) -> Status:
    run = job.run
    change = _change(run, job.config)
    if change is not None:
        return Status("another", why=change)
    step = run.saved_step()
    if step < job.config.training.steps:
        return Status("partial", step, run.last_dev_loss())
    return Status("done" if is_scored(job, run.sizes) else "trained", step, run.last_dev_loss())


def is_scored(job: Job, languages: Collection[Arm]) -> bool:
    """Whether the test sets of these languages have been scored in the way that the config asks for."""
    training, asked = job.config.training, Asked.of(job.config.evaluation.model_dump())
    every = training.checkpoint_every
    return scored(job.run, asked, languages=languages, steps=training.steps, checkpoint_every=every)


def _change(run: Run, config: RunConfig) -> str | None:
    """What differs from the config of the run; settings that did not exist yet are as it did then."""
    try:
        before = parse_recorded(run.about["config"], origin=str(run.about_path)).dump()
    except ConfigError as error:
        return str(error)
    now = as_begun(config, run.about["config"]).dump()
    data = {key for key in now["data"] if key != "folder" and before["data"].get(key) != now["data"][key]}
    for key in sorted(data):
        return f"data.{key} was {before['data'].get(key)!r} and is {now['data'][key]!r}"
    return difference(before, now)


def check_sources(jobs: Sequence[Job], out: Path) -> None:
    """A run that a teacher reads must be one of the jobs, or trained already."""
    names = {job.name for job in jobs}
    for job in jobs:
        for name in job.needs:
            if name not in names and not Run(out / name).is_trained:
                row = name.partition("/")[0]
                raise ValueError(f"row {job.row!r} reads {out / name}, which is not trained; add {row!r} to --rows")


@dataclass(frozen=True)
class Pace:
    """Seconds that updates and evaluations take, and where these figures come from."""

    by_row: dict[str, float]  # of one update
    evaluation: float | None  # of scoring a run; None: no run has been scored yet

    def seconds(self, job: Job, status: Status) -> float:
        """For what is still to be done on a job."""
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
            updates, seconds = _trained(job.run)
            if updates:
                found.setdefault(job.row, []).append((updates, seconds))
            scoring += _scored(job.run)
    by_row = {row: sum(seconds for _, seconds in parts) / sum(n for n, _ in parts) for row, parts in found.items()}
    return Pace(by_row, fmean(scoring) if scoring else None)


def _trained(run: Run) -> tuple[int, float]:
    """Updates and seconds, observations and validations included."""
    entries = list(run.read("timings"))
    return (entries[-1]["step"] if entries else 0), sum(entry["wall"] for entry in entries)


def _scored(run: Run) -> list[float]:
    """Seconds of each evaluation that finished."""
    return [entry["seconds"] for entry in run.read("phases") if entry["phase"] == "evaluate" and entry["code"] == 0]


def together(seconds: Sequence[float], at_once: int) -> float:
    """Seconds of several jobs, ``at_once`` of them in parallel: never less than the longest one."""
    return max(sum(seconds) / at_once, *seconds, 0.0) if seconds else 0.0
