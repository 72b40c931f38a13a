"""Whether the lengths of source and target lines go together: where a file was shifted by a line, they do not.

Long sentences have long translations. In blocks of consecutive pairs, the correlation of the logarithms of the lengths
is above 0.5 in all text that we have looked at, also in short strings; between a line and the translation of its
neighbour it is near 0 (docs/commands/prepare.md gives the figures).
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, Final

import numpy as np

from rota.data.corpora.parallel import Pair
from rota.data.preparation.cleaning import chunks
from rota.types import FloatArray, IntArray

logger = logging.getLogger(__name__)

BLOCK: Final = 100  # pairs; within a block the correlation of unrelated lines is 0 ± 0.1
ENOUGH: Final = 200  # pairs of which something can be said
LOW: Final = 0.35  # correlation of a stretch that is named
BORDER: Final = 0.45  # correlation of a block that belongs to such a stretch rather than to the text around it
BETTER: Final = 0.1  # by how much a line must fit its own translation better than those of its neighbours
SPREAD: Final = 0.2  # standard deviation of log lengths; in text of one length a correlation says nothing
NAMED: Final = 10  # texts with a line of their own
FITS: Final = 0.5  # correlation with the neighbours' translations from which on a shift is named


@dataclass(frozen=True)
class Misfit:
    """A stretch of pairs whose lengths hardly go together."""

    first: int  # pair, counted from 1 as they are read
    last: int
    pairs: int  # of the whole text
    correlation: float
    elsewhere: float | None  # the correlation in the rest of the text; None if there is no rest
    shift: int = 0  # 1: source lines fit the next target line; -1: the previous one; 0: neither
    shifted: float = 0.0  # the correlation with that line

    @property
    def text(self) -> str:
        """With the numbers that led to it."""
        numbers = f"correlation {self.correlation:.2f}"
        if self.elsewhere is not None:
            numbers += f", elsewhere {self.elsewhere:.2f}"
        if self.shift:
            numbers += f", with the {'next' if self.shift > 0 else 'previous'} target line {self.shifted:.2f}"
        found = f"the lengths of source and target lines hardly go together ({numbers})"
        return f"{self._where}{found}; are its lines aligned?"

    @property
    def _where(self) -> str:
        if self.elsewhere is None:
            return ""
        if self.last == self.pairs:
            return f"from about pair {self.first:,} of {self.pairs:,} on, "
        return f"in about pairs {self.first:,} to {self.last:,} of {self.pairs:,}, "


class LineLengths:
    """Collects sums over blocks of pairs as they are read; the text itself is not kept."""

    def __init__(self) -> None:
        self._pairs = 0
        self._waiting = np.zeros((3, 0))  # number of the pair, log lengths of source and target: less than a block
        self._blocks: list[FloatArray] = []  # (blocks, 7) each: see _sums

    def watch(self, pairs: Iterable[Pair]) -> Iterator[Pair]:
        """The same pairs, measured in passing."""
        for chunk in chunks(pairs):
            self.add(*(np.fromiter(map(len, map(itemgetter(side), chunk)), np.int32) for side in (0, 1)))
            yield from chunk

    def add(self, source: IntArray, target: IntArray) -> None:
        """Lengths of the next pairs; pairs with an empty side say nothing and are left out."""
        numbers = np.arange(self._pairs, self._pairs + len(source))
        self._pairs += len(source)
        filled = (source > 0) & (target > 0)
        new = np.stack([numbers[filled], np.log(source[filled]), np.log(target[filled])])
        waiting = np.concatenate([self._waiting, new], axis=1)
        whole = waiting.shape[1] // BLOCK * BLOCK
        if whole:
            self._blocks.append(_sums(waiting[:, :whole].reshape(3, -1, BLOCK)))
        self._waiting = waiting[:, whole:]

    def misfit(self) -> Misfit | None:
        """The stretch that fits worst, if it is long and hardly fits at all."""
        rest = [_sums(self._waiting[:, None])] if self._waiting.shape[1] > 1 else []
        if not self._blocks and not rest:
            return None
        blocks = np.concatenate([*self._blocks, *rest])
        start, end = _worst_stretch(blocks)
        inside, outside = blocks[start:end], np.concatenate([blocks[:start], blocks[end:]])
        own, after, before = _correlations(inside)
        if inside[:, 1].sum() < ENOUGH or not own < min(LOW, max(after, before) + BETTER) or _spread(inside) < SPREAD:
            return None
        shift = 0 if max(after, before) < FITS else 1 if after > before else -1
        last = self._pairs if end == len(blocks) else int(blocks[end, 0])
        elsewhere = _correlations(outside)[0] if len(outside) else None
        first = int(inside[0, 0]) + 1
        return Misfit(first, last, self._pairs, own, elsewhere, shift, max(after, before) if shift else 0.0)


def warn_of_misfits(found: Mapping[str, Misfit]) -> None:
    """A line for each text, by its name, and one for the rest of very many."""
    for name, misfit in list(found.items())[:NAMED]:
        logger.warning("%s: %s", name, misfit.text)
    if len(found) > NAMED:
        logger.warning(
            "and %d more whose lengths hardly go together: %s", len(found) - NAMED, ", ".join([*found][NAMED:])
        )


def misfit_of(source: IntArray, target: IntArray) -> Misfit | None:
    """The same of text whose lengths are all known, in whatever unit."""
    lengths = LineLengths()
    lengths.add(source, target)
    return lengths.misfit()


def _sums(blocks_3NB: Any) -> FloatArray:
    """For each block: number of its first pair, pairs, products with the own, the next and the last target, squares."""
    numbers_NB, source_NB, target_NB = blocks_3NB
    source_NB = source_NB - source_NB.mean(1, keepdims=True)
    target_NB = target_NB - target_NB.mean(1, keepdims=True)
    products = (
        source_NB * target_NB,
        source_NB[:, :-1] * target_NB[:, 1:],
        source_NB[:, 1:] * target_NB[:, :-1],
        source_NB**2,
        target_NB**2,
    )
    pairs = np.full(len(numbers_NB), numbers_NB.shape[1])
    found: FloatArray = np.stack([numbers_NB[:, 0], pairs, *(each.sum(1) for each in products)], axis=1)
    return found


def _correlations(blocks: FloatArray) -> tuple[float, float, float]:
    """Of source lines with their own target lines, those after them and those before them, within blocks."""
    *products, source, target = blocks[:, 2:].sum(0)
    own, after, before = np.array(products) / max(float(np.sqrt(source * target)), 1e-9)
    return float(own), float(after), float(before)


def _spread(blocks: FloatArray) -> float:
    """Standard deviation of the log lengths within blocks, of the side that has the smaller one."""
    return float(np.sqrt(blocks[:, 5:].sum(0).min() / blocks[:, 1].sum()))


def _worst_stretch(blocks: FloatArray) -> tuple[int, int]:
    """First block and end of the stretch whose correlations lie furthest below the border in sum."""
    deviations = np.sqrt(blocks[:, 5] * blocks[:, 6])
    own = np.divide(blocks[:, 2], deviations, out=np.full(len(blocks), BORDER), where=deviations > 1e-9)
    below = np.concatenate([[0.0], np.cumsum(blocks[:, 1] * (BORDER - own))])
    end = int(np.argmax(below - np.minimum.accumulate(below)))
    start = int(np.argmin(below[: end + 1]))
    return start, end
