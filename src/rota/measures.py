"""What a teacher can ask to have measured. Frozen dataclasses: they say what and how, and hold no tensors.

A teacher names its measures in ``watches``; ``training/gauges/`` has one gauge for each class here, which measures a
real student; :meth:`Measure.imagine` says what a scripted student would show. An observation maps each measure to
its value. Losses are nats per real target token.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from types import MappingProxyType
from typing import Any, ClassVar, Final, Literal, NamedTuple

import numpy as np

Weights = Literal["raw", "average"]
"""The student's weights after the last update, or their exponential moving average."""

RewardWeights = Literal["raw", "average", "recent"]
"""The same, or an average of its own over about the last ten updates, as long as a choice lasts."""

RECENT_DECAY: Final = 0.9
"""Of the average over the last updates."""


class Estimate(NamedTuple):
    """A mean over sampled sentences, and its standard error."""

    value: float
    error: float


class Scene(NamedTuple):
    """What a scripted student shows at one moment, in simulations and contract tests."""

    losses: Mapping[str, float]  # dev loss of every arm
    before: Mapping[str, float]  # the same before the updates since the last observation
    train_losses: Mapping[str, tuple[float, int]]  # sum over those updates, and their number, by arm played
    effects: Mapping[str, Mapping[str, float]] = MappingProxyType({})
    """How far one more update on an arm would lower the dev loss of each language now: arm to language to nats."""
    sampled: Mapping[str, float] = MappingProxyType({})  # loss on training sentences of each arm; empty: as dev losses
    aligned: Mapping[str, float] = MappingProxyType({})  # share of each arm's pairs that are translations; empty: all


@dataclass(frozen=True)
class Measure:
    """Base of all measures. Equal parameters make equal measures, so that an observation can be looked up by them."""

    record: ClassVar[str | None] = None
    """The key of the value in ``observations.jsonl``; None if it is not recorded."""

    def __str__(self) -> str:
        """The class and the parameters that differ from their defaults: the key of a gauge in a checkpoint."""
        changed = [
            f"{field.name}={getattr(self, field.name)!r}"
            for field in fields(self)
            if getattr(self, field.name) != field.default
        ]
        return f"{type(self).__name__}({', '.join(changed)})"

    def written(self, value: Any) -> Any:
        """The value as ``observations.jsonl`` has it."""
        return value

    def imagine(self, scene: Scene) -> Any:  # noqa: ARG002 - for those who can
        """The value that a scripted student would show."""
        raise ValueError(f"a scripted student cannot show {self}; try this teacher in real training")


@dataclass(frozen=True)
class TrainLoss(Measure):
    """Mean training loss of the updates since the last observation: a number, or a mapping from arms. Costs nothing."""

    by: Literal["run", "arm"] = "run"

    def imagine(self, scene: Scene) -> float | dict[str, float]:
        return mean_train_loss(self, scene.train_losses)


def mean_train_loss(measure: TrainLoss, train_losses: Mapping[str, tuple[float, int]]) -> float | dict[str, float]:
    if measure.by == "arm":
        return {arm: total / count for arm, (total, count) in train_losses.items()}
    return sum(total for total, _ in train_losses.values()) / sum(count for _, count in train_losses.values())


@dataclass(frozen=True)
class DevLoss(Measure):
    """Loss on a fixed dev batch of each arm: a mapping from arms.

    ``arms``: those played since the last observation, or all. ``when``: after the updates, or around them, which gives
    pairs (before, after) of the arms played. ``data``: ``first-arm-train`` is one training batch of the first
    arm for all of them, as in the released code of the paper.
    """

    record: ClassVar[str | None] = "dev_loss"
    arms: Literal["played", "all"] = "played"
    when: Literal["after", "around"] = "after"
    tokens: int = 8_000  # of each batch, at most
    weights: Weights = "raw"
    smoothed: bool = False  # with the label smoothing of training
    data: Literal["dev", "first-arm-train"] = "dev"
    calibrated: bool = False  # at the best softmax temperature, so that being too sure of itself does not count

    def imagine(self, scene: Scene) -> dict[str, Any]:
        arms = scene.losses if self.arms == "all" else scene.train_losses
        if self.when == "around":
            return {arm: (scene.before[arm], scene.losses[arm]) for arm in scene.train_losses}
        return {arm: scene.losses[arm] for arm in arms}


