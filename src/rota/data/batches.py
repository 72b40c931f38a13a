"""Batches of a token budget from one language or a mixture: endless, shuffled, resumable, without a Python loop.

The budget counts real target tokens, because the student computes nothing on padding except inside attention;
sentences of similar length go together to keep that small too.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from rota.data.store import Sentences, Store
from rota.types import MIXED, MIXED_HIGH_RESOURCE, Arm, Batch, IntArray, State

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


class LanguageStream:
    """Endless batches of one arm; every sentence once per epoch.

    The order is a function of (seed, arm, epoch), so the state is two integers. Several processes go through it
    together: each reads its own batches and skips those of the others.
    """

    def __init__(self, sentences: Sentences, arm: Arm, indices: IntArray, *, tokens: int, seed: int) -> None:
        if tokens < 1:
            raise ValueError(f"a batch of {tokens} tokens is not possible; give a budget of 1 or more")
        if len(indices) == 0:
            raise ValueError(f"arm {arm!r} has no sentences; check low_resource and the languages of the corpus")
        self.arm = arm
        self._sentences = sentences
        self._indices = indices
        self._tokens = tokens
        self._seed = seed
        self._epoch = 0
        self._position = 0
        self._order: EpochOrder | None = None

    def __iter__(self) -> Iterator[Batch]:
        return self

    def __next__(self) -> Batch:
        return self._sentences.batch(self.arm, self._advance())

    def skip(self) -> Batch:
        """As ``next``, but the batch has sizes only: its tokens are not read."""
        return self._sentences.outline(self.arm, self._advance())

    def _advance(self) -> IntArray:
        """Sentence indices of the next batch."""
        if self._position == len(self._current_order()):
            self._epoch, self._position, self._order = self._epoch + 1, 0, None
        self._position += 1
        return self.sentences_at(self._position - 1)

    @property
    def batches_per_epoch(self) -> int:
        """Of the present epoch; others may differ where single sentences exceed the budget."""
        return len(self._current_order())

    def sentences_at(self, position: int) -> IntArray:
        """Sentence indices of the batch at this position of the present epoch."""
        return self._current_order().batch(position)

    def state_dict(self) -> State:
        return {"arm": self.arm, "tokens": self._tokens, "epoch": self._epoch, "position": self._position}

    def load_state_dict(self, state: State) -> None:
        for name, mine in (("arm", self.arm), ("tokens", self._tokens)):
            if state[name] != mine:
                raise ValueError(f"the checkpoint has a stream with {name} {state[name]!r}, this run has {mine!r}")
        self._epoch, self._position, self._order = int(state["epoch"]), int(state["position"]), None

    def _current_order(self) -> EpochOrder:
        if self._order is None:
            # crc32, not hash(): Python's differs between processes.
            rng = np.random.default_rng([self._seed, zlib.crc32(self.arm.encode()), self._epoch])
            self._order = epoch_order(self._sentences, self._indices, self._tokens, rng)
        return self._order


def make_stream(store: Store, arm: Arm, tokens: int, seed: int) -> LanguageStream:
    """Training batches of a language, of all (``mixed``), or of the high-resource ones (``mixed-high-resource``)."""
    languages = {MIXED: store.languages, MIXED_HIGH_RESOURCE: store.high_resource}.get(arm, (arm,))
    if not set(languages) <= set(store.languages):
        known = ", ".join((*store.languages, MIXED, MIXED_HIGH_RESOURCE))
        raise ValueError(f"unknown arm {arm!r}; the data have {known}")
    sentences = store.split("train")
    indices = [np.arange(*sentences.range(language), dtype=_index_type(len(sentences))) for language in languages]
    empty = np.arange(0)
    return LanguageStream(sentences, arm, np.concatenate(indices) if indices else empty, tokens=tokens, seed=seed)


def epoch_order(sentences: Sentences, indices: IntArray, tokens: int, rng: np.random.Generator) -> EpochOrder:
    """Shuffle, sort by length within windows, cut into batches, shuffle the batches."""
    shuffled = rng.permutation(indices)
    target = sentences.target.lengths(shuffled)
    window = max(1, round(WINDOW * tokens / float(target.mean())))
    by_length = _sort_in_windows(_length(target, sentences.source.lengths(shuffled)), window)
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

    So neighbours have similar lengths across a window's end too, and a batch may lie over it.
    """
    number = np.arange(len(length))
    number //= window
    np.negative(length, out=length, where=number % 2 == 1)
    number <<= 2 * _LENGTH_BITS
    np.add(length, number, out=length)
    del number
    # The sort is stable: others leave the order of equal lengths to the processor.
    return np.argsort(length, kind="stable")


def _index_type(sentences: int) -> type[np.int32] | type[np.int64]:
    """Half the memory of an epoch of 20 million sentences."""
    return np.int32 if sentences < 2**31 - 1 else np.int64
