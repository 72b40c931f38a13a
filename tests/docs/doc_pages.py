"""Markdown pages as tests read them: fenced blocks, code, and the commands and options that a page names."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from typer.main import get_command

from rota.cli import app

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
COMMAND_PAGES = DOCS / "commands"
PAGES = sorted([ROOT / "README.md", *DOCS.glob("*.md"), *COMMAND_PAGES.glob("*.md")])

_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_INLINE = re.compile(r"`([^`\n]+)`")
_CALL = re.compile(r"(?<![\w\"])rota[ ]+([a-z][a-z-]*)([^\n#|;]*)")
_OPTION = re.compile(r"(?<![\w-])--[a-z][\w-]*")


@cache
def commands() -> dict[str, Any]:
    """All commands of the program by name, in the order of ``rota --help``.

    They are click's, or those of the copy of click that newer versions of Typer bring.
    """
    return dict(get_command(app).commands)  # type: ignore[attr-defined]


def is_option(parameter: Any) -> bool:
    return bool(parameter.param_type_name == "option")


def parameters(command: str) -> list[Any]:
    """Arguments, then options, each in the order of the help."""
    return sorted(commands()[command].params, key=is_option)


@cache
def options(command: str) -> set[str]:
    """Every spelling of every option of a command."""
    found = {
        spelling for each in filter(is_option, parameters(command)) for spelling in each.opts + each.secondary_opts
    }
    return found | {"--help"}


def blocks(text: str) -> Iterator[tuple[str, str]]:
    """The fenced blocks of a page in order: what they are in, and their content."""
    for found in _FENCE.finditer(text):
        yield found[1], found[2]


def code(text: str) -> Iterator[str]:
    """Fenced blocks, Python left out, and code within sentences."""
    yield from (content.replace("\\\n", " ") for language, content in blocks(text) if language != "python")
    yield from (found[1] for found in _INLINE.finditer(_FENCE.sub("", text)))


def calls(text: str) -> Iterator[tuple[str, list[str]]]:
    """Every ``rota COMMAND ...`` in the code of a page, with the options after it."""
    for part in code(text):
        for found in _CALL.finditer(part):
            yield found[1], _OPTION.findall(found[2])


def bare_options(text: str) -> Iterator[str]:
    """The options that a page names without saying of which command."""
    for part in code(text):
        yield from _OPTION.findall(_CALL.sub("", part))
