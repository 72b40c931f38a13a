"""``rota report``. Heavy imports wait until they are needed."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rota.commands.app import app


@app.command()
def report(
    runs: Annotated[list[Path], typer.Argument(help="Folders of suites, of rows or of runs.", metavar="RUNS...")],
    out: Annotated[Path, typer.Option(help="Where the page, tables and figures go.")] = Path("report"),
    title: Annotated[str | None, typer.Option(help="The title of the page.")] = None,
    baseline: Annotated[
        str | None, typer.Option(help="The row to compare with; by default uniform with warm-up, else the first.")
    ] = None,
    records: Annotated[
        Path | None, typer.Option(help="Also copy the records here, without models: enough to make the report again.")
    ] = None,
) -> None:
    """Tables, figures and one self-contained page from the records of runs; no model is loaded.

    Example: rota report runs/laptop --out report --baseline uniform-warmup
    """
    from rota import show
    from rota.report.assemble import make_report
    from rota.report.folders import check_target, copy_all
    from rota.report.sentences import plural

    if records is not None:  # a report takes a while: before it is made
        check_target(runs, records)
    with show.progress_bar() as progress:
        made = make_report(runs, out, title=title, baseline=baseline, progress=progress)
        copied = None if records is None else copy_all(runs, records, progress)
    for sentence in (*made.summary, *made.missing):
        show.say(sentence)
    files = f"{plural(len(made.tables), 'table')} and {plural(len(made.figures), 'figure')}"
    show.say(f"{files}, compared with {made.baseline}: {made.page}")
    if copied is not None:
        show.say(f"records: {copied / 1e6:.2f} MB in {records}")
