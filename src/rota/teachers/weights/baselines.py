"""Baseline losses: given in the config, or read from the records of a finished run."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import numpy as np

from rota.runs import Run
from rota.types import Arm

LAST = 0.1
"""The share of a run's updates, at its end, whose training losses are its baseline."""


def read_baseline(
    baseline: Mapping[Arm, float] | Path | None, language_of: Mapping[Arm, Arm], *, of: Literal["train", "dev"]
) -> dict[Arm, float] | None:
    """Loss of each arm, nats per token, or that of its language; None if there is no baseline."""
    if baseline is None:
        return None
    losses = baseline if isinstance(baseline, Mapping) else _of_run(Run(baseline), of)
    found = {arm: losses.get(arm, losses.get(language)) for arm, language in language_of.items()}
    missing = [arm for arm, loss in found.items() if loss is None]
    if missing:
        lacks = f"has no loss of {', '.join(missing)}"
        if isinstance(baseline, Mapping):
            raise ValueError(f"teacher.baseline {lacks}; give one for every language")
        raise ValueError(
            f"teacher.baseline: {baseline} {lacks} near its end; finish that run, or write the losses down"
        )
    return {arm: float(loss) for arm, loss in found.items() if loss is not None}


def _of_run(run: Run, of: Literal["train", "dev"]) -> dict[Arm, float]:
    """Mean training loss over the last tenth of the updates, or the lowest dev loss of any validation, by language."""
    if not run.exists:
        raise ValueError(f"teacher.baseline is {str(run)!r}, which is not a run folder (no run.json); train it first")
    found: dict[Arm, list[float]] = {}
    if of == "dev":
        for entry in run.read("validations"):
            for arm, loss in entry["dev_loss"].items():
                found.setdefault(arm, []).append(loss)
        return {arm: min(losses) for arm, losses in found.items()}
    for entry in run.read("steps"):
        if entry["step"] > (1 - LAST) * run.steps:
            found.setdefault(entry["arm"], []).append(entry["loss"])
    return {arm: float(np.mean(losses)) for arm, losses in found.items()}
