"""BLEU and chrF from sacreBLEU, each with the signature that makes it comparable."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF

from rota.types import Arm


@dataclass(frozen=True, slots=True)
class Score:
    """One value of one metric, 0 to 100, higher is better."""

    metric: str
    value: float
    signature: str


def score(hypotheses: Sequence[str], references: Sequence[str]) -> list[Score]:
    """Corpus BLEU (the paper's signature) and chrF of one test set."""
    if len(hypotheses) != len(references):
        raise ValueError(f"{len(hypotheses)} translations for {len(references)} references; translate the set again")
    scores = []
    for name, metric in (("bleu", BLEU()), ("chrf", CHRF())):
        value = metric.corpus_score(list(hypotheses), [list(references)]).score
        scores.append(Score(name, value, str(metric.get_signature())))
    return scores


def averages(values: Mapping[Arm, float], low_resource: Iterable[Arm]) -> dict[str, float]:
    """Means over the low-resource, the high-resource and all languages; a group without languages is left out."""
    low = [value for arm, value in values.items() if arm in set(low_resource)]
    high = [value for arm, value in values.items() if arm not in set(low_resource)]
    groups = {"low-resource": low, "high-resource": high, "macro": list(values.values())}
    return {name: sum(group) / len(group) for name, group in groups.items() if group}
