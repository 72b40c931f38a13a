"""What the pieces train on and count: sentences like TED's, generated languages, operations, seconds, padding.

N rows, D model width, F feed-forward width, V vocabulary.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np

from rota import api
from rota.config import parse_config
from rota.data.store import Store
from rota.student.config import Shape, StudentConfig
from rota.student.nmt import NMT, build_student
from rota.types import Batch, IntArray

if TYPE_CHECKING:
    from machine.pieces import Piece

FIRST_WORD = 4  # below are the special symbols
SMALL = 2_000
"""With fewer subwords than this the generated corpus is a small one, for a quick look."""


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


def one_piece_at_a_time(student: NMT) -> NMT:
    """The student without pairs of pieces: its threads share every operation."""
    setattr(student, "_works_in_pairs", lambda _: False)  # noqa: B010
    return student


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
    """Forward and backward; the backward pass takes two products for each one of the forward pass."""
    return 3 * forward_flops(shape, batch)


def padding(lengths: Sequence[IntArray]) -> float:
    """Share of the positions in a rectangle around each batch that hold no token."""
    return 1 - sum(int(of.sum()) for of in lengths) / sum(len(of) * int(of.max()) for of in lengths)


def open_data(piece: Piece) -> Store:
    """A prepared folder, or generated text, made once: 8 languages, dev sets as large as TED's, shorter sentences."""
    if piece.data is not None:
        return Store.open(Path(piece.data))
    languages = {"languages": 8, "high": 40_000, "low": 4_000, "dev": 1_000, "test": 100}
    if piece.vocabulary < SMALL:
        languages = {"languages": 4, "high": 300, "low": 100, "dev": 60, "test": 20}
    folder = api.cache_folder() / "bench" / f"generated-{piece.vocabulary}"
    data = {
        "corpus": "synthetic",
        "synthetic": languages,
        "subwords": {"size": piece.vocabulary},
        "folder": str(folder),
    }
    return api.prepare(parse_config({"name": "bench", "data": data}, origin="benchmarks"))
