"""The words that every part of Rota shares: arms, batches, decisions, observations. No torch here."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Flag, auto
from typing import Any, Final, Literal, NamedTuple, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

Arm = str
"""What a teacher chooses: a language code such as ``"az"``, or a mixture such as ``"mixed"``."""

MIXED: Final[Arm] = "mixed"
"""Batches whose sentences come from all languages, in proportion to the corpus."""

MIXED_HIGH_RESOURCE: Final[Arm] = "mixed-high-resource"
"""The same over the high-resource languages alone: the warm-up of the shuffled baseline."""

State = dict[str, Any]
"""A tree of dictionaries and lists with numbers, strings, booleans, ``None``, numpy arrays or tensors as leaves."""

IntArray = npt.NDArray[np.integer[Any]]
FloatArray = npt.NDArray[np.floating[Any]]


@runtime_checkable
class Checkpointable(Protocol):
    """Whatever remembers, can be saved."""

    def state_dict(self) -> State: ...

    def load_state_dict(self, state: State) -> None: ...


class Watch(Flag):
    """What must be measured before ``tell``; a teacher names it, the probe measures nothing else."""

    NOTHING = 0
    TRAIN_LOSS = auto()  # mean training loss of the updates since the last observation
    DEV_LOSS = auto()  # loss on the fixed dev batch of each arm that was played
    JOINT_LOSS = auto()  # loss on the fixed multilingual dev batch
    PROTOTYPE = auto()  # losses of the prototype groups, the state of the DQN teacher


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

    @property
    def sentences(self) -> int:
        return len(self.target_lengths)

    @property
    def tokens(self) -> int:
        """Real target tokens, ends of sentences included: the unit of every budget."""
        return len(self.target)


class SentenceLosses(NamedTuple):
    """Cross-entropy of each sentence in nats, summed over its target tokens, and how many those are."""

    sums: FloatArray
    tokens: IntArray

    @property
    def per_token(self) -> float:
        """Mean over all tokens, in nats."""
        return float(self.sums.sum() / self.tokens.sum())


class Mixture(NamedTuple):
    """Shares of several arms, which need not sum to one: of the batches of an update, or of its sentences."""

    shares: Mapping[Arm, float]
    unit: Literal["batch", "sentence"] = "batch"


class Selection(NamedTuple):
    """The easiest ``share`` of the sentences of an arm, in the order of the column ``by`` of the store."""

    by: str
    share: float


@dataclass(frozen=True, slots=True)
class Decision:
    """One choice of a teacher, with what is needed to explain it afterwards."""

    arm: Arm
    why: str  # "sampled", "warmup", "first visit", "explore", "exploit", ...
    probability: float | None = None  # with which the arm was chosen, where the teacher knows it
    scores: Mapping[Arm, float] = field(default_factory=dict)  # Q values, weights, ...; empty if it has none
    epsilon: float | None = None  # probability of a random choice, where the teacher explores so


@dataclass(frozen=True, slots=True)
class Observation:
    """What the teacher is told of the student. Losses are nats per token, ``None`` where not watched."""

    step: int
    decision: Decision
    played: Mapping[Arm, int]  # updates per arm since the last ``tell``
    train_loss: float | None = None
    dev_loss: Mapping[Arm, float] | None = None
    joint_loss: float | None = None
    prototype: FloatArray | None = None


class Teacher(Checkpointable, Protocol):
    """Chooses whose turn it is. ``ask`` comes before the updates, ``tell`` after them."""

    @property
    def watches(self) -> Watch: ...

    def ask(self, step: int) -> Decision: ...

    def tell(self, observation: Observation) -> None: ...


class Student(Checkpointable, Protocol):
    """The model that learns."""

    def update(self, batches: Sequence[Batch], draw_next: Callable[[], Sequence[Batch]] = list) -> float:
        """One optimiser step over all batches together; returns the loss without smoothing, nats per token.

        ``draw_next`` is called once, while a GPU computes: the batches of the next update, or none if nobody knows yet.
        """
        ...

    def losses(self, batches: Sequence[Batch], *, smoothed: bool = False) -> SentenceLosses:
        """Losses in evaluation mode, sentences in the order given; leaves no trace.

        ``smoothed``: with the label smoothing of training, as the released code of the paper measures.
        """
        ...


class BatchStream(Checkpointable, Protocol):
    """Endless, shuffled, resumable batches of one arm."""

    def __iter__(self) -> Iterator[Batch]: ...

    def __next__(self) -> Batch: ...

    def skip(self) -> Batch:
        """As ``next``, for a process that leaves this batch to another one: sizes only, the tokens are not read."""
        ...
