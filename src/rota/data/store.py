"""The data folder: encoded sentences as memory-mapped arrays, four files a split however many languages.

``manifest.json`` says what the folder holds and what it was made from; it is written last.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import numpy as np
from pydantic import Field, SerializerFunctionWrapHandler, ValidationError, model_serializer

from rota.data.corpora.parallel import SPLITS, Pair, Split, read_lines
from rota.data.subwords import Subwords
from rota.files import damaged, fingerprint, read_json, sha256_of, write_json
from rota.settings import Settings, explain
from rota.types import Arm, Batch, IntArray, Route

FORMAT: Final = 1
MANIFEST: Final = "manifest.json"
SUBWORDS: Final = "subwords.json"
SIDES: Final = ("source", "target")
PREPARE_AGAIN: Final = "prepare the data again with --again"

Counts = dict[Arm, dict[Split, dict[str, int]]]
"""Pairs per arm or dev set, split and reason of the cleaning; ``"kept"`` among the reasons."""


class Extent(Settings):
    """Where one arm, or one dev set, is in the arrays of a split."""

    start: int  # its first sentence
    sentences: int
    source_tokens: int  # tags and ends of sentences included
    target_tokens: int


class StoredFile(Settings):
    """A file of the folder itself."""

    bytes: int
    sha256: str


class InputFile(StoredFile):
    """A file that the data were made from, as it was then."""

    modified: int  # nanoseconds since 1970
    place: str = ""  # its path then, with all links resolved; empty if that was not recorded

    @classmethod
    def of(cls, path: Path) -> InputFile:
        status = path.stat()
        place = str(path.resolve())
        return cls(bytes=status.st_size, sha256=sha256_of(path), modified=status.st_mtime_ns, place=place)

    def is_still(self, path: Path) -> bool:
        """Whether the content is the same; it is read only if the size is the same and the date or the path is not."""
        status = path.stat()
        if status.st_size != self.bytes:
            return False
        untouched = status.st_mtime_ns == self.modified and str(path.resolve()) == self.place
        return untouched or sha256_of(path) == self.sha256


class Manifest(Settings):
    """The content of ``manifest.json``."""

    format: int = FORMAT
    languages: tuple[Arm, ...]  # the dev and test sets; with one training text for each, these are the arms too
    low_resource: tuple[Arm, ...]
    target: str
    vocabulary: int
    splits: dict[Split, dict[Arm, Extent]]
    cleaning: Counts
    settings: dict[str, Any]
    inputs: dict[str, InputFile]  # by the path that the config names, or that of the cache
    files: dict[str, StoredFile]  # by path inside the folder
    mess: dict[Arm, dict[str, int]] = Field(default_factory=dict)  # training pairs degraded on purpose, by kind
    routes: dict[Arm, Route] = Field(default_factory=dict)  # of arms and dev sets; empty: each language into the target

    @model_serializer(mode="wrap")
    def _only_what_is_used(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Manifests of data that were not degraded, with one text a language, are as they always were."""
        written: dict[str, Any] = write(self)
        return {name: value for name, value in written.items() if name not in ("mess", "routes") or value}

    @property
    def fingerprint(self) -> str:
        """Names the data: equal for equal arrays, texts and languages, wherever and whenever they were prepared."""
        return fingerprint(
            self.model_dump(mode="json", include={"format", "languages", "low_resource", "target", "files", "routes"})
        )

    def save(self, folder: Path) -> None:
        write_json(folder / MANIFEST, self.model_dump(mode="json") | {"fingerprint": self.fingerprint}, checked=True)

    @classmethod
    def load(cls, folder: Path) -> Manifest:
        path = folder / MANIFEST
        try:
            content = read_json(path, remedy=PREPARE_AGAIN)
        except (FileNotFoundError, NotADirectoryError):
            raise ValueError(f"{folder} holds no prepared data (no {MANIFEST}); run rota prepare first") from None
        if content.get("format") != FORMAT:
            theirs = f"{path} has format {content.get('format')!r}, this version of Rota reads {FORMAT}"
            raise ValueError(f"{theirs}; prepare the data again, or use the version that made them")
        recorded = content.pop("fingerprint", None)
        try:
            manifest = cls.model_validate(content)
        except ValidationError as error:
            raise damaged(path, explain(error, cls), PREPARE_AGAIN) from None
        if manifest.fingerprint != recorded:
            raise damaged(path, f"its fingerprint is not {recorded!r}", PREPARE_AGAIN)
        return manifest


