"""Sentences as 64-bit numbers, and a set of them that takes about 20 bytes each, where Python's takes a hundred."""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b
from typing import Final

import numpy as np
import numpy.typing as npt

Digests = npt.NDArray[np.uint64]
BYTES: Final = 8

_FULL: Final = 0.6  # share of the slots beyond which looking for a free one takes long
_SLICE: Final = 1 << 20  # numbers moved at once when the table grows


def digest(text: str) -> bytes:
    """Eight bytes stand for the sentence: 20 million pairs collide with probability 1e-5."""
    return blake2b(text.encode(), digest_size=BYTES).digest()


def digests_of(texts: Iterable[str]) -> Digests:
    return np.frombuffer(b"".join(map(digest, texts)), dtype=np.uint64)


def pack(digests: Iterable[bytes]) -> bytes:
    """Digests of sentences as one string of bytes; ``unpack`` is the inverse."""
    return b"".join(sorted(digests))


def unpack(content: bytes) -> set[bytes]:
    return {content[start : start + BYTES] for start in range(0, len(content), BYTES)}


class DigestSet:
    """Numbers seen so far: a hash table with open addressing, looked up and filled many at a time."""

    def __init__(self) -> None:
        self._table = np.zeros(1 << 12, dtype=np.uint64)
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, digests: Digests) -> npt.NDArray[np.bool_]:
        """Adds them all; true where a number comes for the first time, here or ever."""
        # 0 marks a free slot; that it counts as 1 is one more collision among 2 ** 64.
        different, first = np.unique(np.maximum(digests, 1), return_index=True)
        self._make_room(len(different))
        added = self._insert(different)
        self._count += int(added.sum())
        new = np.zeros(len(digests), dtype=np.bool_)
        new[first[added]] = True
        return new

    def _insert(self, different: Digests) -> npt.NDArray[np.bool_]:
        """Puts each number into its slot or the next free one; true for those that were not there."""
        table, mask = self._table, np.uint64(len(self._table) - 1)
        added = np.zeros(len(different), dtype=np.bool_)
        left, slots = np.arange(len(different)), different & mask
        while len(left):
            free = table[slots] == 0
            table[slots[free]] = different[left[free]]  # of several that want the same slot, one gets it
            settled = table[slots] == different[left]
            added[left[free & settled]] = True
            left, slots = left[~settled], (slots[~settled] + np.uint64(1)) & mask
        return added

    def _make_room(self, more: int) -> None:
        slots = len(self._table)
        while self._count + more > _FULL * slots:
            slots *= 2
        if slots > len(self._table):
            before, self._table = self._table, np.zeros(slots, dtype=np.uint64)
            for start in range(0, len(before), _SLICE):
                part = before[start : start + _SLICE]
                self._insert(part[part != 0])