@dataclass(frozen=True)
class JointLoss(Measure):
    """Loss on a fixed dev batch with about as many tokens of every language, or as the goal weighs them: a number."""

    record: ClassVar[str | None] = "joint_loss"
    tokens: int = 8_000
    weights: Weights = "raw"
    smoothed: bool = False

    def imagine(self, scene: Scene) -> float:
        """A multilingual batch has every arm in equal parts."""
        return float(np.mean(list(scene.losses.values())))


@dataclass(frozen=True)
class JointGain(Measure):
    """How far the goal's dev loss has fallen since the last observation: a number, nats per token; positive is good.

    Before and after are of the same sentences, about ``tokens`` target tokens of all languages together; the next
    observation has the next sentences, in rotation, so that in time all of them count. Two sentences of a language at
    the least. ``recent`` weights are averaged from the first observation on.
    """

    record: ClassVar[str | None] = "joint_gain"
    tokens: int = 400
    weights: RewardWeights = "recent"

    def imagine(self, scene: Scene) -> float:
        return float(np.mean([scene.before[arm] - loss for arm, loss in scene.losses.items()]))


@dataclass(frozen=True)
class GroupLosses(Measure):
    """Losses of small groups of sentences, arm by arm: an array, the state of the DQN teacher.

    ``refresh_every`` k: only every k-th group is measured again at an observation, in rotation. ``summed``: over the
    tokens of a group and with label smoothing, as in the released code of the paper. ``spread``: the sentences are
    spread over the dev set instead of being its first ones.
    """

    groups: int = 25  # of each arm
    sentences: int = 10  # of each group, at most
    refresh_every: int = 1
    data: Literal["dev", "train"] = "dev"
    weights: Weights = "raw"
    summed: bool = False
    spread: bool = False

    def imagine(self, scene: Scene) -> Any:
        """Groups differ in difficulty by fixed factors from 0.8 to 1.2."""
        return np.outer(list(scene.losses.values()), np.linspace(0.8, 1.2, self.groups)).ravel()


@dataclass(frozen=True)
class SourceGain(Measure):
    """How much the student takes from the source: a mapping from arms to an :class:`Estimate`, nats per token.

    The loss with the source of *another* sentence of about the same length, minus the loss with the right one; positive
    is good. It is near 0 for text that is not a translation of its source, however good its target language is. Arms
    without two different sources are left out. ``data``: sampled training sentences, or the teacher's dev sentences.
    ``sample``: the same sentences every time, or the next ones, in rotation.
    """

    record: ClassVar[str | None] = "source_gain"
    data: Literal["train", "dev"] = "train"
    arms: Literal["played", "all"] = "all"
    tokens: int = 500  # target tokens of each arm, about
    sample: Literal["fixed", "rotating"] = "rotating"
    weights: Weights = "raw"

    def imagine(self, scene: Scene) -> dict[str, Estimate]:
        """A scripted student takes more from the source the lower its loss is, and nothing where pairs do not match."""
        arms = scene.losses if self.arms == "all" else scene.train_losses
        return {arm: Estimate(scene.aligned.get(arm, 1.0) * math.exp(-scene.losses[arm]), 0.01) for arm in arms}


@dataclass(frozen=True)
class TrainSampleLoss(Measure):
    """Loss on always the same training sentences of every arm, in evaluation mode: a mapping from arms.

    They are spread over the arm's text, so the student has seen all of them after the arm's first epoch; a teacher can
    tell from the tokens seen. Far below the dev loss, they are learned by heart, or easier than the dev sentences.
    """

    record: ClassVar[str | None] = "train_sample_loss"
    tokens: int = 2_000  # target tokens of each arm, about
    weights: Weights = "raw"

    def imagine(self, scene: Scene) -> dict[str, float]:
        return {arm: scene.sampled.get(arm, loss) for arm, loss in scene.losses.items()}


@dataclass(frozen=True)
class EmbeddingNorm(Measure):
    """Frobenius norm of the student's embedding matrix: a number, which grows as it learns. Costs next to nothing."""

    record: ClassVar[str | None] = "embedding_norm"

    def imagine(self, scene: Scene) -> float:
        """It grows as the losses fall."""
        return 10 + 30 * math.exp(-float(np.mean(list(scene.losses.values()))))


@dataclass(frozen=True)
class SourceNorms(Measure):
    """Norms of the embeddings of its source tokens, summed, of every training sentence: their means, by arm.

    What each sentence has becomes the column ``norm``, by which decisions can select and weight. No forward pass.
    """

    record: ClassVar[str | None] = "source_norm"

    def imagine(self, scene: Scene) -> dict[str, float]:
        return {arm: 5 / (1 + loss) for arm, loss in scene.losses.items()}


