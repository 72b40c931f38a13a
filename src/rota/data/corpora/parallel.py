"""Parallel text, and reading it from plain files, gzip and two-column TSV: strict about bytes and alignment."""

from __future__ import annotations

import difflib
import gzip
import logging
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import chain, zip_longest
from pathlib import Path
from typing import BinaryIO, Final, Literal

from rota.types import MIXED, MIXED_HIGH_RESOURCE, Arm

logger = logging.getLogger(__name__)

Split = Literal["train", "dev", "test"]
Pair = tuple[str, str]
"""Source and English, stripped, without line breaks."""

SPLITS: Final[tuple[Split, ...]] = ("train", "dev", "test")
Patterns = str | tuple[str, ...]

NAME: Final = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9_.-]*[A-Za-z0-9])?")
"""Languages and sources: they become parts of file names."""

LONGEST_LINE: Final = 16_000_000
"""Bytes of a line; it is in memory as a whole, and cleaning drops what is far shorter."""

MOST_SWOLLEN: Final = 200
"""Bytes of text in a byte of gzip; text has three to ten, and a file made to fill a disk about a thousand."""

SURELY_SMALL: Final = 8_000_000
"""Bytes up to which it does not matter how far a file was compressed."""

BLOCK: Final = 1_000_000
"""Bytes of a gzip file that are decompressed at once, to see how large it is; one of no more is not checked."""

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_FIELD = re.compile(r"\{(.*?)\}")  # of a pattern


NAMED: Final = 10
"""Of several mistakes of the same kind; the rest is counted."""


class MissingTextError(ValueError):
    """A language has no text where the config says; ``missing`` names the files, or what else there is not."""

    def __init__(self, message: str, missing: Sequence[str]) -> None:
        super().__init__(message)
        self.missing = tuple(missing)


class MissingTexts:
    """Collects what is missing: with sixty languages, a message for each would take sixty attempts."""

    def __init__(self) -> None:
        self._errors: list[MissingTextError] = []

    @contextmanager
    def collected(self) -> Iterator[None]:
        try:
            yield
        except MissingTextError as error:
            self._errors.append(error)

    def check(self, remedy: str = "") -> None:
        """Raises if anything is missing: the first message, and the names of all the rest."""
        if self._errors:
            names = list(dict.fromkeys(name for error in self._errors for name in error.missing))
            also = f" (missing too: {some_of(names[1:])})" if len(names) > 1 else ""
            raise MissingTextError(f"{self._errors[0]}{also}{remedy}", names)


def some_of(words: Sequence[str], between: str = ", ") -> str:
    """The first ten, and how many there are besides."""
    more = f" and {len(words) - NAMED} more" if len(words) > NAMED else ""
    return f"{between.join(words[:NAMED])}{more}"


@dataclass(frozen=True)
class ParallelText:
    """One split of one language: where it comes from, and how to read it any number of times."""

    origin: str  # for messages: "text/train.az.gz + text/train.en.gz", "catalogues"
    files: tuple[Path, ...]  # if their content changes, it is another corpus; empty for generated text
    read: Callable[[], Iterator[Pair]]
    size: int = 0  # approximate, in bytes, of generated text
    at_most: int | None = None  # training pairs to use, the first ones that cleaning keeps


Corpus = Mapping[Arm, Mapping[Split, ParallelText]]
"""Languages and, where a language has several training texts, their names; each with the splits that it has.

Most have all three. Otherwise those with ``train`` are the arms, and those with ``dev`` and ``test`` are the dev sets.
"""

Needed = Mapping[Split, Sequence[Arm]]
"""The languages of which each split is needed, where the text of directions is made from that of languages."""


def having(corpus: Corpus, split: Split) -> list[Arm]:
    """What has this split: the arms of ``train``, the dev sets of ``dev``; in order."""
    return [name for name, splits in corpus.items() if split in splits]


def check_known(language: str, known: Iterable[str], what: str = "language") -> None:
    """Raises for a language that is not among ``known``, naming the nearest and all of them."""
    names = list(known)
    if language in names:
        return
    close = difflib.get_close_matches(language, names, n=1, cutoff=0.5)
    guess = f"did you mean {close[0]!r}? " if close else ""
    shown = ", ".join(names[:20]) + (" ..." if len(names) > 20 else "")
    raise ValueError(f"unknown {what} {language!r}; {guess}known: {shown}")


