"""The files of a report, and which of an earlier one must go."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from rota.analysis.page import MADE_BY, Section, make_markdown, make_page
from rota.analysis.table import Table, to_csv, to_latex, to_markdown
from rota.files import write_atomically

FORMS = {"md": to_markdown, "tex": to_latex, "csv": to_csv}
FIGURE = "png"


def write_report(out: Path, title: str, about: str, sections: Sequence[Section]) -> tuple[list[str], list[str]]:
    """Page, tables and figures; returns the names of the tables and of the figures."""
    tables = [table for section in sections for table in section.tables]
    pictures = [picture for section in sections for picture in section.pictures]
    earlier = _files_of(out / "index.html")
    for table in tables:
        _write_table(table, out / "tables")
    for picture in pictures:
        picture.write(out / "figures")
    write_atomically(out / "report.md", make_markdown(title, about, sections))
    write_atomically(out / "index.html", make_page(title, about, sections))
    for path in earlier - _files_of(out / "index.html"):
        path.unlink(missing_ok=True)
    return [table.name for table in tables], [picture.name for picture in pictures]


def _write_table(table: Table, folder: Path) -> None:
    for ending, write in FORMS.items():
        write_atomically(folder / f"{table.name}.{ending}", write(table))


def _files_of(page: Path) -> set[Path]:
    """The tables and figures that a page of ours shows; what else lies beside it is not ours to remove."""
    text = page.read_text(encoding="utf-8", errors="replace") if page.is_file() else ""
    if MADE_BY not in text:
        return set()
    tables = re.findall(r'<div id="table-([^"/\\]+)">', text)
    figures = re.findall(r'<figure id="figure-([^"/\\]+)">', text)
    found = {page.parent / "tables" / f"{name}.{ending}" for name in tables for ending in FORMS}
    return found | {page.parent / "figures" / f"{name}.{FIGURE}" for name in figures}
