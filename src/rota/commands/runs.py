"""``rota demo``, ``prepare`` and ``train``. Heavy imports wait until they are needed."""

from __future__ import annotations

import shlex
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rota.commands.app import ConfigPath, Overrides, app

if TYPE_CHECKING:
    from rota.config import RunConfig


def _load(config: Path, overrides: list[str] | None) -> RunConfig:
    from rota.config import load_config

    return load_config(config, overrides or [])


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


@app.command()
def prepare(
    config: ConfigPath,
    set_: Overrides = None,
    again: Annotated[bool, typer.Option("--again", help="Prepare anew, in the place of what is there.")] = False,
    processes: Annotated[
        int | None, typer.Option(help="By default one for each core if the corpus is large, else one.", min=1)
    ] = None,
) -> None:
    """Turn parallel text into an encoded data folder; after an interruption the same command goes on.

    Example: rota prepare my.yaml --set data.subwords.size=8k
    """
    from rota import api, show
    from rota.runner import log_to_console

    settings = _load(config, set_)
    log_to_console()
    try:
        with show.progress_bar() as progress:
            store = api.prepare(settings, again=again, processes=processes, progress=progress)
    except KeyboardInterrupt:  # what is kept has been said
        raise SystemExit(128 + signal.SIGINT) from None
    show.console.print(show.data_table(store))


@app.command()
def train(
    config: ConfigPath,
    set_: Overrides = None,
    run: Annotated[
        Path | None, typer.Option(help="The run folder; by default runs/NAME, as the config is named.")
    ] = None,
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
