"""The answer at a glance: every schedule minus the baseline, with its interval and with what could have been seen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rota.analysis.colours import Look
from rota.analysis.contrasts import contrast
from rota.analysis.drawing import GRID, INK, Picture, canvas, few_ticks, finish
from rota.analysis.measures import MACRO, Metric
from rota.analysis.runs import Row
from rota.statistics import SeedComparison


def difference_figure(
    rows: Sequence[Row], baseline: Row, metric: Metric, looks: Mapping[str, Look], scope: str = MACRO
) -> Picture | None:
    """Means and 95 % intervals of the differences, one line for each schedule; better is to the right."""
    compared = {row: contrast(row, baseline, metric, scope) for row in rows}
    found = {row: comparison for row, comparison in compared.items() if comparison is not None}
    if not found:
        return None
    with canvas(1.0 + 0.26 * len(found)) as (figure, [axes]):
        for place, (row, comparison) in enumerate(found.items()):
            seen = comparison.smallest_detectable
            axes.plot([-seen, seen], [place, place], color=GRID, linewidth=7, solid_capstyle="butt", zorder=1)
            look = looks[row.name]
            axes.plot(comparison.interval, [place, place], color=look.colour, linewidth=1.6, zorder=3)
            axes.plot(comparison.mean, place, color=look.colour, marker=look.marker, markersize=6, zorder=4)
        axes.axvline(0, color=INK, linewidth=0.8, zorder=2)
        axes.set_yticks(range(len(found)), labels=[row.short for row in found])
        axes.grid(visible=False)
        axes.set_ylim(len(found) - 0.4, -0.6)
        axes.set_xlabel(metric.unit if metric.higher_is_better else f"{metric.unit}, reversed")
        few_ticks(axes)
        if not metric.higher_is_better:
            axes.invert_xaxis()
        caption = (
            f"Over all languages, {metric.label} minus that of {baseline.title}: mean and 95 % interval over seeds; "
            "better is to the right. Grey: differences too small for this study to see with probability 0.8."
        )
        alt = "Intervals: " + "; ".join(_spoken(row, comparison, metric) for row, comparison in found.items())
        title = f"Differences from {baseline.short}: {metric.label}"
        return finish(figure, name=f"differences-{metric.name}", title=title, caption=caption, alt=alt)


def _spoken(row: Row, found: SeedComparison, metric: Metric) -> str:
    low, high = map(metric.signed, found.interval)
    return f"{row.title} {metric.signed(found.mean)} from {low} to {high}"
