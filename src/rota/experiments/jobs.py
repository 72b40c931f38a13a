"""The runs of a suite: their folders, configs and order, how far each is by its files, how long the rest will take."""

from __future__ import annotations

import io
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any, Final, Literal

from ruamel.yaml import YAML

from rota.api import stem_of, warmup_steps
from rota.config import RunConfig, as_begun, check_durations, difference, overridden, parse_config, parse_recorded
from rota.experiments.checks import check_before_preparing, check_circles
from rota.experiments.scale import Values
from rota.experiments.suite import Suite, check_own
from rota.files import damaged, read_json, write_atomically, write_json
from rota.plan import PLAN, write_plan
from rota.runs import REMEDY, Run
from rota.runs.standing import Asked
from rota.runs.standing import is_scored as scored
from rota.settings import FREE, ConfigError, leaves
from rota.teachers import TeacherConfig
from rota.types import Arm

State = Literal["missing", "partial", "trained", "done", "another", "damaged"]
"""``trained``: to the end, but not scored. ``another``: the folder holds a run with other settings."""

REFUSED: Final = ("another", "damaged")
"""The states in which nothing is done to a run, since something of value might be lost."""

STEM: Final = "stem"
"""What the run is named that rows of a seed begin with."""

SPEED: Final = {"tiny": 4_000, "small": 1_300, "base": 170}
"""Real target tokens that one core trains in a second, by preset: measured for `tiny` and `small` (docs/benchmarks.md),
and for `base` from `small`, which has an eighth of its weights. A GPU is much faster: start one run and ask again."""


@dataclass(frozen=True)
class Job:
    """One run of a suite: a row with one seed, on one corpus; or the stem that rows of a seed begin with."""

    row: str
    seed: int
    folder: Path
    values: Values  # its config as it is written to config.yaml
    config: RunConfig
    needs: tuple[str, ...] = ()  # names of the runs of the suite that must be trained before: its stem, runs it reads
    corpus: str = ""  # in a suite with several
    until: int | None = None  # of a stem: the step at which it stops
    stem: Path | None = None  # the folder of the run that it begins with
    plan: Path | None = None  # the file of the plan under which it begins

    @property
    def name(self) -> str:
        return f"{self.title}/seed-{self.seed}"

    @property
    def title(self) -> str:
        """The row, and the corpus where there are several."""
        return f"{self.corpus}/{self.row}" if self.corpus else self.row

    @property
    def is_stem(self) -> bool:
        return self.until is not None

    @property
    def steps(self) -> int:
        return self.config.training.steps if self.until is None else self.until

    @property
    def begins(self) -> int:
        """The step at which it starts: where its stem ends, if it has one."""
        return 0 if self.stem is None else warmup_steps(self.config)

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


def plan(
    suite: Suite,
    out: Path,
    *,
    rows: Sequence[str],
    seeds: Sequence[int] | None = None,
    overrides: Sequence[str] = (),
    threads: int | None = None,
    corpora: Sequence[str] | None = None,
) -> list[Job]:
    """All runs, the first seed of every row before the second, so that what is finished early can be compared.

    ``seeds``, ``corpora``: by default those of the suite. Every config is checked here: a mistake in the last row is
    reported before the first one has run for hours.
    """
    for override in overrides:
        check_own(override.partition("=")[0].strip(), f"--set {override!r}")
    changes = _Changes(seeds, tuple(overrides), threads)
    if suite.corpora:
        chosen = [corpus for corpus in suite.corpora if corpora is None or corpus in corpora]
        parts = [_plan(suite.on(corpus), out / corpus, rows, changes, corpus) for corpus in chosen]
        jobs = sorted((job for part in parts for job in part), key=lambda job: job.seed)
    else:
        jobs = _plan(suite, out, rows, changes)
    check_circles(jobs)
    check_before_preparing(jobs)
    return jobs if suite.plan is None else [replace(job, plan=out / PLAN) for job in jobs]


