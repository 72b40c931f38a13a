"""A page about one run with lessons: what was trained on when, how the losses went, and how often text was repeated."""

from __future__ import annotations

import html
import io
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import numpy as np

from rota.files import write_atomically
from rota.hf.sampler import LessonSampler
from rota.runs.records import read_record
from rota.types import Arm, FloatArray, IntArray

WINDOWS: Final = 40
"""Parts of the run whose shares are drawn, at most."""

PART: Final = 25
"""Updates of such a part, at least, where the run has so many: shares of fewer are mostly chance."""

COLOURS: Final = ("#0072b2", "#e69f00", "#009e73", "#d55e00", "#56b4e9", "#cc79a7", "#f0e442", "#7f7f7f")
"""Those of Okabe and Ito, which can be told apart by most people; then again from the first."""

STYLE: Final = """
:root { color-scheme: light; }
body { font: 16px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 62rem; padding: 0 1rem; color: #222;
  background: #fff; }
h1 { font-size: 1.6rem; } h2 { font-size: 1.2rem; margin: 0; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { padding: .25rem .6rem; text-align: right; border-bottom: 1px solid #ddd; white-space: nowrap; }
th:first-child, td:first-child { text-align: left; }
td i { display: inline-block; width: .7em; height: .7em; margin-right: .5em; }
.figures { display: grid; gap: 1rem 2rem; grid-template-columns: repeat(auto-fit, minmax(min(100%, 24rem), 1fr)); }
figure { margin: 1rem 0 0; }
svg { width: 100%; height: auto; }
.wide { overflow-x: auto; }
p.note { color: #555; margin: .3rem 0; font-size: .95rem; }
@media (max-width: 40rem) {
  body { margin: 1rem auto; }
  table { font-size: .8rem; line-height: 1.3; }
  th, td { padding: .25rem .3rem; }
  th { white-space: normal; }
}
"""


def write_report(records: Path, out: Path, sampler: LessonSampler, teacher: str) -> Path:
    """``out/index.html``, made of the records alone; returns its path."""
    steps = list(read_record(records / "steps.jsonl"))
    if not steps:
        raise ValueError(f"{records} has no records of updates; train first")
    validations = list(read_record(records / "validations.jsonl"))
    observations = list(read_record(records / "observations.jsonl"))
    gains = [(entry["step"], entry["source_gain"]) for entry in observations if "source_gain" in entry]
    rewards = [(entry["step"], entry["rewards"]) for entry in read_record(records / "rewards.jsonl")]
    arms = list(sampler.sizes)
    parts = [
        f"<h1>Lessons by {html.escape(teacher)}</h1>",
        f"<p>{_summary(steps, sampler, validations)}</p>",
        f"<div class='wide'>{_table(steps, sampler, validations, gains)}</div>",
        "<div class='figures'>",
        _figure("What was trained on", SHARES, lambda axes: _draw_shares(axes, steps, arms)),
    ]
    if len(validations) > 1:
        parts.append(_figure("Dev losses", DEV_LOSSES, lambda axes: _draw_losses(axes, validations, sampler)))
    if len(gains) > 1:
        curves = _by_arm(gains, arms)
        parts.append(
            _figure("Gain from the source", SOURCE_GAIN, lambda axes: _draw_curves(axes, curves, "nats per token"))
        )
    if len(rewards) > 1:
        means = _in_parts(_by_arm(rewards, arms), steps)
        parts.append(_figure("Rewards", REWARDS, lambda axes: _draw_curves(axes, means, "reward")))
    parts.append("</div>")
    viewport = "<meta name='viewport' content='width=device-width, initial-scale=1'>"
    head = (
        f"<!doctype html><html lang='en'><meta charset='utf-8'>{viewport}<title>Lessons</title><style>{STYLE}</style>"
    )
    path = out / "index.html"
    write_atomically(path, "\n".join([head, *parts, "</html>"]) + "\n")
    return path


SHARES: Final = "Shares of the updates, in parts of the run."
DEV_LOSSES: Final = "Nats per token of every data set; dashed: the goal."
REWARDS: Final = "What the teacher made of its observations, in means over parts of the run."
SOURCE_GAIN: Final = (
    "Loss on training examples with the source of another example, minus the loss with their own. Near 0, nothing is"
    " learned from the source: are the lines aligned?"
)


def _figure(title: str, note: str, draw: Callable[[Any], None]) -> str:
    words = f"<h2>{title}</h2><p class='note'>{html.escape(note)}</p>"
    return f"<figure><figcaption>{words}</figcaption>{_picture(draw)}</figure>"


