"""The application that the commands register with, and the arguments that they share."""

from __future__ import annotations

from importlib.metadata import version as installed
from pathlib import Path
from typing import Annotated, cast

import typer

app = typer.Typer(
    help="Multilingual machine translation in which a teacher decides what the model trains on next.",
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)

ConfigPath = Annotated[Path, typer.Argument(help="A YAML config.", metavar="CONFIG")]
RunPath = Annotated[Path, typer.Argument(help="A run folder, as written by rota train.", metavar="RUN")]
TranslationThreads = Annotated[
    int | None,
    typer.Option(
        help="Cores to use: so many batches are translated at the same time.",
        min=1,
        show_default="one for each core",
    ),
]
Overrides = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        help="Override a value of the config, such as training.steps=10k; may be repeated.",
        metavar="KEY=VALUE",
        show_default="nothing is changed",
    ),
]


@app.callback(invoke_without_command=True)
def start(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Show the version.")] = False,
) -> None:
    if version:
        typer.echo(f"rota {installed('rota-nmt')}")
        raise typer.Exit
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())
        raise typer.Exit(2)


UsageError = cast(type[typer.BadParameter], typer.BadParameter.__mro__[1])
"""click's, or that of the copy of click that newer versions of Typer bring."""


def call() -> int:
    """Runs the command line and returns its exit code; a wrong command line is a ValueError."""
    try:
        code = app(prog_name="rota", standalone_mode=False)
    except typer.Abort as error:  # from an EOFError; in older versions of Typer also from Ctrl-C
        if isinstance(error.__cause__, KeyboardInterrupt):
            return 130
        raise ValueError(f"a file ended early: {error.__cause__}; ROTA_TRACEBACK=1 shows which") from error.__cause__
    except UsageError as mistake:
        said = " ".join(mistake.format_message().split()).rstrip(".")
        path = "rota" if mistake.ctx is None else mistake.ctx.command_path
        raise ValueError(f"{said}; see {path} --help") from None
    return code if isinstance(code, int) else 0


def out_of_memory(error: Exception) -> str | None:
    """One line about memory that ran out where that was not expected; None: the error's own message is enough."""
    if not isinstance(error, RuntimeError | MemoryError):
        return None
    from rota.student.hardware import TooLargeError, is_out_of_memory

    if isinstance(error, TooLargeError) or not is_out_of_memory(error):
        return None
    said = str(error).partition("\n")[0].rstrip(".")
    return f"out of memory{f' ({said})' if said else ''}; free some, or leave the GPU out with CUDA_VISIBLE_DEVICES=-1"
