"""Which sentences of a dev set a teacher may look at, and which ones choose checkpoints: two parts, never mixed."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from rota.types import IntArray


def teacher_places(count: int, share: float) -> IntArray:
    """Places, of ``count``, that belong to the teacher: ``share`` of them, spread evenly over the set."""
    return np.arange(count) if _undivided(count, share) else np.flatnonzero(_chosen(count, share))


def selection_places(count: int, share: float) -> IntArray:
    """The other places: whatever is shown, recorded or chosen from dev sentences comes from these."""
    return np.arange(count) if _undivided(count, share) else np.flatnonzero(~_chosen(count, share))


def _undivided(count: int, share: float) -> bool:
    """Whether both parts are the whole set: when asked for, or when there is nothing to divide."""
    return share == 1 or count == 1


def _chosen(count: int, share: float) -> npt.NDArray[np.bool_]:
    """A mask with ``share`` of the places, spread evenly; both parts have one at the least."""
    places = np.arange(count + 1) * share
    mask = np.diff(np.floor(places + 0.5)) > 0
    if mask.all():
        mask[-1] = False
    if not mask.any():
        mask[0] = True
    return mask
