"""``rota compare`` and ``report``."""

from __future__ import annotations

import shlex
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rota.cli import views
from rota.cli.application import Overrides, app

if TYPE_CHECKING:
    from rota.experiments.board import Board
    from rota.experiments.jobs import Job
    from rota.experiments.queue import Queue, Start
    from rota.experiments.suite import Suite
    from rota.report.folders import Progress
    from rota.report.made import Request
    from rota.training.loop import StopSignal


@app.command()
def report(
    runs: Annotated[list[Path], typer.Argument(help="Folders of suites, of rows or of runs.", metavar="RUNS...")],
    out: Annotated[Path, typer.Option(help="Where the page, tables and figures go.")] = Path("report"),
    title: Annotated[str | None, typer.Option(help="The title of the page.", show_default="the folders")] = None,
    baseline: Annotated[
        str | None,
        typer.Option(help="The row to compare with.", show_default="uniform with a warm-up, else the first"),
    ] = None,
    records: Annotated[
        Path | None,
        typer.Option(
            help="Also copy the records here, without models: enough to make the report again.",
            show_default="not copied",
        ),
    ] = None,
    regret: Annotated[
        bool, typer.Option("--regret", help="Each folder is a study of its own corpus: only their regret tables.")
    ] = False,
    again: Annotated[
        bool, typer.Option("--again", help="Make the report anew, also if nothing has changed since it was made.")
    ] = False,
) -> None:
    """Tables, figures and one self-contained page from the records of runs; no model is loaded.

    Example: rota report runs/laptop --out report --baseline uniform-warmup
    """
    from rota.report.folders import check_folder, check_target, copy_all
    from rota.report.made import Request

    check_folder(out, "--out")
    if records is not None:  # before the report, which takes a while
        check_target(runs, records)
    with views.ProgressBar() as progress:
        lines = _report_lines(Request(runs, out, title, baseline, regret), progress, again=again)
        copied = None if records is None else copy_all(runs, records, progress)
    for line in lines:
        views.say(line)
    if copied is not None:
        views.say(f"records: {copied / 1e6:.2f} MB in {records}")


def _report_lines(request: Request, progress: Progress, *, again: bool) -> list[str]:
    """Makes the report, unless it is up to date."""
    from rota.report.made import forget, lines_if_up_to_date, remember

    origin = request.origin()
    lines = None if again else lines_if_up_to_date(request.out, origin)
    if lines is not None:
        return lines
    from rota.report.several import report_on

    forget(request.out)
    made = report_on(
        request.paths,
        request.out,
        title=request.title,
        baseline=request.baseline,
        regret=request.regret,
        progress=progress,
    )
    remember(request.out, origin, made.files, made.lines)
    return made.lines


@app.command()
def compare(
    suite: Annotated[
        str, typer.Argument(help="laptop, controls, order, paper, example, or a YAML file.", metavar="SUITE")
    ],
    seeds: Annotated[
        str | None,
        typer.Option(help="How many (5), or which (1,2,3); '7,' is seed 7 alone.", show_default="as in the suite"),
    ] = None,
    rows: Annotated[
        str | None,
        typer.Option(
            help="Names, patterns (`'tscl*'`, `'dqn*'`), tables (main, control), or all, with commas between them.",
            show_default="those that the suite is meant to run",
        ),
    ] = None,
    corpus: Annotated[
        str | None,
        typer.Option(
            help="catalogues, debian, synthetic, ted8, or a YAML file whose data section is used.",
            show_default="as in the suite",
        ),
    ] = None,
    steps: Annotated[
        str | None,
        typer.Option(help="Updates, such as 15k; other durations in proportion.", show_default="as in the suite"),
    ] = None,
    tokens: Annotated[
        str | None, typer.Option(help="Target tokens of a batch.", show_default="as in the suite")
    ] = None,
    jobs: Annotated[
        int | None, typer.Option(help="Runs at the same time.", min=1, show_default="cores / threads")
    ] = None,
    threads: Annotated[int, typer.Option(help="Threads of each run.", min=1)] = 1,
    out: Annotated[
        Path | None, typer.Option(help="Folder of the runs.", show_default="runs/NAME, as the suite is named")
    ] = None,
    on: Annotated[str, typer.Option(help="local, or ray: a cluster with a shared folder.")] = "local",
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Run nothing; list what is done, partial and missing, and the time left.")
    ] = False,
    noise: Annotated[
        Path | None,
        typer.Option(
            help="With --dry-run: earlier runs, whose noise says what the plan can detect.",
            metavar="FOLDER",
            show_default="the suite's own",
        ),
    ] = None,
    set_: Overrides = None,
) -> None:
    """Train and score every schedule of a suite with several seeds; finished runs are skipped, partial ones resumed.

    Example: rota compare laptop --rows main --seeds 3 --jobs 2
    """
    from rota.cli.power import check_plan, power_view
    from rota.experiments.board import overview
    from rota.experiments.jobs import plan, without_idle_stems
    from rota.experiments.suites import open_suite
    from rota.plan import parse_seeds

    found = open_suite(suite, corpus=corpus, steps=_count("--steps", steps), tokens=_count("--tokens", tokens))
    folder = out or Path("runs") / found.name
    named = found.choose(rows)
    planned = plan(
        found,
        folder,
        rows=named,
        seeds=None if seeds is None else parse_seeds(seeds),
        overrides=set_ or [],
        threads=threads,
        corpora=found.choose_corpora(corpus if found.corpora else None),
    )
    planned = without_idle_stems(planned)
    if on not in ("local", "ray"):
        raise ValueError(f"--on {on!r} is not known; it is local or ray")
    _check_paper({name: found.rows[name].paper for name in named})
    check_plan(found)
    if noise is not None and (found.plan is None or not dry_run):
        raise ValueError(f"--noise {str(noise)!r} is for --dry-run of a suite with a plan; leave it out")
    if dry_run:
        at_once = jobs or _jobs_at_once("local", threads)
        views.console.print(overview(found, planned, folder, at_once=at_once))
        if found.resolved_plan is not None:
            own = {name: row.seeds for name, row in found.rows.items() if row.seeds}
            views.console.print(power_view(found.resolved_plan, noise or folder, own, asked=noise is not None))
        return
    run_suite(found, planned, folder, start=starter(on, threads), at_once=jobs or _jobs_at_once(on, threads))


