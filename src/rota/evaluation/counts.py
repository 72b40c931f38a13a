"""What BLEU and chrF are made of: counts of each sentence, and the scores of thousands of their sums at once.

Resampling a test set only changes which counts are summed, so sentences are tokenised once, by sacreBLEU.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

import numpy as np

from rota.evaluation.metrics import make_metric
from rota.types import FloatArray

# N sentences, C counts of a sentence; "..." any number of sums

BLEU_ORDER: Final = 4
CHRF_ORDER: Final = 6
CHRF_BETA: Final = 2


def sentence_counts(metric: str, hypotheses: Sequence[str], references: Sequence[str]) -> FloatArray:
    """Counts of every sentence (N, C), as sacreBLEU takes them for its own tests.

    BLEU: length, length of the reference, matches of 1 to 4 words, all of 1 to 4 words. chrF: for 1 to 6 characters,
    those of the translation, those of the reference, matches.
    """
    counts = make_metric(metric)._extract_corpus_statistics(list(hypotheses), [list(references)])
    return np.array(counts, dtype=float)


def bleu_of_sums(sums: FloatArray) -> FloatArray:
    """BLEU (...) of sums of counts (..., C), smoothed as in the paper's signature (``smooth:exp``, ``eff:no``)."""
    length, reference = sums[..., 0], sums[..., 1]
    matches, totals = sums[..., 2 : 2 + BLEU_ORDER], sums[..., 2 + BLEU_ORDER :]
    with np.errstate(divide="ignore", invalid="ignore"):
        # An order without a match counts as 1/2, 1/4, ... of a match, halved at each such order.
        halvings = np.cumsum((matches == 0) & (totals > 0), axis=-1)
        precisions = np.where(matches > 0, matches, 0.5**halvings) / totals
        penalty = np.where(length < reference, np.exp(1 - reference / length), 1.0)
        scores = 100 * penalty * np.exp(np.log(precisions).mean(axis=-1))
    # Nothing matches, or no sentence is long enough: 0 by convention.
    return np.where((matches > 0).any(axis=-1) & (totals > 0).all(axis=-1), scores, 0.0)


def chrf_of_sums(sums: FloatArray) -> FloatArray:
    """chrF2 (...) of sums of counts (..., C): precision and recall averaged over the orders that occur."""
    triples = sums.reshape(*sums.shape[:-1], CHRF_ORDER, 3)
    translated, reference, matches = triples[..., 0], triples[..., 1], triples[..., 2]
    occurs = (translated > 0) & (reference > 0)
    orders = np.maximum(occurs.sum(axis=-1), 1)
    precision = (matches / np.where(occurs, translated, np.inf)).sum(axis=-1) / orders
    recall = (matches / np.where(occurs, reference, np.inf)).sum(axis=-1) / orders
    weighted = CHRF_BETA**2 * precision + recall
    scores: FloatArray = 100 * (1 + CHRF_BETA**2) * precision * recall / np.where(weighted > 0, weighted, 1.0)
    return scores


def mean_of_sums(sums: FloatArray) -> FloatArray:
    """Of sums of (score of a sentence, 1): a metric such as COMET, whose corpus score is a mean."""
    means: FloatArray = sums[..., 0] / sums[..., 1]
    return means


OF_SUMS: Final[Mapping[str, Callable[[FloatArray], FloatArray]]] = {
    "bleu": bleu_of_sums,
    "chrf": chrf_of_sums,
    "comet": mean_of_sums,
}
