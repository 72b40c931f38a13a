"""Reading parallel text: plain files, gzip and two-column TSV, strict about bytes and alignment."""

from __future__ import annotations

import difflib
import gzip
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain, zip_longest
from pathlib import Path
from typing import Final, Literal, Self

from pydantic import Field, ValidationInfo, field_validator, model_validator

from rota.data.families import SyntheticConfig
from rota.settings import Settings
from rota.types import MIXED, MIXED_HIGH_RESOURCE, Arm

Split = Literal["train", "dev", "test"]
Pair = tuple[str, str]
"""Source and English, stripped, without line breaks."""

SPLITS: Final[tuple[Split, ...]] = ("train", "dev", "test")
Patterns = str | tuple[str, ...]

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_PLACE = re.compile(r"\{(.*?)\}")
_LANGUAGE = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9_.-]*[A-Za-z0-9])?")


@dataclass(frozen=True)
class ParallelText:
    """One split of one language: where it comes from and how to read it, as often as one likes."""

    origin: str  # for messages: "text/train.az.gz + text/train.en.gz", "catalogues"
    files: tuple[Path, ...]  # the inputs whose change means another corpus; empty for generated text
    read: Callable[[], Iterator[Pair]]
    size: int = 0  # of generated text in bytes, roughly


Corpus = Mapping[Arm, Mapping[Split, ParallelText]]


class CorpusConfig(Settings):
    """Which text to learn from; for ``corpus: files`` the patterns say where each split lies.

    A pattern with ``{side}`` names two aligned files, one line a sentence, ``{side}`` being the language or the
    target; without ``{side}`` it names one TSV file, source before English. ``.gz`` is unpacked. A list of
    patterns is read one after the other; a mapping gives each language its own.
    """

    corpus: Literal["files", "ted8", "catalogues", "synthetic"] = "files"
    languages: tuple[str, ...] = ()  # empty: all that a named corpus has, or those that a mapping names
    low_resource: tuple[str, ...] | None = None  # None: see sources.low_resource
    target: str = "en"
    train: Patterns | dict[str, Patterns] | None = None
    dev: Patterns | dict[str, Patterns] | None = None
    test: Patterns | dict[str, Patterns] | None = None
    path: Path | None = None  # ted8 alone: a ted_talks.tar.gz, or a folder with its three files
    synthetic: SyntheticConfig = Field(default_factory=SyntheticConfig)

    @field_validator(*SPLITS)
    @classmethod
    def _differs(
        cls, patterns: Patterns | dict[str, Patterns] | None, info: ValidationInfo
    ) -> Patterns | dict[str, Patterns] | None:
        """A pattern without a place for the language would give all of them the text of one."""
        train = info.data.get("train")
        languages = info.data.get("languages") or (train if isinstance(train, dict) else ())
        if len(languages) > 1 and patterns is not None and not isinstance(patterns, dict):
            _check_places((patterns,) if isinstance(patterns, str) else patterns, len(languages))
        return patterns

    @model_validator(mode="after")
    def _check(self) -> Self:
        for languages in self._named_languages():
            _check_languages(languages, self.target)
        given = [split for split in SPLITS if getattr(self, split) is not None]
        if self.corpus == "files" and len(given) < len(SPLITS):
            missing = next(split for split in SPLITS if split not in given)
            raise ValueError(f"no {missing} text; give {missing!r} a pattern such as text/{missing}.{{language}}.tsv")
        if self.corpus != "files" and given:
            raise ValueError(f"{given[0]!r} is for corpus: files; remove it, or the line corpus: {self.corpus}")
        if self.corpus != "ted8" and self.path is not None:
            raise ValueError(f"'path' is for corpus: ted8; the corpus {self.corpus!r} does not use it")
        known = next(filter(None, self._named_languages()), ())
        if known and self.low_resource is not None:
            for language in self.low_resource:
                check_known(language, known, "low-resource language")
        return self

    def _named_languages(self) -> Iterator[tuple[str, ...]]:
        """The languages of each list or mapping that names some; the first one decides which the corpus has."""
        yield self.languages
        if self.corpus == "synthetic":
            yield tuple(chain.from_iterable(self.synthetic.tree().values()))
        for patterns in (self.train, self.dev, self.test):
            if isinstance(patterns, dict):
                yield tuple(patterns)


