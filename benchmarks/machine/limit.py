"""Training beside the limit: the machine's own float32 matrix products, of the model's shapes, in the same process.

N rows of a piece, I and O numbers in a row before and after a matrix.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import torch

from machine.pieces import Piece
from machine.work import Seconds, make_student, random_batch, timed, update_flops
from rota.student.config import Shape
from rota.student.kernels.loss import CHUNK_LOGITS, CHUNK_ROWS
from rota.student.nmt import NMT
from rota.student.pieces import pieces
from rota.types import Batch
from rows import Row, row


class Matrix(NamedTuple):
    """A weight matrix of the model, O x I, and the rows of one piece that go through it."""

    rows: int
    inner: int
    outer: int
    times: int  # matrices of this size that as many rows go through

    @property
    def flops(self) -> float:
        """Of one product; the forward pass and each of the two products of the backward pass have the same number."""
        return 2.0 * self.rows * self.inner * self.outer


def measure(piece: Piece) -> list[Row]:
    """Updates and matrix products in turn; the limit of an update is the mean of that before and that after it."""
    torch.set_num_threads(piece.threads)
    student = make_student(piece.preset, piece.vocabulary)
    shape, rng = student.network.shape, np.random.default_rng(0)
    batches = [random_batch(rng, piece.vocabulary, piece.tokens) for _ in range(piece.repetitions)]
    student.update(batches[:1])
    limits, runs = [product_speed(matrices(student, batches[0]))], []
    for batch in batches:
        runs.append(timed(partial(student.update, [batch])))
        limits.append(product_speed(matrices(student, batch)))
    between = [tuple(map(statistics.mean, zip(*pair, strict=True))) for pair in pairwise(limits)]
    speeds = [update_flops(shape, batch) for batch in batches]
    walls = [flops / run.wall / limit[0] for flops, run, limit in zip(speeds, runs, between, strict=True)]
    processors = [flops / run.processor / limit[1] for flops, run, limit in zip(speeds, runs, between, strict=True)]
    return _rows(piece, [batch.tokens for batch in batches], runs, walls, processors, limits)


def _rows(
    piece: Piece,
    tokens: list[int],
    runs: list[Seconds],
    walls: list[float],
    processors: list[float],
    limits: list[tuple[float, float]],
) -> list[Row]:
    about = (piece.benchmark, piece.setting)
    goal = "at least 0.70, aim 0.85" if (piece.preset, piece.threads) == ("small", 1) else None
    per_wall = [count / run.wall for count, run in zip(tokens, runs, strict=True)]
    per_processor = [count / run.processor for count, run in zip(tokens, runs, strict=True)]
    return [
        row(*about, "share of the limit, by wall time", walls, "", ratio=statistics.median(walls), goal=goal),
        row(*about, "share of the limit, by processor time", processors, "", ratio=statistics.median(processors)),
        row(*about, "real target tokens a second of wall time", per_wall, "tokens/s"),
        row(*about, "real target tokens a second of processor time", per_processor, "tokens/s"),
        row(*about, "the limit: matrix products, by wall time", [limit[0] / 1e9 for limit in limits], "GFLOP/s"),
    ]


def matrices(student: NMT, batch: Batch) -> list[Matrix]:
    """Those of all pieces in which the student trains on the batch."""
    return [
        matrix
        for _, _, piece in pieces(batch, student.tokens_at_once)
        for matrix in matrices_of_piece(student.network.shape, len(piece.source), len(piece.target))
    ]


def matrices_of_piece(shape: Shape, source: int, target: int) -> list[Matrix]:
    """What so many source and target tokens go through; the output matrix sees as many rows as the loss takes."""
    width, hidden = shape.width, shape.feedforward
    chunk = max(CHUNK_ROWS, CHUNK_LOGITS // shape.vocabulary)
    chunks, rest = divmod(target, chunk)
    # For a layer of each side: its own projections, what attention found, and the feed-forward block.
    sides = ((source, shape.encoder_layers, 1), (target, shape.decoder_layers, 3))
    layers = [
        Matrix(rows, *size)
        for rows, layers, squares in sides
        for size in (
            (width, 3 * width, layers),
            (width, width, layers * squares),
            (width, hidden, layers),
            (hidden, width, layers),
        )
    ]
    output = [Matrix(rows, width, shape.vocabulary, times) for rows, times in ((chunk, chunks), (rest, 1))]
    memory = Matrix(source, width, 2 * width, shape.decoder_layers)
    return [matrix for matrix in (*layers, memory, *output) if matrix.rows and matrix.times]


def products(matrix: Matrix) -> list[Callable[[], torch.Tensor]]:
    """The forward pass, the gradients of the rows and of the matrix, each from operands laid out as in training."""
    rows_NI, weight_OI = torch.rand(matrix.rows, matrix.inner), torch.rand(matrix.outer, matrix.inner)
    gradient_NO, to_weight_OI = torch.rand(matrix.rows, matrix.outer), torch.empty(matrix.outer, matrix.inner)
    result_NO, to_rows_NI = torch.empty_like(gradient_NO), torch.empty_like(rows_NI)
    return [
        partial(torch.mm, rows_NI, weight_OI.t(), out=result_NO),
        partial(torch.mm, gradient_NO, weight_OI, out=to_rows_NI),
        partial(torch.mm, gradient_NO.t(), rows_NI, out=to_weight_OI),
    ]


def product_speed(found: Sequence[Matrix]) -> tuple[float, float]:
    """Operations a second of wall and of processor time: forward and backward through each matrix as it occurs.

    The products inside attention are not timed: they are few, and small ones are slower, so the limit is not lower.
    """
    flops, wall, processor = 0.0, 0.0, 0.0
    for matrix in found:
        for product in products(matrix):
            product()
            seconds = timed(partial(_repeat, product, matrix.times))
            flops += matrix.times * matrix.flops
            wall += seconds.wall
            processor += seconds.processor
    return flops / wall, flops / processor


def _repeat(product: Callable[[], object], times: int) -> None:
    for _ in range(times):
        product()
