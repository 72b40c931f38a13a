"""Training data degraded on purpose, to ask whether a schedule notices: never by default, and the same for a seed.

It is done to encoded pairs, after cleaning, which would remove it again; subwords are learned from the clean text. The
languages keep their sizes, dev and test sets stay as they are.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Final, Self

import numpy as np
import numpy.typing as npt
from pydantic import Field, model_validator

from rota.data.corpora.parallel import check_known
from rota.data.preparation.line_lengths import Misfit, misfit_of
from rota.data.store import Flat, Side
from rota.settings import ConfigError, Count, Settings
from rota.types import Arm, IntArray, Route

KINDS: Final = ("misaligned", "copies", "foreign", "duplicates")
"""In the order of their numbers, from 1, in the file ``mess.kinds``; 0 is an untouched pair."""

KINDS_FILE: Final = "mess.kinds"  # a byte for each training pair, in the order of the arrays

Pairs = tuple[Side, Side]
Kinds = npt.NDArray[np.uint8]
Share = Annotated[float, Field(ge=0, le=1)]


class ArmMess(Settings):
    """Shares of a language's training pairs; no pair is degraded twice."""

    misaligned: Share = 0.0  # with the English of another misaligned pair
    copies: Share = 0.0  # with the source itself in place of the English
    foreign: Share = 0.0  # replaced by pairs of the other languages, tagged as this one
    duplicates: Share = 0.0  # replaced by copies of untouched pairs

    @model_validator(mode="after")
    def _possible(self) -> Self:
        total = sum(self.shares)
        if not 0 < total <= 1:
            raise ValueError(f"the shares add up to {total:g}; it must be above 0 and at most 1")
        return self

    @property
    def shares(self) -> tuple[float, ...]:
        return tuple(getattr(self, kind) for kind in KINDS)

    def counts(self, pairs: int) -> list[int]:
        """How many pairs of each kind, of so many."""
        ends = np.rint(np.cumsum(self.shares) * pairs).astype(int)
        return [int(count) for count in np.diff(ends, prepend=0)]


class MessConfig(Settings):
    """What is degraded in which language."""

    seed: Count = Field(1, ge=0, description="chooses the pairs; apart from the run's seed")
    arms: dict[Arm, ArmMess] = Field(min_length=1, examples=["arms: {nl: {misaligned: 0.2}}"])

    def check(self, arms: Mapping[Arm, Route]) -> None:
        """Raises if the corpus cannot be degraded in this way."""
        for arm, shares in self.arms.items():
            check_known(arm, arms, "language in data.mess.arms:")
            if shares.foreign and not foreign_to(arm, arms):
                raise ConfigError(f"data.mess.arms.{arm}.foreign: there is no other language; remove it")


def foreign_to(arm: Arm, arms: Mapping[Arm, Route]) -> list[Arm]:
    """The arms of other languages that are translated into the same one."""
    own = arms[arm]
    return [other for other, route in arms.items() if route.source != own.source and route.target == own.target]