def _check_places(patterns: tuple[str, ...], languages: int) -> None:
    for pattern in patterns:
        if not _PLACE.search(pattern):
            same = f"{pattern!r} is the same file for all {languages} languages"
            raise ValueError(f"{same}; write {{language}} where their names differ")


def _check_languages(languages: tuple[str, ...], target: str) -> None:
    seen: set[str] = set()
    for language in languages:
        if not _LANGUAGE.fullmatch(language):
            raise ValueError(f"{language!r} is no language code; use letters, digits, '-', '_' or '.'")
        if language in seen:
            raise ValueError(f"language {language!r} is listed twice; remove one")
        if language == target:
            name = "English" if target == "en" else "it"
            raise ValueError(
                f"{language!r} cannot be a source language: {name} is the target; remove it from languages"
            )
        if language in (MIXED, MIXED_HIGH_RESOURCE):
            raise ValueError(f"{language!r} cannot be a source language: batches of several are called so; rename it")
        seen.add(language)


def check_known(language: str, known: Iterable[str], what: str = "language") -> None:
    """Raises for a language that is not among ``known``, naming the nearest and all of them."""
    names = list(known)
    if language in names:
        return
    close = difflib.get_close_matches(language, names, n=1, cutoff=0.5)
    guess = f"did you mean {close[0]!r}? " if close else ""
    shown = ", ".join(names[:20]) + (" ..." if len(names) > 20 else "")
    raise ValueError(f"unknown {what} {language!r}; {guess}known: {shown}")


def tidy(text: str) -> str:
    """Strips, and turns every run of white space and control characters inside into one space."""
    if text.isprintable() and "  " not in text:
        return text.strip()
    return " ".join(_CONTROL.sub(" ", text).split())


def read_lines(path: Path) -> Iterator[str]:
    r"""The lines of a UTF-8 file, gzipped if it ends in .gz: ended by ``\n`` alone, not yet tidied."""
    try:
        with gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb") as file:
            yield from decode_lines(file, str(path))
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise ValueError(f"{path} is damaged ({error}); fetch or compress it again") from None
    except OSError as error:
        raise ValueError(f"{path} cannot be read ({error.strerror}); check the pattern in the config") from None


def decode_lines(file: Iterable[bytes], name: str) -> Iterator[str]:
    """Lines of bytes as strict UTF-8, without a byte order mark; ``name`` is for messages."""
    for number, line in enumerate(file, start=1):
        try:
            text = line.decode("utf-8").removesuffix("\n")
        except UnicodeDecodeError as error:
            byte = f"byte 0x{line[error.start]:02x} is not UTF-8"
            raise ValueError(f"{name}, line {number}: {byte}; convert the file, for example with iconv") from None
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
        raise ValueError(f"{lines}; they must be aligned line by line: look for the missing lines")


def read_tsv(path: Path) -> Iterator[Pair]:
    """Pairs from a file of two columns, source TAB English."""
    for number, line in enumerate(read_lines(path), start=1):
        columns = line.split("\t")
        if len(columns) != 2:
            found = "1 column" if len(columns) == 1 else f"{len(columns)} columns"
            raise ValueError(f"{path}, line {number}: {found}; a line must be source TAB English")
        yield tidy(columns[0]), tidy(columns[1])


def text_of_files(patterns: Patterns, language: str, target: str) -> ParallelText:
    """The text that one pattern, or several one after the other, name for a language; the files must exist."""
    groups = [
        _expand(pattern, language, target) for pattern in ((patterns,) if isinstance(patterns, str) else patterns)
    ]
    files = tuple(chain.from_iterable(groups))
    if not files:
        raise ValueError(f"no pattern for language {language!r}; name at least one file")
    for path in files:
        if not path.is_file():
            raise ValueError(f"no file {path} (for language {language!r}); check the pattern in the config")
    origin = " + ".join(map(str, files))
    return ParallelText(origin, files, lambda: not_empty(chain.from_iterable(map(_read_group, groups)), files))


def _expand(pattern: str, language: str, target: str) -> tuple[Path, ...]:
    names = set(_PLACE.findall(pattern))
    if unknown := names - {"language", "side"}:
        raise ValueError(f"pattern {pattern!r} has {{{min(unknown)}}}; only {{language}} and {{side}} are known")
    sides = (language, target) if "side" in names else ("",)
    return tuple(Path(pattern.replace("{language}", language).replace("{side}", side)).expanduser() for side in sides)


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