@dataclass(frozen=True)
class Flat:
    """One side of all sentences of a split, one after the other; sentence ``i`` is ``offsets[i]:offsets[i + 1]``."""

    tokens: IntArray
    offsets: IntArray

    def lengths(self, indices: IntArray) -> IntArray:
        lengths: IntArray = self.offsets[indices + 1]
        np.subtract(lengths, self.offsets[indices], out=lengths)
        return lengths.astype(np.int32)  # of all sentences, once an epoch: these may be 20 million

    def gather(self, indices: IntArray) -> tuple[IntArray, IntArray]:
        """Tokens of the sentences in the order given, and their lengths; no loop, no padding."""
        starts = self.offsets[indices]
        lengths: IntArray = self.offsets[indices + 1] - starts
        ends = np.cumsum(lengths)
        positions = np.repeat(starts - (ends - lengths), lengths) + np.arange(lengths.sum())
        return self.tokens[positions].astype(np.int64), lengths


@dataclass(frozen=True)
class Side:
    """One side of some sentences that are not in a store yet: all tokens one after the other, and how many each has."""

    tokens: IntArray
    lengths: IntArray  # int32

    @classmethod
    def of(cls, sentences: Sequence[Sequence[int]], vocabulary: int) -> Side:
        lengths = np.fromiter(map(len, sentences), dtype=np.int32, count=len(sentences))
        total = int(lengths.sum())
        return cls(np.fromiter(chain.from_iterable(sentences), dtype=token_type(vocabulary), count=total), lengths)

    @classmethod
    def joined(cls, parts: Sequence[Side]) -> Side:
        return cls(np.concatenate([part.tokens for part in parts]), np.concatenate([part.lengths for part in parts]))


class Sentences:
    """A split: every language, or every arm of the training text, is a contiguous range of sentence indices."""

    def __init__(
        self,
        source: Flat,
        target: Flat,
        ranges: Mapping[Arm, tuple[int, int]],
        from_pivot: Collection[Arm] = (),
    ) -> None:
        self.from_pivot = frozenset(from_pivot)  # those whose source is the language that others are translated into
        self.source = source
        self.target = target
        self.ranges = dict(ranges)
        self._languages = list(ranges)
        self._starts = np.array([start for start, _ in ranges.values()], dtype=np.int64)

    def __len__(self) -> int:
        return len(self.target.offsets) - 1

    def range(self, arm: Arm) -> tuple[int, int]:
        """First sentence of the language, and the one after its last."""
        if arm not in self.ranges:
            raise ValueError(f"unknown language {arm!r}; the data have {', '.join(self._languages)}")
        return self.ranges[arm]

    def languages_of(self, indices: IntArray) -> IntArray:
        """The number of each sentence's language, in the order of the corpus."""
        return np.searchsorted(self._starts, indices, side="right") - 1

    def batch(self, arm: Arm, indices: IntArray) -> Batch:
        """The sentences in the order given; for an arm that is not a language, tokens are counted per language."""
        source, source_lengths = self.source.gather(indices)
        target, target_lengths = self.target.gather(indices)
        by_language = self._tokens_by_language(arm, indices, target_lengths)
        return Batch(arm, source, source_lengths, target, target_lengths, by_language)

    def outline(self, arm: Arm, indices: IntArray) -> Batch:
        """The same batch with sizes only: placeholders stand for the tokens, which are not read."""
        source_lengths, target_lengths = self.source.lengths(indices), self.target.lengths(indices)
        source, target = (np.broadcast_to(np.int64(0), sides.sum()) for sides in (source_lengths, target_lengths))
        by_language = self._tokens_by_language(arm, indices, target_lengths)
        return Batch(arm, source, source_lengths, target, target_lengths, by_language)

    def _tokens_by_language(self, arm: Arm, indices: IntArray, target_lengths: IntArray) -> dict[Arm, int]:
        if arm in self.ranges:
            return {arm: int(target_lengths.sum())}
        language = self.languages_of(indices)
        tokens = np.bincount(language, weights=target_lengths)
        return {self._languages[index]: int(tokens[index]) for index in np.flatnonzero(tokens)}