def check_languages(languages: Iterable[str], target: str) -> None:
    """Raises for names that the languages of a corpus cannot have, and for one that is there twice."""
    seen: set[str] = set()
    for language in languages:
        if not NAME.fullmatch(language):
            raise ValueError(f"{language!r} is not a language code; use letters, digits, '-', '_' or '.'")
        if language in seen:
            raise ValueError(f"language {language!r} is listed twice; remove one")
        if language == target:
            name = "English" if target == "en" else "it"
            raise ValueError(
                f"{language!r} cannot be a source language: {name} is the target; remove it from languages"
            )
        if language in (MIXED, MIXED_HIGH_RESOURCE):
            raise ValueError(f"{language!r} cannot be a source language: mixed batches have that name; rename it")
        seen.add(language)


def tidy(text: str) -> str:
    """Strips, and turns every run of white space and control characters inside into one space."""
    if text.isprintable() and "  " not in text:
        return text.strip()
    return " ".join(_CONTROL.sub(" ", text).split())


def read_lines(path: Path) -> Iterator[str]:
    r"""The lines of a UTF-8 file, gzipped if it ends in .gz: ended by ``\n`` alone, not yet tidied."""
    try:
        with gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb") as file:
            yield from decode_lines(_bounded(file, path), str(path))
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise ValueError(f"{path} is damaged ({error}); fetch or compress it again") from None
    except OSError as error:
        raise ValueError(f"{path} cannot be read ({error.strerror}); check the pattern in the config") from None


def _bounded(file: BinaryIO | gzip.GzipFile, path: Path) -> Iterator[bytes]:
    """The lines of a file, unless one of them, or all of a gzip file, is larger than text ever is."""
    read, unchecked = 0, path.suffix == ".gz"
    for number, line in enumerate(iter(partial(file.readline, LONGEST_LINE + 1), b""), start=1):
        if len(line) > LONGEST_LINE:
            size = f"more than {LONGEST_LINE:,} bytes"
            raise ValueError(f"{path}, line {number}: it has {size}; check that this is text, one sentence a line")
        read += len(line)
        if unchecked and read > BLOCK:
            _refuse_swollen(path)
            unchecked = False
        yield line


def _refuse_swollen(path: Path) -> None:
    """Reads a gzip file in blocks: one of short lines would take minutes to read line by line until it is too large."""
    read, most = 0, max(SURELY_SMALL, MOST_SWOLLEN * path.stat().st_size)
    with gzip.open(path, "rb") as file:
        for block in iter(partial(file.read, BLOCK), b""):
            read += len(block)
            if read > most:
                swollen = f"more than {MOST_SWOLLEN} bytes in each of its {path.stat().st_size:,}"
                raise ValueError(f"{path} holds {swollen}, which text does not; if it is right, decompress it first")


def decode_lines(file: Iterable[bytes], name: str) -> Iterator[str]:
    """Lines of bytes as strict UTF-8, without a byte order mark; ``name`` is for messages."""
    for number, line in enumerate(file, start=1):
        try:
            text = line.decode("utf-8").removesuffix("\n")
        except UnicodeDecodeError as error:
            utf16 = number == 1 and line[:2] in (b"\xff\xfe", b"\xfe\xff")
            found = "the file is UTF-16" if utf16 else f"byte 0x{line[error.start]:02x} is not UTF-8"
            remedy = f"for example: iconv -f {'UTF-16' if utf16 else 'WINDOWS-1252'} -t UTF-8 OLD > NEW"
            raise ValueError(f"{name}, line {number}: {found}; convert it, {remedy}") from None
        yield text.removeprefix("\ufeff") if number == 1 else text


def read_parallel(source: Path, english: Path) -> Iterator[Pair]:
    """Pairs from two aligned files; unequal line counts are an error that gives both."""
    counts = [0, 0]
    for pair in zip_longest(read_lines(source), read_lines(english)):
        counts[0] += pair[0] is not None
        counts[1] += pair[1] is not None
        if counts[0] == counts[1]:
            yield tidy(pair[0]), tidy(pair[1])
    if counts[0] != counts[1]:
        lines = f"{source} has {counts[0]} lines, {english} has {counts[1]}"
        raise ValueError(f"{lines}; they must be aligned line by line, with an empty line where one is missing")


def read_tsv(path: Path) -> Iterator[Pair]:
    """Pairs from a file of two columns, source TAB English."""
    for number, line in enumerate(read_lines(path), start=1):
        columns = line.split("\t")
        if len(columns) != 2:
            found = "1 column" if len(columns) == 1 else f"{len(columns)} columns"
            raise ValueError(f"{path}, line {number}: {found}; a line must be source TAB English")
        yield tidy(columns[0]), tidy(columns[1])


