"""How every figure is drawn and written: its colours, as PNG for paper and as SVG in the colours of the page.

Related languages have related colours, and colour-blind readers can tell all of them apart.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine

from rota.types import Arm

# As in the paper's figure (Section 5.3): a hue for each family, dark for the low-resource language and light for its
# relative. The tones keep all eight apart for colour-blind readers, and the dark ones from a white and a dark page.
FAMILIES = {
    ("az", "tr"): ("#B8480A", "#F5B04C"),  # orange
    ("be", "ru"): ("#1060D0", "#66AEF5"),  # blue
    ("gl", "pt"): ("#AB3592", "#E6BCD4"),  # purple
    ("sk", "cs"): ("#20825A", "#7BE398"),  # green
}
NAMED = {arm: colour for arms, colours in FAMILIES.items() for arm, colour in zip(arms, colours, strict=True)}
OTHERS = ("#1060D0", "#F5B04C", "#20825A", "#AB3592", "#66AEF5", "#B8480A", "#F0E442", "#666666")


LIGHTEST = 0.6
"""Of the way to white: the lightest shade of a language's colour."""


def language_colours(languages: Sequence[Arm]) -> dict[Arm, str]:
    """The paper's languages have their own colours; others take turns through the palette."""
    others = [arm for arm in languages if arm not in NAMED]
    taken = {NAMED.get(arm) for arm in languages}
    free = [colour for colour in OTHERS if colour not in taken]
    turn = {arm: free[index % len(free)] for index, arm in enumerate(others)}
    return {arm: NAMED.get(arm) or turn[arm] for arm in languages}


def shades(colour: str, count: int) -> list[str]:
    """The colour itself and lighter ones, for arms of one language beside each other."""
    if count == 1:
        return [colour]
    parts = [int(colour[place : place + 2], 16) for place in (1, 3, 5)]
    lighter = [LIGHTEST * number / (count - 1) for number in range(count)]
    return ["#" + "".join(f"{round(part + (255 - part) * share):02x}" for part in parts) for share in lighter]


def line_colours(languages: Sequence[Arm]) -> dict[Arm, str]:
    """The same for lines, too thin for light tones: relatives share the dark one and differ by their dashes."""
    dark = {arm: colours[0] for arms, colours in FAMILIES.items() for arm in arms}
    return {arm: dark.get(arm, colour) for arm, colour in language_colours(languages).items()}


# Light page, dark page. Okabe and Ito's hues, the light ones darkened for white paper and the dark ones lightened.
SCHEDULES = (
    ("#0072B1", "#4FA8DC"),
    ("#D55E01", "#F08A45"),
    ("#009E74", "#35C79C"),
    ("#B5538F", "#DE93C0"),
    ("#A87400", "#E8B33A"),
    ("#4B4F9E", "#A4A8F0"),
    ("#6B6F75", "#A8AEB5"),
)
DASHES = ("-", (0, (5, 1.5)), (0, (1.5, 1.2)), (0, (6, 1.5, 1.5, 1.5)))
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">", "*")

Dash = str | tuple[float, tuple[float, ...]]


@dataclass(frozen=True)
class Look:
    """How one schedule is drawn, told apart by colour, by line and by marker."""

    colour: str
    dash: Dash
    marker: str


def schedule_looks(names: Sequence[str]) -> dict[str, Look]:
    """No two of the first 28 schedules have the same colour and line."""
    looks = {}
    for index, name in enumerate(names):
        turn, place = divmod(index, len(SCHEDULES))
        dash = DASHES[(place + turn) % len(DASHES)]
        looks[name] = Look(SCHEDULES[place][0], dash, MARKERS[(place + 3 * turn) % len(MARKERS)])
    return looks


INK, GRID, PAGE = "#1b2026", "#d6dbe1", "#fffffe"
WIDTH = 4.9  # inches; on a phone a point of it is about a pixel, so that 9 points can be read

# Colours of the drawing to those of the page, which change with its light or dark theme.
PAGE_COLOURS = {INK: "currentColor", GRID: "var(--grid)", PAGE: "var(--page)"}
PAGE_COLOURS |= {light.lower(): f"var(--schedule-{index})" for index, (light, _) in enumerate(SCHEDULES)}

STYLE: Any = {
    "font.size": 9,
    "axes.titlesize": 10,
    "axes.titlelocation": "left",
    "axes.labelcolor": INK,
    "axes.edgecolor": INK,
    "axes.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": GRID,
    "grid.linewidth": 0.6,
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "legend.frameon": False,
    "legend.fontsize": 8,
    "figure.facecolor": "none",
    "axes.facecolor": "none",
    "savefig.facecolor": "none",
    "svg.fonttype": "none",
    "svg.hashsalt": "rota",
}


