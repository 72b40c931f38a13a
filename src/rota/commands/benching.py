"""``rota bench``. Heavy imports wait until they are needed."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Annotated

import typer

from rota.commands.app import app


@app.command()
def bench(
    names: Annotated[
        list[str] | None,
        typer.Argument(help="limit, time, data, teachers, memory; by default all.", metavar="[NAME]..."),
    ] = None,
    json: Annotated[
        Path | None, typer.Option(help="Keep the rows here; what the file has already is not measured again.")
    ] = None,
    again: Annotated[bool, typer.Option("--again", help="Measure again what the file has.")] = False,
    quick: Annotated[bool, typer.Option("--quick", help="Tiny sizes: shows that all works, in seconds.")] = False,
    threads: Annotated[str, typer.Option(help="Numbers of threads, each measured in its own process.")] = "1,2",
    preset: Annotated[str | None, typer.Option(help="Sizes of the model; by default small,base.")] = None,
    data: Annotated[
        Path | None, typer.Option(help="A prepared data folder; by default a generated corpus.", metavar="FOLDER")
    ] = None,
) -> None:
    """Measure how fast and how lean this machine trains: shares of its limit, time, memory, teachers.

    Example: rota bench limit memory --preset small --json bench.json
    """
    from rich.console import Console

    from rota import show
    from rota.bench.pieces import plan
    from rota.bench.rows import Results
    from rota.bench.runner import run, tables

    presets = (preset or ("tiny" if quick else "small,base")).split(",")
    pieces = plan(names or [], presets, _numbers(threads), data=None if data is None else str(data), quick=quick)
    results = Results(json)
    try:
        with show.progress_bar() as progress:
            done = run(pieces, results, again=again, progress=progress)
    except KeyboardInterrupt:
        kept = "nothing is kept without --json" if json is None else f"{json} has what was measured; go on with it"
        show.say(f"stopped; {kept}")
        raise SystemExit(128 + signal.SIGINT) from None
    # A pipe has no width of its own: there a row need not be squeezed into 80 columns.
    console = show.console if show.console.is_terminal else Console(width=120, markup=False, highlight=False)
    console.print(tables(results.rows, names or []))
    if done:
        show.say(f"{done} of {len(pieces)} were in {json} already; --again measures them again")


def _numbers(written: str) -> list[int]:
    try:
        return [int(part) for part in written.split(",")]
    except ValueError:
        raise ValueError(f"--threads is {written!r}; write for example 1,2") from None
