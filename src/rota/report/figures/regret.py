"""One picture over all corpora: how far each schedule is behind the best one, on every corpus and on average."""

from __future__ import annotations

from collections.abc import Mapping

from rota.report.figures.drawing import GRID, INK, MARKERS, SCHEDULES, Picture, canvas, few_ticks, finish, legend_below
from rota.report.numbers.measures import Metric
from rota.statistics import Regret


def regret_figure(found: Mapping[str, Regret], labels: Mapping[str, str], metric: Metric) -> Picture | None:
    """A line for each schedule, the smallest mean regret on top; a mark for each corpus, a bar for the mean."""
    if not found:
        return None
    ranked = sorted(found, key=lambda row: found[row].mean)
    corpora = list(found[ranked[0]].by_corpus)
    with canvas(1.5 + 0.27 * len(ranked) + 0.1 * len(corpora)) as (figure, [axes]):
        for place, row in enumerate(ranked):
            regret, line = found[row], [place, place]
            axes.plot([0, max(regret.by_corpus.values())], line, color=GRID, linewidth=1, zorder=1)
            axes.plot(regret.interval, line, color=INK, linewidth=3, alpha=0.35, solid_capstyle="butt", zorder=2)
        axes.plot(
            [found[row].mean for row in ranked],
            range(len(ranked)),
            color=INK,
            marker="|",
            markersize=13,
            markeredgewidth=2.2,
            linestyle="none",
            label="mean",
            zorder=4,
        )
        for index, corpus in enumerate(corpora):
            axes.plot(
                [found[row].by_corpus[corpus] for row in ranked],
                range(len(ranked)),
                color=SCHEDULES[index % len(SCHEDULES)][0],
                marker=MARKERS[index % len(MARKERS)],
                markersize=6,
                linestyle="none",
                label=corpus,
                zorder=3,
            )
        axes.set_yticks(range(len(ranked)), labels=[labels.get(row, row) for row in ranked])
        axes.set_ylim(len(ranked) - 0.4, -0.6)
        axes.grid(visible=False, axis="y")
        axes.set_xlim(left=-0.03 * max(max(regret.by_corpus.values()) for regret in found.values()) or None)
        axes.set_xlabel(f"{metric.unit} behind the best schedule of the corpus")
        few_ticks(axes)
        legend_below(figure, axes, columns=3)
        caption = (
            f"Regret in {metric.label}: how far each schedule is behind the best one of a corpus, over all languages. "
            "Left is better; 0 is the best of that corpus. The bar is the mean over the corpora, grey its 95 % "
            "interval from resampled seeds."
        )
        alt = "Regret, the smallest mean first: " + "; ".join(_spoken(row, found, labels, metric) for row in ranked)
        title = f"Regret by corpus and schedule: {metric.label}"
        return finish(figure, name=f"regret-{metric.name}", title=title, caption=caption, alt=alt)


def _spoken(row: str, found: Mapping[str, Regret], labels: Mapping[str, str], metric: Metric) -> str:
    parts = ", ".join(f"{corpus} {metric.written(value)}" for corpus, value in found[row].by_corpus.items())
    return f"{labels.get(row, row)} {metric.written(found[row].mean)} ({parts})"
