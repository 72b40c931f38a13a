"""How difficult each sentence is within its language, for batches of the easiest ones.

A column gives every sentence of a split a score, the lower the easier. What counts is the rank of the score among those
of the same language. Ranks are computed when they are first asked for and kept in memory, four bytes a sentence.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final

import numpy as np

from rota.data.store import Flat, Sentences
from rota.types import FloatArray, IntArray, Selection

_CHUNK: Final = 1 << 16  # sentences at once, some 2 million tokens


def length(sentences: Sentences) -> FloatArray:
    """Target tokens."""
    return sentences.target.lengths(np.arange(len(sentences))).astype(np.float64)


def rarity(sentences: Sentences) -> FloatArray:
    """Mean negative log probability of the source subwords, as unigrams of their language; nats.

    Platanios et al. (2019) take the sum. That is mostly the length, which is a column of its own here.
    """
    scores = np.empty(len(sentences))
    vocabulary = int(sentences.source.tokens.max()) + 1
    for extent in sentences.ranges.values():
        counts = np.zeros(vocabulary)
        for _, subwords, _ in _source_subwords(sentences.source, *extent):
            counts += np.bincount(subwords, minlength=vocabulary)
        nats = np.log(max(1, counts.sum()) / np.maximum(counts, 1))
        for indices, subwords, lengths in _source_subwords(sentences.source, *extent):
            sentence = np.repeat(np.arange(len(indices)), lengths)
            sums = np.bincount(sentence, weights=nats[subwords], minlength=len(indices))
            scores[indices] = sums / np.maximum(lengths, 1)
    return scores


def _source_subwords(source: Flat, start: int, stop: int) -> Iterator[tuple[IntArray, IntArray, IntArray]]:
    """In chunks: indices of sentences, their subwords without tags and ends of sentences, and how many each has."""
    for first in range(start, stop, _CHUNK):
        indices = np.arange(first, min(first + _CHUNK, stop))
        tokens, lengths = source.gather(indices)
        ends = np.cumsum(lengths)
        inner = np.ones(len(tokens), dtype=np.bool_)
        inner[ends - lengths] = inner[ends - 1] = False
        yield indices, tokens[inner], lengths - 2


COLUMNS: Final[Mapping[str, Callable[[Sentences], FloatArray]]] = {"length": length, "rarity": rarity}


class Ranks:
    """The rank of every sentence in its language, by column: 0 for the easiest, almost 1 for the hardest.

    One object serves all streams of a run, so that a column is computed once.
    """

    def __init__(self, sentences: Sentences) -> None:
        self._sentences = sentences
        self._ranks: dict[str, FloatArray] = {}

    def __getitem__(self, column: str) -> FloatArray:
        if column not in self._ranks:
            if column not in COLUMNS:
                raise ValueError(f"unknown column {column!r} to select sentences by; known: {', '.join(COLUMNS)}")
            self._ranks[column] = self._rank(COLUMNS[column](self._sentences))
        return self._ranks[column]

    def _rank(self, scores: FloatArray) -> FloatArray:
        ranks = np.empty(len(scores), dtype=np.float32)
        for start, stop in self._sentences.ranges.values():
            # Stable: sentences of equal score keep their order on every machine.
            order = np.argsort(scores[start:stop], kind="stable")
            ranks[start + order] = np.arange(stop - start) / (stop - start)
        return ranks

    def selected(self, selection: Selection, indices: IntArray) -> IntArray:
        """Positions in ``indices`` of those selected: of n sentences of a language, ``share * n`` rounded up."""
        return np.flatnonzero(self[selection.by][indices] < np.float32(selection.share))
