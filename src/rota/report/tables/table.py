"""A table of a report, and how it is written: Markdown, LaTeX, CSV, HTML."""

from __future__ import annotations

import csv
import html
import io
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Cell:
    """What stands in one place: the text, a significance mark, and the paper's number if it has one.

    ``alone``: the text of a first column on a narrow screen, where the next ones scroll out of sight.
    """

    text: str
    mark: str = ""
    paper: str = ""
    alone: str = ""


@dataclass(frozen=True)
class Table:
    """Rows of cells under columns. ``data`` are the same numbers at full precision, one value a line, for CSV."""

    name: str  # of its files and its anchor
    title: str
    caption: str
    columns: tuple[str, ...]
    rows: list[list[Cell]]
    note: str = ""  # how to read it, if several tables of a section share that: the page says it once
    text_columns: int = 2  # the first ones, aligned to the left
    data: Sequence[Mapping[str, object]] = ()


def to_markdown(table: Table) -> str:
    lines = [f"### {_md(table.title)}", "", _md(_explained(table)), ""]
    lines.append(_md_line(list(table.columns)))
    align = [":--" if index < table.text_columns else "--:" for index in range(len(table.columns))]
    lines.append(f"| {' | '.join(align)} |")
    lines += [_md_line([_plain(cell) for cell in row]) for row in table.rows]
    return "\n".join(lines) + "\n"


def _explained(table: Table) -> str:
    return f"{table.caption} {table.note}".strip()


def _plain(cell: Cell) -> str:
    mark = f" {cell.mark}" if cell.mark else ""
    paper = f" ({cell.paper})" if cell.paper else ""
    return f"{cell.text}{mark}{paper}"


def _md_line(cells: list[str]) -> str:
    return f"| {' | '.join(map(_md, cells))} |"


def _md(text: str) -> str:
    """Characters that Markdown would read as something else."""
    return re.sub(r"([\\`*_|<>\[\]])", r"\\\1", " ".join(text.split()))


_TEX = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "\N{PLUS-MINUS SIGN}": r"$\pm$",
    "\N{MINUS SIGN}": "$-$",
    "\N{MULTIPLICATION SIGN}": r"$\times$",
    **{sign: f"\\{sign}" for sign in "&%$#_{}"},
}


def tex(text: str) -> str:
    """Plain text as LaTeX."""
    return "".join(_TEX.get(character, character) for character in text)


def to_latex(table: Table) -> str:
    """A ``table`` for the package booktabs."""
    columns = "l" * table.text_columns + "r" * (len(table.columns) - table.text_columns)
    lines = [
        r"\begin{table}",
        r"\centering",
        rf"\caption{{{tex(table.title)}. {tex(_explained(table))}}}",
        rf"\label{{tab:{table.name}}}",
        rf"\begin{{tabular}}{{{columns}}}",
        r"\toprule",
        " & ".join(map(tex, table.columns)) + r" \\",
        r"\midrule",
        *(" & ".join(map(_tex_cell, row)) + r" \\" for row in table.rows),
        r"\bottomrule",
        r"\end{tabular}",
        r"\end{table}",
    ]
    return "\n".join(lines) + "\n"


def _tex_cell(cell: Cell) -> str:
    signs = cell.mark.replace("\N{MINUS SIGN}", "-")
    mark = f"$^{{{signs}}}$" if signs else ""
    paper = rf" {{\small({tex(cell.paper)})}}" if cell.paper else ""
    # A line that begins with a bracket would be read as an option of the line break before it.
    text = tex(cell.text)
    return ("{}" if text.startswith("[") else "") + text + mark + paper


def to_csv(table: Table) -> str:
    """The numbers themselves, unrounded; the columns of the table as they are where there are none."""
    lines = table.data or [dict(zip(table.columns, map(_plain, row), strict=True)) for row in table.rows]
    names = list(dict.fromkeys(name for line in lines for name in line))
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, names, lineterminator="\n")
    writer.writeheader()
    writer.writerows(lines)
    return buffer.getvalue()


def to_html(table: Table) -> str:
    """A table in a box of its own that scrolls; the page itself never does sideways."""
    escaped = html.escape
    head = "".join(
        f'<th scope="col"{_side(index, table)}>{escaped(name)}</th>' for index, name in enumerate(table.columns)
    )
    caption = f"<caption>{escaped(table.caption)}</caption>" if table.caption else ""
    body = "\n".join(f"<tr>{_html_row(row, table)}</tr>" for row in table.rows)
    return (
        f'<div class="scroll" role="region" aria-label="{escaped(table.title)}" tabindex="0">'
        f"<table>{caption}"
        f"<thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody></table></div>"
    )


def _html_row(row: list[Cell], table: Table) -> str:
    first, *others = row
    cells = [f'<th scope="row">{_html_cell(first)}</th>']
    cells += [f"<td{_side(index, table)}>{_html_cell(cell)}</td>" for index, cell in enumerate(others, start=1)]
    return "".join(cells)


def _side(index: int, table: Table) -> str:
    return ' class="text"' if index < table.text_columns else ""


def _html_cell(cell: Cell) -> str:
    mark = f"<sup>{html.escape(cell.mark)}</sup>" if cell.mark else ""
    paper = f'<span class="paper">paper {html.escape(cell.paper)}</span>' if cell.paper else ""
    return f"{_html_text(cell)}{mark}{paper}"


def _html_text(cell: Cell) -> str:
    text = html.escape(cell.text)
    if cell.alone in ("", cell.text):
        return text
    return f'<span class="beside">{text}</span><span class="alone">{html.escape(cell.alone)}</span>'
