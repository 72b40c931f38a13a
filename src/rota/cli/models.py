"""``rota translate``, ``export`` and ``schedule``."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rota.cli import views
from rota.cli.application import RunPath, TranslationThreads, app

if TYPE_CHECKING:
    from rota.evaluation.ctranslate import CTranslator
    from rota.evaluation.translator import Translator

CHUNK = 2000
"""Lines that are read, sorted by length, translated and written together: memory stays small, output comes early."""


@app.command()
def translate(
    model: Annotated[
        Path, typer.Argument(help="A run folder, or an export made with --to ctranslate2.", metavar="MODEL")
    ],
    language: Annotated[str, typer.Option("--from", "--language", "-l", help="Language of the text.")],
    to: Annotated[
        str | None,
        typer.Option(
            "--to", help="Language to translate into; needed if there are several.", show_default="the only one"
        ),
    ] = None,
    step: Annotated[int | None, typer.Option(help="Which checkpoint of a run.", show_default="the last")] = None,
    selected: Annotated[
        bool, typer.Option("--selected", help="The model that rota evaluate --select found best, perhaps an ensemble.")
    ] = False,
    beam: Annotated[int, typer.Option(help="Beam size; 1 is greedy.", min=1)] = 5,
    threads: TranslationThreads = None,
) -> None:
    """Translate text from standard input, one sentence a line, to standard output.

    Example: rota translate runs/my --from az < in.txt > out.txt
    """
    from rota.data.corpora.parallel import decode_lines

    to = _target(model, language, to)
    translator = _open(model, step, threads, selected=selected)
    translator.subwords.tag(language)  # an unknown language is a mistake even before the first line
    translator.subwords.target_tag(to, translator.targets)
    lines = decode_lines(sys.stdin.buffer, "standard input")
    size = 1 if sys.stdin.isatty() else CHUNK  # a person who types a line wants its translation at once
    try:
        for chunk in _chunks(lines, size):
            found = translator.translate(chunk, language, to=to, beam=beam)
            sys.stdout.write("".join(" ".join(line.split()) + "\n" for line in found))
            sys.stdout.flush()
    except BrokenPipeError:  # the reader has seen enough, as in: rota translate ... | head
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _target(model: Path, language: str, to: str | None) -> str | None:
    """The only language that a run has learned to translate this one into, if none is named; says what is untrained."""
    from rota.runs import Run

    run = Run(model)
    if not run.exists:
        return to
    trained = list(dict.fromkeys(route.target for route in run.routes.values() if route.source == language))
    if to is None:
        return trained[0] if len(trained) == 1 else None
    if trained and to not in trained and to in run.targets:
        told = f"{language}-{to} was not trained, so expect little; from {language} this model was trained into"
        sys.stderr.write(f"warning: {told} {', '.join(trained)}\n")
    return to


def _open(model: Path, step: int | None, threads: int | None, *, selected: bool) -> Translator | CTranslator:
    from rota.evaluation.ctranslate import CTranslator, is_ctranslate2
    from rota.evaluation.translator import Translator
    from rota.runs import Run
    from rota.student.hardware import use_threads

    if selected and step is not None:
        raise ValueError(f"--selected and --step {step} name two models; give one of them")
    if is_ctranslate2(model):
        if step is not None:
            raise ValueError(f"--step {step} is for run folders; {model} holds one model")
        if selected:
            raise ValueError(f"--selected is for run folders; {model} holds one model")
        return CTranslator(model, threads=threads)
    if (model / "model.safetensors").is_file():
        raise ValueError(f"{model} is for transformers (see its README.md); give a run, or export --to ctranslate2")
    if not selected and step is None and Run(model).selection() is not None:
        sys.stderr.write(
            "translating with the last checkpoint; --selected: with the model that rota evaluate selected\n"
        )
    cores = use_threads(threads)
    translator = Translator.load_selected(model) if selected else Translator.load(model, step=step)
    translator.processes = cores
    return translator


def _chunks(lines: Iterator[str], size: int) -> Iterator[list[str]]:
    while chunk := list(islice(lines, size)):
        yield chunk


@app.command()
def export(
    run: RunPath,
    to: Annotated[str, typer.Option(help="hf (for transformers) or ctranslate2.")],
    out: Annotated[Path, typer.Option(help="The new folder; an earlier export there is replaced.")],
    step: Annotated[
        int | None,
        typer.Option(
            help="Which checkpoint.", show_default="the model whose scores a report shows, or the last checkpoint"
        ),
    ] = None,
    selected: Annotated[
        bool, typer.Option("--selected", help="The checkpoints that rota evaluate --select found best.")
    ] = False,
    combine: Annotated[
        str | None,
        typer.Option(
            help="last; average: the mean of the weights of the checkpoints selected, or of the last 4;"
            " moving-average, if the run kept one (student.average).",
            show_default="as the model that a report shows; with --step, last",
        ),
    ] = None,
    quantization: Annotated[str, typer.Option(help="float32 or int8; int8 only for ctranslate2.")] = "float32",
) -> None:
    """Write a trained model as a folder that transformers or CTranslate2 can use without Rota.

    Example: rota export runs/my --to ctranslate2 --quantization int8 --out models/my
    """
    from rota.export.model import export as export_run

    folder = export_run(run, out, to=to, step=step, selected=selected, combine=combine, quantization=quantization)
    views.say(f"wrote {folder}; its README.md says what it is and how it is used")


@app.command()
def schedule(
    run: RunPath,
    to: Annotated[str, typer.Option(help="opustrainer (stages), weights (of Eole and OpenNMT-py) or csv.")],
    out: Annotated[Path | None, typer.Option(help="The file to write.", show_default="standard output")] = None,
    windows: Annotated[int, typer.Option(help="Parts of the run, with equally many updates each.", min=1)] = 20,
    paths: Annotated[
        str | None,
        typer.Option(
            help="Where the text of each language is, such as corpora/{arm}.tsv.gz.",
            metavar="PATTERN",
            show_default="{arm}.tsv; for weights {arm}.{side}",
        ),
    ] = None,
) -> None:
    """Write what a run was trained on as a schedule for other toolkits, or as a table.

    Example: rota schedule runs/dqn --to opustrainer --out dqn.yml
    """
    from rota.export.schedule import read_schedule, write_schedule
    from rota.files import write_atomically
    from rota.runs import Run

    text = write_schedule(read_schedule(Run(run), windows), to, paths)
    if out is None:
        sys.stdout.write(text)
        return
    write_atomically(out, text)
    views.say(f"wrote {out}")