class Store:
    """A prepared data folder, opened for reading."""

    def __init__(self, folder: Path, manifest: Manifest) -> None:
        self.folder = folder
        self.manifest = manifest
        self._splits: dict[Split, Sentences] = {}

    @classmethod
    def open(cls, folder: Path) -> Store:
        """Checks that all files are there and have the right size; ``check`` reads them."""
        store = cls(folder, Manifest.load(folder))
        for name, recorded in store.manifest.files.items():
            path = folder / name
            size = path.stat().st_size if path.is_file() else None
            if size != recorded.bytes:
                found = "is missing" if size is None else f"has {size} bytes instead of {recorded.bytes}"
                raise ValueError(f"{path} {found}; {PREPARE_AGAIN}")
        return store

    def check(self, split: Split | None = None) -> None:
        """Compares every file with its checksum; raises ``ValueError`` naming the first that differs.

        ``split``: only the arrays and the text of this one, and the subwords.
        """
        for name, recorded in self.manifest.files.items():
            of_split = name == SUBWORDS or name.removeprefix("text/").startswith(f"{split}.")
            if (split is None or of_split) and sha256_of(self.folder / name) != recorded.sha256:
                raise damaged(self.folder / name, "its checksum differs", PREPARE_AGAIN)

    @property
    def fingerprint(self) -> str:
        return self.manifest.fingerprint

    @property
    def languages(self) -> tuple[Arm, ...]:
        """The dev and test sets, by default one for each language."""
        return self.manifest.languages

    @property
    def low_resource(self) -> tuple[Arm, ...]:
        """Those of low-resource languages."""
        return self.manifest.low_resource

    @property
    def arms(self) -> tuple[Arm, ...]:
        """The training texts, by default one for each language, and then named like it."""
        return tuple(self.sizes)

    def route(self, name: Arm) -> Route:
        """What an arm or a dev set translates."""
        return self.manifest.routes.get(name) or Route(name, self.manifest.target, name)

    @cached_property
    def language_of(self) -> Mapping[Arm, Arm]:
        """The dev set that each arm is measured by."""
        return {arm: self.route(arm).dev for arm in self.arms}

    @property
    def low_resource_arms(self) -> tuple[Arm, ...]:
        low = set(self.low_resource)
        return tuple(arm for arm, language in self.language_of.items() if language in low)

    @property
    def high_resource(self) -> tuple[Arm, ...]:
        """The arms that are not of low-resource languages."""
        low = set(self.low_resource)
        return tuple(arm for arm, language in self.language_of.items() if language not in low)

    @cached_property
    def sizes(self) -> Mapping[Arm, int]:
        """Training sentences of each arm."""
        return {arm: extent.sentences for arm, extent in self.manifest.splits["train"].items()}

    @cached_property
    def language_sizes(self) -> Mapping[Arm, int]:
        """Training sentences of all arms that are measured by each dev set."""
        return {
            language: sum(size for arm, size in self.sizes.items() if self.language_of[arm] == language)
            for language in self.languages
        }

    @cached_property
    def target_tokens(self) -> Mapping[Arm, int]:
        """Training target tokens of each arm."""
        return {arm: extent.target_tokens for arm, extent in self.manifest.splits["train"].items()}

    @cached_property
    def subwords(self) -> Subwords:
        return Subwords.load(self.folder / SUBWORDS)

    def split(self, split: Split) -> Sentences:
        if split not in self._splits:
            extents = self.manifest.splits[split]
            ranges = {arm: (extent.start, extent.start + extent.sentences) for arm, extent in extents.items()}
            from_pivot = [name for name in extents if self.route(name).source == self.manifest.target]
            self._splits[split] = Sentences(self._map(split, "source"), self._map(split, "target"), ranges, from_pivot)
        return self._splits[split]

    def text(self, split: Split, arm: Arm) -> list[Pair]:
        """The sentences of a dev or test set as they were before encoding, in the order of the arrays."""
        if split == "train":
            raise ValueError("the text of 'train' is not kept in prepared data; ask for 'dev' or 'test'")
        self.split(split).range(arm)
        source, target = (read_lines(self.folder / name) for name in text_names(split, arm, self.route(arm)))
        return list(zip(source, target, strict=True))

    def _map(self, split: Split, side: str) -> Flat:
        tokens, offsets = (self.folder / name for name in array_names(split, side))
        # Plain arrays over the mapping: indexing a np.memmap builds a Python object each time.
        return Flat(
            np.asarray(np.memmap(tokens, dtype=token_type(self.manifest.vocabulary), mode="r")),
            np.asarray(np.memmap(offsets, dtype=np.int64, mode="r")),
        )


