"""The files of a report: one self-contained HTML page (light and dark, screen and paper), Markdown, tables, figures."""

from __future__ import annotations

import base64
import html
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from string import Template

from rota.files import write_atomically
from rota.report.figures.drawing import SCHEDULES, Picture
from rota.report.tables.table import Table, to_csv, to_html, to_latex, to_markdown

PAGE = Template("""\
<!doctype html>
<html lang="en-GB">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>$title</title>
<link rel="icon" href="data:,">
<style>
$style
</style>
</head>
<body>
<header>
<h1>$title</h1>
<p class="soft">$about</p>
<nav aria-label="Sections"><ul>
$links
</ul></nav>
</header>
<main>
$sections
</main>
</body>
</html>
""")


MADE_BY = "Made by rota report from run records alone."
"""Stands on every page, so that a folder with one is known to be a report's own."""


EXPLORATORY = "exploratory"
"""Stands beside the title of a section that the plan of a study does not cover."""


@dataclass(frozen=True)
class Section:
    """A part of the report. ``commands`` are lines to copy into a shell, ``links`` names and folders of other pages.

    ``exploratory``: in a study with a plan, what the plan does not name.
    """

    name: str
    title: str
    sentences: Sequence[str] = ()
    points: Sequence[str] = ()
    commands: Sequence[str] = ()
    pictures: Sequence[Picture] = ()
    tables: Sequence[Table] = field(default_factory=list)
    links: Sequence[tuple[str, str]] = ()
    exploratory: bool = False

    @property
    def empty(self) -> bool:
        return not (self.sentences or self.points or self.commands or self.pictures or self.tables or self.links)


def make_page(title: str, about: str, sections: Sequence[Section]) -> str:
    shown = [section for section in sections if not section.empty]
    links = "\n".join(f'<li><a href="#{found.name}">{html.escape(found.title)}</a></li>' for found in shown)
    return PAGE.substitute(
        title=html.escape(title),
        about=html.escape(about),
        style=page_style(),
        links=links,
        sections="\n".join(map(_section, shown)),
    )


def page_style() -> str:
    text = resources.files("rota.report").joinpath("data", "page.css").read_text(encoding="utf-8")
    themes = zip(*SCHEDULES, strict=True)
    light, dark = (
        "  " + " ".join(f"--schedule-{index}: {colour};" for index, colour in enumerate(theme)) for theme in themes
    )
    return Template(text).substitute(light=light, dark=dark)


def _section(section: Section) -> str:
    mark = f' <span class="mark">{EXPLORATORY}</span>' if section.exploratory else ""
    parts = [f'<section id="{section.name}">', _heading(2, section.name, section.title, mark)]
    notes = dict.fromkeys(table.note for table in section.tables if table.note)
    parts += [f"<p>{_words(sentence)}</p>" for sentence in (*section.sentences, *notes)]
    parts += [f"<p><code>{html.escape(command)}</code></p>" for command in section.commands]
    if section.links:
        links = (
            f'<li><a href="{html.escape(path)}/index.html">{_words(name)}</a></li>' for name, path in section.links
        )
        parts.append("<ul>" + "\n".join(links) + "</ul>")
    if section.pictures:
        parts.append('<div class="figures">' + "\n".join(map(_figure, section.pictures)) + "</div>")
    if section.points:
        parts.append("<ul>" + "\n".join(f"<li>{_words(point)}</li>" for point in section.points) + "</ul>")
    parts += map(_table, section.tables)
    return "\n".join([*parts, "</section>"])


def _words(text: str) -> str:
    """Text as HTML; a number stays with its per cent sign."""
    return html.escape(text).replace(" %", "&nbsp;%")


def _heading(level: int, anchor: str, title: str, mark: str = "") -> str:
    return f'<h{level}><a href="#{anchor}">{html.escape(title)}</a>{mark}</h{level}>'


def _figure(picture: Picture) -> str:
    alt = html.escape(picture.alt)
    return (
        f'<figure id="figure-{picture.name}">{_heading(3, f"figure-{picture.name}", picture.title)}'
        f'<div role="img" aria-label="{alt}">{picture.svg}</div>'
        f"<figcaption>{_words(picture.caption)}</figcaption></figure>"
    )


def _table(table: Table) -> str:
    data = base64.b64encode(to_csv(table).encode()).decode()
    link = f'<a download="{table.name}.csv" href="data:text/csv;base64,{data}">numbers as CSV</a>'
    heading = _heading(3, f"table-{table.name}", table.title)
    return f'<div id="table-{table.name}">{heading}{to_html(table)}<p class="download">{link}</p></div>'


def make_markdown(title: str, about: str, sections: Sequence[Section]) -> str:
    """The same report for places that show no HTML; figures are the PNG files beside it."""
    parts = [f"# {title}", about]
    for section in sections:
        if section.empty:
            continue
        mark = f" ({EXPLORATORY})" if section.exploratory else ""
        parts += [f"## {section.title}{mark}", *section.sentences]
        if section.links:
            parts.append("\n".join(f"- [{name}]({path}/report.md)" for name, path in section.links))
        if section.commands:
            parts.append("```bash\n" + "\n".join(section.commands) + "\n```")
        parts += [
            f"![{picture.title}](figures/{picture.name}.png)\n\n{picture.caption}" for picture in section.pictures
        ]
        if section.points:
            parts.append("\n".join(f"- {point}" for point in section.points))
        parts += [to_markdown(table).rstrip("\n") for table in section.tables]
    return "\n\n".join(parts) + "\n"


FORMS = {"md": to_markdown, "tex": to_latex, "csv": to_csv}
FIGURE = "png"


def write_report(out: Path, title: str, about: str, sections: Sequence[Section]) -> tuple[list[str], list[str]]:
    """Page, tables and figures; returns the names of the tables and of the figures."""
    tables = [table for section in sections for table in section.tables]
    pictures = [picture for section in sections for picture in section.pictures]
    earlier = files_of(out / "index.html")
    for table in tables:
        _write_table(table, out / "tables")
    for picture in pictures:
        picture.write(out / "figures")
    write_atomically(out / "report.md", make_markdown(title, about, sections))
    write_atomically(out / "index.html", make_page(title, about, sections))
    for path in earlier - files_of(out / "index.html"):
        path.unlink(missing_ok=True)
    return [table.name for table in tables], [picture.name for picture in pictures]


def _write_table(table: Table, folder: Path) -> None:
    for ending, write in FORMS.items():
        write_atomically(folder / f"{table.name}.{ending}", write(table))


def files_of(page: Path) -> set[Path]:
    """The tables and figures that a page of ours shows; what else lies beside it does not belong to the report."""
    text = page.read_text(encoding="utf-8", errors="replace") if page.is_file() else ""
    if MADE_BY not in text:
        return set()
    tables = re.findall(r'<div id="table-([^"/\\]+)">', text)
    figures = re.findall(r'<figure id="figure-([^"/\\]+)">', text)
    found = {page.parent / "tables" / f"{name}.{ending}" for name in tables for ending in FORMS}
    return found | {page.parent / "figures" / f"{name}.{FIGURE}" for name in figures}
