"""``rota evaluate`` and ``compare-scores``."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, Unpack, cast

import typer
from rich.console import Console

from rota.cli import views
from rota.cli.application import RunPath, TranslationThreads, app

if TYPE_CHECKING:
    from rota.evaluation.comet import Comet
    from rota.evaluation.config import Changes
    from rota.evaluation.evaluate import Evaluation


@app.command()
def evaluate(
    run: RunPath,
    split: Annotated[str, typer.Option(help="test or dev.")] = "test",
    step: Annotated[int | None, typer.Option(help="Which checkpoint.", show_default="the last")] = None,
    select: Annotated[
        str | None,
        typer.Option(
            help="Choose the checkpoints: low-resource, high-resource, macro (all languages) or goal by dev BLEU, loss"
            " by dev loss; none takes the last.",
            show_default="as in the config",
        ),
    ] = None,
    combine: Annotated[
        str | None,
        typer.Option(
            help="A window of checkpoints as one model: ensemble, average of the weights, or last; moving-average:"
            " that of the last one, if the run kept it (student.average).",
            show_default="as in the config; with --select, ensemble",
        ),
    ] = None,
    window: Annotated[
        int | None,
        typer.Option(help="Checkpoints in a window.", min=1, max=20, show_default="as in the config, else 4"),
    ] = None,
    beam: Annotated[
        int | None, typer.Option(help="Beam size; 1 is greedy.", min=1, show_default="as in the config, else 5")
    ] = None,
    select_beam: Annotated[
        int | None,
        typer.Option(help="Beam size while selecting.", min=1, show_default="as in the config, else that of --beam"),
    ] = None,
    length_penalty: Annotated[
        float | None,
        typer.Option(
            help="A translation scores its log probability / length ** this.", min=0, show_default="as in the config"
        ),
    ] = None,
    metrics: Annotated[
        str | None,
        typer.Option(
            help="What is scored: bleu,chrf,loss, or some of them. loss, the cross-entropy per token, needs no"
            " translations: --metrics loss takes seconds.",
            show_default="as in the config, else bleu,chrf,loss",
        ),
    ] = None,
    comet: Annotated[
        str | None,
        typer.Option(
            help="Score with COMET too: wmt22-comet-da, another name, or the folder of a model. Needs the extra comet.",
            metavar="MODEL",
            show_default="no COMET",
        ),
    ] = None,
    engine: Annotated[
        str | None,
        typer.Option(
            help="rota, or ctranslate2, which is faster, for one network alone. Needs the extra ct2.",
            show_default="as in the config, else rota",
        ),
    ] = None,
    threads: TranslationThreads = None,
) -> None:
    """Translate the test sets with a trained run and score them with BLEU, chrF and cross-entropy.

    Example: rota evaluate runs/my --select low-resource
    """
    scorer = None if comet is None else _load_comet(comet)  # first: mistakes in it show before translating
    evaluation = evaluate_with_display(
        run,
        split=split,
        step=step,
        select=select,
        combine=combine,
        window=window,
        beam=beam,
        select_beam=select_beam,
        length_penalty=length_penalty,
        metrics=metrics,
        engine=engine,
        threads=threads,
    )
    if scorer is not None:
        evaluation = _with_comet(run, evaluation, scorer)
    if evaluation.selection is not None:
        views.console.print(views.window_table(evaluation.selection))
    views.console.print(views.score_table(evaluation, f"{run}, {views.model_name(evaluation)}, {split}"))
    views.console.print(views.signatures(evaluation), style="dim", highlight=False)


def evaluate_with_display(
    run: Path,
    *,
    split: str = "test",
    step: int | None = None,
    threads: int | None = None,
    **changes: Unpack[Changes],
) -> Evaluation:
    """Scores of a run under a progress bar; options override the settings of its config."""
    from rota import api
    from rota.student.hardware import use_threads

    which = _split(split)
    views.log_to_console()
    try:
        with views.ProgressBar() as progress:
            cores = use_threads(threads)
            return api.evaluate(run, split=which, step=step, progress=progress, processes=cores, **changes)
    except KeyboardInterrupt:
        views.say("stopped; what has been translated is kept, and the same command resumes from there")
        raise SystemExit(128 + signal.SIGINT) from None


def _load_comet(name: str) -> Comet:
    from rota.evaluation.comet import Comet

    return Comet.load(name)


def _with_comet(run: Path, evaluation: Evaluation, comet: Comet) -> Evaluation:
    from rota.evaluation.evaluate import with_comet

    with views.ProgressBar() as progress:
        return with_comet(run, evaluation, comet, progress=progress)


@app.command()
def compare_scores(
    folders: Annotated[
        list[Path] | None,
        typer.Argument(
            help="Two run folders, or two folders with runs seed-*: the baseline first.",
            metavar="A B",
            show_default="none, with --baseline and --system",
        ),
    ] = None,
    baseline: Annotated[
        list[Path] | None,
        typer.Option(help="A run of the baseline; repeat it for several.", metavar="RUN", show_default="none"),
    ] = None,
    system: Annotated[
        list[Path] | None,
        typer.Option(help="A run of the other system; repeat it for several.", metavar="RUN", show_default="none"),
    ] = None,
    metric: Annotated[str, typer.Option(help="bleu, chrf, loss or comet.")] = "bleu",
    split: Annotated[str, typer.Option(help="test or dev.")] = "test",
    resamples: Annotated[int, typer.Option(help="Bootstrap resamples of the sentences.", min=100)] = 1000,
    trials: Annotated[int, typer.Option(help="Trials of the approximate randomisation.", min=100)] = 10000,
    csv: Annotated[Path | None, typer.Option(help="Write all figures here too.", show_default="not written")] = None,
    latex: Annotated[Path | None, typer.Option(help="Write the table here too.", show_default="not written")] = None,
) -> None:
    """Test whether two evaluated systems differ: per language, over all languages, and over seeds.

    Runs must have been scored with rota evaluate. Several runs of a system are paired with those of the other by seed.

    Example: rota compare-scores runs/uniform runs/dqn --metric chrf --csv uniform-dqn.csv
    """
    from rota.cli.comparison import comparison_csv, comparison_latex, comparison_table
    from rota.evaluation.comparison import compare_runs, find_runs
    from rota.files import write_atomically

    ours, theirs = (find_runs(side) for side in _sides(folders or [], baseline or [], system or []))
    with views.ProgressBar() as progress:
        found = compare_runs(
            ours, theirs, metric=metric, split=_split(split), resamples=resamples, trials=trials, progress=progress
        )
    # A pipe has no width: the table need not be squeezed into 80 columns.
    console = views.console if views.console.is_terminal else Console(width=100, markup=False, highlight=False)
    console.print(comparison_table(found, console.width))
    for path, write in ((csv, comparison_csv), (latex, comparison_latex)):
        if path is not None:
            write_atomically(path, write(found))
            views.say(f"written to {path}")


def _split(written: str) -> Literal["dev", "test"]:
    if written not in ("dev", "test"):
        raise ValueError(f"--split is {written!r}; it is dev or test")
    return cast(Literal["dev", "test"], written)


def _sides(folders: list[Path], baseline: list[Path], system: list[Path]) -> tuple[list[Path], list[Path]]:
    """The baseline's runs and the system's, from two folders or from both options."""
    if len(folders) == 2 and not baseline and not system:
        return [folders[0]], [folders[1]]
    if baseline and system and not folders:
        return baseline, system
    given = (
        f"{len(folders)} folder{'' if len(folders) == 1 else 's'}, {len(baseline)} --baseline, {len(system)} --system"
    )
    raise ValueError(f"{given}: give two folders, or --baseline and --system, each as often as it has runs")
