"""What is done with a unit: a text is cleaned, or a piece of cleaned text encoded, as a whole and by any process."""

from __future__ import annotations

import codecs
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import IO, Final

import numpy as np

from rota.data.cleaning import CHUNK, KEPT, Cleaner, chunks
from rota.data.corpus import Corpus, Pair
from rota.data.digests import pack, unpack
from rota.data.partial import Partial, Unit, written
from rota.data.recipe import Recipe
from rota.data.store import SUBWORDS, Side, token_type
from rota.data.subwords import Subwords
from rota.settings import ConfigError
from rota.types import Arm

GUARD: Final = "guard"

Tell = Callable[[int], None]
"""Called with the number of pairs that have just been done."""


class Workshop:
    """What a process needs to do units of one preparation; guard and subwords are read when first needed."""

    def __init__(self, recipe: Recipe, corpus: Corpus, partial: Partial, piece: int) -> None:
        self._recipe, self._corpus, self._partial = recipe, corpus, partial
        self._piece = piece  # pairs

    @cached_property
    def _guard(self) -> set[bytes]:
        return unpack((self._partial.folder / GUARD).read_bytes())

    @cached_property
    def _subwords(self) -> Subwords:
        return Subwords.load(self._partial.folder / SUBWORDS)

    def do(self, unit: Unit, tell: Tell) -> None:
        """Do the unit and leave its result in the partial folder."""
        if unit.stage == "clean":
            self._clean(unit, tell)
        else:
            self._encode(unit, tell)

    def _clean(self, unit: Unit, tell: Tell) -> None:
        text = self._corpus[unit.arm][unit.split]
        train = unit.split == "train"
        cleaner = Cleaner(self._recipe.cleaning, self._guard if train else frozenset())
        pairs = text.read()
        kept = cleaner.clean_train(unit.arm, pairs) if train else cleaner.clean_held_out(unit.arm, unit.split, pairs)
        paths = self._partial.text(unit)
        with written(*paths) as files:
            pieces = self._write_pieces(kept, files, tell)
        counts = dict(cleaner.counts[unit.arm][unit.split])
        _require_something(unit, text.origin, counts)
        guard = "" if train else pack(cleaner.guard).hex()
        self._partial.finish(unit, paths, {"pairs": counts[KEPT], "counts": counts, "pieces": pieces, GUARD: guard})

    def _write_pieces(self, pairs: Iterator[Pair], files: list[IO[bytes]], tell: Tell) -> list[list[int]]:
        """Where each piece begins in the two files, in bytes, and how many pairs it has."""
        pieces: list[list[int]] = []
        for chunk in chunks(pairs, min(CHUNK, self._piece)):
            if not pieces or pieces[-1][-1] >= self._piece:
                pieces.append([*(file.tell() for file in files), 0])
            for side, file in enumerate(files):
                file.write("".join(f"{pair[side]}\n" for pair in chunk).encode())
            pieces[-1][-1] += len(chunk)
            tell(len(chunk))
        return pieces

    def _encode(self, unit: Unit, tell: Tell) -> None:
        cleaned = self._partial.result(Unit("clean", unit.split, unit.arm))
        assert cleaned is not None, f"{unit} is not cleaned"
        *starts, pairs = cleaned["pieces"][unit.piece]
        source, target = (
            read_piece(path, start, pairs) for path, start in zip(self._partial.text(unit), starts, strict=True)
        )
        limit = self._recipe.subwords.max_subwords if unit.split == "train" else None
        encoded = []
        for chunk in chunks(zip(source, target, strict=True)):
            encoded.append(self._encode_chunk(unit.arm, chunk, limit))
            tell(len(chunk))
        path = self._partial.encoded(unit)
        sides = [Side.joined(parts) for parts in zip(*encoded, strict=True)]
        with written(path) as (file,):
            for side in sides:
                file.write(side.tokens.data)
                file.write(side.lengths.data)
        sizes = [[len(side.tokens), len(side.lengths)] for side in sides]
        self._partial.finish(unit, (path,), {"pairs": pairs, "kept": len(sides[0].lengths), "sides": sizes})

    def _encode_chunk(self, arm: Arm, chunk: list[Pair], limit: int | None) -> tuple[Side, Side]:
        sources = self._subwords.encode_sources(arm, [source for source, _ in chunk])
        targets = self._subwords.encode_targets([target for _, target in chunk])
        if limit is not None:
            fitting = [pair for pair in zip(sources, targets, strict=True) if fits(*pair, limit)]
            sources, targets = [source for source, _ in fitting], [target for _, target in fitting]
        return Side.of(sources, self._subwords.vocabulary), Side.of(targets, self._subwords.vocabulary)


def read_encoded(path: Path, sides: list[list[int]], vocabulary: int) -> list[Side]:
    """Source and target of an encoded piece, whose ``sides`` have so many tokens and sentences."""
    with path.open("rb") as file:
        return [
            Side(
                np.fromfile(file, dtype=token_type(vocabulary), count=tokens),
                np.fromfile(file, dtype=np.int32, count=sentences),
            )
            for tokens, sentences in sides
        ]


def read_piece(path: Path, start: int, count: int) -> Iterator[str]:
    """So many lines of our own text from a byte on; as everywhere, a file does not begin with a byte order mark."""
    with path.open("rb") as file:
        file.seek(start) if start else skip_mark(file)
        for line in islice(file, count):
            yield line.decode().removesuffix("\n")


def skip_mark(file: IO[bytes]) -> None:
    """Go to the first character of the text, behind a byte order mark if there is one."""
    if file.read(len(codecs.BOM_UTF8)) != codecs.BOM_UTF8:
        file.seek(0)


def fits(source: Sequence[int], target: Sequence[int], limit: int) -> bool:
    """Whether neither side has more subwords than the limit; the tag and the ends of sentences do not count."""
    return len(source) - 2 <= limit and len(target) - 1 <= limit


def _require_something(unit: Unit, origin: str, counts: Mapping[str, int]) -> None:
    if counts[KEPT]:
        return
    dropped = ", ".join(f"{count} {reason}" for reason, count in counts.items() if count) or "there was none"
    what = f"cleaning left nothing of {unit.split} for {unit.arm!r} ({dropped})"
    raise ConfigError(f"{origin}: {what}; check the text or the limits in data.cleaning, or remove the language")
