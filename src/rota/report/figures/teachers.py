"""What learned teachers explored, expected and were told: epsilon, scores, Q networks, signal and noise of rewards."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from rota.report.figures.drawing import Look, Picture, canvas, finish, legend_below, line_colours, step_axis
from rota.report.figures.shares import in_family_order, mean_over
from rota.report.numbers.rewards import are_derived, signal_by_chance, signal_by_window
from rota.report.sentences import and_list
from rota.report.study import Row, StudyRun
from rota.types import FloatArray


def epsilon_figure(rows: Sequence[Row], looks: Mapping[str, Look]) -> Picture | None:
    """The probability of a random choice over time, where a teacher explores so."""
    shown = [row for row in rows if row.learned]
    curves = {row.name: mean_over([run.history.epsilon for run in row.runs.values()]) for row in shown}
    shown = [row for row in shown if not np.isnan(curves[row.name]).all()]
    if not shown:
        return None
    with canvas(2.6 + 0.1 * len(shown)) as (figure, [axes]):
        for row in shown:
            look = looks[row.name]
            ends = next(iter(row.runs.values())).history.ends
            axes.plot(ends, curves[row.name], color=look.colour, linestyle=look.dash, label=row.short)
        axes.set(ylim=(0, 1.03), xlim=(0, None), ylabel="epsilon")
        step_axis(axes)
        legend_below(figure, axes)
        caption = (
            "Probability of a random choice, from the records of the choices; a choice in a warm-up counts as random."
        )
        last = ", ".join(f"{row.title} ends at {_last(curves[row.name]):.2f}" for row in shown)
        alt = f"Epsilon over steps: {last}"
        return finish(figure, name="epsilon", title="Exploration: epsilon", caption=caption, alt=alt)


def _last(curve: FloatArray) -> float:
    return float(curve[~np.isnan(curve)][-1])


def scores_figure(row: Row) -> Picture | None:
    """What a learned teacher thought of each language over time, one seed: a mean would hide how it wavers."""
    if not row.learned:
        return None
    run = row.runs[min(row.runs)]
    history = run.history
    languages = in_family_order(run)
    colours = line_colours(languages)
    with canvas(3.0) as (figure, [axes]):
        for arm in languages:
            dash = (0, (4, 1.5)) if run.language_of(arm) in run.low_resource else "-"
            axes.plot(history.ends, history.scores[arm], color=colours[arm], linestyle=dash, linewidth=1.3, label=arm)
        axes.set(ylabel="Q value" if run.has_q_network else "value of the language", xlim=(0, None))
        step_axis(axes)
        legend_below(figure, axes, columns=4)
        caption = (
            f"What {row.title} expected of each language when it chose (seed {run.seed}, means of windows; dashed: "
            "low-resource). Where curves differ by less than they fluctuate, there is no preference."
        )
        alt = f"Lines of the values that {row.title} gave to {', '.join(languages)} over the steps"
        title = f"What the teacher believed: {row.short}"
        return finish(figure, name=f"values-{row.name}", title=title, caption=caption, alt=alt)


def signal_figure(rows: Sequence[Row], looks: Mapping[str, Look]) -> Picture | None:
    """Signal-to-noise ratio of the rewards in tenths of the run."""
    curves = {row.name: mean_over([signal_by_window(run) for run in row.runs.values()]) for row in rows}
    shown = [row for row in rows if not np.isnan(curves[row.name]).all()]
    if not shown:
        return None
    with canvas(2.6 + 0.1 * len(shown)) as (figure, [axes]):
        for row in shown:
            look, steps = looks[row.name], next(iter(row.runs.values())).steps
            ends = (np.arange(len(curves[row.name])) + 1) * steps / len(curves[row.name])
            style: dict[str, Any] = {"color": look.colour, "linestyle": look.dash, "marker": look.marker}
            axes.plot(ends, curves[row.name], markersize=4, label=row.short, **style)
            chance = mean_over([signal_by_chance(run) for run in row.runs.values()])
            axes.plot(ends, chance, color=look.colour, linewidth=0.8, label=f"{row.short}, by chance")
        axes.set(ylim=(0, None), xlim=(0, None), ylabel="signal / noise")
        step_axis(axes)
        legend_below(figure, axes)
        caption = _how_to_read(shown)
        alt = "Signal-to-noise ratios over steps: " + ", ".join(
            f"{row.title} {np.nanmin(curves[row.name]):.2f} to {np.nanmax(curves[row.name]):.2f}" for row in shown
        )
        return finish(figure, name="signal-to-noise", title="Signal and noise of the rewards", caption=caption, alt=alt)


def _how_to_read(rows: Sequence[Row]) -> str:
    """Of version 0.1 alone: gains, which is what was derived for it. Else rewards, and which rows have them derived."""
    derived = [row.title for row in rows if any(are_derived(run) for run in row.runs.values())]
    rewards, gains_more = ("gains", "gains more") if len(derived) == len(rows) else ("rewards", "earns more")
    caption = (
        f"How much the {rewards} told the teacher: standard deviation between the languages' true mean {rewards}, over "
        f"that of one {rewards[:-1]} around the mean of its language (analysis of variance in tenths of the run, mean "
        f"over seeds). At 0.1 some 1,600 choices of each of two languages are needed to tell which {gains_more}. Thin: "
        f"the same with the {rewards} dealt anew to the languages, so that they tell nothing."
    )
    if not derived or len(derived) == len(rows):
        return caption
    return (
        f"{caption} The rewards of {and_list(derived)} were not recorded; they are derived afterwards from dev losses."
    )


def q_network_figures(row: Row) -> list[Picture]:
    """Heat maps of the Q network at two stages, of the first seed that has been probed."""
    probed = [run for _, run in sorted(row.runs.items()) if run.probes()]
    if not probed:
        return []
    run = probed[0]
    pictures = []
    for probe in two_stages(run):
        with canvas(3.9) as (figure, [axes]):
            draw_probe(axes, probe)
            title = f"Q network of {row.short} at step {probe['step']:,}"
            caption = (
                f"Row: the language whose losses were multiplied by {probe['factor']:g}. Column: softmax of the Q "
                f"value of each choice (seed {run.seed}). Equal rows: the state does not matter to the network."
            )
            name = f"q-network-{row.name}-{probe['step']}"
            pictures.append(finish(figure, name=name, title=title, caption=caption, alt=_most_wanted(probe)))
    return pictures


def _most_wanted(probe: dict[str, Any]) -> str:
    languages = probe["languages"]
    wanted = [languages[int(np.argmax(line))] for line in probe["matrix"]]
    pairs = ", ".join(f"{best} if {arm} is poor" for arm, best in zip(languages, wanted, strict=True))
    return f"Heat map of the Q network; most wanted: {pairs}"


STAGES = (28 / 150, 56 / 150)
"""The paper shows the Q network at 28k and 56k of 150k steps."""


def two_stages(run: StudyRun) -> list[dict[str, Any]]:
    """The probes nearest to the paper's two stages; those two that there are, if there are two."""
    probes = run.probes()
    if len(probes) <= 2:
        return probes
    steps = [min((probe["step"] for probe in probes), key=lambda step: abs(step - wanted)) for wanted in _wanted(run)]
    return [probe for probe in probes if probe["step"] in steps]


