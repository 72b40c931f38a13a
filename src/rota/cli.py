"""The command line: each command is a few lines over :mod:`rota.api`. Heavy imports wait until they are needed."""

from __future__ import annotations

import logging
import os
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from rota.config import RunConfig

app = typer.Typer(
    help="Multilingual machine translation in which a teacher decides whose turn it is.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)

ConfigPath = Annotated[Path, typer.Argument(help="A YAML config.", metavar="CONFIG")]
RunPath = Annotated[Path, typer.Argument(help="A run folder, as written by rota train.", metavar="RUN")]
Overrides = Annotated[list[str] | None, typer.Option("--set", help="key=value over the config; may be repeated.")]


def main() -> None:
    """The entry point: what a user got wrong is one line on stderr and exit code 2, never a traceback."""
    # Read by OpenMP when torch is loaded: how long a waiting thread spins before it sleeps. For as long as is usual, a
    # core that is shared made training up to ten times slower; not at all, and a free machine loses a quarter.
    os.environ.setdefault("GOMP_SPINCOUNT", "30000")
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s: %(message)s")
    try:
        app()
    except (ValueError, ArithmeticError, OSError) as error:
        if os.environ.get("ROTA_TRACEBACK"):
            raise
        sys.stderr.write(f"error: {error}\n")
        sys.exit(1 if isinstance(error, ArithmeticError) else 2)


def _load(config: Path, overrides: list[str] | None) -> RunConfig:
    from rota.config import load_config

    return load_config(config, overrides or [])


@app.command()
def prepare(
    config: ConfigPath,
    set_: Overrides = None,
    again: Annotated[bool, typer.Option(help="Replace data that were prepared otherwise.")] = False,
) -> None:
    """Turn parallel text into an encoded data folder.

    Example: rota prepare my.yaml --set data.subwords.size=8k
    """
    from rota import api, show

    with show.progress_bar() as progress:
        store = api.prepare(_load(config, set_), again=again, progress=progress)
    show.console.print(show.data_table(store))


@app.command()
def train(
    config: ConfigPath,
    set_: Overrides = None,
    run: Annotated[Path | None, typer.Option(help="The run folder; by default runs/<name of the config>.")] = None,
    until: Annotated[int | None, typer.Option(help="Stop, and save, at this step.", min=1)] = None,
) -> None:
    """Train a model, or go on training it; the data are prepared first if need be.

    Example: rota train my.yaml --set teacher=proportional --run runs/proportional
    """
    from rota import show
    from rota.runner import train_with_display

    settings = _load(config, set_)
    options = [part for override in set_ or [] for part in ("--set", override)] + (["--run", str(run)] if run else [])
    again = f"{show.program()} " + shlex.join(["train", str(config), *options])
    train_with_display(settings, run or Path("runs") / settings.name, until=until, again=again)


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


@app.command()
def teachers() -> None:
    """List the teachers with their parameters, defaults and sources."""
    from rota import show
    from rota.teachers import TEACHERS

    for name, config in TEACHERS.items():
        show.console.print(show.teacher_table(name, config))


@app.command()
def simulate(
    names: Annotated[
        list[str] | None, typer.Argument(help="Teachers; by default uniform, tscl and dqn.", metavar="TEACHER")
    ] = None,
    world: Annotated[str, typer.Option(help="stationary, switch or transfer.")] = "transfer",
    steps: Annotated[int, typer.Option(help="Updates of the scripted student.", min=1)] = 3000,
    seed: Annotated[int, typer.Option(help="Of teachers and noise.")] = 1,
    set_: Overrides = None,
) -> None:
    """Try teachers in seconds on a scripted student with known learning curves. For understanding, not for results.

    Example: rota simulate tscl --world switch --set epsilon=0.3
    """
    from rota import show
    from rota.runner import simulate_teachers

    results = simulate_teachers(names or ["uniform", "tscl", "dqn"], world, steps, seed, set_ or [])
    show.console.print(show.simulation_table(results, f"world {world}, {steps:,} updates of a scripted student"))


@app.command()
def policy(
    run: RunPath,
    step: Annotated[int | None, typer.Option(help="Which checkpoint; by default the last.")] = None,
    factor: Annotated[float, typer.Option(help="By which the losses of one language are multiplied.", min=0)] = 5.0,
) -> None:
    """Show what the Q network of a DQN run would do if one language were poorly learned (Section 5.5 of the paper).

    Example: rota policy runs/dqn --step 28000
    """
    from rota import show
    from rota.runner import probe_policy

    probe, picture = probe_policy(run, step, factor)
    show.console.print(show.policy_table(probe))
    show.console.print(f"drawn in {picture}")


@app.command()
def demo(
    corpus: Annotated[
        str, typer.Option(help="catalogues (real text, needs a package registry) or synthetic.")
    ] = "catalogues",
    teacher: Annotated[str, typer.Option(help="The schedule; rota teachers lists them.")] = "uniform",
    folder: Annotated[Path, typer.Option(help="Where data and run go.")] = Path("demo"),
) -> None:
    """Prepare a small corpus, train for a few minutes, translate, score: the whole road in one command.

    Example: rota demo --corpus synthetic --teacher proportional
    """
    from rota.demo import run_demo

    run_demo(corpus, teacher, folder)
