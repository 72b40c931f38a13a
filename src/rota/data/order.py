"""The batches of an epoch: which sentences go together, and in which order the batches come.

Sentences of similar length go together, so that attention, the only part that computes on padding, has little of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from rota.data.store import Sentences
from rota.types import IntArray

Mixing = Literal["even", "by-length"]
"""How a mixture is sorted: each language by its own lengths, or, as in version 0.1, all sentences by theirs."""

# Sentences are sorted by length within windows of this many batches, which differ in every epoch.
WINDOW = 64

_LENGTH_BITS = 20  # no sentence has 2 ** 19 tokens


@dataclass(frozen=True)
class EpochOrder:
    """The batches of one epoch: batch ``i`` holds ``indices[bounds[i]:bounds[i + 1]]``."""

    indices: IntArray
    bounds: IntArray
    turns: IntArray  # the order in which the batches come

    def __len__(self) -> int:
        return len(self.turns)

    def batch(self, position: int) -> IntArray:
        """Sentence indices of the batch that comes at ``position``."""
        turn = self.turns[position]
        return self.indices[self.bounds[turn] : self.bounds[turn + 1]]


def epoch_order(
    sentences: Sentences, indices: IntArray, tokens: int, rng: np.random.Generator, mixing: Mixing
) -> EpochOrder:
    """Shuffle, sort by length within windows, cut into batches, shuffle the batches."""
    shuffled = rng.permutation(indices)
    target = sentences.target.lengths(shuffled)
    window = max(1, round(WINDOW * tokens / float(target.mean())))
    by_length = _length(target, sentences.source.lengths(shuffled))
    if mixing == "even":
        by_length = _sort_by_rank(by_length, sentences.languages_of(shuffled), window, rng)
    else:
        by_length = _sort_in_windows(by_length, window)
    indices, target = shuffled[by_length], target[by_length]
    del shuffled, by_length
    bounds = cut(target, tokens)
    return EpochOrder(indices, bounds, rng.permutation(len(bounds) - 1))


def cut(lengths: IntArray, tokens: int) -> IntArray:
    """Bounds of consecutive batches with equal tokens, as close to the budget as a whole number of them allows.

    Where the nearest number would make them more than a tenth larger than the budget (1.4 budgets as one batch), it is
    one more (two of 0.7): the budget is what fits into memory. A sentence on the border may add its half to that.
    Equal, rather than full ones and a remainder: the student's update divides by the tokens of its batch, so a small
    last batch would count like a large one, and a low-resource language has few batches in an epoch.
    A sentence belongs to the batch in which its middle falls; one longer than the budget is alone.
    """
    ends = np.cumsum(lengths, dtype=np.int64)
    total = int(ends[-1])
    batches = max(1, round(total / tokens))
    if 10 * total > 11 * tokens * batches:
        batches += 1
    batch = ends  # in place: twice the middle of each sentence, and then where that falls
    batch *= 2
    batch -= lengths
    batch *= batches
    batch //= 2 * total
    return np.concatenate([[0], np.flatnonzero(np.diff(batch)) + 1, [len(lengths)]])


def _length(target: IntArray, source: IntArray) -> IntArray:
    """A number to sort by: the longer side, the source counted in target tokens, then the target.

    Sorting by target and source length leaves a third of the source positions to padding, by source alone two fifths
    of the target's; this leaves about a tenth of either (benchmarks/data_path.py).
    """
    length = source.astype(np.int64)  # one array, changed in place: an epoch may have 20 million sentences
    length *= int(target.sum())
    length //= int(source.sum())
    np.maximum(length, target, out=length)
    length <<= _LENGTH_BITS
    length += target
    return length


def _sort_in_windows(length: IntArray, window: int) -> IntArray:
    """Order by window and length, every other window downwards; ``length`` is used up.

    So neighbours have similar lengths across a window's end too, and a batch may span it.
    """
    number = np.arange(len(length))
    number //= window
    np.negative(length, out=length, where=number % 2 == 1)
    number <<= 2 * _LENGTH_BITS
    np.add(length, number, out=length)
    del number
    # The sort is stable: others leave the order of equal lengths to the processor.
    return np.argsort(length, kind="stable")


def _sort_by_rank(length: IntArray, language: IntArray, window: int, rng: np.random.Generator) -> IntArray:
    """As :func:`_sort_in_windows`, but by the rank of a length among the sentences of its language in the window.

    The short sentences of all languages go together, each as short as its language has them: every batch has nearly the
    shares of its window, where length and language go together too. A random part of a rank keeps languages with few
    sentences in a window from always having them in the same batches.
    """
    number = np.arange(len(length)) // window
    group = number * (int(language.max()) + 1) + language
    order = np.lexsort((length, group))
    first = np.flatnonzero(np.diff(group[order], prepend=-1))
    count = np.diff(first, append=len(order))
    rank = np.empty(len(order))
    rank[order] = (np.arange(len(order)) - np.repeat(first, count) + rng.random(len(order))) / np.repeat(count, count)
    np.subtract(1, rank, out=rank, where=number % 2 == 1)
    return np.argsort(number + rank, kind="stable")
