"""How far a run is, from the files in its folder."""

from __future__ import annotations

import fcntl
import json
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

from rota.api import difference
from rota.config import parse_config
from rota.evaluation.translator import read_run
from rota.experiments.jobs import Job
from rota.files import damaged, read_json
from rota.runs.checkpoints import Checkpoints
from rota.runs.records import REMEDY, read_record
from rota.settings import ConfigError

State = Literal["missing", "partial", "trained", "done", "another", "damaged"]
"""``trained``: to the end, but not scored. ``another``: the folder holds a run with other settings."""

REFUSED: Final = ("another", "damaged")
"""The states in which nothing is done to a run, since something of value might be lost."""


@dataclass(frozen=True, slots=True)
class Status:
    """How far a run is."""

    state: State
    step: int = 0  # of the newest checkpoint, from which it would go on
    dev_loss: float | None = None  # mean over languages at the last validation, nats per token
    why: str = ""  # for what reason it is refused


def look(job: Job) -> Status:
    """The state of a job that nobody is working on."""
    if not (job.folder / "run.json").is_file():
        return Status("missing")
    try:
        return _look(job)
    except KeyError as error:
        return Status("damaged", why=str(damaged(job.folder, f"an entry has no {error}", REMEDY)))
    except ValueError as error:
        return Status("damaged", why=str(error))


def _look(job: Job) -> Status:
    about = read_run(job.folder)
    change = _change(about["config"], job)
    if change is not None:
        return Status("another", why=change)
    saved = Checkpoints(job.folder / "checkpoints").list()
    step = max((found.step for found in saved), default=0)
    if step < job.config.training.steps:
        return Status("partial", step, last_dev_loss(job.folder))
    scored = is_scored(job, set(about["data"]["sizes"]))
    return Status("done" if scored else "trained", step, last_dev_loss(job.folder))


def check_sources(jobs: Sequence[Job], out: Path) -> None:
    """A run that a teacher reads must be one of the jobs, or trained already."""
    names = {job.name for job in jobs}
    for job in jobs:
        for name in job.needs:
            if name not in names and not _is_trained(out / name):
                row = name.partition("/")[0]
                raise ValueError(f"row {job.row!r} reads {out / name}, which is not trained; add {row!r} to --rows")


def _is_trained(run: Path) -> bool:
    if not (run / "run.json").is_file():
        return False
    steps: int = read_run(run)["config"]["training"]["steps"]
    return any(found.step >= steps for found in Checkpoints(run / "checkpoints").list())


def _change(written: dict[str, Any], job: Job) -> str | None:
    """What differs from the config of the job; settings that did not exist yet had their default."""
    try:
        before = parse_config(written, origin=str(job.folder / "run.json")).dump()
    except ConfigError as error:
        return str(error)
    now = job.config.dump()
    data = {key for key in now["data"] if key != "folder" and before["data"].get(key) != now["data"][key]}
    for key in sorted(data):
        return f"data.{key} was {before['data'].get(key)!r} and is {now['data'][key]!r}"
    return difference(before, now)


def is_scored(job: Job, languages: set[str]) -> bool:
    """Whether every test set has been scored in the way that the config asks for."""
    selects = job.config.evaluation.select is not None
    chosen = _selected(job) if selects else None
    if selects and chosen is None:
        return False
    entries = read_record(job.folder / "evals.jsonl")
    return languages <= {entry["language"] for entry in entries if _matches(entry, job, chosen)}


def _selected(job: Job) -> list[int] | None:
    """The steps of the window that was selected in the way that the config asks for; None: none was yet."""
    path, wanted = job.folder / "selection.json", job.config.evaluation
    if not path.is_file():
        return None
    found = read_json(path, "select", "combine", "window", "search", "best.steps", remedy=REMEDY)
    same = (
        found["select"] == wanted.select
        and found["combine"] == wanted.combine
        and (wanted.combine == "last" or found["window"] == wanted.window)
        and (wanted.select == "loss" or found["search"] == wanted.selecting.search)  # nothing is translated for a loss
    )
    steps: list[int] = found["best"]["steps"]
    return steps if same else None


def _matches(entry: dict[str, Any], job: Job, chosen: list[int] | None) -> bool:
    wanted, steps = job.config.evaluation, entry.get("steps", [entry["step"]])
    return (
        entry["split"] == "test"
        and entry.get("select") == wanted.select
        and entry.get("combine", "last") == wanted.combine
        and all(entry["search"][key] == value for key, value in wanted.search.items())
        and (_ends_the_run(steps, job) if chosen is None else steps == chosen)
    )


def _ends_the_run(steps: list[int], job: Job) -> bool:
    """Whether these are the last checkpoints, as many as the config asks for, or all of a run that has fewer."""
    size = job.config.evaluation.checkpoints
    return steps[-1] == job.config.training.steps and (
        len(steps) == size or (len(steps) < size and len(steps) >= _checkpoints(job))
    )


def _checkpoints(job: Job) -> int:
    """How many a trained run has; of a folder that has kept its records alone, how many it had."""
    training = job.config.training
    every = max(1, training.checkpoint_every.steps(training.steps))
    return len(Checkpoints(job.folder / "checkpoints").list()) or -(-training.steps // every)


def is_saved(run: Path, step: int) -> bool:
    """Whether the checkpoint of a step is there; its folder appears as a whole."""
    return (run / "checkpoints" / str(step)).is_dir()


def last_dev_loss(run: Path) -> float | None:
    """Mean over languages at the last validation, in nats per token."""
    last = _last_entry(run / "validations.jsonl")
    return None if last is None else sum(last["dev_loss"].values()) / len(last["dev_loss"])


def last_step(run: Path) -> int:
    """The last step in the records of a run that is training; they reach the disk in blocks."""
    last = _last_entry(run / "steps.jsonl")
    return 0 if last is None else int(last["step"])


def _last_entry(path: Path, block: int = 65_536) -> dict[str, Any] | None:
    """The last whole line that can be read; only the end of the file is looked at."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - block))
            lines = file.read().split(b"\n")
    except FileNotFoundError:
        return None
    for line in reversed(lines[:-1]):
        with suppress(ValueError):  # for a display; whoever relies on the record says what is wrong with it
            entry: dict[str, Any] = json.loads(line)
            return entry
    return None


def is_held(run: Path) -> bool:
    """Whether a process is training the run just now, such as one that outlived a killed ``rota compare``."""
    lock = run / ".lock"
    if not lock.exists():
        return False
    with lock.open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def last_lines(log: Path, block: int = 8_192) -> Iterator[str]:
    """The lines at the end of a log that say something, the last one first."""
    if not log.is_file():
        return
    with log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - block))
        lines = file.read().decode("utf-8", errors="replace").splitlines()
    yield from (line.strip() for line in reversed(lines) if line.strip())
