"""What is dropped before training, and how much of it for which reason."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Set
from itertools import compress, islice
from typing import Annotated, Final

from pydantic import Field

from rota.data.corpora.parallel import Pair
from rota.data.preparation.digests import DigestSet, digest, digests_of
from rota.settings import Count, Settings

KEPT: Final = "kept"
EMPTY: Final = "empty side"
TOO_LONG: Final = "too long"
RATIO: Final = "length ratio"
DUPLICATE: Final = "duplicate pair"
LEAK: Final = "English in dev or test"
LEAK_EITHER: Final = "a side in dev or test"  # of several directions
REASONS: Final = (EMPTY, TOO_LONG, RATIO, DUPLICATE)

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
    """Cleans one text as it is read, and counts how many pairs are kept, or dropped for which reason.

    ``guard`` has the ``held_out`` English of all dev and test sets. It is not copied: every training text has a cleaner
    of its own, and with as many dev sets the copies would take quadratic time. ``either_side``: for several directions,
    the source text is held out too, and a training pair leaks if either side does.
    """

    def __init__(self, config: CleaningConfig, guard: Set[bytes] = frozenset(), *, either_side: bool = False) -> None:
        self._config = config
        self._guard, self._either_side = guard, either_side
        self._leak = LEAK_EITHER if either_side else LEAK
        self.held_out: set[bytes] = set()  # digests of the English of a dev or test set
        self.counts: dict[str, int] = {}

    def clean_held_out(self, pairs: Iterable[Pair]) -> Iterator[Pair]:
        """Pairs of a dev or test set without those that lack a side; their English is collected in ``held_out``."""
        self.counts = dict.fromkeys((KEPT, EMPTY), 0)
        for source, english in pairs:
            if not source or not english:
                self.counts[EMPTY] += 1
                continue
            for text in (source, english) if self._either_side else (english,):
                if len(words := text.casefold().split()) >= self._config.leak_words:
                    self.held_out.add(digest(" ".join(words)))
            self.counts[KEPT] += 1
            yield source, english

    def clean_train(self, pairs: Iterable[Pair]) -> Iterator[Pair]:
        """The training pairs worth keeping, in order; every pair is counted once, for the first reason that holds."""
        self.counts = dict.fromkeys((KEPT, *REASONS, self._leak), 0)
        seen = DigestSet()
        for chunk in chunks(pairs):
            for pair, reason in zip(chunk, self._reasons(chunk, seen), strict=True):
                self.counts[reason] += 1
                if reason is KEPT:
                    yield pair

    def _reasons(self, chunk: list[Pair], seen: DigestSet) -> list[str]:
        """For each pair the reason why it is dropped, or ``KEPT``."""
        reasons = [self._unfit(*pair) for pair in chunk]
        fit = [index for index, reason in enumerate(reasons) if reason is KEPT]
        if self._config.drop_duplicates:
            new = seen.add(digests_of("\t".join(chunk[index]) for index in fit))
            for index in compress(fit, (~new).tolist()):
                reasons[index] = DUPLICATE
        for index in fit:
            if reasons[index] is KEPT and self._leaks(*chunk[index]):
                reasons[index] = self._leak
        return reasons

    def _unfit(self, source: str, english: str) -> str:
        """The reason that the pair itself gives, without looking at any other."""
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

    def _leaks(self, source: str, english: str) -> bool:
        texts = (source, english) if self._either_side else (english,)
        return any(digest(" ".join(text.casefold().split())) in self._guard for text in texts)


def chunks(pairs: Iterable[Pair], size: int = CHUNK) -> Iterator[list[Pair]]:
    """The pairs in lists of ``size``, the last one shorter."""
    iterator = iter(pairs)
    while chunk := list(islice(iterator, size)):
        yield chunk
