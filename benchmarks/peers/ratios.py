"""How many times as fast ours is as each of the others: all turns of all rounds together, with an interval."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np

from rota.types import FloatArray
from rows import Row

Run = list[dict[str, Any]]

DRAWS = 4_000
LEVEL = (2.5, 97.5)


def timed(run: Run, warm_up: int) -> FloatArray:
    """Tokens and seconds of processor time of every update after the warm-up."""
    return np.array(
        [(after["tokens"], after["processor"] - before["processor"]) for before, after in pairwise(run[warm_up - 1 :])],
        dtype=float,
    )


def ratio_row(ours: dict[int, Run], theirs: dict[int, Run], name: str, setting: str, warm_up: int) -> Row:
    """Of tokens a second; the interval holds 95 % of what turns drawn anew give, ours and theirs of a turn together."""
    both = [(timed(ours[number], warm_up), timed(theirs[number], warm_up)) for number in set(ours) & set(theirs)]
    shared = [(our, their, min(len(our), len(their))) for our, their in both]
    pairs = np.concatenate([np.stack([our[:turns], their[:turns]], 1) for our, their, turns in shared])
    rng = np.random.default_rng(0)
    drawn = pairs[rng.integers(len(pairs), size=(DRAWS, len(pairs)))].sum(1)
    low, high = np.percentile(_ratio(drawn), LEVEL)
    value = float(_ratio(pairs.sum(0)))
    what = f"times as fast as {name}, 95 % interval"
    return Row("peers", setting, what, value, float(low), float(high), "", goal="at least 1.4")


def _ratio(sums: FloatArray) -> FloatArray:
    """... x (ours, theirs) x (tokens, seconds)."""
    speeds = sums[..., 0] / sums[..., 1]
    ratio: FloatArray = speeds[..., 0] / speeds[..., 1]
    return ratio
