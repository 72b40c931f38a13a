"""``rota demo``, ``prepare``, ``train`` and ``check``."""

from __future__ import annotations

import json
import logging
import os
import shlex
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from rota.cli import views
from rota.cli.application import ConfigPath, Overrides, app

if TYPE_CHECKING:
    from rota.config import RunConfig
    from rota.training.listeners import Display
    from rota.training.loop import Loop
    from rota.training.progress.stopping import Stopping


@app.command()
def demo(
    corpus: Annotated[
        str, typer.Option(help="catalogues (real text, needs a package registry) or synthetic.")
    ] = "catalogues",
    teacher: Annotated[str, typer.Option(help="The schedule; rota teachers lists them.")] = "align",
    beside: Annotated[
        str, typer.Option(help="Another schedule that is trained at the same time, to compare with; none: no other.")
    ] = "uniform",
    folder: Annotated[Path, typer.Option(help="Where data and runs go.")] = Path("demo"),
    steps: Annotated[
        int | None,
        typer.Option(
            help="Updates of each run.",
            min=20,
            show_default="850 (synthetic: 575); twice as many with --beside none",
        ),
    ] = None,
) -> None:
    """Train a small model under a teacher and another under uniform shares, and compare them, all in one command.

    Example: rota demo --corpus synthetic --teacher proportional
    """
    from rota.cli.demo import run_demo

    run_demo(corpus, teacher, folder, steps, beside)


@app.command()
def prepare(
    config: ConfigPath,
    set_: Overrides = None,
    again: Annotated[bool, typer.Option("--again", help="Prepare again and replace what is there.")] = False,
    processes: Annotated[
        int | None,
        typer.Option(
            help="Processes to prepare with.", min=1, show_default="one for each core if the corpus is large, else one"
        ),
    ] = None,
) -> None:
    """Turn parallel text into an encoded data folder; after an interruption the same command resumes.

    Example: rota prepare my.yaml --set data.subwords.size=8k
    """
    from rota import api
    from rota.config import goal_of

    settings = _load(config, set_)
    views.log_to_console()
    try:
        with views.ProgressBar() as progress:
            store = api.prepare(settings, again=again, processes=processes, progress=progress)
    except KeyboardInterrupt:  # a warning has said what is kept
        raise SystemExit(128 + signal.SIGINT) from None
    views.console.print(views.data_table(store))
    goal_of(settings, store)  # rota train would refuse it


@app.command()
def train(
    config: ConfigPath,
    set_: Overrides = None,
    run: Annotated[
        Path | None, typer.Option(help="The run folder.", show_default="runs/NAME, as the config is named")
    ] = None,
    until: Annotated[
        int | None, typer.Option(help="Stop, and save, at this step.", min=1, show_default="the end of the run")
    ] = None,
    steps: Annotated[
        str | None,
        typer.Option(
            help="Updates of the run, such as 30k; a run that has begun, or is finished, goes on to there.",
            metavar="COUNT",
            show_default="training.steps",
        ),
    ] = None,
    stem: Annotated[
        Path | None,
        typer.Option(
            help="Begin where this run ended its warm-up, which must be the same.",
            metavar="RUN",
            show_default="the run trains its own",
        ),
    ] = None,
    plan: Annotated[
        Path | None,
        typer.Option(
            help="Record that the run began under this plan, a plan.json.", metavar="FILE", show_default="no plan"
        ),
    ] = None,
    processes: Annotated[
        int,
        typer.Option(help="Processes that share the batches of each update (training.accumulate).", min=1),
    ] = 1,
) -> None:
    """Train a model, or resume training it; the data are prepared first if necessary.

    Example: rota train my.yaml --set teacher=proportional --run runs/proportional
    """
    from rota.plan import read_plan
    from rota.runs import Run

    settings, count = _load(config, set_), None if steps is None else _count(steps)
    folder = run or Path("runs") / settings.name
    if count is not None:  # in place of the config's length: the count, or that with which the run was begun
        begun = Run(folder)
        length, count = (begun.begun_with, count) if begun.exists else (count, None)
        settings = _load(config, [*(set_ or []), f"training.steps={length}"])
    options = [part for override in set_ or [] for part in ("--set", override)] + (["--run", str(run)] if run else [])
    options += [] if steps is None else ["--steps", steps]
    again = f"{views.program()} " + shlex.join(["train", str(config), *options])
    under = None if plan is None else read_plan(plan).fingerprint
    if processes > 1:
        others = {"--until": until, "--stem": stem, "--plan": plan}
        options += [part for name, value in others.items() if value is not None for part in (name, str(value))]
        _train_in(processes, ["train", str(config), *options])
    train_with_display(settings, folder, until=until, again=again, stem=stem, plan=under, steps=count)


def _train_in(processes: int, arguments: list[str]) -> NoReturn:
    from rota.cli.processes import train_in

    if "WORLD_SIZE" in os.environ:
        raise ValueError(f"--processes is {processes}, but torchrun has started processes already; leave it out")
    raise SystemExit(train_in(processes, arguments))