def warn_of_headers(files: Iterable[Path]) -> None:
    """Says so if several tables begin with the same line: it would be trained on, and scored, as a sentence pair."""
    beginning: dict[str, list[Path]] = {}
    for path in files:
        try:
            line = next(read_lines(path), "")
        except ValueError:  # cleaning will say it, with the line
            continue
        if "\t" in line:
            beginning.setdefault(line.strip("\r"), []).append(path)
    for line, paths in beginning.items():
        if len(paths) > 1:
            others = "another file" if len(paths) == 2 else f"{len(paths) - 1} other files"
            logger.warning(
                "%s and %s begin with the same line, %r; if it is a header, remove it (for example: sed -i 1d FILE): "
                "it is read as a pair of sentences",
                paths[0],
                others,
                line[:60],
            )


def text_of_files(patterns: Patterns, language: str, target: str) -> ParallelText:
    """The text that a pattern names for a language, or several patterns one after the other; the files must exist."""
    files = files_of(patterns, language, target)
    groups = [_expand(pattern, language, target) for pattern in listed(patterns)]
    origin = " + ".join(map(str, files))
    return ParallelText(origin, files, lambda: not_empty(chain.from_iterable(map(_read_group, groups)), files))


def files_of(patterns: Patterns, language: str, target: str) -> tuple[Path, ...]:
    """The files that patterns name for a language; they must exist."""
    files = named_files(patterns, language, target)
    if not files:
        raise ValueError(f"no pattern for language {language!r}; name at least one file")
    missing = [str(path) for path in files if not path.is_file()]
    if missing:
        text = f"no file {missing[0]} (for language {language!r}); check the pattern in the config"
        raise MissingTextError(text, missing)
    return files


def unreadable(texts: Iterable[ParallelText], known: str) -> list[str]:
    """What is wrong with each of the texts that cannot be read to the end; texts of the same files are read once.

    A text that the message ``known`` already says is wrong is not read again.
    """
    problems: dict[str, None] = {}
    for text in {(text.files, text.origin): text for text in texts}.values():
        if known.startswith(tuple(f"{path}{after}" for path in text.files for after in (" ", ", "))):
            continue
        try:
            for _ in text.read():
                pass
        except ValueError as error:
            problems[str(error)] = None
    return list(problems)


def named_files(patterns: Patterns, language: str, target: str) -> tuple[Path, ...]:
    """The same, whether they exist or not."""
    return tuple(chain.from_iterable(_expand(pattern, language, target) for pattern in listed(patterns)))


def listed(patterns: Patterns) -> tuple[str, ...]:
    return (patterns,) if isinstance(patterns, str) else patterns


def fields_of(pattern: str) -> set[str]:
    """``text/{language}-en/train.{side}`` has ``language`` and ``side``."""
    return set(_FIELD.findall(pattern))


def _expand(pattern: str, language: str, target: str) -> tuple[Path, ...]:
    """The files of a pattern; one with ``{source}`` and ``{target}`` may name the two languages in either order."""
    names = fields_of(pattern)
    if unknown := names - {"language", "side", "source", "target"}:
        known = "only {language}, {side}, {source} and {target} are known"
        raise ValueError(f"pattern {pattern!r} has {{{min(unknown)}}}; {known}")
    orders = [(language, target), (target, language)]
    # The columns of a TSV file are in the order of its name.
    found = [_filled(pattern, language, target, *order) for order in (orders if "side" in names else orders[:1])]
    return next((files for files in found if all(path.is_file() for path in files)), found[0])


def _filled(pattern: str, language: str, target: str, first: str, second: str) -> tuple[Path, ...]:
    sides = (language, target) if "side" in fields_of(pattern) else ("",)
    fixed = pattern.replace("{language}", language).replace("{source}", first).replace("{target}", second)
    return tuple(_zipped_or_not(Path(fixed.replace("{side}", side)).expanduser()) for side in sides)


def _zipped_or_not(path: Path) -> Path:
    """The file as it is named or, if there is none, the same with .gz."""
    zipped = path.with_name(f"{path.name}.gz")
    return zipped if zipped.is_file() and not path.exists() else path


def _read_group(files: tuple[Path, ...]) -> Iterator[Pair]:
    return read_parallel(*files) if len(files) == 2 else read_tsv(*files)


def not_empty(pairs: Iterable[Pair], files: tuple[Path, ...]) -> Iterator[Pair]:
    """The same pairs; raises at the end if there were none."""
    empty = True
    for pair in pairs:
        empty = False
        yield pair
    if empty:
        raise ValueError(f"{' + '.join(map(str, files))}: no sentence pair at all; check that this is the right file")
