"""The batch streams: tokens a second of their own, and their share of a training update."""

from __future__ import annotations

import statistics
from functools import partial

import torch

from machine.pieces import Piece
from machine.work import CLOCKS, Seconds, make_student, open_data, padding, timed
from rota.data.batches import LanguageStream, make_stream
from rota.data.store import Store
from rota.types import MIXED, Arm, Batch, Mixture
from rows import Row, row

UPDATES = 3
"""Updates that the streams are compared with; an epoch of batches is drawn for each figure."""

GOALS = ("at least 2", "under 2")
"""Of the speed and of the share, in processor time."""


def measure(piece: Piece) -> list[Row]:
    """Every figure is of one epoch, shuffling and sorting included; by processor time and by wall time."""
    torch.set_num_threads(piece.threads)
    store = open_data(piece)
    about = (piece.benchmark, piece.setting)
    arms = {"one language": (store.high_resource or store.languages)[0], "all languages mixed": MIXED}
    speeds = {what: [speed(store, arm, piece, seed) for seed in range(piece.repetitions)] for what, arm in arms.items()}
    batches = drawn(stream_of(store, MIXED, piece.tokens, 0))
    updates = timed_updates(piece, store, batches[: 1 + UPDATES])
    rows = []
    for clock, by in CLOCKS.items():
        found = {what: [getattr(each, clock) for each in of] for what, of in speeds.items()}
        what, goals = f"target tokens a second of {clock} time", GOALS if clock == "processor" else (None, None)
        rows += [row(*about, f"{arm}, {what}", of, "million/s", goal=goals[0]) for arm, of in found.items()]
        slowest = min(statistics.median(of) for of in found.values())
        shares = shares_of_updates(batches, [getattr(update, clock) for update in updates], slowest)
        rows.append(row(*about, f"share of a training update{by}", [100 * each for each in shares], "%", goal=goals[1]))
    return [
        *rows,
        row(*about, "padding inside attention, target", [_padding(batches, "target")], "%"),
        row(*about, "padding inside attention, source", [_padding(batches, "source")], "%"),
    ]


def stream_of(store: Store, arm: Arm, tokens: int, seed: int) -> LanguageStream:
    mixture = Mixture(store.sizes, "sentence") if arm == MIXED else None
    return make_stream(store, arm, tokens, seed, mixture=mixture)


def speed(store: Store, arm: Arm, piece: Piece, seed: int) -> Seconds:
    """Million target tokens in a second of each clock, over one epoch."""
    batches: list[Batch] = []
    spent = timed(lambda: batches.extend(drawn(stream_of(store, arm, piece.tokens, seed))))
    millions = sum(batch.tokens for batch in batches) / 1e6
    return Seconds(wall=millions / spent.wall, processor=millions / spent.processor)


def timed_updates(piece: Piece, store: Store, batches: list[Batch]) -> list[Seconds]:
    student = make_student(piece.preset, store.manifest.vocabulary)
    return [timed(partial(student.update, [batch])) for batch in batches]


def shares_of_updates(batches: list[Batch], updates: list[float], millions: float) -> list[float]:
    """What drawing takes of drawing and training, for all updates but the first, which warms up."""
    pairs = [(batch.tokens / millions / 1e6, update) for batch, update in zip(batches, updates, strict=False)]
    return [draw / (draw + update) for draw, update in pairs[1:] or pairs]


def drawn(stream: LanguageStream) -> list[Batch]:
    """All batches of an epoch."""
    return [next(stream) for _ in range(stream.batches_per_epoch)]


def _padding(batches: list[Batch], side: str) -> float:
    return 100 * padding([getattr(batch, f"{side}_lengths") for batch in batches])