@dataclass(frozen=True)
class _Changes:
    """What the command line changes in all runs of a suite."""

    seeds: Sequence[int] | None
    overrides: tuple[str, ...]
    threads: int | None


def _plan(suite: Suite, out: Path, rows: Sequence[str], changes: _Changes, corpus: str = "") -> list[Job]:
    """The runs on one corpus; stems stand before the first row that begins with them."""
    rows = [row for row in rows if row in suite.rows]
    wanted = {row: changes.seeds or suite.seeds_of(row) for row in rows}
    seeds = list(dict.fromkeys(seed for found in wanted.values() for seed in found))
    names = {
        (out / row / f"seed-{seed}").resolve(): f"{corpus}/{row}/seed-{seed}".lstrip("/")
        for seed in seeds
        for row in suite.rows
    }
    jobs: list[Job] = []
    for seed in seeds:
        found = [_job(suite, out, row, seed, names, changes, corpus) for row in rows if seed in wanted[row]]
        jobs += with_stem(suite, out, found) if suite.branch else found
    return jobs


def _job(
    suite: Suite, out: Path, row: str, seed: int, names: Mapping[Path, str], changes: _Changes, corpus: str
) -> Job:
    values = suite.values(row, seed, out)
    training = values.get("training") or {}
    if changes.threads is not None and isinstance(training, Mapping):  # anything else is refused in the next line
        values["training"] = {**training, "threads": changes.threads}
    config = parse_config(values, origin=f"row {row!r} of suite {suite.name!r}", overrides=changes.overrides)
    check_durations(config)
    values = overridden(values, changes.overrides)
    needs = [names[path.resolve()] for path in config.teacher.reads() if path.resolve() in names]
    return Job(row, seed, out / row / f"seed-{seed}", values, config, tuple(needs), corpus)


def with_stem(suite: Suite, out: Path, jobs: Sequence[Job]) -> list[Job]:
    """The runs of one seed, after the stem that they begin with; all must have the same one, or train it themselves."""
    if "stems" in suite.rows or STEM in suite.rows:
        raise ConfigError(f"suite {suite.name!r} branches and has a row {STEM!r} or 'stems'; give it another name")
    stems = {job.row: stem_of(job.config) for job in jobs if suite.rows[job.row].branch}
    first = next(iter(stems), None)
    for row, stem in stems.items():
        if stem is None:
            raise ConfigError(f"row {row!r}: {_why_no_stem(suite, row, jobs)}, or branch: false in the row")
        expected = stems[first] if first is not None else None
        change = None if expected is None else _difference(expected, stem)
        if change is not None:
            raise ConfigError(
                f"rows {first!r} and {row!r} cannot begin from the same checkpoint: {change}; make them agree, "
                f"or write branch: false in one of them"
            )
    branching = [job for job in jobs if job.row in stems]
    if not branching:
        return list(jobs)
    stem_job = _stem_job(branching[0], out)
    return [
        stem_job,
        *(
            replace(job, needs=(stem_job.name, *job.needs), stem=stem_job.folder) if job.row in stems else job
            for job in jobs
        ),
    ]


def _stem_job(job: Job, out: Path) -> Job:
    values = job.values | {"name": STEM, "teacher": job.config.teacher.stem(job.config.training.steps)}
    folder = (
        out / "stems" / "warmup" / f"seed-{job.seed}"
    )  # a level deeper than runs, so that no report takes it for one
    config = parse_config(values, origin=f"the stem of row {job.row!r}")
    return Job(STEM, job.seed, folder, values, config, corpus=job.corpus, until=warmup_steps(job.config))


def _why_no_stem(suite: Suite, row: str, jobs: Sequence[Job]) -> str:
    teacher = next(job.config.teacher for job in jobs if job.row == row)
    if teacher.warmup is None:
        return f"suite {suite.name!r} branches where the warm-up ends, and this row has none; write teacher.warmup"
    return "its teacher decides or is told something before its warm-up ends; write warmup: {..., inform: none}"


