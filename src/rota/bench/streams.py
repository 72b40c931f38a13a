"""The batch streams: tokens a second of their own, and their share of a training update."""

from __future__ import annotations

import statistics
from functools import partial

import torch

from rota.bench.generated import open_data
from rota.bench.pieces import Piece
from rota.bench.rows import Row, row
from rota.bench.work import make_student, padding, timed
from rota.data.batches import LanguageStream, make_stream
from rota.data.store import Store
from rota.types import MIXED, Arm, Batch

UPDATES = 3
"""Updates that the streams are compared with; an epoch of batches is drawn for each figure."""


def measure(piece: Piece) -> list[Row]:
    """Every figure is of one epoch, shuffling and sorting included."""
    torch.set_num_threads(piece.threads)
    store = open_data(piece)
    about = (piece.benchmark, piece.setting)
    arms = {"one language": (store.high_resource or store.languages)[0], "all languages mixed": MIXED}
    speeds = {what: [speed(store, arm, piece, seed) for seed in range(piece.repetitions)] for what, arm in arms.items()}
    slowest = min(statistics.median(found) for found in speeds.values())
    batches = drawn(make_stream(store, MIXED, piece.tokens, 0))
    shares = [100 * share for share in shares_of_updates(piece, store, batches[: 1 + UPDATES], slowest)]
    what = "target tokens a second of processor time"
    return [
        *(row(*about, f"{arm}, {what}", found, "million/s", goal="at least 2") for arm, found in speeds.items()),
        row(*about, "share of a training update", shares, "%", goal="under 2"),
        row(*about, "padding inside attention, target", [_padding(batches, "target")], "%"),
        row(*about, "padding inside attention, source", [_padding(batches, "source")], "%"),
    ]


def speed(store: Store, arm: Arm, piece: Piece, seed: int) -> float:
    """Million target tokens in a second of processor time, over one epoch."""
    batches: list[Batch] = []
    spent = timed(lambda: batches.extend(drawn(make_stream(store, arm, piece.tokens, seed))))
    return sum(batch.tokens for batch in batches) / spent.processor / 1e6


def shares_of_updates(piece: Piece, store: Store, batches: list[Batch], millions: float) -> list[float]:
    """What drawing takes of drawing and training, for all batches but the first, which warms up."""
    student = make_student(piece.preset, store.manifest.vocabulary)
    updates = [timed(partial(student.update, [batch])).processor for batch in batches]
    drawing = [batch.tokens / millions / 1e6 for batch in batches]
    pairs = list(zip(drawing, updates, strict=True))
    return [draw / (draw + update) for draw, update in pairs[1:] or pairs]


def drawn(stream: LanguageStream) -> list[Batch]:
    """All batches of an epoch."""
    return [next(stream) for _ in range(stream.batches_per_epoch)]


def _padding(batches: list[Batch], side: str) -> float:
    return 100 * padding([getattr(batch, f"{side}_lengths") for batch in batches])
