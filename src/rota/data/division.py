"""The two parts of a dev set, which are never mixed.

A teacher decides by the losses of its part, so those losses come out better than on other text. The sentences of the
other part are unseen by any teacher: validation losses, the choice of checkpoints and every dev score come from them.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from rota.types import IntArray


def teacher_part(count: int, share: float) -> IntArray:
    """Indices, below ``count``, of the sentences that a teacher may look at: ``share`` of them, evenly spread.

    A quarter of eight sentences are those at 1 and 5.
    """
    return np.arange(count) if _undivided(count, share) else np.flatnonzero(_mask(count, share))


def selection_part(count: int, share: float) -> IntArray:
    """Indices of the other sentences: everything shown, recorded or selected by dev sentences comes from these."""
    return np.arange(count) if _undivided(count, share) else np.flatnonzero(~_mask(count, share))


def _undivided(count: int, share: float) -> bool:
    """Whether both parts are the whole set: when a config says so, or when there is nothing to divide."""
    return share == 1 or count == 1


def _mask(count: int, share: float) -> npt.NDArray[np.bool_]:
    """True for ``share`` of the indices, evenly spread; both parts have at least one."""
    positions = np.arange(count + 1) * share
    mask = np.diff(np.floor(positions + 0.5)) > 0
    if mask.all():
        mask[-1] = False
    if not mask.any():
        mask[0] = True
    return mask