class Mess:
    """Degrades arms, one after the other; ``read`` gives an arm's encoded training pairs, ``tag`` a language's."""

    def __init__(
        self,
        config: MessConfig,
        arms: Mapping[Arm, Route],
        read: Callable[[Arm], Pairs],
        tag: Callable[[str], int],
        *,
        tags_targets: bool = False,
    ) -> None:
        self._config, self._arms, self._tags_targets = config, arms, tags_targets
        self._read, self._tag = read, tag
        self.counts: dict[Arm, dict[str, int]] = {}
        self.misfits: dict[Arm, Misfit] = {}
        self._kinds: dict[Arm, Kinds] = {}

    def concerns(self, arm: Arm) -> bool:
        return arm in self._config.arms

    def pairs(self, arm: Arm) -> Pairs:
        """The pairs of a language with its share of mess; what is done to one language does not depend on others."""
        rng = np.random.default_rng([self._config.seed, zlib.crc32(arm.encode())])
        source, target = self._read(arm)
        pairs = len(source.lengths)
        counts = self._config.arms[arm].counts(pairs)
        _require_possible(arm, counts, pairs)
        *chosen, untouched = np.split(rng.permutation(pairs), np.cumsum(counts))
        misaligned, copies, foreign, duplicates = chosen
        nothing = _gathered(source, misaligned[:0])
        foreign_source, foreign_target = self._foreign(arm, len(foreign), rng) if len(foreign) else (nothing, nothing)
        # Which sentence of own, copied and foreign ones, in that order, each side has in each pair.
        sources, targets = np.arange(pairs), np.arange(pairs)
        targets[misaligned] = np.roll(misaligned, 1)  # their order is random: every one gets that of another
        targets[copies] = pairs + np.arange(len(copies))
        sources[foreign] = pairs + np.arange(len(foreign))
        targets[foreign] = pairs + len(copies) + np.arange(len(foreign))
        sources[duplicates] = targets[duplicates] = _drawn(untouched, len(duplicates), rng)
        self._remember(arm, pairs, chosen)
        new_source = _gathered(Side.joined([source, foreign_source]), sources)
        own_copies = self._as_target(arm, _gathered(source, copies))
        new_target = _gathered(Side.joined([target, own_copies, foreign_target]), targets)
        if misfit := misfit_of(new_source.lengths, new_target.lengths):
            self.misfits[arm] = misfit
        return new_source, new_target

    def _as_target(self, arm: Arm, source: Side) -> Side:
        return _tagged(source, self._tag(self._arms[arm].target)) if self._tags_targets else _without_tag(source)

    def _foreign(self, arm: Arm, count: int, rng: np.random.Generator) -> Pairs:
        """Pairs of the other languages, each of which is as likely as any other."""
        others, tag = foreign_to(arm, self._arms), self._tag(self._arms[arm].source)
        numbers = np.bincount(rng.integers(len(others), size=count), minlength=len(others))
        drawn: list[Pairs] = []
        for other, number in zip(others, numbers, strict=True):
            source, target = self._read(other)
            which = rng.choice(len(source.lengths), int(number), replace=number > len(source.lengths))
            drawn.append((_tagged(_gathered(source, which), tag), _gathered(target, which)))
        return Side.joined([source for source, _ in drawn]), Side.joined([target for _, target in drawn])

    def _remember(self, arm: Arm, pairs: int, chosen: Sequence[IntArray]) -> None:
        self.counts[arm] = {kind: len(which) for kind, which in zip(KINDS, chosen, strict=True) if len(which)}
        self._kinds[arm] = np.zeros(pairs, dtype=np.uint8)
        for number, which in enumerate(chosen, start=1):
            self._kinds[arm][which] = number

    def kinds(self, sizes: dict[Arm, int]) -> Kinds:
        """What was done to each training pair of all languages, by its number; ``sizes`` is in their order."""
        untouched = (np.zeros(size, dtype=np.uint8) for size in sizes.values())
        return np.concatenate([self._kinds.get(arm, none) for arm, none in zip(sizes, untouched, strict=True)])


def _require_possible(arm: Arm, counts: Sequence[int], pairs: int) -> None:
    if counts[0] == 1:
        raise ConfigError(f"data.mess.arms.{arm}.misaligned is one pair of {pairs}; two or more can be misaligned")
    if counts[-1] and sum(counts) == pairs:
        raise ConfigError(f"data.mess.arms.{arm}.duplicates: no pair is left to duplicate; lower the shares")


def _drawn(untouched: IntArray, count: int, rng: np.random.Generator) -> IntArray:
    return rng.choice(untouched, count) if count else untouched[:0]


def _gathered(side: Side, indices: IntArray) -> Side:
    """The sentences in the order given."""
    offsets = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(side.lengths, dtype=np.int64)])
    tokens, lengths = Flat(side.tokens, offsets).gather(indices)
    return Side(tokens.astype(side.tokens.dtype), lengths.astype(np.int32))


def _starts(side: Side) -> IntArray:
    starts: IntArray = np.cumsum(side.lengths, dtype=np.int64) - side.lengths
    return starts


def _without_tag(side: Side) -> Side:
    return Side(np.delete(side.tokens, _starts(side)), side.lengths - np.int32(1))


def _tagged(side: Side, tag: int) -> Side:
    tokens = side.tokens.copy()
    tokens[_starts(side)] = tag
    return Side(tokens, side.lengths)
