"""A preparation in units, each done as a whole and by any process: clean one text, encode one piece of cleaned text.

Results are kept in the partial folder, so that an interrupted preparation resumes with the units that are missing.
"""

from __future__ import annotations

import codecs
import json
import logging
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import IO, Any, Final, Literal

import numpy as np

from rota.data.corpora.parallel import Corpus, Pair, Split
from rota.data.corpora.sources import CorpusConfig
from rota.data.preparation.cleaning import CHUNK, KEPT, Cleaner, CleaningConfig, chunks
from rota.data.preparation.digests import pack, unpack
from rota.data.preparation.line_lengths import LineLengths
from rota.data.preparation.mess import MessConfig
from rota.data.store import SUBWORDS, InputFile, Side, text_names, token_type
from rota.data.subwords import Subwords, SubwordsConfig
from rota.files import open_atomically, read_json_if_whole
from rota.settings import ConfigError, Settings, leaves
from rota.types import Arm, Route

logger = logging.getLogger(__name__)

FORMAT: Final = 2  # of the partial folder; raise it when units or their results change
GUARD: Final = "guard"
MISFIT: Final = "misfit"
_RECIPE: Final = "recipe.json"

Advance = Callable[[int], None]
"""Called with the number of pairs that have just been done."""

Result = dict[str, Any]
"""What is known of a unit that is done: counts, positions in its files, and the sizes of those."""


@dataclass(frozen=True)
class Recipe:
    """All settings that decide what a data folder will contain; the content of the input files decides the rest."""

    corpus: CorpusConfig
    cleaning: CleaningConfig
    subwords: SubwordsConfig
    seed: int  # chooses the lines the subwords are learned from
    mess: MessConfig | None = None

    def as_settings(self) -> dict[str, Any]:
        """Plain JSON values, from which ``from_settings`` makes the same recipe in another process."""
        parts: dict[str, Settings] = {"corpus": self.corpus, "cleaning": self.cleaning, "subwords": self.subwords}
        if self.mess is not None:
            parts["mess"] = self.mess
        return {name: part.model_dump(mode="json") for name, part in parts.items()} | {"seed": self.seed}

    @classmethod
    def from_settings(cls, settings: Mapping[str, Any]) -> Recipe:
        return cls(
            CorpusConfig.model_validate(settings["corpus"]),
            CleaningConfig.model_validate(settings["cleaning"]),
            SubwordsConfig.model_validate(settings["subwords"]),
            int(settings["seed"]),
            MessConfig.model_validate(settings["mess"]) if "mess" in settings else None,
        )

    def routes(self, names: Iterable[Arm]) -> dict[Arm, Route]:
        """What each arm and each dev set translates."""
        return self.corpus.routes(names)

    def change_since(self, before: Mapping[str, Any]) -> str | None:
        """The first setting that differs from those of an earlier recipe, as a config names it, with both values."""
        old, new = leaves(before), leaves(self.as_settings())
        for name in old | new:
            # Whichever mirror the text came from, its checksums are those of the release file.
            if old.get(name) != new.get(name) and name != "corpus.mirror":
                before_now = [_written(known.get(name)) for known in (old, new)]
                start = " (which student.start sets if the config does not)"
                of_start = start if name == "subwords.model" else ""
                return f"data.{name.removeprefix('corpus.')} changed from {' to '.join(before_now)}{of_start}"
        return None


def _written(value: Any) -> str:
    return "not set" if value is None else str(value)


@dataclass(frozen=True)
class Unit:
    """Something to do, and the name of its result in the partial folder."""

    stage: Literal["clean", "encode"]
    split: Split
    arm: Arm
    piece: int = 0  # of the cleaned text; to encode

    @property
    def name(self) -> str:
        return f"{self.stage}.{self.split}.{self.arm}" + (f".{self.piece}" if self.stage == "encode" else "")

    def __str__(self) -> str:
        return f"the {self.split} text of {self.arm!r}"


