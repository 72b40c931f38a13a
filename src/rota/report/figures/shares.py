"""Which languages the schedules, or a single run, trained on: in all and over time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from rota.report.figures.drawing import (
    INK,
    PAGE,
    Picture,
    canvas,
    finish,
    language_colours,
    language_legend,
    percent_axis,
    shades,
    step_axis,
)
from rota.report.sentences import and_list, plural
from rota.report.study import Row, Study, StudyRun
from rota.runs import Run
from rota.runs.arms import ArmLine, arm_lines, is_grouped
from rota.types import Arm, FloatArray

FAMILY_ORDER = ("az", "tr", "be", "ru", "gl", "pt", "sk", "cs")


def in_family_order(run: Run) -> list[Arm]:
    """Arms as they lie in bars: relatives beside each other where the colours know them, else as in the corpus.

    Arms of one language are beside each other.
    """
    arms = {line.name: line.arms for line in _languages(run)}
    known = [name for name in FAMILY_ORDER if name in arms]
    return [arm for name in (*known, *(name for name in arms if name not in known)) for arm in arms[name]]


def arm_colours(run: Run) -> dict[Arm, str]:
    """Those of languages, in the order of bars; arms of one language have shades of its colour."""
    languages = _languages(run)
    colours = language_colours([line.name for line in languages])
    of_arms = {line.arms: shades(colours[line.name], len(line.arms)) for line in languages}
    found = {arm: shade for arms, some in of_arms.items() for arm, shade in zip(arms, some, strict=True)}
    return {arm: found[arm] for arm in in_family_order(run)}


def by_language(run: Run, shares: Mapping[Arm, float]) -> dict[str, float]:
    """Shares of languages, the largest first."""
    found = {line.name: sum(shares[arm] for arm in line.arms) for line in _languages(run)}
    return dict(sorted(found.items(), key=lambda each: -each[1]))


def _languages(run: Run) -> list[ArmLine]:
    return [line for line in arm_lines(run) if line.depth == 0]


def counted(row: Row) -> list[StudyRun]:
    """The finished runs, as in the tables: half a run has more of the warm-up. Where none is, what there is."""
    return list(row.finished.values()) or [run for run in row.runs.values() if run.history.updates]


def mean_shares(row: Row) -> dict[Arm, float]:
    """Share of the tokens by language, mean over seeds."""
    shares = [run.history.overall for run in counted(row)]
    return {arm: float(np.mean([found[arm] for found in shares])) for arm in shares[0]} if shares else {}


def proportions(study: Study, rows: Sequence[Row]) -> Picture:
    """Stacked bars, one for each schedule, under the two references of the paper's figure."""
    run = study.any_run
    total = sum(run.arms.values())
    bars: dict[str, dict[Arm, float]] = {
        "1/K each": dict.fromkeys(run.arms, 1 / len(run.arms)),
        "as in the corpus": {arm: size / total for arm, size in run.arms.items()},
    }
    bars |= {row.short: mean_shares(row) for row in rows if counted(row)}
    begun = [row.short for row in rows if counted(row) and not row.finished]
    colours, grouped = arm_colours(run), is_grouped(arm_lines(run))
    with canvas(1.3 + 0.3 * len(bars)) as (figure, [axes]):
        left = np.zeros(len(bars))
        for arm in colours:
            widths = np.array([shares[arm] for shares in bars.values()])
            drawn = axes.barh(
                list(bars), widths, left=left, color=colours[arm], edgecolor=PAGE, linewidth=0.6, label=arm
            )
            labels = [f"{width:.0%}" if width >= 0.075 else "" for width in widths]
            axes.bar_label(drawn, labels, label_type="center", fontsize=7, color=_on(colours[arm]))
            left += widths
        axes.invert_yaxis()
        axes.axhline(1.5, color=INK, linewidth=0.6)
        axes.grid(visible=False)
        axes.set(xlim=(0, 1), xlabel="share of the target tokens")
        percent_axis(axes.xaxis)
        language_legend(figure, axes, columns=4 if grouped else 8)
        every, looks = ("arm", GROUPED) if grouped else ("language", RELATED)
        caption = (
            f"Proportions of data seen during training, mean over the finished runs. {_none_finished(begun)}"
            f"Above the line two references: every {every} the same, and the corpus. {looks}"
        )
        alt = f"Stacked bars of {every} shares. {_none_finished(begun)}" + "; ".join(map(_spoken, bars, bars.values()))
        return finish(figure, name="proportions", title="What each schedule trained on", caption=caption, alt=alt)


RELATED = "Related languages have related colours, as in the paper: the low-resource one is dark, its relative light."
GROUPED = "Arms of one language lie beside each other, in shades of one colour."


def _none_finished(names: Sequence[str]) -> str:
    return f"Of {and_list(names)} no run is finished, so that what there is counts. " if names else ""


def _on(colour: str) -> str:
    """Black or white letters on a colour, whichever can be read; both stay what they are in the dark."""
    red, green, blue = (int(colour[place : place + 2], 16) for place in (1, 3, 5))
    return "#000000" if 0.299 * red + 0.587 * green + 0.114 * blue > 140 else "#ffffff"


