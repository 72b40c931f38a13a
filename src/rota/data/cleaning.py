"""What is dropped before training, and how much of it for which reason."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Set
from itertools import islice
from typing import Annotated, Final

from pydantic import Field

from rota.data.corpus import Pair, Split
from rota.data.digests import DigestSet, digest, digests_of
from rota.settings import Count, Settings
from rota.types import Arm

KEPT: Final = "kept"
EMPTY: Final = "empty side"
TOO_LONG: Final = "too long"
RATIO: Final = "length ratio"
DUPLICATE: Final = "duplicate pair"
LEAK: Final = "English in dev or test"
REASONS: Final = (EMPTY, TOO_LONG, RATIO, DUPLICATE, LEAK)

CHUNK: Final = 10_000  # pairs cleaned or encoded at once: some 30 MB of Python lists

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
    """Cleans text as it streams by. All dev and test sets must have passed before the first training text.

    ``guard`` is what cleaners of other dev and test sets have collected under that name. It is not copied: every
    training text has a cleaner of its own, and with as many dev sets the copies would be the square of the languages.
    """

    def __init__(self, config: CleaningConfig, guard: Set[bytes] = frozenset()) -> None:
        self._config = config
        self._others = guard
        self.guard: set[bytes] = set()  # digests of the English of this cleaner's own dev and test sets
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
                self.guard.add(digest(" ".join(words)))
            counts[KEPT] += 1
            yield source, english

    def clean_train(self, arm: Arm, pairs: Iterable[Pair]) -> Iterator[Pair]:
        """The training pairs worth keeping, in order; every pair is counted once, for the first reason that holds."""
        counts = self._start(arm, "train", REASONS)
        seen = DigestSet()
        for chunk in chunks(pairs):
            for pair, reason in zip(chunk, self._reasons(chunk, seen), strict=True):
                counts[reason] += 1
                if reason is KEPT:
                    yield pair

    def _start(self, arm: Arm, split: Split, reasons: tuple[str, ...]) -> dict[str, int]:
        counts = dict.fromkeys((KEPT, *reasons), 0)
        self._counts.setdefault(arm, {})[split] = counts
        return counts

    def _reasons(self, chunk: list[Pair], seen: DigestSet) -> list[str]:
        """For each pair why it is dropped, or that it is kept."""
        reasons = [self._unfit(*pair) for pair in chunk]
        fit = [place for place, reason in enumerate(reasons) if reason is KEPT]
        if self._config.drop_duplicates:
            new = seen.add(digests_of("\t".join(chunk[place]) for place in fit))
            for place in (place for place, is_new in zip(fit, new, strict=True) if not is_new):
                reasons[place] = DUPLICATE
        for place in fit:
            if reasons[place] is KEPT and self._leaks(chunk[place][1]):
                reasons[place] = LEAK
        return reasons

    def _unfit(self, source: str, english: str) -> str:
        """The reason that lies in the pair alone."""
        if not source or not english:
            return EMPTY
        shorter, longer = sorted((len(source), len(english)))
        if longer > self._config.max_characters or self._too_many_words(source, english):
            return TOO_LONG
        return RATIO if longer > _RATIO_MATTERS_ABOVE and longer > self._config.max_ratio * shorter else KEPT

    def _too_many_words(self, source: str, english: str) -> bool:
        limit = self._config.max_words
        # Counting spaces is cheap and never less than words - 1.
        return any(text.count(" ") >= limit and len(text.split()) > limit for text in (source, english))

    def _leaks(self, english: str) -> bool:
        found = digest(" ".join(english.casefold().split()))
        return found in self._others or found in self.guard


def chunks(pairs: Iterable[Pair], size: int = CHUNK) -> Iterator[list[Pair]]:
    """The pairs in lists of ``size``, the last one shorter."""
    iterator = iter(pairs)
    while chunk := list(islice(iterator, size)):
        yield chunk
