"""Which sentences are measured: always the same ones, the teacher's apart from those that select checkpoints."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final, Literal, NamedTuple

import numpy as np

from rota.data.division import Division, selection_part, teacher_part
from rota.data.selection import Ranks
from rota.data.store import Sentences, Store
from rota.goal import ALL, Goal, is_alike, resolve
from rota.measures import DevLoss, GroupLosses, JointLoss, Measure
from rota.types import MIXED, Arm, Batch, IntArray

Part = Literal["train", "teacher", "selection"]
"""Training sentences, dev sentences that a teacher may look at, or the others."""

LENDERS: Final = 1_024
"""Sentences of an arm among which another source of similar length is looked for."""


@dataclass(frozen=True)
class Groups:
    """Groups of sentences, arm by arm, in ``turns`` that are measured one after the other."""

    batches: tuple[Batch, ...]  # batch i holds the groups g with g % len(batches) == i, in order
    sizes: tuple[IntArray, ...]  # sentences of each of those groups
    count: int


class Sample(NamedTuple):
    """Some sentences of a split."""

    sentences: Sentences
    arm: Arm
    indices: IntArray

    def batch(self) -> Batch:
        return self.sentences.batch(self.arm, self.indices)


class DevSets:
    """The sentences of one run's measurements. ``teacher_share`` of each dev set belongs to the teacher."""

    def __init__(
        self,
        store: Store,
        *,
        teacher_share: float,
        division: Division,
        validate_tokens: int,
        goal: Goal | None = None,
        ranks: Ranks | None = None,
    ) -> None:
        self.languages = store.languages
        self.arms, self.language_of = store.arms, store.language_of
        self.goal = goal or resolve(ALL, self.languages)
        self.ranks = ranks or Ranks(store.split("train"))  # of training sentences; those of the streams
        self._dev, self._train = store.split("dev"), store.split("train")
        self._share, self._division = teacher_share, division
        self._validate_tokens = validate_tokens

    def teacher_part(self, arm: Arm) -> IntArray:
        """Dev sentences of a language, or of that of an arm, that a teacher may look at."""
        language = self.language_of.get(arm, arm)
        start, _ = self._dev.range(language)
        return start + teacher_part(self._dev, language, self._share, self._division)

    def selection_part(self, arm: Arm) -> IntArray:
        """The other dev sentences: dev losses shown and recorded come from these; no teacher sees them."""
        language = self.language_of.get(arm, arm)
        start, _ = self._dev.range(language)
        return start + selection_part(self._dev, language, self._share, self._division)

    @cached_property
    def validation(self) -> dict[Arm, Batch]:
        return {arm: _batch(self._dev, arm, self.selection_part(arm), self._validate_tokens) for arm in self.languages}

    @cached_property
    def train_tokens(self) -> dict[Arm, int]:
        """Target tokens of the training sentences, by arm: as many as an epoch has."""
        offsets = self._train.target.offsets
        return {arm: int(offsets[stop] - offsets[start]) for arm, (start, stop) in self._train.ranges.items()}

    def by_arm(self, measure: DevLoss) -> dict[Arm, Batch]:
        """For each arm a fixed batch: that of its language; as in the released code, one for all."""
        if measure.data == "first-arm-train":
            first = self.arms[0]
            batch = _batch(self._train, first, np.arange(*self._train.range(first)), measure.tokens)
            return dict.fromkeys(self.arms, batch)
        batches = {
            language: _batch(self._dev, language, self.teacher_part(language), measure.tokens)
            for language in self.taught
        }
        return {arm: batches[self.language_of[arm]] for arm in self.arms}

    @property
    def taught(self) -> tuple[Arm, ...]:
        """The languages, or dev sets, that some arm is measured by."""
        return tuple(dict.fromkeys(self.language_of.values()))

    def joint(self, measure: JointLoss) -> Batch:
        """The fixed multilingual batch: about as many tokens of every language.

        With a goal, tokens in proportion to its weights. Where a dev set is too small for its share, weights of the
        sentences make up for it: the weighted loss of the batch is the goal's mean of the languages' losses.
        """
        if is_alike(self.goal, self.languages):
            each = max(1, measure.tokens // len(self.languages))
            parts = [_spread(self._dev, self.teacher_part(arm), each) for arm in self.languages]
            return self._dev.batch(MIXED, np.concatenate(parts))
        parts = [
            _spread(self._dev, self.teacher_part(arm), max(1, int(measure.tokens * weight)))
            for arm, weight in self.goal.items()
        ]
        batch = self._dev.batch(MIXED, np.concatenate(parts))
        tokens = [int(self._dev.target.lengths(part).sum()) for part in parts]
        factors = np.array(list(self.goal.values())) * sum(tokens) / np.array(tokens)
        return replace(batch, weights=np.repeat(factors, [len(part) for part in parts]))

    @property
    def train(self) -> Sentences:
        """All training sentences."""
        return self._train

    def sample(self, part: Part, arm: Arm, tokens: int, turn: int = 0) -> Sample:
        """About ``tokens`` target tokens, spread over a part of an arm's sentences; the next ones at the next turn."""
        sentences = self._train if part == "train" else self._dev
        return Sample(sentences, arm, _every(sentences, self._part(part, arm), tokens, turn))

    def pool(self, part: Part, arm: Arm) -> IntArray:
        """Sentences of a part of an arm that may lend their sources to others: some thousands, always the same."""
        return _evenly(self._part(part, arm), LENDERS)

    def _part(self, part: Part, arm: Arm) -> IntArray:
        if part == "train":
            return np.arange(*self._train.range(arm))
        return self.teacher_part(arm) if part == "teacher" else self.selection_part(arm)

    def groups(self, measure: GroupLosses) -> Groups:
        sentences = self._dev if measure.data == "dev" else self._train
        groups = [group for arm in self._grouped(measure) for group in self._groups(arm, measure)]
        turns = [groups[turn :: measure.refresh_every] for turn in range(min(measure.refresh_every, len(groups)))]
        return Groups(
            tuple(sentences.batch(MIXED, np.concatenate(turn)) for turn in turns),
            tuple(np.array([len(group) for group in turn]) for turn in turns),
            len(groups),
        )

    def _grouped(self, measure: GroupLosses) -> tuple[Arm, ...]:
        """What has groups: dev sets, or, of training text, the arms themselves."""
        return self.taught if measure.data == "dev" else self.arms

    def _groups(self, arm: Arm, measure: GroupLosses) -> list[IntArray]:
        """As many groups as asked for; where sentences are few, groups shrink, to one sentence at the least."""
        if measure.data == "dev":
            available = self.teacher_part(arm)
            if measure.spread:
                available = _evenly(available, measure.groups * measure.sentences)
        else:  # the released code takes them from training batches, which are sorted by length
            available = _evenly(np.arange(*self._train.range(arm)), measure.groups * measure.sentences)
            available = available[np.argsort(self._train.target.lengths(available), kind="stable")]
        size = max(1, min(measure.sentences, len(available) // measure.groups))
        starts = range(0, measure.groups * size, size)
        return [np.take(available, np.arange(size) + start, mode="wrap") for start in starts]

    def sizes(self, measures: Iterable[Measure] = ()) -> dict[str, Any]:
        """What ``run.json`` says of the measurements: sentences and tokens that are really there."""
        watched = list(measures)
        tokens = next((measure.tokens for measure in watched if isinstance(measure, DevLoss | JointLoss)), 8_000)
        dev = next((measure for measure in watched if isinstance(measure, DevLoss)), DevLoss(tokens=tokens))
        joint = next((measure for measure in watched if isinstance(measure, JointLoss)), JointLoss(tokens=tokens))
        groups = next((measure for measure in watched if isinstance(measure, GroupLosses)), GroupLosses())
        return {
            "teacher_sentences": {arm: len(self.teacher_part(arm)) for arm in self.languages},
            "selection_sentences": {arm: len(self.selection_part(arm)) for arm in self.languages},
            "reward_tokens": _tokens(self.by_arm(dev)),
            "joint_tokens": self.joint(joint).tokens,
            "group_sentences": {arm: len(self._groups(arm, groups)[0]) for arm in self._grouped(groups)},
            "groups": groups.groups,
        }


def _batch(sentences: Sentences, arm: Arm, indices: IntArray, tokens: int) -> Batch:
    return sentences.batch(arm, _spread(sentences, indices, tokens))


def _tokens(batches: Mapping[Arm, Batch]) -> dict[Arm, int]:
    return {arm: batch.tokens for arm, batch in batches.items()}


def _spread(sentences: Sentences, indices: IntArray, tokens: int) -> IntArray:
    """Sentences spread over ``indices`` with at most ``tokens`` target tokens together, one at the least."""
    lengths = sentences.target.lengths(indices)
    if lengths.sum() <= tokens:
        return indices
    picked = _evenly(np.arange(len(indices)), max(1, int(tokens / lengths.mean())))
    fitting = max(1, int((np.cumsum(lengths[picked]) <= tokens).sum()))
    return np.take(indices, picked[:fitting])


def _evenly(indices: IntArray, count: int) -> IntArray:
    if count >= len(indices):
        return indices
    return np.take(indices, np.linspace(0, len(indices) - 1, count).round().astype(np.int64))


def _every(sentences: Sentences, indices: IntArray, tokens: int, turn: int) -> IntArray:
    """Every so many sentences, two or more if there are two; each turn begins one sentence later."""
    mean = float(sentences.target.lengths(_evenly(indices, LENDERS)).mean())
    count = min(len(indices), max(2, round(tokens / mean)))
    stride = len(indices) // count
    return np.take(indices, turn % stride + stride * np.arange(count))