@dataclass(frozen=True)
class TrainSetLosses(Measure):
    """Losses of all training sentences in evaluation mode: their means, by arm. A forward pass over everything.

    What each sentence has becomes the column ``loss``, by which decisions can select. From the second time on, how
    little it has fallen since the last time, relative to what it was, becomes ``relative-loss``: a small fall is hard.
    """

    record: ClassVar[str | None] = "train_set_loss"

    def imagine(self, scene: Scene) -> dict[str, float]:
        return dict(scene.losses)


class Aligned(NamedTuple):
    """Dot products of an arm's updates since the last observation with the direction of the goal: sums of them.

    Each is, to first order, how far the update lowers the goal's dev loss, up to a factor that all arms share.
    ``languages`` has, for each dev language, the sum of the products with its own direction and that of their squares;
    ``source`` has these two for the direction of the gain from the source, where that of the loss is the other one.
    """

    total: float
    squares: float
    updates: int
    languages: Mapping[str, tuple[float, float]] = MappingProxyType({})
    source: tuple[float, float] = (0.0, 0.0)


class Alignments(dict[str, Aligned]):
    """By arm. ``served``: how far the other languages' dev gradients lead where the loss of each language falls.

    It is not measured every time: then it is empty. Near or below 0, only the language's own text helps it.
    """

    def __init__(self, found: Mapping[str, Aligned], served: Mapping[str, float] | None = None) -> None:
        super().__init__(found)
        self.served: Mapping[str, float] = served or {}


@dataclass(frozen=True)
class Alignment(Measure):
    """How far the updates on each arm lead towards the goal: :class:`Alignments`, by arm played.

    Every ``refresh`` updates a new direction is taken: the gradient of the goal's dev loss, on ``tokens`` of each
    language in rotation, at the student's averaged weights, scaled to length one and averaged with the directions
    before, which count ``memory``. Every update then leaves the dot product of its own gradient with it, which costs
    next to nothing. Of these measures a teacher can watch one.

    ``direction``: ``source-gain`` is the gradient of the dev loss minus the dev loss with the sources of other
    sentences; ``both``: products with either, apart. ``metric``: Adam divides its steps by
    the root of its second moments. ``languages``: also by dev language, which takes memory for one more direction each.
    """

    record: ClassVar[str | None] = "alignment"
    refresh: int = 80  # updates
    tokens: int = 70  # target tokens of each language, about
    memory: float = 0.8  # the first direction has 1 / (1 - memory) times the tokens
    direction: Literal["loss", "source-gain", "both"] = "both"
    weights: Weights = "average"
    decay: float = 0.98  # of the averaged weights, unless student.average says otherwise
    metric: Literal["adam", "none"] = "adam"
    languages: bool = False

    def imagine(self, scene: Scene) -> Alignments:
        """A scripted student shows the effect of one more update, the same for each that was made."""
        played = scene.train_losses.items()
        return Alignments({arm: self._aligned(scene.effects[arm], updates) for arm, (_, updates) in played})

    def written(self, value: Mapping[str, Aligned]) -> dict[str, Any]:
        """Sums, sums of squares and updates of each arm, then those by language, rounded, then those of the source."""
        written: dict[str, Any] = {arm: list(aligned[:3]) for arm, aligned in value.items()}
        if self.languages:
            written = {
                arm: [*sums, {name: [float(f"{x:.4g}") for x in pair] for name, pair in value[arm].languages.items()}]
                for arm, sums in written.items()
            }
        if self.direction == "both":
            written = {arm: [*sums, *value[arm].source] for arm, sums in written.items()}
        return written

    def _aligned(self, effects: Mapping[str, float], updates: int) -> Aligned:
        mean = sum(effects.values()) / len(effects)
        by_language = {name: (updates * effect, updates * effect**2) for name, effect in effects.items()}
        sums = updates * mean, updates * mean**2
        source = sums if self.direction == "both" else (0.0, 0.0)
        return Aligned(*sums, updates, by_language if self.languages else {}, source)


class Products(NamedTuple):
    """Of an arm's training gradient with the gradients of dev languages: the weighted mean, and each if asked for."""

    mean: float
    languages: Mapping[str, float] = MappingProxyType({})


