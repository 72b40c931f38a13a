"""What the benchmarks train on and count: sentences like TED's, operations, seconds, padding.

N rows, D model width, F feed-forward width, V vocabulary.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from rota.student.config import Shape, StudentConfig
from rota.student.nmt import NMT, build_student
from rota.types import Batch, IntArray

FIRST_WORD = 4  # below are the special symbols


@dataclass(frozen=True, slots=True)
class Seconds:
    wall: float
    processor: float  # of all threads of this process


CLOCKS: Final = {"processor": "", "wall": ", by wall time"}
"""The clocks of :class:`Seconds`, and how a row is marked that is of each."""


def timed(work: Callable[[], object]) -> Seconds:
    wall, processor = time.perf_counter(), time.process_time()
    work()
    return Seconds(time.perf_counter() - wall, time.process_time() - processor)


def make_student(preset: str, vocabulary: int) -> NMT:
    """A fresh student with the paper's dropout and label smoothing."""
    config = StudentConfig.model_validate({"preset": preset, "device": "cpu"})
    return build_student(config, vocabulary=vocabulary, steps=100_000, seed=1)


def random_batch(rng: np.random.Generator, vocabulary: int, tokens: int) -> Batch:
    """Sentences of similar length, as the streams give them: about 20 words, sources a tenth longer."""
    centre = max(5.0, rng.normal(20, 8))
    lengths = np.maximum(2, rng.normal(centre, 1.0, 2 * tokens).round().astype(np.int64))
    target = lengths[: int(np.searchsorted(np.cumsum(lengths), tokens)) + 1]
    source = np.maximum(3, (target * rng.normal(1.1, 0.12, len(target))).astype(np.int64))
    words = [rng.integers(FIRST_WORD, vocabulary, side.sum()) for side in (source, target)]
    return Batch("xx", words[0], source, words[1], target, {"xx": int(target.sum())})


def forward_flops(shape: Shape, batch: Batch) -> float:
    """Operations of the matrix products on real tokens, forward; attention without padding, not halved if causal."""
    width, hidden = shape.width, shape.feedforward
    source, target = batch.source_lengths.astype(float), batch.target_lengths.astype(float)
    encoder = shape.encoder_layers * (4 * width**2 + 2 * width * hidden)
    decoder = shape.decoder_layers * (6 * width**2 + 2 * width * hidden) + shape.vocabulary * width
    memory = shape.decoder_layers * 2 * width**2
    products = source.sum() * (encoder + memory) + target.sum() * decoder
    pairs = shape.encoder_layers * (source**2).sum()
    pairs += shape.decoder_layers * ((target**2).sum() + (source * target).sum())
    return 2 * float(products + 2 * width * pairs)


def update_flops(shape: Shape, batch: Batch) -> float:
    """Forward and backward; the way back takes two products for each one of the way forward."""
    return 3 * forward_flops(shape, batch)


def padding(lengths: Sequence[IntArray]) -> float:
    """Share of the positions in a rectangle around each batch that hold no token."""
    return 1 - sum(int(of.sum()) for of in lengths) / sum(len(of) * int(of.max()) for of in lengths)
