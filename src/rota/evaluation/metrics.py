"""BLEU and chrF from sacreBLEU, COMET if wanted, each with the signature that makes it comparable."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF

from rota.types import Arm

if TYPE_CHECKING:
    from rota.evaluation.comet import Comet

# The defaults of sacreBLEU are the paper's signature, nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp: a test sees to it.
METRICS: Final[Mapping[str, Callable[[], Any]]] = {"bleu": BLEU, "chrf": CHRF}
LABELS: Final = {"bleu": "BLEU", "chrf": "chrF", "comet": "COMET"}


@dataclass(frozen=True, slots=True)
class Score:
    """One value of one metric, higher is better: 0 to 100, and about so for COMET."""

    metric: str
    value: float
    signature: str


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


def averages(values: Mapping[Arm, float], low_resource: Iterable[Arm]) -> dict[str, float]:
    """Means over the low-resource, the high-resource and all languages; a group without languages is left out."""
    return {name: sum(values[arm] for arm in arms) / len(arms) for name, arms in groups(values, low_resource).items()}


def groups(languages: Iterable[Arm], low_resource: Iterable[Arm]) -> dict[str, list[Arm]]:
    """The languages that each average is over; a group without languages is left out."""
    everyone, low = list(languages), set(low_resource)
    found = {
        "low-resource": [arm for arm in everyone if arm in low],
        "high-resource": [arm for arm in everyone if arm not in low],
        "macro": everyone,
    }
    return {name: arms for name, arms in found.items() if arms}
