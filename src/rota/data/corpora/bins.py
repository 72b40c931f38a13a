"""A text divided into parts by what can be seen in it: the length of its sentences, or how rare their words are.

Kumar et al. (2019) let a teacher choose among such bins; theirs are of noise scores, which come as a column of a file.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cache
from typing import Literal

from rota.data.corpora.parallel import Pair, ParallelText

Difficulty = Literal["length", "rarity"]
"""Words of the target; or how rare the words of the source are in this text: minus the mean log of their frequency."""

Score = Callable[[Pair], float]


def score_of(text: ParallelText, by: Difficulty) -> Score:
    """The number by which a pair of the text is put into a bin; rarity reads the text once to count its words."""
    if by == "length":
        return lambda pair: float(len(pair[1].split()))
    counts = Counter(word for source, _ in text.read() for word in source.split())
    total = counts.total()

    def rarity(pair: Pair) -> float:
        words = pair[0].split()
        return math.fsum(math.log(total / counts[word]) for word in words) / max(1, len(words))

    return rarity


def equal_edges(numbers: Sequence[float], count: int) -> list[float]:
    """The numbers at which they are divided into ``count`` parts of equal size; equal numbers stay together."""
    ranked = sorted(numbers)
    return [ranked[min(len(ranked) - 1, round(len(ranked) * part / count))] for part in range(1, count)]


def empty_part(origin: str, part: str, same: str, edges: Sequence[float]) -> str:
    """The message that a part has no pairs; bins are equal unless many pairs have ``same``, such as the same length."""
    why = "change edges" if edges else f"many have {same}: use fewer bins"
    return f"{origin}: no pair is in part {part!r} of split_by; {why}"


def split_text(text: ParallelText, by: Difficulty, edges: Sequence[float], parts: Sequence[str]) -> list[ParallelText]:
    """The parts of a text, lowest numbers first; without ``edges`` they have equal sizes."""

    @cache
    def plan() -> tuple[Score, list[float]]:
        score = score_of(text, by)
        return score, list(edges) or equal_edges([score(pair) for pair in text.read()], len(parts))

    def reader(number: int) -> Callable[[], Iterator[Pair]]:
        def read() -> Iterator[Pair]:
            score, borders = plan()
            empty = True
            for pair in text.read():
                if bisect_right(borders, score(pair)) == number:
                    empty = False
                    yield pair
            if empty:
                raise ValueError(empty_part(text.origin, parts[number], f"the same {by}", edges))

        return read

    return [replace(text, origin=f"{text.origin}, part {part}", read=reader(n)) for n, part in enumerate(parts)]
