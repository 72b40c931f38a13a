"""How difficult each sentence is within its language, for batches of the easiest ones.

A column gives every sentence of a split a score, the lower the easier. What counts is the rank of the score among those
of the same language. Ranks are computed when they are first asked for and kept in memory, four bytes a sentence.
Columns that depend on the student are measured during training and put here (``Ranks.put``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final

import numpy as np

from rota.data.store import Flat, Sentences
from rota.types import Arm, Emphasis, FloatArray, IntArray, Scoring, Selection

_CHUNK: Final = 1 << 16  # sentences at once, some 2 million tokens


def length(sentences: Sentences) -> FloatArray:
    """Target tokens."""
    return sentences.target.lengths(np.arange(len(sentences))).astype(np.float64)


def rarity(sentences: Sentences) -> FloatArray:
    """Mean negative log probability of the source subwords, as unigrams of their language; nats."""
    return _rarity(sentences, mean=True)


def rarity_sum(sentences: Sentences) -> FloatArray:
    """The same summed over the sentence, as Platanios et al. (2019) have it: mostly its length."""
    return _rarity(sentences, mean=False)


def _rarity(sentences: Sentences, *, mean: bool) -> FloatArray:
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
            scores[indices] = sums / np.maximum(lengths, 1) if mean else sums
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


COLUMNS: Final[Mapping[str, Callable[[Sentences], FloatArray]]] = {
    "length": length,
    "rarity": rarity,
    "rarity-sum": rarity_sum,
}

MEASURED: Final = ("norm", "loss", "relative-loss")
"""Columns that are measured on the student during training, by the gauges in ``training/gauges/sentences.py``."""


class Ranks:
    """The rank of every sentence in its language, by column: 0 for the easiest, almost 1 for the hardest.

    One object serves all streams of a run, so that a column is computed once.
    """

    def __init__(self, sentences: Sentences) -> None:
        self._sentences = sentences
        self._ranks: dict[str, FloatArray] = {}
        self._sizes = np.array([stop - start for start, stop in sentences.ranges.values()])

    def put(self, column: str, scores: FloatArray) -> None:
        """A column that was measured: the score of every sentence, the lower the easier."""
        _check_known(column)
        self._ranks[column] = self._rank(scores)

    def __getitem__(self, column: str) -> FloatArray:
        if column not in self._ranks:
            _check_known(column)
            if column in MEASURED:
                raise ValueError(f"the column {column!r} has not been measured yet; select by another one before")
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
        return np.flatnonzero(self[selection.by][indices] < self._limits(selection, indices))

    def _limits(self, selection: Selection, indices: IntArray) -> FloatArray | np.float32:
        if not selection.least:
            return np.float32(selection.share)
        return self._limit(selection, self._sizes)[self._sentences.languages_of(indices)]

    @staticmethod
    def _limit(selection: Selection, size: IntArray) -> FloatArray:
        """The rank from which on sentences are not selected, in languages of so many sentences."""
        return np.maximum(selection.share, selection.least / size).astype(np.float32)

    def count(self, selection: Selection, language: Arm) -> int:
        """Selected sentences of a language, without looking at them: ranks are 0, 1 / n, 2 / n and so on."""
        _check_known(selection.by)
        start, stop = self._sentences.range(language)
        size = stop - start
        limit = self._limit(selection, np.array(size))
        count = min(size, int(np.ceil(float(limit) * size)))
        while count > 0 and np.float32((count - 1) / size) >= limit:
            count -= 1
        while count < size and np.float32(count / size) < limit:
            count += 1
        return count

    def weights(self, emphasis: Emphasis, indices: IntArray) -> FloatArray:
        """Factors of the loss of these sentences; the easiest of n has the rank 1 / n, the hardest 1."""
        ranks = self[emphasis.by][indices] + 1 / self._sizes[self._sentences.languages_of(indices)]
        weights: FloatArray = ((ranks / emphasis.competence) ** emphasis.power).astype(np.float32)
        return weights

    def scores(self, scoring: Scoring, indices: IntArray) -> FloatArray:
        """The higher, the sooner a sentence is chosen among candidates."""
        total = np.zeros(len(indices))
        for column, weight in scoring.weights.items():
            total += weight * (self[column][indices] - 0.5)
        return total


def _check_known(column: str) -> None:
    if column not in COLUMNS and column not in MEASURED:
        known = ", ".join((*COLUMNS, *MEASURED))
        raise ValueError(f"unknown column {column!r} to select sentences by; known: {known}")
