"""Differences from the baseline, curves over time, low- against high-resource languages, and the time of training."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes

from rota.report.figures.drawing import (
    GRID,
    INK,
    PAGE,
    Look,
    Picture,
    canvas,
    few_ticks,
    finish,
    legend_below,
    step_axis,
)
from rota.report.numbers.contrasts import Estimate, contrast, estimate, over_seeds
from rota.report.numbers.cost import PHASES, Spending, clock, phase
from rota.report.numbers.measures import BLEU, CHRF, HIGH, LOW, MACRO, Metric, with_groups
from rota.report.study import Row, StudyRun
from rota.statistics import SeedComparison
from rota.types import FloatArray


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
        alt = "Intervals: " + "; ".join(_spoken_interval(row, comparison, metric) for row, comparison in found.items())
        title = f"Differences from {baseline.short}: {metric.label}"
        return finish(figure, name=f"differences-{metric.name}", title=title, caption=caption, alt=alt)


def _spoken_interval(row: Row, found: SeedComparison, metric: Metric) -> str:
    low, high = map(metric.signed, found.interval)
    return f"{row.title} {metric.signed(found.mean)} from {low} to {high}"


GROUP_TITLES = {MACRO: "all languages", LOW: "low-resource languages", HIGH: "high-resource languages"}


Curve = tuple[FloatArray, FloatArray, FloatArray]
"""Steps, mean and standard deviation over seeds; a spread of 0 where one run alone has come so far."""


def losses_by_step(run: StudyRun, group: str) -> dict[int, float]:
    losses = {entry["step"]: with_groups(entry["dev_loss"], run).get(group) for entry in run.validations}
    return {step: loss for step, loss in losses.items() if loss is not None}


def _curve(by_seed: Iterable[Mapping[int, float]]) -> Curve:
    by_step: dict[int, list[float]] = {}
    for losses in by_seed:
        for step, loss in losses.items():
            by_step.setdefault(step, []).append(loss)
    steps = sorted(by_step)
    spread = [float(np.std(by_step[step], ddof=1)) if len(by_step[step]) > 1 else 0.0 for step in steps]
    return np.array(steps), np.array([np.mean(by_step[step]) for step in steps]), np.array(spread)


def loss_curve(row: Row, group: str) -> Curve:
    """The dev loss of a group of languages."""
    return _curve(losses_by_step(run, group) for run in row.runs.values())


def difference_curve(row: Row, baseline: Row, group: str) -> Curve:
    """The same minus that of the baseline, paired by seed: what two runs share with their seed cancels."""
    differences = []
    for seed in sorted(set(row.runs) & set(baseline.runs)):
        theirs = losses_by_step(baseline.runs[seed], group)
        ours = losses_by_step(row.runs[seed], group)
        differences.append({step: loss - theirs[step] for step, loss in ours.items() if step in theirs})
    return _curve(differences)


def loss_figure(
    rows: Sequence[Row], baseline: Row, group: str, looks: Mapping[str, Look], *, part: str = "", about: str = ""
) -> Picture | None:
    """Above the curves, below their differences from the baseline; bands of one standard deviation over seeds."""
    curves = {row.name: loss_curve(row, group) for row in rows}
    shown = [row for row in rows if len(curves[row.name][0])]
    if not shown:
        return None
    with canvas(4.6 + 0.11 * len(shown), rows=2) as (figure, [above, below]):
        for row in shown:
            _draw_curve(above, curves[row.name], looks[row.name], row.short)
            _draw_stops(above, row, curves[row.name], looks[row.name])
            _draw_curve(below, difference_curve(row, baseline, group), looks[row.name], row.short)
        _cut_off_start(above, [curves[row.name] for row in shown])
        below.set_xlim(above.get_xlim())
        above.set_ylabel("dev loss (nats per token)")
        below.set_ylabel(f"minus {baseline.short}")
        step_axis(below)
        legend_below(figure, above)
        caption = (
            f"Dev loss of {GROUP_TITLES[group]}, mean over seeds with a band of one standard deviation; below, the "
            f"difference from {baseline.title} under the same seed (below zero is better).{_about_stops(shown)}"
        )
        ends = ", ".join(f"{row.title} {curves[row.name][1][-1]:.3f}" for row in shown)
        name = f"dev-loss-{part or group}"
        title = f"Dev loss: {GROUP_TITLES[group]}{f', {about}' if about else ''}"
        return finish(figure, name=name, title=title, caption=caption, alt=f"Falling curves; at the end: {ends}")


def source_gains_by_step(run: StudyRun) -> dict[int, float]:
    """Mean dev source gain over all languages, where a check had them all."""
    gains = {
        entry["step"]: with_groups({arm: value for arm, (value, _) in entry["dev_source_gain"].items()}, run).get(MACRO)
        for entry in run.spot_checks
    }
    return {step: gain for step, gain in gains.items() if gain is not None}


def source_gain_figure(rows: Sequence[Row], looks: Mapping[str, Look]) -> Picture | None:
    """Beside the dev loss: how much of it the source explains."""
    curves = {row.name: _curve(source_gains_by_step(run) for run in row.runs.values()) for row in rows}
    shown = [row for row in rows if len(curves[row.name][0])]
    if not shown:
        return None
    with canvas(2.8 + 0.11 * len(shown)) as (figure, [axes]):
        for row in shown:
            _draw_curve(axes, curves[row.name], looks[row.name], row.short)
        axes.set_ylabel("source gain (nats per token)")
        step_axis(axes)
        legend_below(figure, axes)
        caption = (
            "How much the student takes from the source: the loss with the source of another dev sentence minus that "
            "with the right one, mean over languages and seeds with a band of one standard deviation (more is better)."
        )
        ends = ", ".join(f"{row.title} {curves[row.name][1][-1]:.3f}" for row in shown)
        title = "Source gain on dev sentences: all languages"
        return finish(figure, name="source-gain", title=title, caption=caption, alt=f"Curves; at the end: {ends}")


DEV_SCORES = {"bleu": BLEU, "chrf": CHRF}
"""What dev translations are scored by at validations: the name in their record."""


def dev_scores_by_step(run: StudyRun, record: str, group: str) -> dict[int, float]:
    scored = {entry["step"]: with_groups(entry[record], run).get(group) for entry in run.validations if record in entry}
    return {step: score for step, score in scored.items() if score is not None}


def dev_score_figure(rows: Sequence[Row], looks: Mapping[str, Look], group: str, about: str) -> Picture | None:
    """BLEU and chrF of the dev sentences that were translated at every validation; None if no run did so.

    ``group``: the goal or all languages; ``about`` says it in words.
    """
    curves = {
        record: {row.name: _curve(dev_scores_by_step(run, record, group) for run in row.runs.values()) for row in rows}
        for record in DEV_SCORES
    }
    shown = [row for row in rows if all(len(found[row.name][0]) for found in curves.values())]
    if not shown:
        return None
    with canvas(4.6 + 0.11 * len(shown), rows=2) as (figure, panels):
        for axes, (record, found) in zip(panels, curves.items(), strict=True):
            for row in shown:
                _draw_curve(axes, found[row.name], looks[row.name], row.short)
                _draw_stops(axes, row, found[row.name], looks[row.name])
            axes.set_ylabel(f"dev {DEV_SCORES[record].label}")
            axes.set_ylim(bottom=0)
        step_axis(panels[-1])
        legend_below(figure, panels[0])
        counts = _range_of(run.setting("config.training.dev_sentences") for row in shown for run in row.runs.values())
        caption = (
            f"Greedy translations of {counts} dev sentences of each language, always the same ones, of {about}; mean "
            "over seeds with a band of one standard deviation. Few sentences: curves to follow, not results."
            f"{_about_stops(shown)}"
        )
        ends = (
            f"{row.title} BLEU {curves['bleu'][row.name][1][-1]:.1f}, chrF {curves['chrf'][row.name][1][-1]:.1f}"
            for row in shown
        )
        title = f"BLEU and chrF of dev sentences: {about}"
        alt = f"Curves; at the end: {'; '.join(ends)}"
        return finish(figure, name="dev-scores", title=title, caption=caption, alt=alt)


def _range_of(numbers: Iterable[int]) -> str:
    found = sorted(set(numbers))
    return str(found[0]) if len(found) == 1 else f"{found[0]} to {found[-1]}"


def _draw_stops(axes: Axes, row: Row, curve: Curve, look: Look) -> None:
    """A cross where a run of the row stopped early."""
    steps, mean, _ = curve
    ends = [int(run.stop["step"]) for run in row.runs.values() if run.stop is not None]
    where = np.isin(steps, ends)
    axes.plot(steps[where], mean[where], color=look.colour, linestyle="none", marker="X", markersize=7)


def _about_stops(rows: Sequence[Row]) -> str:
    stopped = any(run.stop is not None for row in rows for run in row.runs.values())
    return " A cross marks where a run stopped early." if stopped else ""


def _draw_curve(axes: Axes, curve: Curve, look: Look, label: str) -> None:
    steps, mean, spread = curve
    axes.plot(steps, mean, color=look.colour, linestyle=look.dash, linewidth=1.4, label=label)
    axes.fill_between(steps, mean - spread, mean + spread, color=look.colour, alpha=0.12, linewidth=0)


def _cut_off_start(axes: Axes, curves: Sequence[Curve]) -> None:
    """Losses of the first fifth would squeeze all later ones together."""
    last = max(float(steps[-1]) for steps, _, _ in curves)
    late = np.concatenate([mean[steps >= last / 5] for steps, mean, _ in curves])
    if len(late) and late.max() > late.min():
        margin = 0.06 * (late.max() - late.min())
        axes.set(xlim=(0, last), ylim=(late.min() - margin, late.max() + margin))


def pareto_figure(rows: Sequence[Row], metric: Metric, looks: Mapping[str, Look]) -> Picture | None:
    """Low- against high-resource languages, better to the top right; below and left of another is worse twice."""
    points = {row.name: (estimate(row, metric, LOW), estimate(row, metric, HIGH)) for row in rows}
    shown = [row for row in rows if None not in points[row.name]]
    if not shown:
        return None
    with canvas(3.4 + 0.11 * len(shown)) as (figure, [axes]):
        for row in shown:
            low, high = points[row.name]
            assert low is not None
            assert high is not None
            _draw_point(axes, low, high, looks[row.name], row.short)
        if not metric.higher_is_better:
            axes.invert_xaxis()
            axes.invert_yaxis()
        few_ticks(axes)
        towards = "" if metric.higher_is_better else ", reversed"
        axes.set_xlabel(f"high-resource {metric.label}{towards}")
        axes.set_ylabel(f"low-resource {metric.label}{towards}")
        legend_below(figure, axes)
        caption = (
            f"Mean {metric.label} of both groups of languages; top right is best. Crosses: one standard deviation over "
            "seeds. Faint: the seeds themselves."
        )
        title = f"Low- against high-resource languages: {metric.label}"
        alt = "Points (low-resource, high-resource): " + "; ".join(_spoken_point(row, points, metric) for row in shown)
        return finish(figure, name=f"pareto-{metric.name}", title=title, caption=caption, alt=alt)


def _draw_point(axes: Axes, low: Estimate, high: Estimate, look: Look, label: str) -> None:
    seeds = sorted(set(low.by_seed) & set(high.by_seed))
    axes.scatter(
        [high.by_seed[seed] for seed in seeds],
        [low.by_seed[seed] for seed in seeds],
        s=12,
        color=look.colour,
        marker=look.marker,
        alpha=0.3,
        linewidth=0,
    )
    axes.errorbar(
        high.mean,
        low.mean,
        xerr=high.sd,
        yerr=low.sd,
        color=look.colour,
        marker=look.marker,
        markersize=6,
        elinewidth=0.8,
        linestyle="none",
        label=label,
    )


def _spoken_point(row: Row, points: dict[str, tuple[Estimate | None, Estimate | None]], metric: Metric) -> str:
    low, high = points[row.name]
    return f"{row.title} ({metric.written(low.mean if low else 0)}, {metric.written(high.mean if high else 0)})"


PHASE_COLOURS = {
    "updates": "#5B9BD0",
    "observations": "#D55E00",
    "validations": "#C9A227",
    "batches": "#009E73",
    "rest": "#9AA0A6",
}
HATCHES = {"updates": "", "observations": "//", "validations": "..", "batches": "xx", "rest": ""}


def cost_figure(rows: Sequence[Row]) -> Picture | None:
    """Stacked bars of wall time by phase, and the processor time as a mark."""
    shown = [row for row in rows if over_seeds(row, clock("wall"))]
    if not shown:
        return None
    titles = [row.short for row in shown]
    with canvas(1.4 + 0.3 * len(shown)) as (figure, [axes]):
        left = np.zeros(len(shown))
        for name in PHASES:
            minutes = np.array([_minutes(row, phase(name)) for row in shown])
            colour, hatch = PHASE_COLOURS[name], HATCHES[name]
            axes.barh(titles, minutes, left=left, color=colour, hatch=hatch, edgecolor=PAGE, linewidth=0.4, label=name)
            left += minutes
        cpu = [_minutes(row, clock("cpu")) for row in shown]
        axes.plot(cpu, range(len(shown)), color=INK, linestyle="none", marker="D", markersize=4, label="processor time")
        axes.invert_yaxis()
        axes.set(xlim=(0, None), xlabel="minutes")
        legend_below(figure, axes, columns=3)
        caption = "Time of training, mean over seeds: bars on the wall by phase, diamonds of the processors."
        alt = "Bars of minutes: " + ", ".join(f"{title} {total:.1f}" for title, total in zip(titles, left, strict=True))
        return finish(figure, name="cost", title="What each schedule cost", caption=caption, alt=alt)


def _minutes(row: Row, spending: Spending) -> float:
    found = over_seeds(row, spending)
    return 0.0 if found is None else found.mean / 60
