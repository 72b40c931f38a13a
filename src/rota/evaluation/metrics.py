"""BLEU and chrF from sacreBLEU, COMET if wanted, each with the signature that makes it comparable.

Also what BLEU and chrF are made of: counts of each sentence, and the scores of thousands of their sums at once.
Resampling a test set only changes which counts are summed, so sentences are tokenised once, by sacreBLEU.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF

from rota.goal import Goal, goal_mean, is_alike
from rota.types import Arm, FloatArray, Route

if TYPE_CHECKING:
    from rota.evaluation.comet import Comet

# The defaults of sacreBLEU are the paper's signature, nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp: a test sees to it.
METRICS: Final[Mapping[str, Callable[[], Any]]] = {"bleu": BLEU, "chrf": CHRF}
LABELS: Final = {"bleu": "BLEU", "chrf": "chrF", "comet": "COMET", "loss": "loss"}
DIGITS: Final = {"loss": 3}
"""After the point where a table shows scores; one elsewhere."""


@dataclass(frozen=True, slots=True)
class Score:
    """One value of one metric: 0 to 100, about so for COMET; ``loss`` is nats per token, and less is better."""

    metric: str
    value: float
    signature: str
    details: Mapping[str, Any] = field(default_factory=dict)  # what else the records say of it


def score(
    hypotheses: Sequence[str],
    references: Sequence[str],
    *,
    sources: Sequence[str] | None = None,
    metrics: Sequence[str] = ("bleu", "chrf"),
    comet: Comet | None = None,
) -> list[Score]:
    """Corpus scores of one test set: the metrics named, and COMET if its model is given; it reads the sources too."""
    if len(hypotheses) != len(references):
        raise ValueError(f"{len(hypotheses)} translations for {len(references)} references; translate the set again")
    scores = []
    for name in metrics:
        metric = make_metric(name)
        value = metric.corpus_score(list(hypotheses), [list(references)]).score
        scores.append(Score(name, value, str(metric.get_signature())))
    if comet is not None:
        if sources is None:
            raise ValueError("COMET compares with the sources too; give them as sources=")
        scores.append(Score("comet", comet.score(sources, hypotheses, references)[0], comet.signature))
    return scores


def make_metric(name: str) -> Any:
    """A fresh metric of sacreBLEU; its signature is complete only after it has scored something."""
    if name not in METRICS:
        raise ValueError(f"unknown metric {name!r}; it is {' or '.join(METRICS)}")
    return METRICS[name]()


def averages(
    values: Mapping[Arm, float],
    low_resource: Iterable[Arm],
    goal: Goal | None = None,
    routes: Mapping[Arm, Route] | None = None,
) -> dict[str, float]:
    """Means over the low-resource, the high-resource and all languages; a group without languages is left out.

    With several directions there are also those into and out of each language that has at least two of either. With a
    goal other than all languages alike, its mean comes last.
    """
    grouped = groups(values, low_resource) | directions(values, routes or {})
    found = {name: sum(values[arm] for arm in arms) / len(arms) for name, arms in grouped.items()}
    if goal and set(goal) <= set(values) and not is_alike(goal, values):
        found["goal"] = goal_mean(values, goal)
    return found


def groups(languages: Iterable[Arm], low_resource: Iterable[Arm]) -> dict[str, list[Arm]]:
    """The languages that each average is over; a group without languages is left out."""
    everyone, low = list(languages), set(low_resource)
    found = {
        "low-resource": [arm for arm in everyone if arm in low],
        "high-resource": [arm for arm in everyone if arm not in low],
        "macro": everyone,
    }
    return {name: arms for name, arms in found.items() if arms}


def directions(sets: Iterable[Arm], routes: Mapping[Arm, Route]) -> dict[str, list[Arm]]:
    """Test sets into, and out of, the same language; only of those with several target languages, and two sets."""
    known = [(name, routes[name]) for name in sets if name in routes]
    if len({route.target for _, route in known}) < 2:
        return {}
    found: dict[str, list[Arm]] = {}
    for name, route in known:
        found.setdefault(f"into {route.target}", []).append(name)
    for name, route in known:
        found.setdefault(f"out of {route.source}", []).append(name)
    return {name: arms for name, arms in found.items() if len(arms) > 1}


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
    """Of sums of (score of a sentence, 1), for COMET, or of (nats, tokens), for losses: the corpus score is a mean."""
    means: FloatArray = sums[..., 0] / sums[..., 1]
    return means


OF_SUMS: Final[Mapping[str, Callable[[FloatArray], FloatArray]]] = {
    "bleu": bleu_of_sums,
    "chrf": chrf_of_sums,
    "comet": mean_of_sums,
    "loss": mean_of_sums,
}
