"""How well networks predict given translations: cross-entropy, token accuracy, and the loss if they were calibrated.

A model that has memorised its training text is too sure of itself. Its cross-entropy on other text then rises although
its translations do not get worse. Dividing the logits by one number, the temperature, mends that (Guo et al. 2017): the
**calibrated loss** is the lowest cross-entropy over all temperatures, and that temperature is above 1 for a model that
is too sure, below 1 for one that is not sure enough, such as one trained with label smoothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
import torch

from rota.student.hardware import memory_for
from rota.student.kernels.loss import examined_together, examined_tokens
from rota.student.pieces import lay_out, packs, take
from rota.student.transformer import Transformer
from rota.types import Batch, Examined, FloatArray

INVERSE_TEMPERATURES: Final = (0.5, 0.7, 0.85, 1.2)
"""Where the loss is computed beside 1. It is a convex function of the inverse temperature, and smooth."""

TEMPERATURES: Final = tuple(1 / inverse for inverse in INVERSE_TEMPERATURES)

TOKENS_AT_ONCE: Final = 1_000
"""Target tokens that are measured at once, on a CPU; see :data:`rota.student.nmt.EVALUATION_TOKENS`."""

TOKENS_AT_ONCE_ELSEWHERE: Final = 16_000


class Fit(NamedTuple):
    """How well some sentences are predicted, over all their target tokens."""

    loss: float  # nats per token, without smoothing
    calibrated: float  # the same at the best temperature, at most ``loss``
    temperature: float  # between 1 / 1.2 and 2
    accuracy: float  # share of tokens that are the likeliest prediction


def fit(examined: Examined) -> Fit:
    """Of all sentences that were examined at ``TEMPERATURES``."""
    [found] = fits(examined, [examined.sums.size])
    return found


def fits(examined: Examined, sizes: Sequence[int]) -> list[Fit]:
    """Of groups of so many sentences each, one after the other."""
    starts = np.cumsum([0, *sizes[:-1]])
    sums, tokens, correct = (np.add.reduceat(values, starts) for values in examined[:3])
    at_temperatures = np.add.reduceat(examined.sums_by_temperature, starts, axis=1) / tokens
    losses, accuracies = (sums / tokens).tolist(), (correct / tokens).tolist()
    best = [calibrate(loss, others) for loss, others in zip(losses, at_temperatures.T, strict=True)]
    return [Fit(loss, *found, accuracy) for loss, found, accuracy in zip(losses, best, accuracies, strict=True)]


def calibrate(loss: float, at_temperatures: Sequence[float] | FloatArray) -> tuple[float, float]:
    """The lowest loss over temperatures and that temperature, from those at 1 and at ``TEMPERATURES``.

    It is the lowest point of the polynomial in the inverse temperature through all five.
    """
    inverses, losses = np.array([*INVERSE_TEMPERATURES, 1.0]), np.array([*at_temperatures, loss])
    polynomial = np.polyfit(inverses, losses, deg=len(inverses) - 1)
    roots = np.roots(np.polyder(polynomial))
    turns = roots.real[(np.abs(roots.imag) < 1e-9) & (roots.real > inverses.min()) & (roots.real < inverses.max())]
    candidates, values = np.array([*inverses, *turns]), np.array([*losses, *np.polyval(polynomial, turns)])
    best = int(values.argmin())
    return float(values[best]), float(1 / candidates[best])


def examine(networks: Sequence[Transformer], batch: Batch, *, temperatures: Sequence[float] = TEMPERATURES) -> Examined:
    """Sentences in the order given, each predicted token by token with the reference before it (teacher forcing).

    Several networks are an ensemble: their probabilities are averaged, as in the search.
    """
    sums = np.zeros((2 + len(temperatures), batch.sentences))
    tokens = TOKENS_AT_ONCE if networks[0].device.type == "cpu" else TOKENS_AT_ONCE_ELSEWHERE
    remedy = "use fewer checkpoints (--combine last), or leave the GPU out with CUDA_VISIBLE_DEVICES=-1"
    with torch.inference_mode(), memory_for(lambda: f"measuring {tokens:,} target tokens at once; {remedy}."):
        for rows in packs(batch, tokens):
            sums[:, rows] = _examine_pack(networks, take(batch, rows), temperatures)
    return Examined(sums[0], batch.target_lengths, sums[1].astype(np.int64), sums[2:])


def _examine_pack(networks: Sequence[Transformer], batch: Batch, temperatures: Sequence[float]) -> FloatArray:
    pack = lay_out(batch, networks[0].shape.heads, networks[0].device, varlen=False)
    read = (pack.source_N, pack.source, pack.target_N, pack.target, None)
    found = [(network(*read), network.output_matrix) for network in networks]
    if len(found) == 1:
        values_RN = examined_tokens(*found[0], pack.target_N, temperatures=temperatures)
    else:
        values_RN = examined_together(found, pack.target_N, temperatures=temperatures)
    starts = np.cumsum(batch.target_lengths) - batch.target_lengths
    sums: FloatArray = np.add.reduceat(values_RN.double().cpu().numpy(), starts, axis=1)
    return sums
