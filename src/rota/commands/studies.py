"""``rota compare``. Heavy imports wait until they are needed."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer

from rota.commands.app import Overrides, app


@app.command()
def compare(
    suite: Annotated[str, typer.Argument(help="laptop, controls, paper, or a YAML file.", metavar="SUITE")],
    seeds: Annotated[
        str | None, typer.Option(help="How many (5), or which (1,2,3); by default as in the suite.")
    ] = None,
    rows: Annotated[
        str | None,
        typer.Option(
            help="Names, patterns (`'tscl*'`, `'dqn*'`), tables (main, control), or all, with commas between them; by"
            " default those that the suite is meant to run."
        ),
    ] = None,
    corpus: Annotated[
        str | None, typer.Option(help="catalogues, synthetic, ted8, or a YAML file whose section data is taken.")
    ] = None,
    steps: Annotated[str | None, typer.Option(help="Updates, such as 15k; other durations in proportion.")] = None,
    tokens: Annotated[str | None, typer.Option(help="Target tokens of a batch.")] = None,
    jobs: Annotated[int | None, typer.Option(help="Runs at the same time; by default cores / threads.", min=1)] = None,
    threads: Annotated[int, typer.Option(help="Threads of each run.", min=1)] = 1,
    out: Annotated[
        Path | None, typer.Option(help="Folder of the runs; by default runs/NAME, as the suite is named.")
    ] = None,
    on: Annotated[str, typer.Option(help="local, or ray: a cluster with a shared folder.")] = "local",
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Run nothing: list what is done, partial and missing, and the time left.")
    ] = False,
    set_: Overrides = None,
) -> None:
    """Train and score every schedule of a suite with several seeds; what is done is skipped, what is partial resumed.

    Example: rota compare laptop --rows main --seeds 3 --jobs 2
    """
    from rota import show
    from rota.experiments import compare as comparing
    from rota.experiments.jobs import plan
    from rota.experiments.suite import parse_seeds
    from rota.experiments.suites import open_suite

    found = open_suite(suite, corpus=corpus, steps=_count("--steps", steps), tokens=_count("--tokens", tokens))
    folder = out or Path("runs") / found.name
    chosen = found.seeds if seeds is None else parse_seeds(seeds)
    named = found.choose(rows)
    planned = plan(found, folder, rows=named, seeds=chosen, overrides=set_ or [], threads=threads)
    comparing.check_place(on)
    _check_paper({name: found.rows[name].paper for name in named})
    if dry_run:
        at_once = jobs or comparing.jobs_at_once("local", threads)
        show.console.print(comparing.dry_run(found, planned, folder, at_once=at_once))
        return
    start = comparing.starter(on, threads)
    at_once = jobs or comparing.jobs_at_once(on, threads)
    again = f"{show.program()} {shlex.join(sys.argv[1:])}"
    comparing.run_suite(found, planned, folder, start=start, at_once=at_once, again=again)


def _check_paper(keys: dict[str, str | None]) -> None:
    """A report would find out, but only when all is trained."""
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