class Partial:
    """The folder of an unfinished preparation. A unit is done when its JSON file exists, which is written last."""

    def __init__(self, folder: Path, recipe: Recipe) -> None:
        self.folder = folder
        self._recipe = recipe

    def open(self, files: Sequence[Path]) -> dict[str, InputFile]:
        """The inputs as they were when the preparation began: now, or before an interruption.

        Earlier results count if recipe and inputs are still the same; otherwise the folder is emptied.
        """
        found = read_json_if_whole(self.folder / _RECIPE)
        if found is None:
            return self._start(files)
        change = self._change(found, files)
        if change is not None:
            logger.info("starting the interrupted preparation again: %s", change)
            return self._start(files)
        logger.info("resuming the interrupted preparation in %s", self.folder)
        for path in self.folder.rglob("*.part"):  # what a killed process left unfinished
            path.unlink(missing_ok=True)
        return _inputs(found)

    def is_own(self) -> bool:
        """Whether the folder is of this very recipe, or of none, so that no command could continue with it."""
        found = read_json_if_whole(self.folder / _RECIPE)
        return found is None or self._recipe.change_since(found["settings"]) is None

    def _change(self, found: dict[str, Any], files: Sequence[Path]) -> str | None:
        if found["format"] != FORMAT:
            return "another version of Rota began it"
        inputs = _inputs(found)
        if list(inputs) != [str(path) for path in files]:
            return "the corpus has other files"
        changed = (f"the content of {name} changed" for name, known in inputs.items() if not known.is_still(Path(name)))
        return self._recipe.change_since(found["settings"]) or next(changed, None)

    def _start(self, files: Sequence[Path]) -> dict[str, InputFile]:
        if self.folder.exists():
            shutil.rmtree(self.folder)
        self.folder.mkdir()
        inputs = {str(path): InputFile.of(path) for path in files}  # before anything of them is read
        content: dict[str, Any] = {"format": FORMAT, "settings": self._recipe.as_settings()}
        content["inputs"] = {name: known.model_dump(mode="json") for name, known in inputs.items()}
        with open_atomically(self.folder / _RECIPE) as (file,):
            file.write(json.dumps(content, ensure_ascii=False).encode())
        return inputs

    def text(self, unit: Unit) -> tuple[Path, Path]:
        """Source and target text of a unit's arm or dev set, cleaned."""
        source, target = text_names(unit.split, unit.arm, self._recipe.routes([unit.arm])[unit.arm])
        return self.folder / source, self.folder / target

    def encoded(self, unit: Unit) -> Path:
        return self.folder / "encoded" / unit.name

    def empty_folder(self, name: str) -> Path:
        folder = self.folder / name
        if folder.exists():
            shutil.rmtree(folder)
        folder.mkdir()
        return folder

    def result(self, unit: Unit) -> Result | None:
        """The result of a unit; ``None`` if it is not done, or if one of its files has another size than recorded."""
        found = read_json_if_whole(self.folder / "done" / unit.name)
        if found is None:
            return None
        files = {self.folder / name: size for name, size in found["files"].items()}
        intact = all(path.is_file() and path.stat().st_size == size for path, size in files.items())
        return found if intact else None

    def finish(self, unit: Unit, files: tuple[Path, ...], result: Result) -> None:
        sizes = {path.relative_to(self.folder).as_posix(): path.stat().st_size for path in files}
        with open_atomically(self.folder / "done" / unit.name) as (file,):
            file.write(json.dumps(result | {"files": sizes}).encode())


def _inputs(content: dict[str, Any]) -> dict[str, InputFile]:
    return {name: InputFile.model_validate(known) for name, known in content["inputs"].items()}


