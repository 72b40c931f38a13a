"""Heat map of a probed Q network, like the figure of Section 5.5, from the JSON that the probe wrote."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np

matplotlib.use("Agg")
from matplotlib import pyplot as plt
from matplotlib.axes import Axes


def plot_policy(probe: Path, path: Path) -> Path:
    """The heat map as a picture."""
    saved = json.loads(probe.read_text(encoding="utf-8"))
    size = 2.5 + 0.45 * len(saved["languages"])
    figure, axes = plt.subplots(figsize=(size + 0.8, size), layout="constrained")
    draw_probe(axes, saved)
    step = saved["step"]
    axes.set_title("Q network" if step is None else f"Q network at step {step:,}", loc="left")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)
    plt.close(figure)
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
