"""One picture over all corpora: how far each schedule is behind the best one, on every corpus and on average."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import matplotlib
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

from rota.report.figures.drawing import INK, WIDTH, Picture, canvas, finish
from rota.report.numbers.measures import Metric
from rota.report.numbers.pooled import spread_of_regrets
from rota.statistics import Regret

LINE, CELL, MEANS = 0.23, 0.47, 1.15
"""Inches: the height of a schedule's line, the width of a corpus, that of the bars of the means."""

BAR: Final = "#8a8f96"
SHADES: Final = "Oranges"
DEEPEST: Final = 0.75
"""Of the shades: the colour of the largest regret. Beyond it they turn brown."""


def regret_figure(found: Mapping[str, Regret], labels: Mapping[str, str], metric: Metric) -> Picture | None:
    """A line for each schedule, the smallest mean regret on top: the mean as a bar, and a number for each corpus."""
    if not found:
        return None
    ranked = sorted(found, key=lambda row: found[row].mean)
    regrets = [found[row] for row in ranked]
    names, corpora = [labels.get(row, row) for row in ranked], list(regrets[0].by_corpus)
    widths = (MEANS, CELL * len(corpora))
    width = max(WIDTH, 0.3 + 0.075 * max(map(len, names)) + sum(widths))
    with canvas(1.4 + 0.05 * max(map(len, corpora)) + LINE * len(ranked), columns=2, width=width) as (figure, panels):
        means, cells = panels
        figure.suptitle(_question(metric), fontsize=10, x=0.03, ha="left")
        grid = cells.get_gridspec()
        assert grid is not None  # the one of ``canvas``
        grid.set_width_ratios(widths)
        _draw_means(means, regrets)
        means.set_yticks(range(len(names)), labels=names)
        _draw_cells(cells, regrets, metric)
        cells.set_xticks(range(len(corpora)), labels=corpora, rotation=35, ha="left", rotation_mode="anchor")
        for axes in panels:
            axes.set_ylim(len(names) - 0.45, -0.55)
            axes.tick_params(length=0)
        alt = "Regret, the smallest mean first: " + "; ".join(_spoken(row, found, labels, metric) for row in ranked)
        title = f"Regret by corpus and schedule: {metric.label}"
        return finish(figure, name=f"regret-{metric.name}", title=title, caption=_caption(metric, found), alt=alt)


def _question(metric: Metric) -> str:
    return (
        "How far is each schedule behind the best one of a corpus?\n"
        f"{metric.label}, {metric.unit}; 0 is the best, darker is worse"
    )


def _draw_means(axes: Axes, regrets: Sequence[Regret]) -> None:
    """Bars, with their intervals."""
    axes.barh(range(len(regrets)), [each.mean for each in regrets], height=0.6, color=BAR, alpha=0.55)
    for place, each in enumerate(regrets):
        axes.plot(each.interval, [place, place], color=INK, linewidth=1.2, solid_capstyle="butt")
    axes.set_title("mean, with its\n95 % interval", fontsize=8)
    axes.grid(visible=False, axis="y")
    axes.set_xlim(left=0)
    axes.locator_params(axis="x", nbins=3)
    axes.tick_params(axis="x", labelsize=7.5)


def _draw_cells(axes: Axes, regrets: Sequence[Regret], metric: Metric) -> None:
    """A coloured cell with its number for each schedule and corpus; the best of a corpus has a frame."""
    shades = matplotlib.colormaps[SHADES]
    worst = max(max(each.by_corpus.values()) for each in regrets) or 1.0
    for row, each in enumerate(regrets):
        for column, value in enumerate(each.by_corpus.values()):
            depth, best = value / worst, value == 0
            colour = matplotlib.colors.to_hex(shades(DEEPEST * depth))
            cell = Rectangle((column - 0.48, row - 0.46), 0.96, 0.92, facecolor=colour, linewidth=1.2 if best else 0)
            cell.set(edgecolor=INK if best else "none", zorder=3 if best else 1)
            axes.add_patch(cell)
            ink, text = "#ffffff" if depth > 0.8 else "#000000", "0" if best else metric.written(value)
            axes.text(column, row, text, ha="center", va="center", fontsize=7, color=ink, zorder=4)
    axes.set_xlim(-0.55, len(regrets[0].by_corpus) - 0.45)
    axes.set_yticks([])
    axes.xaxis.tick_top()
    axes.grid(visible=False)
    for spine in axes.spines.values():
        spine.set_visible(False)


def _caption(metric: Metric, found: Mapping[str, Regret]) -> str:
    return (
        f"Regret in {metric.label}: how far each schedule is behind the best one of a corpus, over all languages, in "
        f"{metric.unit}. 0 (framed) is the best of that corpus. The bars are means over the corpora, the lines their "
        f"95 % intervals, {spread_of_regrets(found)}."
    )


def _spoken(row: str, found: Mapping[str, Regret], labels: Mapping[str, str], metric: Metric) -> str:
    parts = ", ".join(f"{corpus} {metric.written(value)}" for corpus, value in found[row].by_corpus.items())
    return f"{labels.get(row, row)} {metric.written(found[row].mean)} ({parts})"
