"""Batches put together and divided: packs for measuring, pieces whose gradients add up to that of the whole."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np

from rota.student.hardware import OTHER_DEVICE
from rota.types import Batch, IntArray


def pieces(batch: Batch, tokens: int | None) -> Iterator[tuple[int, int, Batch]]:
    """A batch in pieces of about so many target tokens: the number of each, how many come after it, its sentences.

    The activations of one piece are in memory, not those of all. A batch of up to one and a half times ``tokens``
    stays whole, and every batch if there are None.
    """
    count = 1 if tokens is None else round(batch.tokens / tokens)
    if count < 2:
        yield 0, 0, batch
        return
    # Pieces are filled up to their budget: the longest sentence more, lest a small rest be one more piece.
    budget = math.ceil(batch.tokens / count) + int(batch.target_lengths.max())
    found = list(packs(batch, budget))
    for turn, rows in enumerate(found):
        yield turn, len(found) - 1 - turn, take(batch, rows)


def pieces_too_large(batches: Sequence[Batch], tokens: int | None) -> str:
    """For whoever runs out of memory in training: the largest piece, and a setting that makes it smaller."""
    largest = _largest_piece(batches, tokens)
    fewer = largest.tokens // 2
    # The longest sentence may fill most of a piece: half the tokens need not be a smaller piece.
    while fewer and _largest_piece(batches, fewer).tokens > 0.75 * largest.tokens:
        fewer //= 2
    whole = any(largest is batch for batch in batches)
    return f"training on a {'batch' if whole else 'piece'} of {_size(largest)}; {_remedy(fewer)}."


def pack_too_large(batch: Batch, budget: int) -> str:
    """The same in measuring losses."""
    largest = max((take(batch, rows) for rows in packs(batch, budget)), key=lambda pack: pack.tokens)
    return f"measuring {_size(largest)}; {_remedy(largest.tokens // 2 if largest.sentences > 1 else 0)}."


def _largest_piece(batches: Sequence[Batch], tokens: int | None) -> Batch:
    return max((piece for batch in batches for *_, piece in pieces(batch, tokens)), key=lambda piece: piece.tokens)


def _size(batch: Batch) -> str:
    longest = int(max(batch.source_lengths.max(), batch.target_lengths.max()))
    plural = "s" if batch.sentences > 1 else ""
    return f"{batch.tokens:,} target tokens in {batch.sentences:,} sentence{plural}, the longest of {longest}"


def _remedy(tokens: int) -> str:
    if tokens == 0:
        return f"a sentence cannot be divided: it needs {OTHER_DEVICE}"
    return f"the same run goes on with --set student.piece_tokens={tokens}, which takes less at once"


def join(batches: Sequence[Batch]) -> Batch:
    """All sentences in one batch, in order."""
    if len(batches) == 1:
        return batches[0]
    return Batch(
        batches[0].arm,
        source=np.concatenate([batch.source for batch in batches]),
        source_lengths=np.concatenate([batch.source_lengths for batch in batches]),
        target=np.concatenate([batch.target for batch in batches]),
        target_lengths=np.concatenate([batch.target_lengths for batch in batches]),
        tokens_by_language={},
    )


def packs(batch: Batch, budget: int) -> Iterator[IntArray]:
    """Sentence numbers in groups of at most ``budget`` target tokens (or one sentence), similar lengths together."""
    order = np.argsort(batch.source_lengths + batch.target_lengths, kind="stable")
    filled = np.cumsum(batch.target_lengths[order])
    start = 0
    while start < len(order):
        before = filled[start - 1] if start else 0
        stop = max(start + 1, int(np.searchsorted(filled, before + budget, side="right")))
        yield order[start:stop]
        start = stop


def take(batch: Batch, rows: IntArray) -> Batch:
    source, source_lengths = _sentences(batch.source, batch.source_lengths, rows)
    target, target_lengths = _sentences(batch.target, batch.target_lengths, rows)
    return Batch(batch.arm, source, source_lengths, target, target_lengths, tokens_by_language={})


def _sentences(flat: IntArray, lengths: IntArray, rows: IntArray) -> tuple[IntArray, IntArray]:
    starts = np.cumsum(lengths) - lengths
    taken = lengths[rows]
    shifts = np.repeat(starts[rows] - (np.cumsum(taken) - taken), taken)
    return flat[shifts + np.arange(taken.sum())], taken
