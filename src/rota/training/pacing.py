"""Self-paced weights: each token of a batch counts as its prediction is steady under dropout (Wan et al. 2020)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from rota.student.pieces import token_weights
from rota.types import Batch, FloatArray, IntArray, Pacing, ProbedStudent


def paced(student: ProbedStudent, batches: Sequence[Batch], pacing: Pacing, step: int) -> list[Batch]:
    """The batches of an update with weights of their tokens; the masks of dropout are a function of the step."""
    found = []
    for number, batch in enumerate(batches):
        seed = int(np.random.SeedSequence([step, number]).generate_state(1)[0])
        losses = student.token_dropout_samples(batch, samples=pacing.samples, seed=seed)
        weights = steadiness(-losses, batch.target_lengths, pacing.power).astype(np.float32)
        found.append(replace(batch, weights=weights if batch.weights is None else weights * token_weights(batch)))
    return found


def steadiness(log_probabilities: FloatArray, lengths: IntArray, power: float) -> FloatArray:
    """(tokens,): weights with mean 1, from (samples, tokens) log-probabilities of the reference.

    Log-probabilities are divided by the lowest of the batch, so that they lie between 0 and 1. The confidence in a
    token is 1 minus their variance over the samples, to the ``power``; that in a sentence is the same of the sums over
    its tokens. The weight is the softmax of the products, over all tokens of the batch, times their number.
    """
    starts = np.cumsum(lengths) - lengths
    by_sentence = np.add.reduceat(log_probabilities, starts, axis=1)
    confidence = _confidence(log_probabilities, power) * np.repeat(_confidence(by_sentence, power), lengths)
    shares = np.exp(confidence - confidence.max())
    weights: FloatArray = shares / shares.sum() * len(shares)
    return weights


def _confidence(log_probabilities: FloatArray, power: float) -> FloatArray:
    scaled = log_probabilities / min(float(log_probabilities.min()), -1e-9)
    confidence: FloatArray = np.maximum(0.0, 1 - scaled.var(axis=0, ddof=1)) ** power
    return confidence