class _Appender:
    """A file that knows its size and checksum when it is closed."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("wb")
        self._hash = hashlib.sha256()
        self._bytes = 0

    def write(self, array: IntArray) -> None:
        self._file.write(array.data)
        self._hash.update(array.data)
        self._bytes += array.nbytes

    def close(self) -> StoredFile:
        self._file.close()
        return StoredFile(bytes=self._bytes, sha256=self._hash.hexdigest())


class StoreWriter:
    """Writes a data folder piece by piece; a language's pieces come one after the other."""

    def __init__(self, folder: Path, languages: Sequence[Arm], vocabulary: int) -> None:
        self.folder = folder
        self._languages = tuple(languages)
        self.vocabulary = vocabulary
        self._sentences = dict.fromkeys(SPLITS, 0)
        self._tokens = {split: dict.fromkeys(SIDES, 0) for split in SPLITS}
        self._extents: dict[Split, dict[Arm, Extent]] = {split: {} for split in SPLITS}
        names = [name for split in SPLITS for side in SIDES for name in array_names(split, side)]
        self._open = {name: _Appender(folder / name) for name in names}
        for name in names[1::2]:
            self._open[name].write(np.zeros(1, dtype=np.int64))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for appender in self._open.values():
            appender.close()

    def append(self, split: Split, arm: Arm, source: Side, target: Side) -> None:
        """Add sentences, tags and ends of sentences included."""
        extents = self._extents[split]
        sentences = len(target.lengths)
        assert len(source.lengths) == sentences, f"{len(source.lengths)} sources, {sentences} targets"
        if arm not in extents:
            extents[arm] = Extent(start=self._sentences[split], sentences=0, source_tokens=0, target_tokens=0)
        before = extents[arm]
        assert before.start + before.sentences == self._sentences[split], f"{split}: pieces of {arm!r} are not adjacent"
        self._sentences[split] += sentences
        extents[arm] = Extent(
            start=before.start,
            sentences=before.sentences + sentences,
            source_tokens=before.source_tokens + self._append(split, "source", source),
            target_tokens=before.target_tokens + self._append(split, "target", target),
        )

    def _append(self, split: Split, name: str, side: Side) -> int:
        tokens, offsets = array_names(split, name)
        self._open[tokens].write(side.tokens)
        self._open[offsets].write(self._tokens[split][name] + np.cumsum(side.lengths, dtype=np.int64))
        self._tokens[split][name] += len(side.tokens)
        return len(side.tokens)

    def finish(
        self,
        *,
        low_resource: Sequence[Arm],
        target: str,
        cleaning: Counts,
        settings: dict[str, Any],
        inputs: dict[str, InputFile],
        mess: dict[Arm, dict[str, int]] | None = None,
        routes: Mapping[Arm, Route] | None = None,
    ) -> None:
        """Closes the arrays and writes the manifest, which also lists every other file in the folder."""
        files = {name: appender.close() for name, appender in self._open.items()}
        others = sorted(path for path in self.folder.rglob("*") if path.is_file() and path.name not in files)
        for path in others:
            recorded = StoredFile(bytes=path.stat().st_size, sha256=sha256_of(path))
            files[path.relative_to(self.folder).as_posix()] = recorded
        Manifest(
            languages=self._languages,
            low_resource=tuple(low_resource),
            target=target,
            vocabulary=self.vocabulary,
            splits=self._extents,
            cleaning=cleaning,
            settings=settings,
            inputs=inputs,
            files=files,
            mess=mess or {},
            routes=dict(routes or {}),
        ).save(self.folder)

    @property
    def sizes(self) -> dict[Arm, int]:
        """Training sentences written so far, by arm."""
        return {arm: extent.sentences for arm, extent in self._extents["train"].items()}


def token_type(vocabulary: int) -> type[np.uint16] | type[np.int32]:
    return np.uint16 if vocabulary <= 2**16 else np.int32


def array_names(split: Split, side: str) -> tuple[str, str]:
    """Files of the tokens and of the offsets."""
    return f"{split}.{side}.tokens", f"{split}.{side}.offsets"


def text_names(split: Split, name: Arm, route: Route) -> tuple[str, str]:
    """Files of the source and target text, as sacreBLEU and others like them: ``text/dev.az-en.az``.

    Those of an arm or a dev set with another name than the language have that: ``text/train.az-web.az``.
    """
    name = f"{name}-{route.target}" if name == route.source else name
    return f"text/{split}.{name}.{route.source}", f"text/{split}.{name}.{route.target}"
