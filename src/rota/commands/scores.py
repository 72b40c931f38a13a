"""``rota evaluate``. Heavy imports wait until they are needed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rota.commands.app import RunPath, app

if TYPE_CHECKING:
    from rota.evaluation.comet import Comet
    from rota.evaluation.evaluate import Evaluation


@app.command()
def evaluate(
    run: RunPath,
    split: Annotated[str, typer.Option(help="test or dev.")] = "test",
    step: Annotated[int | None, typer.Option(help="Which checkpoint; by default the last.")] = None,
    select: Annotated[
        str | None,
        typer.Option(
            help="Choose the checkpoints: low-resource, high-resource or macro (all languages) by dev BLEU, loss by dev"
            " loss; none takes the last. By default as in the config."
        ),
    ] = None,
    combine: Annotated[
        str | None,
        typer.Option(
            help="A window of checkpoints as one model: ensemble (the default with --select), average of the weights,"
            " or last."
        ),
    ] = None,
    window: Annotated[int | None, typer.Option(help="Checkpoints in a window; by default 4.", min=1, max=20)] = None,
    beam: Annotated[
        int | None, typer.Option(help="Beam size; 1 is greedy. By default as in the config.", min=1)
    ] = None,
    select_beam: Annotated[
        int | None, typer.Option(help="Beam size while selecting; by default as in the config, else the same.", min=1)
    ] = None,
    length_penalty: Annotated[
        float | None,
        typer.Option(
            help="A translation scores its log probability / length ** this. By default as in the config.", min=0
        ),
    ] = None,
    comet: Annotated[
        str | None,
        typer.Option(
            help="Score with COMET too: wmt22-comet-da, another name, or the folder of a model. Needs the extra comet.",
            metavar="MODEL",
        ),
    ] = None,
) -> None:
    """Translate the test sets with a trained run and score them with BLEU and chrF.

    Example: rota evaluate runs/my --select low-resource
    """
    from rota import show
    from rota.runner import evaluate_with_display

    scorer = None if comet is None else _load_comet(comet)  # first: a mistake in it must not wait for translations
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
    )
    if scorer is not None:
        evaluation = _with_comet(run, evaluation, scorer)
    if evaluation.selection is not None:
        show.console.print(show.window_table(evaluation.selection))
    show.console.print(show.score_table(evaluation, f"{run}, {show.model_name(evaluation)}, {split}"))
    show.console.print(show.signatures(evaluation), style="dim", highlight=False)


def _load_comet(name: str) -> Comet:
    from rota.evaluation.comet import Comet

    return Comet.load(name)


def _with_comet(run: Path, evaluation: Evaluation, comet: Comet) -> Evaluation:
    from rota import show
    from rota.evaluation.evaluate import with_comet

    with show.progress_bar() as progress:
        return with_comet(run, evaluation, comet, progress=progress)