def _check_paper(keys: dict[str, str | None]) -> None:
    """The report would refuse an unknown key too, but only after everything is trained."""
    from rota.report.numbers.printed import paper_row

    for name, key in keys.items():
        try:
            paper_row(key)
        except ValueError as error:
            raise ValueError(f"rows.{name}.paper: {error}") from None


def _count(option: str, written: str | None) -> int | None:
    from rota.settings import parse_count

    if written is None:
        return None
    try:
        count = int(parse_count(written))
    except ValueError as error:
        raise ValueError(f"{option}: {error}") from None
    if count < 1:
        raise ValueError(f"{option} is {written}; give at least 1")
    return count


def run_suite(
    suite: Suite,
    jobs: Sequence[Job],
    out: Path,
    *,
    start: Start,
    at_once: int,
    again: str | None = None,
    shown_on: type[Board] | None = None,
) -> None:
    """Prepare the data, then run all jobs; exits with an error code if some of them did not finish.

    ``again``: the command that goes on, where it is not this one and shows the results itself. ``shown_on``: a board
    that shows more than that of a suite.
    """
    from rota.experiments.board import Board, time_left
    from rota.experiments.jobs import check_sources, write_description
    from rota.experiments.queue import Queue, alone
    from rota.training.loop import StopSignal

    check_sources(jobs, out)
    with alone(out):
        write_description(suite, out, jobs)
        board = (shown_on or Board)(views.console, f"{suite.name} in {out}")
        queue = Queue(jobs, start, at_once=at_once, changed=board.changed)
        board.entries = list(queue.entries.values())
        board.time_left = time_left(board.entries, at_once)
        queue.prepare(views.ProgressBar)
        with StopSignal() as stop, board:
            saved = _run(queue, board, stop)
    _say_how_it_ended(queue, out, stop, saved=saved, again=again)


def _run(queue: Queue, board: Board, stop: StopSignal) -> bool:
    """Whether the runs could save before they ended."""
    try:
        queue.run(stop, watch=board.watch)
    except KeyboardInterrupt:  # the second Ctrl-C: the runs are killed, and have what they saved before
        stop.received = stop.received or "SIGINT"
        return False
    return True


def _say_how_it_ended(queue: Queue, out: Path, stop: StopSignal, *, saved: bool, again: str | None = None) -> None:
    shown = again is not None
    again = again or f"{views.program()} {shlex.join(sys.argv[1:])}"
    failures = queue.failures()
    for entry in failures:
        views.say(f"failed: {entry.job.name}: {entry.note} (log: {entry.job.run.log_path})")
    done = sum(entry.state == "done" for entry in queue.entries.values())
    where = f"{done} of {len(queue.entries)} runs are done, in {out}"
    if stop.received is not None:
        how = "stopped, and what was running is saved" if saved else "killed; each resumes from its last checkpoint"
        views.say(f"{where}; {how}; continue with: {again}")
        raise SystemExit(128 + signal.Signals[stop.received])
    if failures:
        views.say(f"{where}; {len(failures)} failed; try those again with: {again}")
        raise SystemExit(1)
    if not shown:
        views.say(f"{where}; next: {views.program()} report {out} --out {out / 'report'}")


def starter(where: str, threads: int) -> Start:
    """The function that starts a job: as processes on this machine, or as a task of a Ray cluster."""
    from rota.experiments import on_ray
    from rota.experiments.queue import LocalWork

    if where == "local":
        return lambda job, trained: LocalWork(job, trained=trained, threads=threads)
    on_ray.connect()
    return lambda job, trained: on_ray.RayWork(job, trained=trained, threads=threads)


def _jobs_at_once(where: str, threads: int) -> int:
    """As many jobs as there are cores for."""
    from rota.data.preparation.workers import cores
    from rota.experiments import on_ray

    return on_ray.cluster_jobs(threads) if where == "ray" else max(1, cores() // threads)
