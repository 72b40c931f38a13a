"""The batches of each update, of one arm or a mixture; those of the next update may be drawn ahead."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from rota.types import Arm, Batch, BatchStream, Decision, Mixture, Selection, State

MIXTURES = "batch mixtures"
"""The key of the generator that draws the arms of such mixtures, among the states of the streams."""


class Ahead(NamedTuple):
    """Batches that no update has had yet, and the state of everything that drawing them has moved."""

    decision: Decision
    before: State
    batches: list[Batch]


class Streams(dict[Arm, BatchStream]):
    """One stream for each arm and each named mixture of sentences, made when it is first played.

    Its state knows nothing of what is drawn ahead. ``seed`` is for mixtures of batches: which arm each batch is of.
    """

    def __init__(self, make: Callable[[Arm, Mixture | None], BatchStream], seed: int = 0) -> None:
        super().__init__()
        self._make = make
        self._rng = np.random.default_rng([seed, 1])
        self._mixed = False  # whether the generator has been used
        self._selections: dict[Arm, Selection] = {}
        self._told: set[Arm] = set()  # arms whose streams have been given weights or scores of their sentences
        self._ahead: Ahead | None = None

    def draw(self, decision: Decision, ours: Sequence[bool]) -> list[Batch]:
        """The batches of one update, in order; those that are not ours are counted but not read."""
        if self._ahead is not None:
            ahead, self._ahead = self._ahead, None
            assert ahead.decision == decision, f"batches were drawn ahead for {ahead.decision}, not for {decision}"
            return ahead.batches
        return self._draw(decision, self._arms(decision, len(ours)), ours)

    def draw_ahead(self, decision: Decision, ours: Sequence[bool]) -> list[Batch]:
        """What :meth:`draw` will give next time."""
        mixtures = {MIXTURES: self._mixture_state()}
        arms = self._arms(decision, len(ours))
        before = {arm: self._stream(arm, decision).state_dict() for arm in dict.fromkeys(arms)}
        self._ahead = Ahead(decision, before | mixtures, self._draw(decision, arms, ours))
        return self._ahead.batches

    def _draw(self, decision: Decision, arms: Sequence[Arm], ours: Sequence[bool]) -> list[Batch]:
        streams = [self._prepared(arm, decision) for arm in arms]
        batches = [next(stream) if mine else stream.skip() for stream, mine in zip(streams, ours, strict=True)]
        return batches if decision.weights is None else [_weighted(batch, decision) for batch in batches]

    def _arms(self, decision: Decision, count: int) -> list[Arm]:
        """The arm of each batch: of a mixture of batches, each is drawn."""
        mixture = decision.mixture
        if mixture is None or mixture.unit == "sentence":
            return [decision.arm] * count
        self._mixed = True
        shares = np.array(list(mixture.shares.values()), dtype=float)
        drawn = self._rng.choice(len(shares), size=count, p=shares / shares.sum())
        return [list(mixture.shares)[index] for index in drawn]

    def _stream(self, arm: Arm, decision: Decision) -> BatchStream:
        if arm not in self:
            mixture = decision.mixture
            self[arm] = self._make(arm, mixture if mixture and mixture.unit == "sentence" else None)
        return self[arm]

    def _prepared(self, arm: Arm, decision: Decision) -> BatchStream:
        """The stream with the shares and the selection of the decision."""
        stream = self._stream(arm, decision)
        if decision.emphasis is not None or decision.scoring is not None or arm in self._told:
            stream.emphasise(decision.emphasis)
            stream.score(decision.scoring)
            self._told.add(arm)
        if decision.mixture is not None and decision.mixture.unit == "sentence":
            stream.mix(decision.mixture.shares)
        if decision.selection != self._selections.get(arm):
            stream.select(decision.selection)
            if decision.selection is None:
                del self._selections[arm]
            else:
                self._selections[arm] = decision.selection
        return stream

    def _mixture_state(self) -> State | None:
        return dict(self._rng.bit_generator.state) if self._mixed else None

    def state_dict(self) -> State:
        states = {arm: stream.state_dict() for arm, stream in self.items()} | {MIXTURES: self._mixture_state()}
        if self._ahead is not None:
            states |= self._ahead.before
        return {arm: state for arm, state in states.items() if state is not None}

    def load_state_dict(self, state: State) -> None:
        self._ahead, self._selections = None, {}
        for arm, stream_state in state.items():
            if arm == MIXTURES:
                self._rng.bit_generator.state, self._mixed = stream_state, True
                continue
            shares = stream_state.get("shares")
            if arm not in self:
                self[arm] = self._make(arm, None if shares is None else Mixture(shares, "sentence"))
            self[arm].load_state_dict(stream_state)
            if "selection" in stream_state:
                self._selections[arm] = Selection(**stream_state["selection"])


def _weighted(batch: Batch, decision: Decision) -> Batch:
    """The batch with the weight of its arm for each of its sentences."""
    assert decision.weights is not None
    if decision.mixture is not None and decision.mixture.unit == "sentence":
        raise ValueError("weights of the loss need batches of one arm each; use a mixture of batches")
    weight = decision.weights.get(batch.arm, 1.0)
    if weight == 1:
        return batch
    weights = np.float32(weight) * (np.ones(batch.sentences, np.float32) if batch.weights is None else batch.weights)
    return replace(batch, weights=weights)
