"""The vocabulary that every part of Rota shares: arms, batches, decisions, observations. No torch here."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, NamedTuple, Protocol, Self, runtime_checkable

import numpy as np
import numpy.typing as npt

from rota.measures import Measure, RewardWeights, Weights

Arm = str
"""What a teacher chooses: a source of training text, by default a language such as ``"az"``; or a named mixture."""

MIXED: Final[Arm] = "mixed"
"""What batches of several arms are called, and the mixture of all arms in proportion to the corpus."""

MIXED_HIGH_RESOURCE: Final[Arm] = "mixed-high-resource"
"""The name of that mixture over the high-resource languages alone: the warm-up of the shuffled baseline."""

State = dict[str, Any]
"""A tree of dictionaries and lists with numbers, strings, booleans, ``None``, numpy arrays or tensors as leaves."""

IntArray = npt.NDArray[np.integer[Any]]
FloatArray = npt.NDArray[np.floating[Any]]


@runtime_checkable
class Checkpointable(Protocol):
    """Whatever remembers, can be saved."""

    def state_dict(self) -> State: ...

    def load_state_dict(self, state: State) -> None: ...


@dataclass(frozen=True, slots=True)
class Batch:
    """Sentences as flat token arrays: no padding anywhere.

    ``source`` holds the sentences one after the other, each as language tag, subwords, end of sentence;
    ``target`` each as subwords, end of sentence. The student shifts the target itself.
    """

    arm: Arm
    source: IntArray  # (sum of source_lengths,)
    source_lengths: IntArray  # (sentences,)
    target: IntArray  # (sum of target_lengths,)
    target_lengths: IntArray  # (sentences,)
    tokens_by_language: Mapping[Arm, int]  # real target tokens; one entry unless the arm is a mixture
    weights: FloatArray | None = None  # (sentences,) or (target tokens,): factors of the loss to minimise; None: all 1

    @property
    def sentences(self) -> int:
        return len(self.target_lengths)

    @property
    def tokens(self) -> int:
        """Real target tokens, ends of sentences included: the unit of every budget."""
        return len(self.target)


@dataclass(frozen=True, slots=True)
class Route:
    """What an arm, or a dev set, translates; and the dev and test set that an arm is measured by."""

    source: str  # a language
    target: str
    dev: str  # the name of the set, by default that of the source language


class SentenceLosses(NamedTuple):
    """Cross-entropy of each sentence in nats, summed over its target tokens, and how many those are."""

    sums: FloatArray
    tokens: IntArray

    @property
    def per_token(self) -> float:
        """Mean over all tokens, in nats."""
        return float(self.sums.sum() / self.tokens.sum())


class Mixture(NamedTuple):
    """Shares of several arms, which need not sum to one: of the batches of an update, or of its sentences.

    In proportion to the sizes of the arms, a mixture of sentences has every sentence once per epoch.
    """

    shares: Mapping[Arm, float]
    unit: Literal["batch", "sentence"] = "batch"
    fixed: bool = False  # its name always has these shares, so records give the name alone

    def state(self) -> State:
        """As plain values; that it is fixed only if it is."""
        state: State = {"shares": dict(self.shares), "unit": self.unit}
        return {**state, "fixed": True} if self.fixed else state


class Selection(NamedTuple):
    """The easiest ``share`` of the sentences of an arm, in the order of the column ``by`` of the store."""

    by: str
    share: float
    least: int = 0  # sentences of each language, where the share would leave fewer

    def state(self) -> State:
        """As plain values; the least number only if there is one."""
        return {name: value for name, value in self._asdict().items() if name != "least" or value}


class Emphasis(NamedTuple):
    """Harder sentences count more: the loss of each is multiplied by ``(rank / competence) ** power``.

    Its rank, above 0 and up to 1, is that within its language by the column ``by``, as for a :class:`Selection`.
    """

    by: str
    competence: float
    power: float


class Scoring(NamedTuple):
    """Of more candidates than are needed, the best ``share``, by a weighted sum of columns.

    The score of a sentence is the sum of weight times (rank - 1/2); ranks are those within its language, by the columns
    that a :class:`Selection` knows. Candidates are the next sentences that the arm has.
    """

    weights: Mapping[str, float]
    share: float


class Pacing(NamedTuple):
    """Steadier predictions count more: weights of the loss from the variance of predictions under dropout."""

    samples: int  # passes with dropout over every batch, before its update
    power: float


class Examined(NamedTuple):
    """Each sentence in evaluation mode, summed over its target tokens. Losses are nats, without smoothing."""

    sums: FloatArray  # (sentences,)
    tokens: IntArray
    correct: IntArray  # tokens that are the student's likeliest prediction
    sums_by_temperature: FloatArray  # (temperatures, sentences): losses with logits divided by each temperature


class Uncertainty(NamedTuple):
    """Predictions under dropout: (samples, sentences) each, summed over target tokens. Logarithms are natural."""

    tokens: IntArray  # (sentences,)
    losses: FloatArray  # cross-entropy of the reference
    probabilities: FloatArray  # of the reference tokens
    entropies: FloatArray  # of the predicted distributions
    end_entropies: FloatArray  # the same at the end of the sentence alone
    best: FloatArray  # log-probability of the likeliest token, whatever the reference
    best_squares: FloatArray  # its square, for variances over the tokens of a sentence

    @property
    def entropy(self) -> FloatArray:
        """(sentences,): entropy of the prediction, mean over tokens and samples."""
        return np.asarray(self.entropies.mean(0) / self.tokens)

    @property
    def probability(self) -> FloatArray:
        """(sentences,): probability of the reference, mean over tokens and samples."""
        return np.asarray(self.probabilities.mean(0) / self.tokens)

    @property
    def variance(self) -> FloatArray:
        """(sentences,): variance over samples of the loss per token; 0 with a single sample."""
        return np.asarray((self.losses / self.tokens).var(0))


class Projection(NamedTuple):
    """The gradient of one update, before clipping: its dot product with the followed direction, and its norm."""

    dot: float
    norm: float
    others: tuple[float, ...] = ()  # dot products with the other directions, in their order


class Gradient(Protocol):
    """A gradient of the loss with respect to all weights, as an opaque vector: no number in it is ever shown."""

    def dot(self, other: Self) -> float: ...

    def norm(self) -> float: ...

    def cosine(self, other: Self) -> float:
        """0 if either of the two is zero."""
        ...

    def plus(self, other: Self) -> Self: ...

    def minus(self, other: Self) -> Self: ...

    def scaled(self, factor: float) -> Self: ...

    def in_adams_metric(self) -> Self:
        """Divided by the root of Adam's second moments as they are now; unchanged before the first update.

        A step of Adam without momentum is, but for the learning rate, the gradient in this metric: its dot product
        with a dev gradient is the first-order effect of the step on the dev loss.
        """
        ...


@dataclass(frozen=True, slots=True)
class Decision:
    """One choice of a teacher, with what is needed to explain it afterwards.

    ``arm`` is the arm to train on; with a ``mixture`` it is the name under which the mixture is recorded.
    """

    arm: Arm
    why: str  # "sampled", "warmup", "first visit", "explore", "exploit", ...
    probability: float | None = None  # with which the arm was chosen, where the teacher knows it
    scores: Mapping[Arm, float] = field(default_factory=dict)  # Q values, weights, ...; empty if it has none
    epsilon: float | None = None  # probability of a random choice, where the teacher explores so
    mixture: Mixture | None = None
    selection: Selection | None = None
    weights: Mapping[Arm, float] | None = None  # of the loss, by arm; an arm that is missing has weight 1
    emphasis: Emphasis | None = None  # weights of the loss by sentence
    scoring: Scoring | None = None  # takes the place of a selection
    pacing: Pacing | None = None  # weights of the loss by token, measured before the update

    def state(self) -> State:
        """As plain values for a checkpoint; what only some decisions have is written only if it is set."""
        state: State = {name: getattr(self, name) for name in ("arm", "why", "probability", "scores", "epsilon")}
        state["scores"] = dict(self.scores)
        if self.mixture is not None:
            state["mixture"] = self.mixture.state()
        if self.selection is not None:
            state["selection"] = self.selection.state()
        if self.weights is not None:
            state["weights"] = dict(self.weights)
        if self.emphasis is not None:
            state["emphasis"] = self.emphasis._asdict()
        if self.scoring is not None:
            state["scoring"] = {"weights": dict(self.scoring.weights), "share": self.scoring.share}
        if self.pacing is not None:
            state["pacing"] = self.pacing._asdict()
        return state

    @classmethod
    def from_state(cls, state: State) -> Decision:
        kinds: dict[str, Callable[..., Any]] = {
            "mixture": Mixture,
            "selection": Selection,
            "emphasis": Emphasis,
            "scoring": Scoring,
            "pacing": Pacing,
        }
        more = {name: kind(**state[name]) for name, kind in kinds.items() if state.get(name) is not None}
        return cls(**{**state, **more})


@dataclass(frozen=True, slots=True)
class Observation:
    """What a teacher is told: what was done since the last time, and what was measured, nothing else."""

    step: int
    plays: tuple[tuple[Decision, int], ...]  # every decision since the last ``tell``, with its number of updates
    measured: Mapping[Measure, Any] = field(default_factory=dict)
    seen: Mapping[Arm, int] = field(default_factory=dict)  # target tokens by arm since step 0

    @property
    def decision(self) -> Decision:
        """The last one."""
        return self.plays[-1][0]

    @property
    def played(self) -> dict[Arm, int]:
        """Updates by arm, in the order in which the arms were first played."""
        total: Counter[Arm] = Counter()
        for decision, updates in self.plays:
            total[decision.arm] += updates
        return dict(total)


class Alarm(NamedTuple):
    """Trouble that a run has noticed: raised once for each kind and arm, those of :data:`CHANGES` every time."""

    step: int
    kind: str  # such as "one-arm", "rising-loss"
    arm: Arm | None  # which it is about; None: the run as a whole
    text: str  # what was seen, and what to do: one or two plain sentences


CHANGES: Final = frozenset({"maintenance", "learning-again"})
"""Kinds of alarms that report a change of state; an arm can change more than once, and each time counts."""


@runtime_checkable
class RaisesAlarms(Protocol):
    """A teacher that says when something is wrong with itself. It may say the same again: only the first is heard.

    One of :data:`CHANGES` is heard every time, so it is said only after the ``tell`` at which the change was made.
    """

    def alarms(self, step: int) -> Iterable[Alarm]:
        """Called after each ``tell``."""
        ...


class Teacher(Checkpointable, Protocol):
    """Decides what the student trains on. ``ask`` comes before the updates, ``tell`` after them."""

    @property
    def watches(self) -> Sequence[Measure]:
        """What must be measured for the next ``tell``; before the first ``ask``, everything that ever will be."""
        ...

    def ask(self, step: int) -> Decision: ...

    def tell(self, observation: Observation) -> Mapping[Arm, float] | None:
        """Learn from an observation; returns the rewards made of it, by arm, which are recorded."""
        ...


class Student(Checkpointable, Protocol):
    """The model that learns."""

    def update(self, batches: Sequence[Batch], draw_next: Callable[[], Sequence[Batch]] = list) -> float:
        """One optimiser step over all batches together; returns the loss without smoothing, nats per token.

        ``draw_next`` is called once, while a GPU computes: the batches of the next update, or none if not known yet.
        """
        ...

    def losses(self, batches: Sequence[Batch], *, smoothed: bool = False) -> SentenceLosses:
        """Losses in evaluation mode, sentences in the order given; leaves no trace.

        ``smoothed``: with the label smoothing of training, as the released code of the paper measures.
        """
        ...


class ProbedStudent(Student, Protocol):
    """A student that offers probes more than losses. Nothing here changes training by a single bit."""

    gradient_norm: float | None
    """Of the last update, before clipping; None before the first."""

    projection: Projection | None
    """Of the last update; None if it followed no direction."""

    def losses(
        self, batches: Sequence[Batch], *, smoothed: bool = False, weights: RewardWeights = "raw"
    ) -> SentenceLosses: ...

    def keep_average(self, decay: float) -> None:
        """From now on keeps a moving average of the weights; does nothing if one is kept already."""
        ...

    def keep_recent(self) -> None:
        """From now on keeps another average, of the ``recent`` weights; does nothing if it is kept already."""
        ...

    def gradient(self, batches: Sequence[Batch], *, weights: Weights = "raw", smoothed: bool = False) -> Gradient:
        """Of the mean loss per token of all batches in evaluation mode, sentences weighted by ``Batch.weights``.

        Each of several processes computes it whole, from the same batches.
        """
        ...

    def follow(self, direction: Gradient | None, others: Sequence[Gradient] = (), memory: float = 0.0) -> None:
        """From now on every update leaves a :class:`Projection` on these directions; None: no longer.

        Each is averaged with the one before it in its place, which counts ``memory``, and keeps its own length.
        """
        ...

    def examine(
        self, batches: Sequence[Batch], *, temperatures: Sequence[float] = (), weights: Weights = "raw"
    ) -> Examined:
        """Losses, correct tokens, and losses at these softmax temperatures, in one pass."""
        ...

    def dropout_samples(
        self, batches: Sequence[Batch], *, samples: int, seed: int, weights: Weights = "raw"
    ) -> FloatArray:
        """(samples, sentences): cross-entropy of each sentence in nats, with the dropout of training."""
        ...

    def token_dropout_samples(self, batch: Batch, *, samples: int, seed: int) -> FloatArray:
        """(samples, target tokens): the same for every token of a batch."""
        ...

    def uncertainty(
        self, batches: Sequence[Batch], *, samples: int, seed: int, weights: Weights = "raw"
    ) -> Uncertainty: ...

    def source_norms(self, batches: Sequence[Batch]) -> FloatArray:
        """(sentences,): norms of the embeddings of all source tokens, summed over each sentence."""
        ...

    def embedding_norm(self) -> float:
        """Frobenius norm of the embedding matrix."""
        ...

    def weight_moments(self) -> FloatArray:
        """(matrices, 2): mean and standard deviation of the entries of every weight matrix, in order."""
        ...


class BatchStream(Checkpointable, Protocol):
    """Endless, shuffled, resumable batches of one arm."""

    def __iter__(self) -> Iterator[Batch]: ...

    def __next__(self) -> Batch: ...

    def skip(self) -> Batch:
        """As ``next``, for a process that leaves this batch to another one: sizes only, the tokens are not read."""
        ...

    def select(self, selection: Selection | None) -> None:
        """From the next batch on only the selected sentences, or all of them."""
        ...

    def emphasise(self, emphasis: Emphasis | None) -> None:
        """From the next batch on with weights of its sentences, or without; not part of the state."""
        ...

    def score(self, scoring: Scoring | None) -> None:
        """From the next batch on only the best of more candidates, or all; not part of the state."""
        ...

    def mix(self, shares: Mapping[Arm, float]) -> None:
        """From the next batch on other shares; for streams of a mixture of sentences."""
        ...
