"""BLEU and chrF of a few dev sentences while a run trains: always the same ones, translated greedily.

They are for curves and for early stopping, not for results: the sample is small, and there is no beam. No teacher sees
the sentences, and training is the same without them, bit for bit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice

import numpy as np

from rota.data.store import Store
from rota.evaluation.metrics import score
from rota.evaluation.translator import Translator
from rota.student.transformer import Transformer
from rota.types import Arm, IntArray

METRICS = ("bleu", "chrf")


class DevScores:
    """``parts``: the dev sentences of each language that may be looked at, as places in its dev set."""

    def __init__(
        self,
        network: Transformer,
        store: Store,
        parts: Mapping[Arm, IntArray],
        *,
        sentences: int,
        targets: Sequence[str],
    ) -> None:
        self._translator = Translator([network], store.subwords, targets)
        self._sources: list[str] = []
        self._routes: list[tuple[str, str]] = []
        self._references: dict[Arm, list[str]] = {}
        for arm, part in parts.items():
            pairs, route = store.text("dev", arm), store.route(arm)
            chosen = [pairs[place] for place in spread(part, sentences)]
            self._sources += [pair[0] for pair in chosen]
            self._routes += [(route.source, route.target)] * len(chosen)
            self._references[arm] = [pair[1] for pair in chosen]

    def take(self) -> dict[str, dict[Arm, float]]:
        """By metric and language, 0 to 100, of the network as it is now."""
        found = self._translator.translate(
            self._sources,
            [source for source, _ in self._routes],
            to=[target for _, target in self._routes],
            beam=1,
        )
        lines, values = iter(found), {metric: dict[Arm, float]() for metric in METRICS}
        for arm, references in self._references.items():
            for each in score(list(islice(lines, len(references))), references, metrics=METRICS):
                values[each.metric][arm] = each.value
        return values


def spread(part: IntArray, count: int) -> list[int]:
    """At most so many places, evenly over the part; the same for every run of the data."""
    if count >= len(part):
        return [int(place) for place in part]
    return [int(place) for place in part[np.linspace(0, len(part) - 1, count).round().astype(int)]]