def _wanted(run: StudyRun) -> list[float]:
    return [stage * run.steps for stage in STAGES]


def how_to_probe(run: StudyRun) -> list[str]:
    """The commands that make the heat maps of a run, at its checkpoints nearest to the paper's stages."""
    written = str(run.about["config"]["training"]["checkpoint_every"])
    share = float(written.rstrip("%")) / 100 * run.steps if written.endswith("%") else float(written)
    every = max(1, round(share))
    steps = sorted({min(run.steps, max(1, round(wanted / every)) * every) for wanted in _wanted(run)})
    return [f"rota policy {run.folder} --step {step}" for step in steps]


def plot_policy(probe: Path, path: Path) -> Path:
    """The heat map as a picture."""
    saved = json.loads(probe.read_text(encoding="utf-8"))
    size = 2.5 + 0.45 * len(saved["languages"])
    figure = Figure(figsize=(size + 0.8, size), layout="constrained")
    axes = figure.subplots()
    draw_probe(axes, saved)
    step = saved["step"]
    axes.set_title("Q network" if step is None else f"Q network at step {step:,}", loc="left")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)
    return path


def draw_probe(axes: Axes, probe: Mapping[str, Any]) -> None:
    """Rows: the language whose losses were amplified; columns: softmax of the Q value of each choice."""
    languages, matrix = probe["languages"], np.array(probe["matrix"])
    ticks = np.arange(len(languages)) + 0.5
    mesh = axes.pcolormesh(matrix, cmap="Blues", vmin=0, edgecolors="white", linewidth=0.5)
    middle = matrix.max() * 0.6
    for row, line in enumerate(matrix):
        for column, value in enumerate(line):
            colour = "#ffffff" if value > middle else "#000000"
            axes.text(column + 0.5, row + 0.5, f"{value:.2f}", ha="center", va="center", fontsize=7, color=colour)
    axes.set_xticks(ticks, labels=languages)
    axes.set_yticks(ticks, labels=languages)
    axes.invert_yaxis()
    axes.grid(visible=False)
    axes.set_aspect("equal")
    axes.set_xlabel("softmax of the Q value")
    axes.set_ylabel(f"losses multiplied by {probe['factor']:g}")
    axes.figure.colorbar(mesh, ax=axes, shrink=0.8)