@app.command()
def check(
    folder: Annotated[
        Path,
        typer.Argument(help="A run, prepared data, or a folder with several of them.", metavar="FOLDER"),
    ],
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of lines.")] = False,
) -> None:
    """Read every file of a run or of prepared data and say which ones are not what was written.

    One line for each problem, with file and line; the exit code is 1 if there are any. Nothing is changed.

    Example: rota check runs/my
    """
    from rota.cli.check import check_folder

    with _without_warnings(), views.ProgressBar() as progress:
        found = check_folder(folder, progress)
    if as_json:
        typer.echo(json.dumps({"folder": str(folder), **found.as_json()}, indent=1, ensure_ascii=False))
    else:
        for problem in found.problems:
            typer.echo(str(problem))
        old = f" ({len(found.unchecked)} of them from a version without check values)" if found.unchecked else ""
        problems = f"{len(found.problems) or 'no'} problem{'' if len(found.problems) == 1 else 's'}"
        typer.echo(f"{folder}: {found.files:,} files read{old}, {problems}")
    if found.problems:
        raise SystemExit(1)


@contextmanager
def _without_warnings() -> Iterator[None]:
    """What training passes over with a warning is a problem with a line of its own here."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        yield
    finally:
        logging.disable(before)


def _count(written: str) -> int:
    from rota.settings import parse_count

    try:
        count = int(parse_count(written))
    except ValueError as error:
        raise ValueError(f"--steps: {error}") from None
    if count < 1:
        raise ValueError(f"--steps is {written}; write at least 1")
    return count


def _load(config: Path, overrides: list[str] | None) -> RunConfig:
    from rota.config import load_config

    return load_config(config, overrides or [])


def train_with_display(
    config: RunConfig,
    run: Path,
    *,
    until: int | None,
    again: str,
    stem: Path | None = None,
    plan: str | None = None,
    steps: int | None = None,
) -> Loop:
    """Train under a live display; ``again`` is the command that resumes after an interruption.

    An interrupted command ends with the exit code of its signal, so that a script stops too.
    """
    from rota import api
    from rota.training.loop import StopSignal

    views.log_to_console()
    views.console.quiet = os.environ.get("RANK", "0") != "0"  # only the first process of torchrun prints
    begun: list[int] = []

    def display(loop: Loop) -> Display:
        begun.append(loop.step)
        _say_where_it_begins(loop, until)
        return _display(config, run, loop)

    stop = StopSignal()
    bar = views.ProgressBar()
    loop = api.train(
        config, run, until=until, listeners=[display], progress=bar, stop=stop, stem=stem, plan=plan, steps=steps
    )
    if loop.is_over:
        _say_how_it_ended(loop, run, trained_now=bool(begun))
        return loop
    why = "reached --until" if loop.step == until else "stopped"
    command = again if loop.team.size == 1 else f"the same command, or in one process: {again}"
    views.say(f"{why} at step {loop.step:,} and saved; continue with: {command}")
    if stop.received is not None:
        raise SystemExit(128 + signal.Signals[stop.received])
    return loop


def _say_how_it_ended(loop: Loop, run: Path, *, trained_now: bool) -> None:
    """What the run saw, by arm where no panel has shown it, then in a line; and what to do next."""
    from rota.report.ending import totals_by_language, what_it_saw, what_next
    from rota.report.study import StudyRun

    if loop.team.size > 1 and not loop.team.first:
        return
    found = StudyRun(run, run.name)
    if trained_now and not views.console.is_terminal:
        views.console.print(views.arm_table(totals_by_language(found)))
    done = "trained" if trained_now else f"{run} is trained:"
    views.say(f"{done} {_steps(loop)} on {what_it_saw(found)}")
    if loop.stopping is not None and loop.stopped_early and loop.step < loop.steps:
        _say_why_it_stopped(loop, loop.stopping, run)
    else:
        views.say(what_next(found, views.program()))


def _say_why_it_stopped(loop: Loop, stopping: Stopping, run: Path) -> None:
    select = "loss" if stopping.config.on == "loss" else "goal"
    views.say(f"stopped early at step {loop.step:,} of {loop.steps:,}: {stopping.text}")
    views.say(f"next: {views.program()} evaluate {shlex.quote(str(run))} --select {select}")
    views.say("to go on all the same: the same command with --set training.early_stopping=null")


def _say_where_it_begins(loop: Loop, until: int | None) -> None:
    if until is not None and until > loop.steps:
        views.say(f"--until {until:,} is beyond the run, which ends at step {loop.steps:,} (training.steps)")
    together = f" with {loop.team.size} processes" if loop.team.size > 1 else ""
    if loop.step or together:
        views.say(f"{'resuming from' if loop.step else 'starting at'} step {loop.step:,}{together}")


def _display(config: RunConfig, run: Path, loop: Loop) -> Display:
    from rota.runs import Run
    from rota.runs.arms import arm_lines
    from rota.training.listeners import Display

    title = f"{run.name} ({config.teacher.name})"
    sets = loop.probe.sets
    display = Display(
        views.console,
        title=title,
        languages=sets.languages,
        steps=loop.steps,
        goal=sets.goal,
        language_of=sets.language_of,
        corpus_tokens=sets.train_tokens,
        lines=arm_lines(Run(run)),
    )
    display.resume(loop.step, loop.seen, (entry["dev_loss"] for entry in Run(run).read("validations")))
    display.alarms = [f"step {entry['step']:,}: {entry['text']}" for entry in Run(run).read("alarms")]
    return display


def _steps(loop: Loop) -> str:
    return "1 step" if loop.step == 1 else f"{loop.step:,} steps"
