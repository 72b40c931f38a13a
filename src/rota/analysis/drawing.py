"""How every figure of a report is drawn and written: once for paper (PNG), once for a page in two colours (SVG)."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib

from rota.analysis.colours import SCHEDULES

matplotlib.use("Agg")
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine

INK, GRID, PAGE = "#1b2026", "#d6dbe1", "#fffffe"
WIDTH = 4.9  # inches; on a telephone a point of it is about a pixel, so that 9 points can be read

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
def canvas(height: float, rows: int = 1, columns: int = 1) -> Iterator[tuple[Figure, list[Axes]]]:
    """A figure in the report's style, closed at the end; legends belong below it."""
    with matplotlib.rc_context(rc=STYLE):
        layout = ConstrainedLayoutEngine(w_pad=0.12)  # inches: labels of ticks may grow after they were measured
        figure, axes = plt.subplots(rows, columns, figsize=(WIDTH, height), layout=layout, squeeze=False)
        try:
            yield figure, list(axes.flat)
        finally:
            plt.close(figure)


def finish(figure: Figure, *, name: str, title: str, caption: str, alt: str) -> Picture:
    """Both forms of a drawn figure; the same drawing gives the same bytes."""
    figure.draw_without_rendering()
    figure.set_layout_engine("none")  # laid out once is enough: it takes longer than drawing
    png, svg = io.BytesIO(), io.StringIO()
    figure.savefig(png, format="png", dpi=150, facecolor="white", metadata={"Software": None})
    figure.savefig(svg, format="svg", metadata={"Date": None, "Creator": None})
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


def legend_below(figure: Figure, axes: Axes, columns: int = 2) -> None:
    """The legend under all axes: on a narrow screen there is no room beside them."""
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower left", ncols=columns, handlelength=2.6)


def language_legend(figure: Figure, axes: Axes, columns: int = 8) -> None:
    """The legend of areas in the colours of languages: the paper's eight in a line, or in two if they say more."""
    handles, labels = axes.get_legend_handles_labels()
    sizes = {"handlelength": 1.0, "handletextpad": 0.4, "columnspacing": 1.1}
    figure.legend(handles, labels, loc="outside lower left", ncols=columns, **sizes)


def few_ticks(axes: Axes) -> None:
    """Numbers of four digits beside each other need room on a narrow screen."""
    axes.locator_params(axis="x", nbins=6)


def percent_axis(axis: Any) -> None:
    axis.set_major_formatter(lambda value, _: f"{value:.0%}")


def step_axis(axes: Axes) -> None:
    axes.set_xlabel("step")
    axes.xaxis.set_major_formatter(lambda value, _: f"{value / 1000:g}k" if value >= 10_000 else f"{value:,.0f}")
