"""Who helps whom as a picture: arms that are trained on against the dev sets that they help or hurt."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import matplotlib
import numpy as np

from rota.report.figures.drawing import INK, Picture, canvas, finish
from rota.report.figures.shares import in_family_order
from rota.report.numbers.helping import HelpMap, help_maps
from rota.report.study import Row

matplotlib.use("Agg")
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle

HELPS, HURTS, PALE = "#0B4F9C", "#A8200D", "#8a8f96"


def help_figure(row: Row) -> Picture | None:
    """The maps of the first seed that recorded them: the first half of its updates and the second."""
    for _, run in sorted(row.runs.items()):
        maps = help_maps(run.observations, in_family_order(run), 2, run.language_of)
        if maps:
            name = f"who-helps-whom-{row.name}"
            return draw_maps(maps, name, f"Who helps whom: {row.short}", f" (seed {run.seed})")
    return None


def draw_maps(maps: Sequence[HelpMap], name: str, title: str, about: str = "") -> Picture:
    rows = len(maps[0].arms)
    highest = max(float(np.nanmax(np.abs(each.means), initial=0.0)) for each in maps) or 1.0
    with canvas(0.9 + len(maps) * (1.1 + 0.29 * rows), rows=len(maps)) as (figure, panels):
        figure.suptitle("Train on the text at the left: what happens\nto the dev loss of each language?", fontsize=10)
        for axes, each in zip(panels, maps, strict=True):
            draw_map(axes, each, highest)
            axes.set_title(f"steps {each.first:,} to {each.last:,}", fontsize=9)
        _colour_key(figure, panels, highest)
        _legend(figure)
        caption = (
            "How far an update on the row's training text lowers the dev loss of the column's language, to first order"
            f"{about}: blue helps, red hurts. 1 would be a typical update that serves this language alone. Frames: a "
            "language's own text. Pale numbers are less than two standard errors from 0."
        )
        return finish(figure, name=name, title=title, caption=caption, alt=_alt(maps[-1]))


def draw_map(axes: Axes, found: HelpMap, highest: float) -> None:
    shown = np.nan_to_num(found.means)  # what is not known stays white
    axes.pcolormesh(shown, cmap="RdBu", vmin=-highest, vmax=highest, edgecolors="white", linewidth=0.8)
    for row, own in enumerate(found.own):
        for column, language in enumerate(found.languages):
            _write_cell(axes, found, (row, column), highest)
            if own == language:
                axes.add_patch(Rectangle((column, row), 1, 1, fill=False, edgecolor=INK, linewidth=1.4))
    axes.set_xticks(np.arange(len(found.languages)) + 0.5, labels=found.languages)
    axes.set_yticks(np.arange(len(found.arms)) + 0.5, labels=found.arms)
    axes.tick_params(length=0, top=True, labeltop=True, bottom=False, labelbottom=False)
    axes.xaxis.set_label_position("top")
    axes.set_xlabel("helps or hurts the dev loss of")
    axes.set_ylabel("training on")
    axes.grid(visible=False)
    axes.invert_yaxis()
    for spine in axes.spines.values():
        spine.set_visible(False)


def _write_cell(axes: Axes, found: HelpMap, cell: tuple[int, int], highest: float) -> None:
    value = found.means[cell]
    if not np.isfinite(value):
        return
    dark = abs(value) > 0.6 * highest
    colour = "#ffffff" if dark else "#000000" if found.sure[cell] else PALE
    axes.text(cell[1] + 0.5, cell[0] + 0.5, f"{value:+.2f}", ha="center", va="center", fontsize=6.5, color=colour)


def _colour_key(figure: Figure, panels: Sequence[Axes], highest: float) -> None:
    shades = matplotlib.cm.ScalarMappable(matplotlib.colors.Normalize(-highest, highest), "RdBu")
    key = figure.colorbar(shades, ax=list(panels), shrink=0.7, aspect=30)
    key.set_ticks([-highest, 0, highest], labels=["hurts:\nit rises", "no\neffect", "helps:\nit falls"])
    key.outline.set_visible(False)
    for label, colour in zip(key.ax.get_yticklabels(), (HURTS, INK, HELPS), strict=True):
        label.set_color(colour)


def _legend(figure: Figure) -> None:
    """What frames and pale numbers mean, so that the picture can be read without its caption."""
    own = Rectangle((0, 0), 1, 1, fill=False, edgecolor=INK, linewidth=1.4)
    unsure = Line2D([], [], linestyle="none", marker="$+0.1$", markersize=15, color=PALE, markeredgewidth=0.2)
    labels = ["a language's own text", "pale: may be chance"]
    figure.legend([own, unsure], labels, loc="outside lower left", ncols=2)


def _alt(found: HelpMap) -> str:
    best = {
        language: found.arms[int(np.nanargmax(column))]
        for language, column in zip(found.languages, found.means.T, strict=True)
        if np.isfinite(column).any()
    }
    pairs = ", ".join(f"{language} by {arm}" for language, arm in best.items())
    return f"Heat map of training text against dev languages; each language is helped most: {pairs}"


def plot_maps(maps: Sequence[HelpMap], path: Path, title: str) -> Path:
    """The picture as a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(draw_maps(maps, path.stem, title).png)
    return path
