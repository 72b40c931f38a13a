"""Batches of a token budget from one language or a mixture: endless, shuffled, resumable, without a Python loop.

The budget counts real target tokens, because the student computes nothing on padding except inside attention.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

import numpy as np

from rota.data.order import WINDOW, EpochOrder, Mixing, epoch_order
from rota.data.selection import Ranks
from rota.data.store import Sentences, Store
from rota.types import Arm, Batch, Emphasis, IntArray, Mixture, Scoring, Selection, State


class LanguageStream:
    """Endless batches of one arm; every sentence once per epoch.

    The order is a function of (seed, arm, epoch), so the state is two integers. Several processes go through it
    together: each reads its own batches and skips those of the others.
    """

    _mixing: Mixing = "by-length"  # of one language there is nothing to mix

    def __init__(
        self,
        sentences: Sentences,
        arm: Arm,
        indices: IntArray,
        *,
        tokens: int,
        seed: int,
        ranks: Ranks | None = None,
    ) -> None:
        if tokens < 1:
            raise ValueError(f"a batch of {tokens} tokens is not possible; give a budget of 1 or more")
        if len(indices) == 0:
            raise ValueError(f"arm {arm!r} has no sentences; check low_resource and the languages of the corpus")
        self.arm = arm
        self._sentences = sentences
        self._indices = indices
        self._tokens = tokens
        self._seed = seed
        self._ranks = ranks or Ranks(sentences)
        self._selection: Selection | None = None
        self._selected = 0  # sentences
        self._emphasis: Emphasis | None = None
        self._scoring: Scoring | None = None
        self._epoch = 0
        self._position = 0  # in batches of the epoch
        self._offset = 0  # sentences of the batch at that position that have been used
        self._order: EpochOrder | None = None

    def __iter__(self) -> Iterator[Batch]:
        return self

    def __next__(self) -> Batch:
        indices = self._advance()
        batch = self._sentences.batch(self.arm, indices)
        if self._emphasis is None:
            return batch
        return replace(batch, weights=self._ranks.weights(self._emphasis, indices))

    def skip(self) -> Batch:
        """As ``next``, but the batch has sizes only: its tokens are not read."""
        return self._sentences.outline(self.arm, self._advance())

    def select(self, selection: Selection | None) -> None:
        """From now on only the easiest sentences of each language, or all of them again.

        The order stays the same, and what is not selected is passed over: the share may change at any time.
        """
        if selection is not None and not 0 < selection.share <= 1:
            raise ValueError(f"a selection of {selection.share} of the sentences; the share must be above 0, at most 1")
        selection = None if selection is None or selection.share == 1 else selection
        self._selected = 0 if selection is None else self._count(selection)
        self._selection = selection

    def mix(self, shares: Mapping[Arm, float]) -> None:
        """A stream of one arm has no shares."""
        raise ValueError(f"{self.arm!r} is not a mixture, so it cannot be given the shares {dict(shares)}")

    def emphasise(self, emphasis: Emphasis | None) -> None:
        """From now on batches have weights of their sentences, or none; the caller says so at each draw."""
        self._emphasis = emphasis

    def score(self, scoring: Scoring | None) -> None:
        """From now on only the best of more candidates, or all; the caller says so at each draw."""
        if scoring is not None and not 0 < scoring.share <= 1:
            raise ValueError(f"a scoring keeps {scoring.share} of the candidates; the share must be above 0, at most 1")
        self._scoring = scoring

    def _count(self, selection: Selection) -> int:
        """Selected sentences of this arm."""
        whole = self._whole_languages()
        if whole is None:
            count = len(self._ranks.selected(selection, self._indices))
        else:  # the same without looking at every sentence: the share may change with every decision
            count = sum(self._ranks.count(selection, language) for language in whole)
        if not count:
            raise ValueError(f"no sentence of {self.arm!r} is among the easiest {selection.share} by {selection.by}")
        return count

    def _whole_languages(self) -> Iterable[Arm] | None:
        """The languages of this arm, if it has all their sentences."""
        return (self.arm,) if self.arm in self._sentences.ranges else None

    def _advance(self) -> IntArray:
        """Sentence indices of the next batch."""
        if self._scoring is not None:
            return self._choose(self._scoring)
        if self._selection is not None:
            return self._gather(self._selection)
        batch = self._rest_of_batch()
        self._position, self._offset = self._position + 1, 0
        return batch

    def _rest_of_batch(self) -> IntArray:
        """What is not used yet of the batch at the present position; a new epoch begins where there is none."""
        if self._position == len(self._current_order()):
            self._next_epoch()
        return self.sentences_at(self._position)[self._offset :]

    def _gather(self, selection: Selection) -> IntArray:
        """The next selected sentences that fill the budget, or as many as there are."""
        parts: list[IntArray] = []
        tokens, missing = 0, self._selected
        while tokens < self._tokens and missing > 0:
            batch = self._rest_of_batch()
            selected = self._ranks.selected(selection, batch)
            lengths = self._sentences.target.lengths(batch[selected])
            ends = tokens + np.cumsum(lengths)
            # Up to the last sentence whose middle is within the budget, and at least one.
            fitting = min(missing, max(int(np.searchsorted(2 * ends - lengths, 2 * self._tokens)), tokens == 0))
            parts.append(batch[selected[:fitting]])
            missing -= len(parts[-1])
            if fitting < len(selected):
                self._offset += int(selected[fitting])
                break
            tokens = int(ends[-1]) if len(ends) else tokens
            self._position, self._offset = self._position + 1, 0
        return np.concatenate(parts)

    def _choose(self, scoring: Scoring) -> IntArray:
        """The best of the next sentences: as many as fill the budget, in the order in which they came.

        Candidates fill 1 / share budgets, or are one epoch; those that are not chosen wait for the next one.
        """
        parts: list[IntArray] = []
        tokens = 0
        for _ in range(len(self._current_order())):
            parts.append(self._rest_of_batch())
            self._position, self._offset = self._position + 1, 0
            tokens += int(self._sentences.target.lengths(parts[-1]).sum())
            if tokens * scoring.share >= self._tokens:
                break
        candidates = np.concatenate(parts)
        best = np.argsort(-self._ranks.scores(scoring, candidates), kind="stable")
        lengths = self._sentences.target.lengths(candidates[best])
        middles = 2 * np.cumsum(lengths) - lengths
        count = max(1, int(np.searchsorted(middles, 2 * min(self._tokens, scoring.share * tokens))))
        return candidates[np.sort(best[:count])]

    @property
    def batches_per_epoch(self) -> int:
        """Of the present epoch; others may differ where single sentences exceed the budget."""
        return len(self._current_order())

    def sentences_at(self, position: int) -> IntArray:
        """Sentence indices of the batch at this position of the present epoch."""
        return self._current_order().batch(position)

    def state_dict(self) -> State:
        state: State = {"arm": self.arm, "tokens": self._tokens, "epoch": self._epoch, "position": self._position}
        if self._offset:
            state["offset"] = self._offset
        if self._selection is not None:
            state["selection"] = self._selection.state()
        return state

    def load_state_dict(self, state: State) -> None:
        for name, mine in (("arm", self.arm), ("tokens", self._tokens)):
            if state[name] != mine:
                raise ValueError(f"the checkpoint has a stream with {name} {state[name]!r}, this run has {mine!r}")
        self._epoch, self._position, self._order = int(state["epoch"]), int(state["position"]), None
        self._offset = int(state.get("offset", 0))
        self.select(Selection(**state["selection"]) if "selection" in state else None)

    def _next_epoch(self) -> None:
        self._epoch, self._position, self._offset, self._order = self._epoch + 1, 0, 0, None

    def _current_order(self) -> EpochOrder:
        if self._order is None:
            # crc32, not hash(): Python's differs between processes.
            rng = np.random.default_rng([self._seed, zlib.crc32(self.arm.encode()), self._epoch])
            self._order = epoch_order(self._sentences, self._draw(rng), self._tokens, rng, self._mixing)
        return self._order

    def _draw(self, rng: np.random.Generator) -> IntArray:  # noqa: ARG002 (a mixture needs it)
        """The sentences of the present epoch."""
        return self._indices


class MixtureStream(LanguageStream):
    """Endless batches whose sentences come from several languages with given shares.

    In proportion to the corpus, every sentence comes once per epoch, as with one language. With other shares an "epoch"
    is a pool of a few batches: the right number of sentences of each language, the next ones of its own endless order.
    """

    def __init__(
        self,
        sentences: Sentences,
        arm: Arm,
        shares: Mapping[Arm, float],
        *,
        tokens: int,
        seed: int,
        ranks: Ranks | None = None,
        mixing: Mixing = "even",
    ) -> None:
        self._given: Mapping[Arm, float] | None = shares
        self._shares = _normalised(sentences, shares)
        indices = _indices(sentences, self._shares)
        super().__init__(sentences, arm, indices, tokens=tokens, seed=seed, ranks=ranks)
        self._mixing = mixing
        key = (seed, zlib.crc32(arm.encode()))
        self._languages = {name: _Endless(name, extent, key) for name, extent in sentences.ranges.items()}
        self._before: State = {}  # of the languages, when the present pool was not drawn yet

    def mix(self, shares: Mapping[Arm, float]) -> None:
        """Other shares from the next batch on; the sentences that a pool has left are the first of the next one.

        An epoch in proportion to the corpus ends without the rest of its sentences.
        """
        if shares == self._given:
            return
        self._given = shares
        shares = _normalised(self._sentences, shares)
        if shares == self._shares:
            return
        if not self._proportional:
            order = self._current_order()
            batches = [order.batch(position) for position in range(self._position, len(order))]
            left = np.concatenate([*batches, np.arange(0)])[self._offset :]
            for language in self._languages.values():
                language.put_back(left)
        self._next_epoch()
        self._set_shares(shares)

    def _set_shares(self, shares: Mapping[Arm, float]) -> None:
        self._shares = {name: shares[name] for name in self._languages if name in shares}
        self._indices = _indices(self._sentences, self._shares)
        self.select(self._selection)

    def _whole_languages(self) -> Iterable[Arm]:
        return self._shares

    @property
    def _proportional(self) -> bool:
        return self._shares == _proportions(self._sentences, self._shares)

    def state_dict(self) -> State:
        languages = self._language_states() if self._order is None or self._proportional else self._before
        return super().state_dict() | {"shares": dict(self._shares), "languages": languages}

    def load_state_dict(self, state: State) -> None:
        """Earlier versions did not write shares in proportion to the corpus: a new stream has them from its mixture."""
        self._given = None
        self._set_shares(state.get("shares", self._shares))
        super().load_state_dict(state)
        for name, language in self._languages.items():
            language.load_state_dict(state.get("languages", {}).get(name, {}))

    def _language_states(self) -> State:
        """Of those that a pool has taken sentences from."""
        return {name: state for name, language in self._languages.items() if (state := language.state_dict())}

    def _draw(self, rng: np.random.Generator) -> IntArray:
        if self._proportional:
            return self._indices
        self._before = self._language_states()
        # One random number rounds all counts: on average they are exact, and each is off by less than one.
        bounds = np.cumsum([0, *self._shares.values()])
        bounds[-1] = 1
        counts = np.diff(np.floor(bounds * self._pool_size() + rng.random())).astype(np.int64).tolist()
        return np.concatenate([self._languages[name].take(n) for name, n in zip(self._shares, counts, strict=True)])

    def _pool_size(self) -> int:
        """Sentences for a window of batches; fewer if a language would repeat its own, but enough for one batch.

        Repeated sentences have the same length, so that both would be in one batch.
        """
        tokens = self._sentences.target.offsets
        length, most = 0.0, np.inf
        for name, share in self._shares.items():
            start, stop = self._sentences.ranges[name]
            length += share * int(tokens[stop] - tokens[start]) / (stop - start)
            most = min(most, (stop - start) / share)
        batch = self._tokens / length
        return int(np.ceil(max(batch, min(WINDOW * batch, most))))


class _Endless:
    """The sentences of one language in shuffled order, epoch after epoch; a mixture takes some at a time."""

    def __init__(self, name: Arm, extent: tuple[int, int], key: tuple[int, int]) -> None:
        self._extent = extent
        self._key = (*key, zlib.crc32(name.encode()))
        self._epoch = 0
        self._position = 0
        self._returned: IntArray = np.arange(0)
        self._order: IntArray | None = None

    def take(self, count: int) -> IntArray:
        parts = [self._returned[:count]]
        self._returned = self._returned[count:]
        missing = count - len(parts[0])
        while missing:
            part = self._current_order()[self._position : self._position + missing]
            parts.append(part)
            missing -= len(part)
            self._position += len(part)
            if missing:
                self._epoch, self._position, self._order = self._epoch + 1, 0, None
        return np.concatenate(parts)

    def put_back(self, indices: IntArray) -> None:
        """Of these sentences, the ones of this language: they come before all others."""
        own = indices[(indices >= self._extent[0]) & (indices < self._extent[1])]
        self._returned = np.concatenate([own, self._returned])

    def state_dict(self) -> State:
        """Empty if nothing was taken yet."""
        state: State = {"epoch": self._epoch, "position": self._position} if self._epoch or self._position else {}
        return state | ({"returned": self._returned} if len(self._returned) else {})

    def load_state_dict(self, state: State) -> None:
        self._epoch, self._position = int(state.get("epoch", 0)), int(state.get("position", 0))
        self._returned = state.get("returned", np.arange(0))
        self._order = None

    def _current_order(self) -> IntArray:
        if self._order is None:
            rng = np.random.default_rng([*self._key, self._epoch])
            self._order = rng.permutation(np.arange(*self._extent, dtype=_index_type(self._extent[1])))
        return self._order


def make_stream(
    store: Store,
    arm: Arm,
    tokens: int,
    seed: int,
    *,
    mixture: Mixture | None = None,
    ranks: Ranks | None = None,
    mixing: Mixing = "even",
) -> LanguageStream:
    """Training batches of an arm, or of a ``mixture`` of sentences, of which ``arm`` is then the name.

    ``ranks`` may serve several streams.
    """
    sentences = store.split("train")
    if mixture is None:
        if arm not in store.arms:
            raise ValueError(f"unknown arm {arm!r}; the data have {', '.join(store.arms)}")
        return LanguageStream(sentences, arm, _indices(sentences, (arm,)), tokens=tokens, seed=seed, ranks=ranks)
    assert mixture.unit == "sentence", "batches of several arms come from the streams of those arms"
    if arm in store.arms:
        raise ValueError(f"a mixture cannot be named {arm!r}, which is an arm; give it another name")
    return MixtureStream(sentences, arm, mixture.shares, tokens=tokens, seed=seed, ranks=ranks, mixing=mixing)


def _proportions(sentences: Sentences, languages: Iterable[Arm]) -> dict[Arm, float]:
    """The shares of these languages in the corpus."""
    wanted = set(languages)
    sizes = {name: stop - start for name, (start, stop) in sentences.ranges.items() if name in wanted}
    total = sum(sizes.values())
    return {name: size / total for name, size in sizes.items()}


def _normalised(sentences: Sentences, shares: Mapping[Arm, float]) -> dict[Arm, float]:
    """In the order of the corpus, with sum 1 and without zeros; those in proportion to the corpus are exactly so."""
    for name, share in shares.items():
        sentences.range(name)
        if not 0 <= share < np.inf:
            raise ValueError(f"the share of {name!r} in a mixture is {share}; it must be 0 or more")
    total = sum(shares.values())
    given = {name: shares[name] / total for name in sentences.ranges if shares.get(name, 0) > 0}
    exact = _proportions(sentences, given)
    return exact if np.allclose([given[name] - exact[name] for name in exact], 0, atol=1e-9) else given


def _indices(sentences: Sentences, languages: Iterable[Arm]) -> IntArray:
    """All sentences of these languages."""
    kind = _index_type(len(sentences))
    ranges = [np.arange(*sentences.range(language), dtype=kind) for language in languages]
    return np.concatenate(ranges) if ranges else np.arange(0)


def _index_type(sentences: int) -> type[np.int32] | type[np.int64]:
    """Half the memory of an epoch of 20 million sentences."""
    return np.int32 if sentences < 2**31 - 1 else np.int64
