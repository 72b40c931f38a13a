"""The parts of docs/ that are made from the program: tables of options, the list of commands, the schedules.

They are kept in the pages, so that they can be read in the repository, between two comments that say so; everything
around them is written by hand. ``make pages`` brings them up to date, and begins a page for a new command. A test
compares them with the program.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from typer.main import get_command

from rota.cli import app
from rota.teachers import TEACHERS
from rota.teachers.card import ADVICE, FAMILIES, Card
from rota.teachers.curricula import CURRICULA
from rota.teachers.weights.presets import PRESETS

DOCS: Final = Path(__file__).parents[1] / "docs"
BEGIN: Final = "<!-- made by `make pages`: change the program, not these lines -->"
END: Final = "<!-- written by hand from here on -->"
SECTIONS: Final = ("Example", "Options", "What it writes", "Interrupted, repeated", "Errors")

EXPLAINED: Final[Mapping[str, str]] = {
    "static": "teachers.md",
    "scripted": "teachers.md#scripted-schedules",
    "weights": "weights.md",
    **{name: f"weights.md#{name}" for name in PRESETS},
    "curricula": "teachers.md#curricula",
    "controls": "teachers.md#controls",
    "tscl": "teachers.md#tscl",
    "dqn": "teachers.md#dqn",
    "align": "teachers.md#align",
    "caps": "teachers.md#caps",
    "kumar": "teachers.md#bins-of-a-text",
    "ccl-m": "teachers.md#ccl-m",
    "weight-change": "teachers.md#change-of-weights",
    "sb3": "gym.md#a-policy-as-a-teacher",
}
"""Where a schedule, or else its family, is explained; a test follows the links."""


def commands() -> dict[str, Any]:
    """The commands by name, in the order of ``rota --help``."""
    return dict(get_command(app).commands)  # type: ignore[attr-defined]


def parts() -> dict[str, str]:
    """What is made from the program, by the page of docs/ that has it."""
    found = {f"commands/{name}.md": options_table(name, command) for name, command in commands().items()}
    return {"commands/README.md": command_list(commands()), "schedules.md": schedule_table(cards()), **found}


def command_list(found: Mapping[str, Any]) -> str:
    lines = ["| command | what it does |", "|---|---|"]
    return "\n".join([*lines, *(f"| [{name}]({name}.md) | {summary(found[name])} |" for name in found)])


def summary(command: Any) -> str:
    """The first sentence of the help."""
    return _cell(str(command.help).partition("\n\n")[0])


def options_table(name: str, command: Any) -> str:
    """How the command is typed, then its arguments and options: names, defaults and help texts."""
    arguments = [parameter for parameter in command.params if not _is_option(parameter)]
    options = [parameter for parameter in command.params if _is_option(parameter)]
    typed = ["rota", name, *(["[OPTIONS]"] if options else []), *map(_placeholder, arguments)]
    lines = ["```", " ".join(typed), "```", "", "| option | default | what it is |", "|---|---|---|"]
    rows = [f"| {_names(each)} | {_default(each)} | {_cell(each.help)} |" for each in (*arguments, *options)]
    return "\n".join([*lines, *rows])


def _is_option(parameter: Any) -> bool:
    return bool(parameter.param_type_name == "option")


def _placeholder(argument: Any) -> str:
    written = argument.metavar or argument.human_readable_name
    several = "..." if argument.nargs == -1 and written.isalpha() else ""
    return f"{written}{several}" if argument.required else f"[{written}]{several}"


def _names(parameter: Any) -> str:
    if not _is_option(parameter):
        return f"`{parameter.metavar or parameter.human_readable_name}`"
    return ", ".join(f"`{name}`" for name in (*parameter.opts, *parameter.secondary_opts))


def _default(parameter: Any) -> str:
    if parameter.required:
        return "required"
    if isinstance(parameter.show_default, str):
        return _cell(parameter.show_default)
    if parameter.default is None:
        raise ValueError(f"{parameter.opts[0]} has no default to show; say what it does without: show_default=...")
    if getattr(parameter, "is_flag", False):
        return "on" if parameter.default else "off"
    return f"`{parameter.default}`"


def _cell(text: str) -> str:
    """Help as a cell of a table; asterisks outside code must not become Markdown."""
    joined = " ".join(text.split())
    return (joined if "`" in joined else joined.replace("*", "\\*")).replace("|", "\\|")


def cards() -> dict[str, Card]:
    """The cards of all schedules and curricula, by name and family."""
    found = [(name, kind.card) for name, kind in TEACHERS.items()] + [
        (name, kind.card) for name, kind in CURRICULA.items()
    ]
    return {name: card for family in FAMILIES for name, card in found if card is not None and card.family == family}


def schedule_table(found: Mapping[str, Card]) -> str:
    head = "| name | family | what it does | observes | time, 750 | time, 8,000 | source |"
    lines = [ADVICE.replace("{", "`{").replace("}", "}`"), "", head, "|---|---|---|---|--:|--:|---|"]
    for name, card in found.items():
        place = EXPLAINED.get(name) or EXPLAINED[card.family]
        small, large = card.cost
        cells = [f"[`{name}`]({place})", FAMILIES[card.family].partition(":")[0], _cell(card.line), card.observes]
        lines.append(f"| {' | '.join([*cells, small, large, _cell(card.reference)])} |")
    return "\n".join(lines)


def updated(page: str, part: str) -> str:
    """A page with what is made from the program put between its two comments."""
    if page.count(BEGIN) != 1 or page.count(END) != 1 or page.index(END) < page.index(BEGIN):
        raise ValueError(f"write these two lines where the table belongs, and run make pages: {BEGIN} {END}")
    before, _, rest = page.partition(BEGIN)
    return f"{before}{BEGIN}\n\n{part}\n\n{END}{rest.partition(END)[2]}"


def new_page(name: str, command: Any) -> str:
    """The beginning of a page for a command that has none."""
    example = re.search(r"Example: (.*)", str(command.help))
    content = {"Example": f"```sh\n{example[1] if example else f'rota {name}'}\n```", "Options": f"{BEGIN}\n{END}"}
    sections = [f"## {title}\n\n{content.get(title, '...')}" for title in SECTIONS]
    return "\n\n".join([f"# rota {name}", summary(command), *sections]) + "\n"


def main(docs: Path = DOCS) -> list[Path]:
    """Brings all pages up to date; the pages that changed."""
    changed = []
    for place, part in parts().items():
        path = docs / place
        known = path.is_file()
        page = path.read_text(encoding="utf-8") if known else new_page(path.stem, commands()[path.stem])
        try:
            now = updated(page, part)
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from None
        if now != page or not known:
            path.write_text(now, encoding="utf-8")
            changed.append(path)
    return changed


if __name__ == "__main__":
    for each in main():
        sys.stdout.write(f"{each}\n")
