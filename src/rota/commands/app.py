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


def unforeseen_lack(error: Exception) -> str | None:
    """One line about memory that ran out where nobody expected it; None: the error speaks for itself."""
    if not isinstance(error, RuntimeError | MemoryError):
        return None
    from rota.student.hardware import TooLargeError, is_out_of_memory

    if isinstance(error, TooLargeError) or not is_out_of_memory(error):
        return None
    said = str(error).partition("\n")[0].rstrip(".")
    return f"out of memory{f' ({said})' if said else ''}; free some, or leave the GPU out with CUDA_VISIBLE_DEVICES=-1"
