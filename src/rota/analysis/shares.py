"""Which languages a run trained on, over time: a figure from its step records."""

from __future__ import annotations

import json
from pathlib import Path

import matplotlib
import numpy as np

from rota.analysis.colours import language_colours
from rota.analysis.folders import record_path
from rota.runs.records import read_record
from rota.types import Arm, FloatArray

matplotlib.use("Agg")
from matplotlib import pyplot as plt

WINDOWS = 25


def share_windows(run: Path, windows: int = WINDOWS) -> tuple[FloatArray, dict[Arm, FloatArray]]:
    """Ends of equal windows of steps, and each language's share of the target tokens in every window."""
    sizes = json.loads((run / "run.json").read_text(encoding="utf-8"))["data"]["sizes"]
    entries = list(read_record(record_path(run, "steps.jsonl")))
    if not entries:
        raise ValueError(f"{run} has no steps yet; train it first with rota train")
    windows = min(windows, len(entries))
    tokens = {arm: np.zeros(windows) for arm in sizes}
    for index, entry in enumerate(entries):
        by_language = entry.get("tokens_by_language") or {entry["arm"]: entry["tokens"]}
        for arm, count in by_language.items():
            tokens[arm][index * windows // len(entries)] += count
    total = np.sum(list(tokens.values()), axis=0)
    ends = (np.arange(windows) + 1) * len(entries) / windows
    return ends, {arm: counts / total for arm, counts in tokens.items()}


def plot_shares(run: Path, path: Path) -> Path:
    """Stacked areas of the language shares, saved as a picture; the legend gives the share over the whole run."""
    ends, shares = share_windows(run)
    colours = language_colours(list(shares))
    figure, axes = plt.subplots(figsize=(8, 4), layout="constrained")
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
    plt.close(figure)
    return path
