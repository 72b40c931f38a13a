"""Batches joined, cut into pieces that fit into memory, and laid out on the device.

N tokens of all sentences of a piece, one after the other.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from rota.student.hardware import upload
from rota.student.kernels.attention import Layout
from rota.types import Batch, FloatArray, IntArray


def pieces(batch: Batch, tokens: int | None) -> Iterator[tuple[int, int, Batch]]:
    """A batch in pieces of about so many target tokens: the number of each, how many come after it, its sentences.

    The activations of the pieces that are being computed are in memory, not those of all. A batch of up to one and a
    half times ``tokens`` stays whole, and so does every batch if ``tokens`` is None.
    """
    count = 1 if tokens is None else round(batch.tokens / tokens)
    if count < 2:
        yield 0, 0, batch
        return
    # Room for one more sentence, the longest: otherwise a small remainder would become a piece of its own.
    budget = math.ceil(batch.tokens / count) + int(batch.target_lengths.max())
    found = list(packs(batch, budget))
    for turn, rows in enumerate(found):
        yield turn, len(found) - 1 - turn, take(batch, rows)


def packs(batch: Batch, budget: int) -> Iterator[IntArray]:
    """Sentence indices in groups of at most ``budget`` target tokens (or one sentence), similar lengths together."""
    order = np.argsort(batch.source_lengths + batch.target_lengths, kind="stable")
    filled = np.cumsum(batch.target_lengths[order])
    start = 0
    while start < len(order):
        before = filled[start - 1] if start else 0
        stop = max(start + 1, int(np.searchsorted(filled, before + budget, side="right")))
        yield order[start:stop]
        start = stop


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
        weights=_joint_weights(batches),
    )


def _joint_weights(batches: Sequence[Batch]) -> FloatArray | None:
    if all(batch.weights is None for batch in batches):
        return None
    if all(batch.weights is None or len(batch.weights) == batch.sentences for batch in batches):
        return np.concatenate(
            [np.ones(batch.sentences) if batch.weights is None else batch.weights for batch in batches]
        )
    return np.concatenate([token_weights(batch) for batch in batches])


def token_weights(batch: Batch) -> FloatArray:
    """The factor of every target token, also of a batch that has one for each sentence, or none."""
    if batch.weights is None:
        return np.ones(batch.tokens, dtype=np.float32)
    if len(batch.weights) == batch.sentences:
        return np.repeat(batch.weights, batch.target_lengths)
    if len(batch.weights) == batch.tokens:
        return batch.weights
    sizes = f"{batch.sentences} sentences and {batch.tokens} tokens"
    raise ValueError(f"a batch has {len(batch.weights)} weights for {sizes}; give one for each of either")


def take(batch: Batch, rows: IntArray) -> Batch:
    """The sentences with these indices, in this order."""
    source = batch.source[token_places(batch.source_lengths, rows)]
    places = token_places(batch.target_lengths, rows)
    lengths = batch.source_lengths[rows], batch.target_lengths[rows]
    weights = batch.weights
    if weights is not None:
        weights = weights[rows] if len(weights) == batch.sentences else token_weights(batch)[places]
    return Batch(batch.arm, source, lengths[0], batch.target[places], lengths[1], {}, weights)


def token_places(lengths: IntArray, rows: IntArray) -> IntArray:
    """Where the tokens of the sentences with these indices are, if those of all sentences follow one another."""
    starts = np.cumsum(lengths) - lengths
    taken = lengths[rows]
    shifts = np.repeat(starts[rows] - (np.cumsum(taken) - taken), taken)
    return np.add(shifts, np.arange(taken.sum()))


@dataclass(frozen=True)
class LaidOut:
    """Sentences on their device with all index tables: nothing is left to copy while the network computes."""

    source_N: Tensor
    source: Layout
    target_N: Tensor
    target: Layout
    factors_N: Tensor | None  # of the loss of each target token; None: all 1


def lay_out(batch: Batch, heads: int, device: torch.device, *, varlen: bool) -> LaidOut:
    """Builds the tables and queues their copies to the device, without waiting for them.

    ``varlen``: for the attention kernel of variable length, which needs no rectangles.
    """
    source_N, target_N = (upload(ids.astype(np.int64), device) for ids in (batch.source, batch.target))
    source, target = (Layout(lengths, heads, device) for lengths in (batch.source_lengths, batch.target_lengths))
    here = ("bounds",) if varlen else ("query_key_value", "query")
    source_needs = ("positions", *here, *(() if varlen else ("hide_padding", "key_value")))
    target_needs = ("positions", "first_rows", *here, *(() if varlen else ("hide_future",)))
    for layout, needs in ((source, source_needs), (target, target_needs)):
        for name in needs:
            getattr(layout, name)
    return LaidOut(source_N, source, target_N, target, _factors(batch, device))


def _factors(batch: Batch, device: torch.device) -> Tensor | None:
    if batch.weights is None:
        return None
    return upload(token_weights(batch).astype(np.float32), device)
