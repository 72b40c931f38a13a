"""``rota evaluate`` and ``translate``. Heavy imports wait until they are needed."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from rota.commands.app import RunPath, app


@app.command()
def evaluate(
    run: RunPath,
    split: Annotated[str, typer.Option(help="test or dev.")] = "test",
    step: Annotated[int | None, typer.Option(help="Which checkpoint; by default the last.")] = None,
    beam: Annotated[
        int | None, typer.Option(help="Beam size; 1 is greedy. By default as in the config.", min=1)
    ] = None,
) -> None:
    """Translate the test sets with a trained run and score them with BLEU and chrF.

    Example: rota evaluate runs/my --beam 1
    """
    from rota import show
    from rota.runner import evaluate_with_display

    evaluation = evaluate_with_display(run, split=split, step=step, beam=beam)
    show.console.print(show.score_table(evaluation, f"{run}, step {evaluation.step:,}, {split}"))
    show.console.print(show.signatures(evaluation), style="dim", highlight=False)


@app.command()
def translate(
    run: RunPath,
    language: Annotated[str, typer.Option("--language", "-l", help="Language of the text.")],
    step: Annotated[int | None, typer.Option(help="Which checkpoint; by default the last.")] = None,
    beam: Annotated[int, typer.Option(help="Beam size; 1 is greedy.", min=1)] = 5,
) -> None:
    """Translate text from standard input, one sentence a line, to standard output.

    Example: rota translate runs/my --language az < in.txt > out.txt
    """
    from rota.data.corpus import decode_lines
    from rota.evaluation.translator import Translator

    translator = Translator.load(run, step=step)
    lines = list(decode_lines(sys.stdin.buffer, "standard input"))
    for line in translator.translate(lines, language, beam=beam):
        sys.stdout.write(" ".join(line.split()) + "\n")
