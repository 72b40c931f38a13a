"""How much a model takes from the source, for the gate of ``align``: training examples with the sources of others.

It works where the source is a column of its own, as in examples of an encoder-decoder. In the examples of a language
model, source and target are one text.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from rota.hf.student import Examples, ExampleSets
from rota.measures import Estimate, SourceGain
from rota.training.gauges.base import Gauge
from rota.training.gauges.source import compare_sources
from rota.training.turns import Window
from rota.types import Arm, IntArray, State

POOL: Final = 512
"""Training examples of each arm, at most, that are looked at in rotation and lend each other their sources."""

TARGET_COLUMNS: Final = ("labels", "decoder_input_ids", "decoder_attention_mask", "decoder_inputs_embeds")


class SourceGainOfExamples(Gauge[SourceGain]):
    """As :class:`rota.training.gauges.source.SourceGainGauge`, for rows of data sets."""

    def __init__(self, measure: SourceGain, student: Any, sets: Any) -> None:
        super().__init__(measure, student, sets)
        self._examples: ExampleSets = sets.training
        self._lenders = {arm: lenders(self._examples.rows[arm], arm) for arm in self._examples.languages}
        self._turn = 0

    def read(self, window: Window) -> dict[Arm, Estimate]:
        pairs: dict[Arm, Any] = {}
        for arm in self._examples.languages if self.measure.arms == "all" else window.arms:
            lending = self._lenders[arm]
            if lending is not None:
                chosen = self._examples.rotated(arm, self.measure.tokens, self._turn)
                pairs[arm] = self._pair(arm, chosen, lending[chosen])
        self._turn += self.measure.sample == "rotating"
        return {arm: found.gain for arm, found in compare_sources(self.student, pairs, self.measure.weights).items()}

    def _pair(self, arm: Arm, chosen: IntArray, lending: IntArray) -> tuple[Examples, Examples]:
        rows, right = self._examples.rows[arm], self._examples.picked(arm, chosen)
        others = [rows[int(index)] for index in lending]
        wrong = tuple(with_source_of(row, other) for row, other in zip(right.rows, others, strict=True))
        return right, Examples(arm, wrong, right.target_lengths)

    def state_dict(self) -> State:
        return {"turn": self._turn} if self._turn else {}

    def load_state_dict(self, state: State) -> None:
        self._turn = int(state.get("turn", 0))


def with_source_of(row: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    """The target of one example with the source of another."""
    return {name: row[name] if name in TARGET_COLUMNS else other[name] for name in row}


def lenders(rows: Sequence[Any], arm: Arm) -> IntArray | None:
    """For each row the one with another source whose length is nearest; None if all sources are the same."""
    if not all(isinstance(row, Mapping) and "input_ids" in row and "labels" in row for row in rows):
        why = f"examples of {arm} have no columns input_ids and labels, so that sources cannot be exchanged"
        raise ValueError(f"{why}; set gate: false for the teacher align")
    sources = [tuple(np.asarray(row["input_ids"]).tolist()) for row in rows]
    order = sorted(range(len(rows)), key=lambda index: (len(sources[index]), sources[index], index))
    found = np.empty(len(rows), dtype=np.int64)
    for place, index in enumerate(order):
        after = next((each for each in order[place + 1 :] if sources[each] != sources[index]), None)
        before = next((each for each in reversed(order[:place]) if sources[each] != sources[index]), None)
        near = [each for each in (after, before) if each is not None]
        if not near:
            return None
        found[index] = min(near, key=lambda each: abs(len(sources[each]) - len(sources[index])))
    return found
