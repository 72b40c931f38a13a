"""Texts that are nearly the same as one of a given set, found exactly and without comparing every two.

The measure is Jaccard's: words in both, divided by words in either. Two sets that reach the threshold must share one of
their rarest words; so each text is compared only with those that contain one of its own rarest words (the prefix filter
of Chaudhuri et al. 2006). No hash decides: every candidate is checked.
"""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import Final

_WORD = re.compile(r"\w+")
_ROUNDING: Final = 1e-9  # 0.7 * 30 is 21.000000000000004 or so


def words_of(text: str) -> list[str]:
    """The words of a text, ignoring case and punctuation."""
    return _WORD.findall(text.casefold())


class NearDuplicates:
    """``words in NearDuplicates(texts)``: whether the words are nearly those of one of the texts."""

    def __init__(self, texts: Iterable[Iterable[str]], threshold: float = 0.7) -> None:
        if not 0 < threshold <= 1:
            raise ValueError(f"the threshold is {threshold}; it must be above 0 and at most 1")
        self._threshold = threshold
        self._texts = [words for words in dict.fromkeys(map(frozenset, texts)) if words]
        self._rarity = Counter(word for words in self._texts for word in words)
        self._index: dict[str, list[int]] = defaultdict(list)
        for number, words in enumerate(self._texts):
            for word in self._rarest(words):
                self._index[word].append(number)

    def __contains__(self, words: Iterable[str]) -> bool:
        found = frozenset(words)
        candidates = {number for word in self._rarest(found) for number in self._index.get(word, ())}
        return any(self._alike(found, self._texts[number]) for number in candidates)

    def _rarest(self, words: frozenset[str]) -> list[str]:
        """As many of the rarest words as two texts above the threshold cannot all lack."""
        needed = math.ceil(self._threshold * len(words) - _ROUNDING)
        order = sorted(words, key=lambda word: (self._rarity[word], word))
        return order[: len(words) - needed + 1]

    def _alike(self, one: frozenset[str], other: frozenset[str]) -> bool:
        shorter, longer = sorted((len(one), len(other)))
        if shorter < self._threshold * longer - _ROUNDING:
            return False
        common = len(one & other)
        return common >= self._threshold * (shorter + longer - common) - _ROUNDING