MANY_LABELS = 16
"""Entries of a legend for which the figures leave room as they are."""


@dataclass(frozen=True)
class Picture:
    """A figure of a report. ``alt`` says what a reader would see; ``caption`` how to read it."""

    name: str
    title: str
    caption: str
    alt: str
    svg: str
    png: bytes

    def write(self, folder: Path) -> Path:
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{self.name}.png"
        path.write_bytes(self.png)
        return path


@contextmanager
def canvas(height: float, rows: int = 1, columns: int = 1, width: float = WIDTH) -> Iterator[tuple[Figure, list[Axes]]]:
    """A figure in the report's style, drawn and written within the context; legends belong below it."""
    with matplotlib.rc_context(rc=STYLE):
        layout = ConstrainedLayoutEngine(w_pad=0.12)  # inches: labels of ticks may grow after they were measured
        figure = Figure(figsize=(width, height), layout=layout)  # pyplot would take as long to load as all else
        yield figure, list(figure.subplots(rows, columns, squeeze=False).flat)


def finish(figure: Figure, *, name: str, title: str, caption: str, alt: str) -> Picture:
    """Both forms of a drawn figure; the same drawing gives the same bytes.

    Laid out once, without drawing, and drawn once for each form: ``savefig`` would draw twice as often.
    """
    layout = figure.get_layout_engine()
    assert layout is not None  # the one of ``canvas``
    layout.execute(figure)
    figure.set_layout_engine("none")
    png, svg = io.BytesIO(), io.StringIO()
    vectors: Any = FigureCanvasSVG(figure)
    vectors.print_svg(svg, metadata={"Date": None, "Creator": None})
    figure.set(dpi=150, facecolor="white")
    pixels: Any = FigureCanvasAgg(figure)
    pixels.print_png(png, metadata={"Software": None})
    return Picture(name, title, caption, alt, page_svg(svg.getvalue(), name), png.getvalue())


def page_svg(svg: str, name: str) -> str:
    """An SVG to stand inside a page: its colours and letters are the page's, its ids are its own."""
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r'<svg [^>]*?viewBox="([^"]+)"[^>]*>', r'<svg viewBox="\1" aria-hidden="true">', svg, count=1)
    svg = re.sub(r"#[0-9a-fA-F]{6}\b", lambda found: PAGE_COLOURS.get(found[0].lower(), found[0]), svg)
    svg = re.sub(r"font: ([\d.]+px)[^;\"]*", r"font-size: \1", svg)
    svg = re.sub(r"font-family: [^;\"]*;? ?", "", svg)
    svg = svg.replace(' xmlns:xlink="http://www.w3.org/1999/xlink"', "").replace("xlink:href", "href")
    return re.sub(r'(id="|href="#|url\(#)', rf"\g<1>{name}-", svg)


def room_for_legend(figure: Figure, labels: Sequence[str], columns: int) -> int:
    """The columns of a legend that has very many entries; the figure grows by what it would take from the axes."""
    if len(labels) <= MANY_LABELS:
        return columns
    width, height = figure.get_size_inches()
    letters = max(map(len, labels))
    columns = max(1, min(columns, int(width / (0.4 + 0.07 * letters))))  # inches: handle and space, and a letter
    rows = -(-len(labels) // columns)
    figure.set_size_inches(width, height + 0.19 * max(0, rows - MANY_LABELS // columns))
    return columns


def legend_below(figure: Figure, axes: Axes, columns: int = 2) -> None:
    """The legend under all axes: on a narrow screen there is no room beside them."""
    handles, labels = axes.get_legend_handles_labels()
    columns = room_for_legend(figure, labels, columns)
    figure.legend(handles, labels, loc="outside lower left", ncols=columns, handlelength=2.6)


def language_legend(figure: Figure, axes: Axes, columns: int = 8) -> None:
    """The legend of areas in the colours of languages: the paper's eight in a line, or in two if they say more."""
    handles, labels = axes.get_legend_handles_labels()
    sizes = {"handlelength": 1.0, "handletextpad": 0.4, "columnspacing": 1.1}
    columns = room_for_legend(figure, labels, columns)
    figure.legend(handles, labels, loc="outside lower left", ncols=columns, **sizes)


def few_ticks(axes: Axes) -> None:
    """Numbers of four digits beside each other need room on a narrow screen."""
    axes.locator_params(axis="x", nbins=6)


def percent_axis(axis: Any) -> None:
    axis.set_major_formatter(lambda value, _: f"{value:.0%}")


def step_axis(axes: Axes) -> None:
    axes.set_xlabel("step")
    axes.xaxis.set_major_formatter(lambda value, _: f"{value / 1000:g}k" if value >= 10_000 else f"{value:,.0f}")
