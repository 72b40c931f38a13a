"""What is dropped before training, and how much of it for which reason."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from hashlib import blake2b
from typing import Annotated, Final

from pydantic import Field

from rota.data.corpus import Pair, Split
from rota.settings import Count, Settings
from rota.types import Arm

KEPT: Final = "kept"
EMPTY: Final = "empty side"
TOO_LONG: Final = "too long"
RATIO: Final = "length ratio"
DUPLICATE: Final = "duplicate pair"
LEAK: Final = "English in dev or test"
REASONS: Final = (EMPTY, TOO_LONG, RATIO, DUPLICATE, LEAK)

# Below this a ratio says nothing: "Yes." against "Ja, das stimmt." is a fine pair.
_RATIO_MATTERS_ABOVE: Final = 20


class CleaningConfig(Settings):
    """Limits for training pairs; dev and test sets lose nothing but pairs with an empty side."""

    max_words: Annotated[Count, Field(ge=1)] = 100  # separated by spaces, either side
    max_characters: Annotated[Count, Field(ge=1)] = 600  # for scripts that write no spaces
    max_ratio: Annotated[float, Field(ge=1)] = 3.0  # longer to shorter side in characters; raise it for Chinese
    drop_duplicates: bool = True  # of whole pairs within a language
    leak_words: Annotated[Count, Field(ge=1)] = 5  # dev and test sentences of fewer words may recur in training


class Cleaner:
    """Cleans text as it streams by. All dev and test sets must have passed before the first training text."""

    def __init__(self, config: CleaningConfig) -> None:
        self._config = config
        self._guard: set[bytes] = set()
        self._counts: dict[Arm, dict[Split, dict[str, int]]] = {}

    @property
    def counts(self) -> Mapping[Arm, Mapping[Split, Mapping[str, int]]]:
        """How many pairs of each language and split were kept, or dropped for which reason."""
        return self._counts

    def clean_held_out(self, arm: Arm, split: Split, pairs: Iterable[Pair]) -> Iterator[Pair]:
        """Pairs of a dev or test set without those that lack a side; their English is guarded from now on."""
        counts = self._start(arm, split, (EMPTY,))
        for source, english in pairs:
            if not source or not english:
                counts[EMPTY] += 1
                continue
            if len(words := english.casefold().split()) >= self._config.leak_words:
                self._guard.add(_digest(" ".join(words)))
            counts[KEPT] += 1
            yield source, english

    def clean_train(self, arm: Arm, pairs: Iterable[Pair]) -> Iterator[Pair]:
        """The training pairs worth keeping, in order; every pair is counted once, for the first reason that holds."""
        counts = self._start(arm, "train", REASONS)
        seen: set[bytes] = set()
        for pair in pairs:
            reason = self._reason(*pair, seen)
            counts[reason] += 1
            if reason is KEPT:
                yield pair

    def _start(self, arm: Arm, split: Split, reasons: tuple[str, ...]) -> dict[str, int]:
        counts = dict.fromkeys((KEPT, *reasons), 0)
        self._counts.setdefault(arm, {})[split] = counts
        return counts

    def _reason(self, source: str, english: str, seen: set[bytes]) -> str:
        if not source or not english:
            return EMPTY
        shorter, longer = sorted((len(source), len(english)))
        if longer > self._config.max_characters or self._too_many_words(source, english):
            return TOO_LONG
        if longer > _RATIO_MATTERS_ABOVE and longer > self._config.max_ratio * shorter:
            return RATIO
        if self._config.drop_duplicates and _is_known(_digest(f"{source}\t{english}"), seen):
            return DUPLICATE
        return LEAK if self._leaks(english) else KEPT

    def _too_many_words(self, source: str, english: str) -> bool:
        limit = self._config.max_words
        # Counting spaces is cheap and never less than words - 1.
        return any(text.count(" ") >= limit and len(text.split()) > limit for text in (source, english))

    def _leaks(self, english: str) -> bool:
        return _digest(" ".join(english.casefold().split())) in self._guard


def _digest(text: str) -> bytes:
    """Eight bytes stand for the sentence: 20 million pairs collide with probability 1e-5."""
    return blake2b(text.encode(), digest_size=8).digest()


def _is_known(digest: bytes, seen: set[bytes]) -> bool:
    if digest in seen:
        return True
    seen.add(digest)
    return False
