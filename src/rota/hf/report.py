"""A page about one run with lessons: what was trained on when, how the losses went, and how often text was repeated."""

from __future__ import annotations

import html
import io
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import numpy as np

from rota.files import write_atomically
from rota.hf.sampler import LessonSampler
from rota.runs.records import read_record
from rota.types import Arm, FloatArray

WINDOWS: Final = 40
"""Parts of the run whose shares are drawn."""

STYLE: Final = """
body { font: 16px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 54rem; padding: 0 1rem; color: #222; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { padding: .25rem .8rem; text-align: right; border-bottom: 1px solid #ddd; }
th:first-child, td:first-child { text-align: left; }
svg { max-width: 100%; height: auto; }
.wide { overflow-x: auto; }
"""


def write_report(records: Path, out: Path, sampler: LessonSampler, teacher: str) -> Path:
    """``out/index.html``, made of the records alone; returns its path."""
    steps = list(read_record(records / "steps.jsonl"))
    if not steps:
        raise ValueError(f"{records} has no records of updates; train first")
    validations = list(read_record(records / "validations.jsonl"))
    parts = [
        f"<h1>Lessons by {html.escape(teacher)}</h1>",
        f"<p>{_summary(steps, sampler, validations)}</p>",
        f"<div class='wide'>{_table(steps, sampler, validations)}</div>",
        "<h2>What was trained on</h2>",
        _picture(lambda axes: _draw_shares(axes, steps, list(sampler.sizes))),
    ]
    if len(validations) > 1:
        parts += ["<h2>Dev losses</h2>", _picture(lambda axes: _draw_losses(axes, validations, list(sampler.sizes)))]
    viewport = "<meta name='viewport' content='width=device-width, initial-scale=1'>"
    head = (
        f"<!doctype html><html lang='en'><meta charset='utf-8'>{viewport}<title>Lessons</title><style>{STYLE}</style>"
    )
    path = out / "index.html"
    write_atomically(path, "\n".join([head, *parts, "</html>"]) + "\n")
    return path


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
    return text


def _table(steps: Sequence[Mapping[str, Any]], sampler: LessonSampler, validations: Sequence[Any]) -> str:
    updates = Counter(entry["arm"] for entry in steps)
    last = validations[-1]["dev_loss"] if validations else {}
    rows = ["<tr><th>arm</th><th>examples</th><th>updates</th><th>share</th><th>epochs</th><th>dev loss</th></tr>"]
    for arm, size in sampler.sizes.items():
        epochs, loss = sampler.examples[arm] / size, last.get(arm)
        cells = [f"{size:,}", f"{updates[arm]:,}", f"{updates[arm] / len(steps):.1%}", f"{epochs:.2f}"]
        cells.append("-" if loss is None else f"{loss:.3f}")
        rows.append(f"<tr><td>{html.escape(arm)}</td>{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>")
    return f"<table>{''.join(rows)}</table>"


def shares_over_time(steps: Sequence[Mapping[str, Any]], arms: Sequence[Arm]) -> tuple[FloatArray, FloatArray]:
    """The last step of each part of the run, and (arms, parts) shares of its updates."""
    index = {arm: number for number, arm in enumerate(arms)}
    chosen = np.array([index.get(entry["arm"], -1) for entry in steps])
    bounds = np.unique(np.linspace(0, len(steps), min(WINDOWS, len(steps)) + 1).astype(int))
    shares = [
        [(chosen[start:stop] == number).mean() for start, stop in pairwise(bounds)] for number in range(len(arms))
    ]
    ends = np.array([steps[stop - 1]["step"] for stop in bounds[1:]], dtype=float)
    return ends, np.array(shares)


def _draw_shares(axes: Any, steps: Sequence[Mapping[str, Any]], arms: Sequence[Arm]) -> None:
    ends, shares = shares_over_time(steps, arms)
    axes.stackplot(ends, shares, labels=arms, step="pre", alpha=0.9)
    axes.set(xlim=(ends[0], ends[-1]) if len(ends) > 1 else None, ylim=(0, 1), xlabel="step", ylabel="share of updates")


def _draw_losses(axes: Any, validations: Sequence[Mapping[str, Any]], arms: Sequence[Arm]) -> None:
    for arm in arms:
        points = [(entry["step"], entry["dev_loss"][arm]) for entry in validations if arm in entry["dev_loss"]]
        if points:
            axes.plot(*zip(*points, strict=True), label=arm)
    axes.set(xlabel="step", ylabel="dev loss")


def _picture(draw: Any) -> str:
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 3.4), layout="constrained")
    FigureCanvasSVG(figure)
    axes = figure.add_subplot()
    draw(axes)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(loc="center left", bbox_to_anchor=(1.01, 0.5), frameon=False)
    text = io.StringIO()
    figure.savefig(text, format="svg")
    drawn = text.getvalue()
    return drawn[drawn.index("<svg") :]