def _difference(one: RunConfig, other: RunConfig) -> str | None:
    """The first setting by which two stems are not the same, data included."""
    ours, theirs = leaves(one.dump()), leaves(other.dump())
    for key in sorted({*ours, *theirs} - FREE):
        if ours.get(key) != theirs.get(key) and not key.startswith("evaluation."):
            return f"{key} is {ours.get(key)!r} and {theirs.get(key)!r}"
    return None


def without_idle_stems(jobs: Sequence[Job]) -> list[Job]:
    """Without stems that every run which is here has begun with already: they may have been deleted since."""
    waiting = {name for job in jobs if job.stem is not None and not job.run.saved_step() for name in job.needs}
    idle = {job.name for job in jobs if job.is_stem and job.name not in waiting}
    kept = [job for job in jobs if job.name not in idle]
    return [replace(job, needs=tuple(name for name in job.needs if name not in idle)) for job in kept]


def describe(suite: Suite, out: Path, jobs: Sequence[Job]) -> dict[str, Any]:
    """What ``suite.json`` says; rows and seeds of earlier calls stay in it."""
    before, jobs = _described(out), [job for job in jobs if not job.is_stem]
    known = {row["name"]: row for row in before.get("rows", [])}
    known |= {job.row: _row(suite, job) for job in reversed(jobs)}
    order = [*suite.rows, *(name for name in known if name not in suite.rows)]
    seeds = sorted({*before.get("seeds", []), *(job.seed for job in jobs)})
    return {"name": suite.name, "seeds": seeds, "rows": [known[name] for name in order if name in known]}


def write_description(suite: Suite, out: Path, jobs: Sequence[Job]) -> None:
    """``suite.json``, in the folder of each corpus if there are several; and the plan, before any run begins."""
    if suite.resolved_plan is not None:
        write_plan(suite.resolved_plan, out)
    if not suite.corpora:
        write_json(out / "suite.json", describe(suite, out, jobs), checked=True)
        return
    write_json(out / "suite.json", {"name": suite.name, "corpora": list(suite.corpora)}, checked=True)
    for corpus in dict.fromkeys(job.corpus for job in jobs):
        ours = [job for job in jobs if job.corpus == corpus]
        write_json(out / corpus / "suite.json", describe(suite.on(corpus), out / corpus, ours), checked=True)


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
        "seeds": row.seeds and list(row.seeds),  # its own, so that a report knows when a plan is done
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
    trained = step >= run.end_of(job.steps) and run.written.has_checkpoint(step)  # else rota train tidies up
    done = trained and (job.is_stem or is_scored(job, run.sizes))
    if run.is_published and not done:
        return Status("another", why="it holds published records of a run that was not finished, without its models")
    return Status("done" if done else "trained" if trained else "partial", step, run.last_dev_loss())


def is_scored(job: Job, languages: Collection[Arm]) -> bool:
    """Whether the test sets of these languages have been scored in the way that the config asks for."""
    training, asked = job.config.training, Asked.of(job.config.evaluation.model_dump())
    every = training.checkpoint_every
    return scored(job.run, asked, languages=languages, steps=job.run.end_of(training.steps), checkpoint_every=every)


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
                row = Path(name).parent.name
                raise ValueError(f"row {job.row!r} reads {out / name}, which is not trained; add {row!r} to --rows")


@dataclass(frozen=True)
class Pace:
    """Seconds that updates and evaluations take, and where these figures come from."""

    by_row: dict[str, float]  # of one update, by the title of the job
    evaluation: float | None  # of scoring a run; None: no run has been scored yet

    def seconds(self, job: Job, status: Status) -> float:
        """For what is still to be done on a job."""
        if status.state == "done" or status.state in REFUSED:
            return 0.0
        # A run that stopped early is trained too.
        left = 0 if status.state == "trained" else job.steps - max(status.step, job.begins)
        return left * self._update(job) + (0.0 if job.is_stem else self.evaluation or 0.0)

    def _update(self, job: Job) -> float:
        if job.title in self.by_row:
            return self.by_row[job.title]
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
                found.setdefault(job.title, []).append((updates, seconds))
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
