"""``rota compare-scores``. Heavy imports wait until they are needed."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal, cast

import typer

from rota.commands.app import app


@app.command()
def compare_scores(
    folders: Annotated[
        list[Path] | None,
        typer.Argument(help="Two run folders, or two folders with runs seed-*: the baseline first.", metavar="A B"),
    ] = None,
    baseline: Annotated[
        list[Path] | None, typer.Option(help="A run of the baseline; repeat it for several.", metavar="RUN")
    ] = None,
    system: Annotated[
        list[Path] | None, typer.Option(help="A run of the other system; repeat it for several.", metavar="RUN")
    ] = None,
    metric: Annotated[str, typer.Option(help="bleu, chrf or comet.")] = "bleu",
    split: Annotated[str, typer.Option(help="test or dev.")] = "test",
    resamples: Annotated[int, typer.Option(help="Bootstrap resamples of the sentences.", min=100)] = 1000,
    trials: Annotated[int, typer.Option(help="Trials of the approximate randomisation.", min=100)] = 10000,
    csv: Annotated[Path | None, typer.Option(help="Write all figures here too.")] = None,
    latex: Annotated[Path | None, typer.Option(help="Write the table here too.")] = None,
) -> None:
    """Test whether two evaluated systems differ: per language, over all languages, and over seeds.

    Runs must have been scored with rota evaluate. Several runs of a system are paired with those of the other by seed.

    Example: rota compare-scores runs/uniform runs/dqn --metric chrf --csv uniform-dqn.csv
    """
    from rich.console import Console

    from rota import show
    from rota.evaluation.comparison import compare_runs, find_runs
    from rota.files import write_atomically
    from rota.show_comparison import comparison_csv, comparison_latex, comparison_table

    ours, theirs = (find_runs(side) for side in _sides(folders or [], baseline or [], system or []))
    with show.progress_bar() as progress:
        found = compare_runs(
            ours, theirs, metric=metric, split=_split(split), resamples=resamples, trials=trials, progress=progress
        )
    # A pipe has no width of its own: there the table need not be squeezed into 80 columns.
    console = show.console if show.console.is_terminal else Console(width=100, markup=False, highlight=False)
    console.print(comparison_table(found, console.width))
    for path, write in ((csv, comparison_csv), (latex, comparison_latex)):
        if path is not None:
            write_atomically(path, write(found))
            show.say(f"written to {path}")


def _split(written: str) -> Literal["dev", "test"]:
    if written not in ("dev", "test"):
        raise ValueError(f"--split is {written!r}; it is dev or test")
    return cast(Literal["dev", "test"], written)


def _sides(folders: list[Path], baseline: list[Path], system: list[Path]) -> tuple[list[Path], list[Path]]:
    """Two folders, or both options; nothing else says which is which."""
    if len(folders) == 2 and not baseline and not system:
        return [folders[0]], [folders[1]]
    if baseline and system and not folders:
        return baseline, system
    given = (
        f"{len(folders)} folder{'' if len(folders) == 1 else 's'}, {len(baseline)} --baseline, {len(system)} --system"
    )
    raise ValueError(f"{given}: give two folders, or --baseline and --system, each as often as it has runs")
