"""The gain from the source: the loss with the source of another sentence, minus the loss with the right one.

Both losses are of the same target sentences, so the difficulty of the target text drops out. The other source is of
similar length, because the length of a source alone tells something about its target.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import NamedTuple, TypeVar

import numpy as np

from rota.data.division import sentence_hashes
from rota.measures import Estimate, SourceGain, Weights
from rota.training.devsets import DevSets, Part, Sample
from rota.training.gauges.base import Gauge
from rota.training.turns import Window
from rota.types import Arm, Batch, FloatArray, IntArray, ProbedStudent, State

Pair = tuple[Batch, Batch]
"""The same target sentences with their own sources and with those of others."""

Key = TypeVar("Key")


class Found(NamedTuple):
    """Of some sentences, nats per token."""

    gain: Estimate  # from the source
    loss: Estimate  # with the right source


class SourceGainGauge(Gauge[SourceGain]):
    def __init__(self, measure: SourceGain, student: ProbedStudent, sets: DevSets) -> None:
        super().__init__(measure, student, sets)
        self._part: Part = "train" if measure.data == "train" else "teacher"
        self._turn = 0

    def read(self, window: Window) -> dict[Arm, Estimate]:
        arms = self.sets.arms if self.measure.arms == "all" else window.arms
        pairs = mismatched_pairs(self.sets, self._part, arms, self.measure.tokens, self._turn)
        if self.measure.sample == "rotating":
            self._turn += 1
        found = compare_sources(self.student, pairs, self.measure.weights)
        return {arm: each.gain for arm, each in found.items()}

    def state_dict(self) -> State:
        return {"turn": self._turn} if self._turn else {}

    def load_state_dict(self, state: State) -> None:
        self._turn = int(state.get("turn", 0))


def compare_sources(student: ProbedStudent, pairs: Mapping[Key, Pair], weights: Weights = "raw") -> dict[Key, Found]:
    """Gain and loss of every pair, from one call of the student."""
    if not pairs:
        return {}
    right, wrong = zip(*pairs.values(), strict=True)
    losses = student.losses([*right, *wrong], weights=weights)
    right_sums, wrong_sums = np.split(losses.sums, 2)
    ends = np.cumsum([batch.sentences for batch in right])[:-1]
    parts = (np.split(each, ends) for each in (wrong_sums - right_sums, right_sums, losses.tokens[: len(right_sums)]))
    return {
        key: Found(per_token(gains, tokens), per_token(own, tokens))
        for key, gains, own, tokens in zip(pairs, *parts, strict=True)
    }


def per_token(sums: FloatArray, tokens: IntArray) -> Estimate:
    """The mean per token of what was summed over each sentence, with the error of a ratio of two means."""
    total, count = float(tokens.sum()), len(tokens)
    value = float(sums.sum()) / total
    scatter = float(np.square(sums - value * tokens).sum()) * count / max(1, count - 1)
    return Estimate(value, float(np.sqrt(scatter)) / total)


def mismatched_pairs(sets: DevSets, part: Part, arms: Iterable[Arm], tokens: int, turn: int) -> dict[Arm, Pair]:
    """Sampled sentences of each arm, with the right and with other sources; without arms that have only one source."""
    pairs: dict[Arm, Pair] = {}
    for arm in arms:
        sample = sets.sample(part, arm, tokens, turn)
        lenders = other_sources(sample, sets.pool(part, arm))
        if lenders is not None:
            right = sample.batch()
            source, source_lengths = sample.sentences.source.gather(lenders)
            pairs[arm] = right, replace(right, source=source, source_lengths=source_lengths)
    return pairs


def other_sources(sample: Sample, pool: IntArray) -> IntArray | None:
    """For each sentence of a sample the one of the pool with another source text whose length is nearest.

    None if all sources are the same text. The same sample and pool give the same answer on every machine.
    """
    everything = np.union1d(sample.indices, pool)
    source = sample.sentences.source
    lengths, hashes = source.lengths(everything), sentence_hashes(*source.gather(everything))
    # By length; among equal lengths the hashes decide, which also brings equal texts together.
    order = np.lexsort((hashes, lengths))
    lengths, hashes = lengths[order], hashes[order]
    starts = np.flatnonzero(np.concatenate([[True], hashes[1:] != hashes[:-1]]))
    if len(starts) == 1:
        return None
    stops = np.concatenate([starts[1:], [len(order)]])
    place = np.empty(len(order), dtype=np.int64)
    place[order] = np.arange(len(order))
    here = place[np.searchsorted(everything, sample.indices)]
    text = np.searchsorted(starts, here, side="right") - 1
    before, after = starts[text] - 1, stops[text]
    last = len(order) - 1
    farther = np.abs(lengths[np.minimum(after, last)] - lengths[here]) > np.abs(lengths[before] - lengths[here])
    chosen = np.where((after > last) | ((before >= 0) & farther), before, after)
    found: IntArray = everything[order[chosen]]
    return found
