"""Who helps whom as a picture: arms that are trained on against the dev sets that they help or hurt."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np

from rota.report.figures.drawing import GRID, INK, WIDTH, Picture, canvas, finish
from rota.report.figures.shares import in_family_order
from rota.report.numbers.helping import HelpMap, help_maps
from rota.report.study import Row

matplotlib.use("Agg")
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle

MANY = 20
"""Arms or languages above which cells are too small for numbers; the picture is then larger."""

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
    if _is_large(maps[0]):
        maps = [_relatives_together(each, maps[-1]) for each in maps]
    rows, columns, large = len(maps[0].arms), len(maps[0].languages), _is_large(maps[0])
    size = (1.7 + 0.125 * columns, 0.9 + len(maps) * (1.2 + 0.125 * rows)) if large else None
    width, height = size or (WIDTH, 0.9 + len(maps) * (1.1 + 0.29 * rows))
    highest = max(float(np.nanmax(np.abs(each.means), initial=0.0)) for each in maps) or 1.0
    with canvas(height, rows=len(maps), width=max(WIDTH, width)) as (figure, panels):
        figure.suptitle("Train on the text at the left: what happens\nto the dev loss of each language?", fontsize=10)
        for axes, each in zip(panels, maps, strict=True):
            draw_map(axes, each, highest)
            axes.set_title(f"steps {each.first:,} to {each.last:,}", fontsize=9)
        _colour_key(figure, panels, highest)
        _legend(figure, large)
        caption = (
            "How far an update on the row's training text lowers the dev loss of the column's language, to first order"
            f"{about}: blue helps, red hurts. 1 would be a typical update that serves this language alone. Frames: a "
            f"language's own text. {_UNSURE_LARGE if large else _UNSURE}"
        )
        return finish(figure, name=name, title=title, caption=caption, alt=_alt(maps[-1]))


_UNSURE = "Pale numbers are less than two standard errors from 0."
_UNSURE_LARGE = "Cells less than two standard errors from 0 are white. Arms with similar effects are beside each other."


def _is_large(found: HelpMap) -> bool:
    return max(len(found.arms), len(found.languages)) > MANY


def _relatives_together(found: HelpMap, like: HelpMap) -> HelpMap:
    """Rows in an order in which each resembles the one before it in ``like``, and columns in that of their own rows."""
    means = np.nan_to_num(like.means)
    lengths = np.linalg.norm(means, axis=1, keepdims=True)
    units = means / np.where(lengths > 0, lengths, 1.0)
    alike, order = units @ units.T, [0]
    while len(order) < len(means):
        left = [row for row in range(len(means)) if row not in order]
        order.append(max(left, key=lambda row: float(alike[order[-1], row])))
    first = {like.own[row]: place for place, row in reversed(list(enumerate(order)))}
    places = [first.get(language, len(order)) for language in like.languages]
    columns = sorted(range(len(places)), key=places.__getitem__)
    return replace(
        found,
        arms=tuple(found.arms[row] for row in order),
        languages=tuple(found.languages[column] for column in columns),
        own=tuple(found.own[row] for row in order),
        means=found.means[np.ix_(order, columns)],
        errors=found.errors[np.ix_(order, columns)],
        updates=found.updates[order],
    )


def draw_map(axes: Axes, found: HelpMap, highest: float) -> None:
    large = _is_large(found)
    shown = np.nan_to_num(found.means)  # what is not known stays white
    if large:
        shown = np.where(found.sure, shown, 0.0)
    edges: dict[str, Any] = (
        {"edgecolors": GRID, "linewidth": 0.2} if large else {"edgecolors": "white", "linewidth": 0.8}
    )
    axes.pcolormesh(shown, cmap="RdBu", vmin=-highest, vmax=highest, **edges)
    for row, own in enumerate(found.own):
        for column, language in enumerate(found.languages):
            if not large:
                _write_cell(axes, found, (row, column), highest)
            if own == language:
                axes.add_patch(
                    Rectangle((column, row), 1, 1, fill=False, edgecolor=INK, linewidth=0.8 if large else 1.4)
                )
    text: dict[str, Any] = {"fontsize": 7} if large else {}
    axes.set_xticks(np.arange(len(found.languages)) + 0.5, labels=found.languages, rotation=90 if large else 0, **text)
    axes.set_yticks(np.arange(len(found.arms)) + 0.5, labels=found.arms, **text)
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


def _legend(figure: Figure, large: bool) -> None:
    """What frames and pale numbers or white cells mean, so that the picture can be read without its caption."""
    own = Rectangle((0, 0), 1, 1, fill=False, edgecolor=INK, linewidth=1.4)
    unsure = Line2D([], [], linestyle="none", marker="$+0.1$", markersize=15, color=PALE, markeredgewidth=0.2)
    white = Rectangle((0, 0), 1, 1, facecolor="none", edgecolor=GRID)
    labels = ["a language's own text", "white: may be chance" if large else "pale: may be chance"]
    figure.legend([own, white if large else unsure], labels, loc="outside lower left", ncols=2)


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