def _spoken(name: str, shares: dict[Arm, float]) -> str:
    return f"{name}: " + ", ".join(f"{arm} {share:.0%}" for arm, share in shares.items())


def evolution(row: Row, most: int | None = None) -> Picture:
    """Stacked areas of the language shares in windows, mean over seeds; the legend has those of the whole run.

    ``most``: at most so many windows, for a short run, of which the report's own hold a few updates each.
    """
    runs, overall = counted(row), mean_shares(row)
    colours, grouped = arm_colours(runs[0]), is_grouped(arm_lines(runs[0]))
    windows = len(runs[0].history.ends) if most is None else min(most, len(runs[0].history.ends))
    ends = np.array([part[-1] for part in np.array_split(runs[0].history.ends, windows)])
    shares = {arm: _joined(mean_over([run.history.shares[arm] for run in runs]), windows) for arm in colours}
    steps = np.concatenate([[0.0], ends])
    levels = [np.concatenate([share[:1], share]) for share in shares.values()]
    labels = [f"{arm} {overall[arm]:.1%}" for arm in colours]
    with canvas(3.15) as (figure, [axes]):
        axes.stackplot(
            steps, levels, labels=labels, colors=list(colours.values()), step="pre", edgecolor=PAGE, linewidth=0.2
        )
        axes.set(xlim=(0, ends[-1]), ylim=(0, 1), ylabel="share of the target tokens")
        step_axis(axes)
        percent_axis(axes.yaxis)
        axes.grid(visible=False)
        language_legend(figure, axes, columns=3 if grouped else 4)
        window = ends[-1] / len(ends)
        what, done = "arms" if grouped else "languages", "finished run" if row.finished else "unfinished run"
        caption = (
            f"Which {what} {row.title} chose, in windows of {window:,.0f} steps (1,000 of 150,000 in the paper), "
            f"mean over {plural(len(runs), done)}. In the legend: the share over all steps."
        )
        if grouped:
            sums = ", ".join(f"{name} {share:.1%}" for name, share in by_language(runs[0], overall).items())
            caption += f" {GROUPED} By language: {sums}."
        alt = f"Stacked areas over the steps of {row.title}; over all steps {_spoken('', overall)[2:]}"
        title = f"Evolution of the policy: {row.short}"
        return finish(figure, name=f"evolution-{row.name}", title=title, caption=caption, alt=alt)


def _joined(shares: FloatArray, windows: int) -> FloatArray:
    """Means of neighbouring windows, so that so many are left; they are equal, or differ by one of the old ones."""
    return np.array([part.mean() for part in np.array_split(shares, windows)])


def mean_over(curves: Sequence[FloatArray]) -> FloatArray:
    """Mean over runs at each place, of those that have come so far."""
    stacked = np.stack(curves)
    known = ~np.isnan(stacked)
    sums, counts = np.where(known, stacked, 0.0).sum(axis=0), known.sum(axis=0)
    return np.where(counts > 0, sums / np.maximum(counts, 1), np.nan)


WINDOWS = 25


def share_windows(run: Run, windows: int = WINDOWS) -> tuple[FloatArray, dict[Arm, FloatArray]]:
    """Ends of equal windows of steps, and each language's share of the target tokens in every window."""
    entries = list(run.read("steps"))
    if not entries:
        raise ValueError(f"{run} has no steps yet; train it first with rota train")
    windows = min(windows, len(entries))
    tokens = {arm: np.zeros(windows) for arm in run.arms}
    for index, entry in enumerate(entries):
        by_language = entry.get("tokens_by_language") or {entry["arm"]: entry["tokens"]}
        for arm, count in by_language.items():
            tokens[arm][index * windows // len(entries)] += count
    total = np.sum(list(tokens.values()), axis=0)
    ends = (np.arange(windows) + 1) * len(entries) / windows
    return ends, {arm: counts / total for arm, counts in tokens.items()}


def plot_shares(run: Path, path: Path) -> Path:
    """Stacked areas of the language shares, saved as a picture; the legend gives the share over the whole run."""
    ends, by_arm = share_windows(Run(run))
    colours = arm_colours(Run(run))
    shares = {arm: by_arm[arm] for arm in colours}
    figure = Figure(figsize=(8, 4), layout="constrained")
    axes = figure.subplots()
    steps = np.concatenate([[0.0], ends])
    levels = [np.concatenate([share[:1], share]) for share in shares.values()]
    labels = [f"{arm} {share.mean():.1%}" for arm, share in shares.items()]
    axes.stackplot(
        steps, levels, labels=labels, colors=list(colours.values()), step="pre", edgecolor="white", linewidth=0.4
    )
    axes.set(xlim=(0, ends[-1]), ylim=(0, 1), xlabel="step", ylabel="share of target tokens")
    axes.set_title(f"What {run.name} trained on", loc="left")
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
    axes.spines[["top", "right"]].set_visible(False)
    handles, texts = axes.get_legend_handles_labels()
    figure.legend(handles[::-1], texts[::-1], loc="outside right center", frameon=False)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)
    return path