@dataclass(frozen=True)
class GradientProducts(Measure):
    """Gradients of training sentences of each arm along those of dev sentences: arm to :class:`Products`.

    Each gradient is of about ``tokens`` target tokens, in rotation; one for each arm and one for each dev language.
    ``divided_by``: both norms, which makes it the cosine; the mean norm of the arms' gradients; or nothing.
    ``targets``: dev languages that count alike; none: those of the goal, with its weights. ``languages``: also by dev
    language, which takes memory for one gradient of each.
    """

    record: ClassVar[str | None] = "gradient_products"
    divided_by: Literal["norms", "mean-norm", "nothing"] = "norms"
    tokens: int = 300
    targets: tuple[str, ...] = ()
    weights: Weights = "average"
    languages: bool = False

    def imagine(self, scene: Scene) -> dict[str, Products]:
        """A scripted student shows the effects of one more update; as cosines, those of an arm have length one."""
        norms = {arm: math.hypot(*scene.effects[arm].values()) or 1.0 for arm in scene.losses}
        divisors = {
            "norms": norms,
            "mean-norm": dict.fromkeys(norms, sum(norms.values()) / len(norms)),
            "nothing": dict.fromkeys(norms, 1.0),
        }[self.divided_by]
        found = {}
        for arm, divisor in divisors.items():
            effects = {name: effect / divisor for name, effect in scene.effects[arm].items()}
            targets = self.targets or tuple(effects)
            mean = sum(effects[name] for name in targets) / len(targets)
            found[arm] = Products(mean, {name: effects[name] for name in targets} if self.languages else {})
        return found

    def written(self, value: Mapping[str, Products]) -> dict[str, Any]:
        """The mean of each arm; with ``languages`` the product with each of them, rounded."""
        if not self.languages:
            return {arm: products.mean for arm, products in value.items()}
        return {arm: {name: float(f"{x:.4g}") for name, x in each.languages.items()} for arm, each in value.items()}


class Moments(NamedTuple):
    """Of the gradients of an arm's training sentences, with respect to the loss in nats per token."""

    squared_norm: float  # of their mean; an unbiased estimate, so it can be below 0
    variance: float  # of the gradient of a single sentence, summed over all weights
    loss: float  # mean loss of the same sentences


@dataclass(frozen=True)
class GradientMoments(Measure):
    """Norm and variance of the training gradients of each arm: arm to :class:`Moments`.

    Two half batches with gradients g and h: the squared norm is g.h, the variance of one of n sentences of a half is
    n |g - h|^2 / 2. About ``tokens`` target tokens for both halves together, in rotation.
    """

    tokens: int = 600
    weights: Weights = "average"

    def imagine(self, scene: Scene) -> dict[str, Moments]:
        """An arm with more effect on itself has the larger gradient; what is badly learned varies more."""
        own = {arm: effects.get(arm, max(effects.values())) for arm, effects in scene.effects.items()}
        return {arm: Moments(own[arm], 0.01 * loss, loss) for arm, loss in scene.losses.items()}


UncertaintyKind = Literal[
    "entropy", "end-entropy", "probability", "mean-probability", "variance", "combined", "cross-entropy"
]


@dataclass(frozen=True)
class Uncertainty(Measure):
    """How unsure the student is of dev sentences of each arm, under dropout: a mapping from arms (Wu et al. 2021).

    ``entropy`` of the predictions for each token, ``end-entropy`` of those at the end of a sentence; one minus the
    ``probability`` of the likeliest tokens of a sentence together, or their geometric mean (``mean-probability``);
    ``variance`` of their log-probabilities within a sentence; ``combined``: exp(variance / mean log-probability);
    ``cross-entropy``: the loss, without dropout. Means over sentences, in rotation, and over ``samples`` of dropout.
    """

    record: ClassVar[str | None] = "uncertainty"
    kind: UncertaintyKind = "entropy"
    samples: int = 4
    tokens: int = 300
    weights: Weights = "average"

    def imagine(self, scene: Scene) -> dict[str, float]:
        """An entropy like the loss; a probability like that of a token with this loss."""
        if self.kind in ("entropy", "end-entropy", "cross-entropy", "variance"):
            return dict(scene.losses)
        return {arm: 1 - math.exp(-loss) for arm, loss in scene.losses.items()}


@dataclass(frozen=True)
class WeightChange(Measure):
    """How far the weights have moved during the updates since the last observation: a number from 0 up, in nats.

    A normal distribution is fitted to the entries of each weight matrix, then and now; the value is the symmetric
    Kullback-Leibler divergence of the two, averaged over the matrices.
    """

    record: ClassVar[str | None] = "weight_change"

    def imagine(self, scene: Scene) -> float:
        """The weights of a scripted student move as far as its losses."""
        return float(np.mean([(scene.before[arm] - loss) ** 2 for arm, loss in scene.losses.items()]))
