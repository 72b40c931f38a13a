"""Training beside the limit: the machine's own float32 matrix products, of the model's shapes, in the same process."""

from __future__ import annotations

import statistics
from functools import partial
from itertools import pairwise

import numpy as np
import torch

from rota.bench.pieces import Piece
from rota.bench.rows import Row, row
from rota.bench.work import Seconds, make_student, random_batch, timed, update_flops
from rota.student.loss import CHUNK_LOGITS, CHUNK_ROWS
from rota.student.transformer import Shape


def measure(piece: Piece) -> list[Row]:
    """Updates and matrix products in turn; the limit of an update is the mean of that before and that after it."""
    torch.set_num_threads(piece.threads)
    student = make_student(piece.preset, piece.vocabulary)
    shape, rng = student.network.shape, np.random.default_rng(0)
    batches = [random_batch(rng, piece.vocabulary, piece.tokens) for _ in range(piece.repetitions)]
    student.update(batches[:1])
    limits, runs = [product_speed(shape, piece.tokens)], []
    for batch in batches:
        runs.append(timed(partial(student.update, [batch])))
        limits.append(product_speed(shape, piece.tokens))
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


def product_shapes(shape: Shape, tokens: int) -> list[tuple[int, int, int, int]]:
    """Rows, inner and outer size, and how often an update has such a product: projections, feed-forward, output."""
    width, hidden, layers = shape.width, shape.feedforward, shape.encoder_layers + shape.decoder_layers
    rows = min(tokens, max(CHUNK_ROWS, CHUNK_LOGITS // shape.vocabulary))
    return [
        (tokens, width, 3 * width, shape.encoder_layers + shape.decoder_layers),
        (tokens, width, width, shape.encoder_layers + 3 * shape.decoder_layers),
        (tokens, width, 2 * width, shape.decoder_layers),
        (tokens, width, hidden, layers),
        (tokens, hidden, width, layers),
        (rows, width, shape.vocabulary, max(1, round(tokens / rows))),
    ]


def product_speed(shape: Shape, tokens: int, rounds: int = 2) -> tuple[float, float]:
    """Operations a second of wall and of processor time, each shape as often as the model has it."""
    flops, wall, processor = 0.0, 0.0, 0.0
    for rows, inner, outer, count in product_shapes(shape, tokens):
        left, right = torch.randn(rows, inner), torch.randn(inner, outer)
        result = torch.empty(rows, outer)
        torch.mm(left, right, out=result)

        def repeat(
            left: torch.Tensor = left,
            right: torch.Tensor = right,
            result: torch.Tensor = result,
            times: int = rounds * count,
        ) -> None:
            for _ in range(times):
                torch.mm(left, right, out=result)

        seconds = timed(repeat)
        flops += 2.0 * rows * inner * outer * rounds * count
        wall += seconds.wall
        processor += seconds.processor
    return flops / wall, flops / processor