def _summary(steps: Sequence[Mapping[str, Any]], sampler: LessonSampler, validations: Sequence[Any]) -> str:
    text = f"{len(steps):,} updates of {sampler.update:,} examples."
    if validations:
        goal = sampler.classroom.goal
        first, last = (
            sum(weight * entry["dev_loss"].get(arm, np.nan) for arm, weight in goal.items())
            for entry in (validations[0], validations[-1])
        )
        text += f" The goal's dev loss was {first:.3f} at step {validations[0]['step']:,}"
        text += f" and {last:.3f} at step {validations[-1]['step']:,}."
    fifth = max(1, len(steps) // 5)
    counts = [updates_by_arm(part) for part in (steps[:fifth], steps[-fifth:])]
    moved = {arm: (counts[1][arm] - counts[0][arm]) / fifth for arm in sampler.sizes}
    most = max(moved, key=lambda arm: abs(moved[arm]))
    if len(steps) >= 5 * PART:
        shares = [f"{count[most] / fifth:.0%}" for count in counts]
        text += f" The share of {html.escape(most)} changed most: from {shares[0]} of the first fifth to {shares[1]} of"
        text += " the last."
    return text


def updates_by_arm(steps: Sequence[Mapping[str, Any]]) -> Counter[Arm]:
    """An update on a mixture counts for each arm by its share of the examples."""
    found: Counter[Arm] = Counter()
    for entry in steps:
        examples = entry.get("examples_by_arm", {entry["arm"]: 1})
        total = sum(examples.values())
        for arm, count in examples.items():
            found[arm] += count / total
    return found


Readings = Sequence[tuple[int, Mapping[Arm, Any]]]
"""Steps, and what was found then by arm."""


def _table(
    steps: Sequence[Mapping[str, Any]], sampler: LessonSampler, validations: Sequence[Any], gains: Readings
) -> str:
    updates = updates_by_arm(steps)
    first, last = (validations[0]["dev_loss"], validations[-1]["dev_loss"]) if validations else ({}, {})
    titles = ["data set", "examples", "updates", "share", "epochs", "first dev loss", "last"]
    titles += ["source gain"] if gains else []
    rows = ["<tr>" + "".join(f"<th>{title}</th>" for title in titles) + "</tr>"]
    for number, (arm, size) in enumerate(sampler.sizes.items()):
        epochs = sampler.examples[arm] / size
        cells = [f"{size:,}", f"{updates[arm]:,.0f}", f"{updates[arm] / len(steps):.1%}", f"{epochs:.2f}"]
        cells += [f"{found[arm]:.3f}" if arm in found else "-" for found in (first, last)]
        cells += [f"{gains[-1][1][arm][0]:.3f}" if arm in gains[-1][1] else "-"] if gains else []
        mark = f"<i style='background: {_colour(number)}'></i>"
        rows.append(f"<tr><td>{mark}{html.escape(arm)}</td>{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>")
    return f"<table>{''.join(rows)}</table>"


def _colour(number: int) -> str:
    return COLOURS[number % len(COLOURS)]


def shares_over_time(steps: Sequence[Mapping[str, Any]], arms: Sequence[Arm]) -> tuple[FloatArray, FloatArray]:
    """The last step of each part of the run, and (arms, parts) shares of its updates."""
    bounds = _bounds(len(steps))
    parts = [updates_by_arm(steps[start:stop]) for start, stop in pairwise(bounds)]
    shares = [[part[arm] / (part.total() or 1) for part in parts] for arm in arms]
    ends = np.array([steps[stop - 1]["step"] for stop in bounds[1:]], dtype=float)
    return ends, np.array(shares)


def _bounds(updates: int) -> IntArray:
    """Where the parts of a run begin and end."""
    parts = min(WINDOWS, max(1, updates // PART)) if updates >= 2 * PART else min(WINDOWS, updates)
    bounds: IntArray = np.unique(np.linspace(0, updates, parts + 1).astype(int))
    return bounds


def _draw_shares(axes: Any, steps: Sequence[Mapping[str, Any]], arms: Sequence[Arm]) -> None:
    ends, shares = shares_over_time(steps, arms)
    edges = np.concatenate([[steps[0]["step"] - 1], ends])
    below = np.zeros(len(ends))
    for number, arm in enumerate(arms):
        top = below + shares[number]
        axes.stairs(top, edges, baseline=below, fill=True, color=_colour(number), label=arm)
        below = top
    axes.set(xlim=(edges[0], edges[-1]), ylim=(0, 1), xlabel="step", ylabel="share of updates")


def _draw_losses(axes: Any, validations: Sequence[Mapping[str, Any]], sampler: LessonSampler) -> None:
    found = [(entry["step"], entry["dev_loss"]) for entry in validations]
    _draw_curves(axes, _by_arm(found, list(sampler.sizes)), "dev loss")
    goal = sampler.classroom.goal
    means = [
        (step, sum(goal[arm] * losses[arm] for arm in goal)) for step, losses in found if goal.keys() <= set(losses)
    ]
    if means:
        axes.plot(*zip(*means, strict=True), color="#222", linestyle="--", linewidth=1.2, label="goal")


Curves = Mapping[Arm, Sequence[tuple[int, float]]]


def _by_arm(found: Readings, arms: Sequence[Arm]) -> Curves:
    """For each arm its steps and values; of an estimate with its error, the value."""
    return {arm: [(step, float(np.ravel(values[arm])[0])) for step, values in found if arm in values] for arm in arms}


def _in_parts(curves: Curves, steps: Sequence[Mapping[str, Any]]) -> Curves:
    """The mean of each part of the run, where there is any value."""
    ends = [steps[stop - 1]["step"] for stop in _bounds(len(steps))[1:]]
    parts: dict[Arm, list[tuple[int, float]]] = {}
    for arm, points in curves.items():
        place = np.searchsorted(ends, [step for step, _ in points])
        values = np.array([value for _, value in points])
        parts[arm] = [
            (end, float(values[place == part].mean())) for part, end in enumerate(ends) if (place == part).any()
        ]
    return parts


def _draw_curves(axes: Any, curves: Curves, title: str) -> None:
    for number, (arm, points) in enumerate(curves.items()):
        if points:
            axes.plot(*zip(*points, strict=True), color=_colour(number), label=arm)
    axes.set(xlabel="step", ylabel=title)
    axes.grid(axis="y", color="#ddd", linewidth=0.6)


def _picture(draw: Callable[[Any], None]) -> str:
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    figure = Figure(figsize=(4.9, 3.4), layout="constrained")  # on a phone a point of it is about a pixel
    FigureCanvasSVG(figure)
    axes = figure.add_subplot()
    draw(axes)
    axes.spines[["top", "right"]].set_visible(False)
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower left", ncols=3, frameon=False, handlelength=1.2)
    text = io.StringIO()
    figure.savefig(text, format="svg")
    drawn = text.getvalue()
    return drawn[drawn.index("<svg") :]
