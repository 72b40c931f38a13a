"""Heat map of a probed Q network, like the figure of Section 5.5, from the JSON that the probe wrote."""

from __future__ import annotations

import json
from pathlib import Path

import matplotlib
import numpy as np

matplotlib.use("Agg")
from matplotlib import pyplot as plt


def plot_policy(probe: Path, path: Path) -> Path:
    """Rows: the language whose losses were amplified; columns: softmax of the Q value of each choice."""
    saved = json.loads(probe.read_text(encoding="utf-8"))
    languages, matrix = saved["languages"], np.array(saved["matrix"])
    size = 2.5 + 0.45 * len(languages)
    figure, axes = plt.subplots(figsize=(size + 0.8, size), layout="constrained")
    image = axes.imshow(matrix, cmap="Blues", vmin=0)
    ticks = range(len(languages))
    axes.set_xticks(ticks, labels=languages)
    axes.set_yticks(ticks, labels=languages)
    axes.set_xlabel("softmax of the Q value")
    axes.set_ylabel(f"losses multiplied by {saved['factor']:g}")
    step = saved["step"]
    axes.set_title("Q network" if step is None else f"Q network at step {step:,}", loc="left")
    figure.colorbar(image, ax=axes, shrink=0.8)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)
    plt.close(figure)
    return path
