"""The application that the commands register with, and the arguments that they share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(
    help="Multilingual machine translation in which a teacher decides whose turn it is.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)

ConfigPath = Annotated[Path, typer.Argument(help="A YAML config.", metavar="CONFIG")]
RunPath = Annotated[Path, typer.Argument(help="A run folder, as written by rota train.", metavar="RUN")]
Overrides = Annotated[
    list[str] | None,
    typer.Option(
        "--set", help="A value over the config, such as training.steps=10k; may be repeated.", metavar="KEY=VALUE"
    ),
]