class Executor:
    """Does units of one preparation in this process; guard and subwords are read when first needed."""

    def __init__(self, recipe: Recipe, corpus: Corpus, partial: Partial, piece: int) -> None:
        self._recipe, self._corpus, self._partial = recipe, corpus, partial
        self._piece = piece  # pairs

    @cached_property
    def _guard(self) -> set[bytes]:
        return unpack((self._partial.folder / GUARD).read_bytes())

    @cached_property
    def _subwords(self) -> Subwords:
        return Subwords.load(self._partial.folder / SUBWORDS)

    def run(self, units: Sequence[Unit], advance: Advance) -> None:
        for unit in units:
            self.do(unit, advance)

    def do(self, unit: Unit, advance: Advance) -> None:
        """Do the unit and leave its result in the partial folder."""
        if unit.stage == "clean":
            self._clean(unit, advance)
        else:
            self._encode(unit, advance)

    def _clean(self, unit: Unit, advance: Advance) -> None:
        text = self._corpus[unit.arm][unit.split]
        train = unit.split == "train"
        several = bool(self._recipe.corpus.directions)
        cleaner = Cleaner(self._recipe.cleaning, self._guard if train else frozenset(), either_side=several)
        lengths = LineLengths()
        pairs = lengths.watch(text.read())
        kept = cleaner.clean_train(pairs) if train else cleaner.clean_held_out(pairs)
        paths = self._partial.text(unit)
        with open_atomically(*paths) as files:
            pieces = self._write_pieces(islice(kept, text.at_most), files, advance)
        _require_something(unit, text.origin, cleaner.counts)
        misfit = lengths.misfit()
        self._partial.finish(
            unit,
            paths,
            {
                "pairs": cleaner.counts[KEPT],
                "counts": cleaner.counts,
                "pieces": pieces,
                GUARD: pack(cleaner.held_out).hex(),
                MISFIT: None if misfit is None else asdict(misfit),
            },
        )

    def _write_pieces(self, pairs: Iterator[Pair], files: list[IO[bytes]], advance: Advance) -> list[list[int]]:
        """Where each piece begins in the two files, in bytes, and how many pairs it has."""
        pieces: list[list[int]] = []
        for chunk in chunks(pairs, min(CHUNK, self._piece)):
            if not pieces or pieces[-1][-1] >= self._piece:
                pieces.append([*(file.tell() for file in files), 0])
            for side, file in enumerate(files):
                file.write("".join(f"{pair[side]}\n" for pair in chunk).encode())
            pieces[-1][-1] += len(chunk)
            advance(len(chunk))
        return pieces

    def _encode(self, unit: Unit, advance: Advance) -> None:
        cleaned = self._partial.result(Unit("clean", unit.split, unit.arm))
        assert cleaned is not None, f"{unit} is not cleaned"
        *starts, pairs = cleaned["pieces"][unit.piece]
        source, target = (
            read_piece(path, start, pairs) for path, start in zip(self._partial.text(unit), starts, strict=True)
        )
        limit = self._recipe.subwords.max_subwords if unit.split == "train" else None
        encoded = []
        route = self._recipe.routes([unit.arm])[unit.arm]
        for chunk in chunks(zip(source, target, strict=True)):
            encoded.append(self._encode_chunk(route, chunk, limit))
            advance(len(chunk))
        path = self._partial.encoded(unit)
        sides = [Side.joined(parts) for parts in zip(*encoded, strict=True)]
        with open_atomically(path) as (file,):
            for side in sides:
                file.write(side.tokens.data)
                file.write(side.lengths.data)
        sizes = [[len(side.tokens), len(side.lengths)] for side in sides]
        self._partial.finish(unit, (path,), {"pairs": pairs, "kept": len(sides[0].lengths), "sides": sizes})

    def _encode_chunk(self, route: Route, chunk: list[Pair], limit: int | None) -> tuple[Side, Side]:
        sources = self._subwords.encode_sources(route.source, [source for source, _ in chunk])
        tag = route.target if self._recipe.corpus.tags_targets or self._subwords.tags_targets else None
        targets = self._subwords.encode_targets([target for _, target in chunk], tag)
        if limit is not None:
            symbols = 2 if tag else 1
            fitting = [pair for pair in zip(sources, targets, strict=True) if fits(*pair, limit, symbols)]
            sources, targets = [source for source, _ in fitting], [target for _, target in fitting]
        return Side.of(sources, self._subwords.vocabulary), Side.of(targets, self._subwords.vocabulary)


def read_encoded(path: Path, sides: list[list[int]], vocabulary: int) -> list[Side]:
    """Source and target of an encoded piece; ``sides`` gives the tokens and sentences of each."""
    with path.open("rb") as file:
        return [
            Side(
                np.fromfile(file, dtype=token_type(vocabulary), count=tokens),
                np.fromfile(file, dtype=np.int32, count=sentences),
            )
            for tokens, sentences in sides
        ]


def read_piece(path: Path, start: int, count: int) -> Iterator[str]:
    """``count`` lines of cleaned text from a byte offset on, without a byte order mark at the beginning of the file."""
    with path.open("rb") as file:
        file.seek(start) if start else skip_mark(file)
        for line in islice(file, count):
            yield line.decode().removesuffix("\n")


def skip_mark(file: IO[bytes]) -> None:
    """Go to the first character of the text, after a byte order mark if there is one."""
    if file.read(len(codecs.BOM_UTF8)) != codecs.BOM_UTF8:
        file.seek(0)


def fits(source: Sequence[int], target: Sequence[int], limit: int, symbols: int = 1) -> bool:
    """Whether neither side has more subwords than the limit; tags and ends (``symbols`` of a target) do not count."""
    return len(source) - 2 <= limit and len(target) - symbols <= limit


def _require_something(unit: Unit, origin: str, counts: Mapping[str, int]) -> None:
    if counts[KEPT]:
        return
    dropped = ", ".join(f"{count} {reason}" for reason, count in counts.items() if count) or "there was none"
    what = f"cleaning left nothing of {unit.split} for {unit.arm!r} ({dropped})"
    raise ConfigError(f"{origin}: {what}; check the text or the limits in data.cleaning, or remove the language")
