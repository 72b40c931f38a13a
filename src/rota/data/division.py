"""The two parts of a dev set, which are never mixed.

A teacher decides by the losses of its part, so those losses come out better than on other text. The sentences of the
other part are unseen by any teacher: validation losses, the choice of checkpoints and every dev score come from them.

Dev sets of several languages often translate the same English. A teacher that sees a sentence in one language has seen
its English, so the text of the target decides the part, and it is the same part in every language. From English into
other languages it is the English source that decides.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
import numpy.typing as npt

from rota.data.store import Flat, Sentences
from rota.types import Arm, IntArray

Division = Literal["text", "alternate"]
"""How a dev set is divided: by a hash of the target text, or, as in version 0.1, evenly by position."""

Mask = npt.NDArray[np.bool_]
Hashes = npt.NDArray[np.uint64]


def teacher_part(dev: Sentences, arm: Arm, share: float, division: Division) -> IntArray:
    """Which of a language's sentences a teacher may look at, as indices from its first sentence on."""
    mask = _teachers(dev, arm, share, division)
    return np.flatnonzero(mask) if mask is not None else _all(dev, arm)


def selection_part(dev: Sentences, arm: Arm, share: float, division: Division) -> IntArray:
    """The other sentences: everything shown, recorded or selected by dev sentences comes from these."""
    mask = _teachers(dev, arm, share, division)
    return np.flatnonzero(~mask) if mask is not None else _all(dev, arm)


def _all(dev: Sentences, arm: Arm) -> IntArray:
    start, stop = dev.range(arm)
    return np.arange(stop - start)


def _teachers(dev: Sentences, arm: Arm, share: float, division: Division) -> Mask | None:
    """True for the teacher's sentences. None: both parts are the whole set, since a config says so or all are equal."""
    start, stop = dev.range(arm)
    if share == 1:
        return None
    if division == "alternate":
        return None if stop - start == 1 else evenly(stop - start, share)
    hashes = text_hashes(dev.source if arm in dev.from_pivot else dev.target, start, stop)
    return None if len(np.unique(hashes)) == 1 else by_hash(hashes, share)


def evenly(count: int, share: float) -> Mask:
    """True for ``share`` of ``count`` positions, evenly spread; both parts have at least one.

    A quarter of eight are those at 1 and 5.
    """
    positions = np.arange(count + 1) * share
    mask = np.diff(np.floor(positions + 0.5)) > 0
    if mask.all():
        mask[-1] = False
    if not mask.any():
        mask[0] = True
    return mask


def by_hash(hashes: Hashes, share: float) -> Mask:
    """True for hashes in the lowest ``share`` of their range, whatever the other sentences of the set are.

    Where a small set would have an empty part, the text nearest to the border changes sides, in this language alone.
    Of 20 different texts in halves that happens once in 500,000 sets.
    """
    mask = (hashes >> np.uint64(11)) * 2.0**-53 < share
    if mask.all():
        mask = hashes != hashes.max()
    if not mask.any():
        mask = hashes == hashes.min()
    return mask


_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


def text_hashes(side: Flat, start: int, stop: int) -> Hashes:
    """A hash of each sentence's tokens and their order: the same on every machine and with every version of numpy."""
    tokens = side.tokens[side.offsets[start] : side.offsets[stop]]
    return sentence_hashes(tokens, np.diff(side.offsets[start : stop + 1]))


def sentence_hashes(tokens: IntArray, lengths: IntArray) -> Hashes:
    """The same of sentences that lie one after the other.

    Each token is mixed with its position, and the results are summed modulo 2 ** 64.
    """
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    positions = (np.arange(len(tokens)) - np.repeat(offsets[:-1], lengths)).astype(np.uint64)
    mixed = _mixed(_mixed(positions) ^ tokens.astype(np.uint64))
    sums = np.concatenate([np.zeros(1, np.uint64), np.cumsum(mixed)])
    return _mixed(sums[offsets[1:]] - sums[offsets[:-1]])


def _mixed(values: Hashes) -> Hashes:
    """SplitMix64 (Steele, Lea and Flood 2014): every bit of the result depends on every bit of the value."""
    mixed = values + _GOLDEN
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))
