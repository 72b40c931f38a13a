"""``rota compare``: all runs of a suite, or a list of what there is and how long the rest will take."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

from rich.console import Group
from rich.table import Table
from rich.text import Text

from rota import api, show
from rota.data.preparation.workers import cores
from rota.experiments import on_ray
from rota.experiments.board import Board, clock
from rota.experiments.estimate import Pace, measure_pace, together
from rota.experiments.jobs import Job, write_description
from rota.experiments.process import LOG, LocalWork
from rota.experiments.runner import ANOTHER, Entry, Runner, Start, alone
from rota.experiments.status import REFUSED, Status, check_sources, look
from rota.experiments.suite import Suite
from rota.training.stop import StopSignal, stop_on_signals

PACE_EVERY: Final = 30.0
"""Seconds between two looks at the times of the runs."""

NAMED: Final = 4
"""Runs that are named with a reason that they share."""


def run_suite(suite: Suite, jobs: Sequence[Job], out: Path, *, start: Start, at_once: int, again: str) -> None:
    """Prepare the data, then run all jobs; ends the process with an exit code if not all of them came to their end."""
    check_sources(jobs, out)
    with alone(out):
        write_description(suite, out, jobs)
        board = Board(show.console, f"{suite.name} in {out}")
        runner = Runner(jobs, start, at_once=at_once, changed=board.changed)
        board.entries = list(runner.entries.values())
        board.time_left = _time_left(board.entries, at_once)
        _prepare(runner)
        with stop_on_signals() as stop, board:
            saved = _run(runner, board, stop)
    _say_how_it_ended(runner, out, stop, again, saved=saved)


def _run(runner: Runner, board: Board, stop: StopSignal) -> bool:
    """Whether the runs were left to end by themselves."""
    try:
        runner.run(stop, watch=board.watch)
    except KeyboardInterrupt:  # the second Ctrl-C: the runs are killed, what they had saved is there
        stop.received = stop.received or "SIGINT"
        return False
    return True


def starter(where: str, threads: int) -> Start:
    """What begins the work on a job: processes of this machine, or tasks of a Ray cluster."""
    check_place(where)
    if where == "local":
        return lambda job, trained: LocalWork(job, trained=trained, threads=threads)
    on_ray.connect()
    return lambda job, trained: on_ray.RayWork(job, trained=trained, threads=threads)


def check_place(where: str) -> None:
    if where not in ("local", "ray"):
        raise ValueError(f"--on {where!r} is not known; it is local or ray")


def _prepare(runner: Runner) -> None:
    """Every data folder once, before the runs ask for it at the same time."""
    seen: dict[Path, str | None] = {}
    for entry in runner.entries.values():
        folder = entry.job.config.data_folder
        if entry.over:
            continue
        if folder not in seen:
            seen[folder] = _mistake_of_preparing(entry.job)
        why = seen[folder]
        if why is not None:
            runner.fail(entry.job.name, why)


def _mistake_of_preparing(job: Job) -> str | None:
    try:
        with show.progress_bar() as progress:
            api.prepare(job.config, progress=progress)
    except (ValueError, OSError) as error:
        return str(error)
    return None


def _time_left(entries: Sequence[Entry], at_once: int) -> Callable[[], float | None]:
    """A function that gives the seconds until all jobs are over; it looks at the records now and then."""
    looked = -PACE_EVERY
    pace = Pace({}, None)

    def left() -> float | None:
        nonlocal looked, pace
        if time.monotonic() - looked >= PACE_EVERY:
            looked = time.monotonic()
            begun = [Status("partial" if entry.step else entry.status.state, entry.step) for entry in entries]
            pace = measure_pace([entry.job for entry in entries], begun)
        open_ = [entry for entry in entries if not entry.over]
        seconds = [pace.seconds(entry.job, Status("partial", entry.step)) for entry in open_]
        return together(seconds, at_once) if open_ else None

    return left


def _say_how_it_ended(runner: Runner, out: Path, stop: StopSignal, again: str, *, saved: bool) -> None:
    failures = runner.failures()
    for entry in failures:
        show.say(f"failed: {entry.job.name}: {entry.note} (log: {entry.job.folder / LOG})")
    done = sum(entry.doing == "done" for entry in runner.entries.values())
    where = f"{done} of {len(runner.entries)} runs are done, in {out}"
    if stop.received is not None:
        how = "stopped, and what was running is saved" if saved else "killed; each goes on from its last checkpoint"
        show.say(f"{where}; {how}; go on with: {again}")
        raise SystemExit(128 + signal.Signals[stop.received])
    if failures:
        show.say(f"{where}; {len(failures)} failed; try those again with: {again}")
        raise SystemExit(1)
    show.say(f"{where}; next: {show.program()} report {out} --out {out / 'report'}")


def dry_run(suite: Suite, jobs: Sequence[Job], out: Path, *, at_once: int) -> Group:
    """Every run as done, partial or missing, what is refused and why, and an estimate; nothing is touched."""
    check_sources(jobs, out)
    statuses = [look(job) for job in jobs]
    pace = measure_pace(jobs, statuses)
    seconds = [pace.seconds(job, status) for job, status in zip(jobs, statuses, strict=True)]
    table = Table(box=None, padding=(0, 2), show_edge=False)
    for name in ("row", "seed", "state", "time left"):
        table.add_column(name, justify="left" if name in ("row", "state") else "right", no_wrap=True)
    table.columns[0].min_width = max(len(job.row) for job in jobs)  # a cut name may be that of another row
    for job, status, left in zip(jobs, statuses, seconds, strict=True):
        table.add_row(job.row, str(job.seed), _state(job, status), clock(left) if left else "")
    title = Text(f"{suite.name} in {out}: {_counts(statuses)}", style="bold")
    refused = [Text(line) for line in _refusals(jobs, statuses)]
    return Group(title, table, *refused, _total(seconds, pace, at_once, others=bool(refused)))


def _state(job: Job, status: Status) -> str:
    if status.state == "partial":
        return f"partial (step {status.step:,} of {job.config.training.steps:,})"
    return {"trained": "trained, not scored", "another": "another run"}.get(status.state, status.state)


def _refusals(jobs: Sequence[Job], statuses: Sequence[Status]) -> Iterator[str]:
    """A line for each reason not to touch runs, with their names: many have the same."""
    names: dict[str, list[str]] = {}
    for job, status in zip(jobs, statuses, strict=True):
        if status.state in REFUSED:
            why = f"another run: {status.why}; {ANOTHER}" if status.state == "another" else status.why
            names.setdefault(why, []).append(job.name)
    for why, found in names.items():
        more = f" and {len(found) - NAMED} more" if len(found) > NAMED else ""
        yield f"{', '.join(found[:NAMED])}{more}: {why}"


def _counts(statuses: Sequence[Status]) -> str:
    states = [status.state for status in statuses]
    found = [f"{states.count(state)} {state}" for state in ("done", "trained", "partial", "missing", *REFUSED)]
    return f"{len(states)} {'run' if len(states) == 1 else 'runs'}, " + ", ".join(
        part for part in found if not part.startswith("0 ")
    )


def _total(seconds: Sequence[float], pace: Pace, at_once: int, *, others: bool) -> Text:
    if not any(seconds):
        return Text(f"Nothing {'else ' if others else ''}is left to do.")
    total = together(seconds, at_once)
    return Text(f"About {clock(total)} with {at_once} at a time ({clock(sum(seconds))} in all), {pace.source}.")


def jobs_at_once(where: str, threads: int) -> int:
    """As many as there are cores for."""
    return on_ray.cluster_jobs(threads) if where == "ray" else max(1, cores() // threads)
