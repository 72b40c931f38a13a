"""Which text to learn from: the settings of a corpus, and the registry of the named corpora."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Any, Final, Literal, Self

from pydantic import (
    Field,
    SerializerFunctionWrapHandler,
    ValidationInfo,
    field_validator,
    model_serializer,
    model_validator,
)

from rota.data.corpora import debian, gettext, mirrors, ted
from rota.data.corpora.parallel import (
    SPLITS,
    Corpus,
    ParallelText,
    Patterns,
    Split,
    check_known,
    fields_of,
    listed,
    text_of_files,
)
from rota.data.corpora.synthetic.corpus import synthetic_corpus
from rota.data.corpora.synthetic.families import SyntheticConfig
from rota.settings import Settings
from rota.types import MIXED, MIXED_HIGH_RESOURCE, Arm

LOW_RESOURCE_SHARE: Final = 0.2
"""A language with fewer training pairs than this share of the largest counts as low-resource by default."""

_LANGUAGE = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9_.-]*[A-Za-z0-9])?")


class CorpusConfig(Settings):
    """Which text to learn from; for ``corpus: files`` the patterns say where each split is.

    A pattern with ``{side}`` names two aligned files, one line a sentence, ``{side}`` being the language or the
    target; without ``{side}`` it names one TSV file, source before English. ``.gz`` is unpacked. A list of
    patterns is read one after the other; a mapping gives each language its own.
    """

    corpus: Literal["files", "ted8", "catalogues", "debian", "synthetic"] = "files"
    languages: tuple[str, ...] = ()  # empty: all that a named corpus has, or those that a mapping names
    low_resource: tuple[str, ...] | None = None  # None: see low_resource below
    target: str = "en"
    train: Patterns | dict[str, Patterns] | None = None
    dev: Patterns | dict[str, Patterns] | None = None
    test: Patterns | dict[str, Patterns] | None = None
    path: Path | None = None  # ted8 alone: a ted_talks.tar.gz, or a folder with its three files
    mirror: str | None = None  # debian alone: address of a package mirror; None: the one that apt uses
    release: str = Field(debian.RELEASE, pattern=r"^\w[\w.-]*$")  # debian alone
    synthetic: SyntheticConfig = Field(default_factory=SyntheticConfig)

    @model_serializer(mode="wrap")
    def _only_what_is_used(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Settings that came after version 0.1 only where they matter: fingerprints of configs stay what they were."""
        written: dict[str, Any] = write(self)
        unused = self._unused()
        return {name: value for name, value in written.items() if name not in unused}

    def _unused(self) -> set[str]:
        return {name for name, used in (("mirror", self.mirror), ("release", self.corpus == "debian")) if not used}

    @field_validator("mirror")
    @classmethod
    def _is_address(cls, mirror: str | None) -> str | None:
        if mirror is not None and mirror.partition(":")[0] not in mirrors.SCHEMES:
            raise ValueError(f"{mirror!r} is not an address; begin with http:, https: or file:")
        return mirror

    @field_validator(*SPLITS)
    @classmethod
    def _differs(
        cls, patterns: Patterns | dict[str, Patterns] | None, info: ValidationInfo
    ) -> Patterns | dict[str, Patterns] | None:
        """A pattern without a field for the language would give all of them the text of one."""
        train = info.data.get("train")
        languages = info.data.get("languages") or (train if isinstance(train, dict) else ())
        if len(languages) > 1 and patterns is not None and not isinstance(patterns, dict):
            for pattern in listed(patterns):
                if not fields_of(pattern):
                    same = f"{pattern!r} is the same file for all {len(languages)} languages"
                    raise ValueError(f"{same}; write {{language}} where their names differ")
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
        if self.corpus != "debian" and (self.mirror is not None or self.release != debian.RELEASE):
            raise ValueError(f"'mirror' and 'release' are for corpus: debian; {self.corpus!r} does not use them")
        known = self.known_languages
        if known and self.low_resource is not None:
            for language in self.low_resource:
                check_known(language, known, "low-resource language")
        return self

    @property
    def known_languages(self) -> tuple[str, ...]:
        """The languages as far as the config names them; empty if only the corpus itself knows."""
        return next(filter(None, self._named_languages()), ())

    def _named_languages(self) -> Iterator[tuple[str, ...]]:
        """The languages of each list or mapping that names some; the first one decides which the corpus has."""
        yield self.languages
        if self.corpus == "synthetic":
            yield tuple(chain.from_iterable(self.synthetic.tree().values()))
        for patterns in (self.train, self.dev, self.test):
            if isinstance(patterns, dict):
                yield tuple(patterns)


def _check_languages(languages: tuple[str, ...], target: str) -> None:
    seen: set[str] = set()
    for language in languages:
        if not _LANGUAGE.fullmatch(language):
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


def open_corpus(config: CorpusConfig, cache: Path) -> Corpus:
    """The text of every language, checked as far as possible without reading it.

    Files must exist and languages be known; named corpora are fetched into ``cache`` if it lacks them.
    """
    if config.corpus == "files":
        return {language: _files(config, language) for language in _file_languages(config)}
    if config.corpus == "ted8":
        return ted.ted_corpus(config.languages or ted.LANGUAGES, cache, config.path, target=config.target)
    if config.target != "en":
        raise ValueError(f"target {config.target!r}; the corpus {config.corpus!r} translates into 'en' only")
    if config.corpus == "catalogues":
        return _chosen(config, gettext.LANGUAGES, lambda: gettext.catalogue_corpus(cache))
    if config.corpus == "debian":
        languages = config.languages or debian.LANGUAGES
        return debian.debian_corpus(languages, cache, mirror=config.mirror, release=config.release)
    corpus = synthetic_corpus(config.synthetic)
    return _chosen(config, tuple(corpus), lambda: corpus)


def low_resource(config: CorpusConfig, sizes: Mapping[Arm, int]) -> tuple[Arm, ...]:
    """The languages whose scores are averaged as low-resource, in the order of ``sizes`` (training pairs).

    What the config lists; else what the named corpus is known for (the paper's az, be, gl, sk); else those with less
    than a fifth of the training pairs of the largest language, in synthetic corpora the largest of their family.
    """
    if config.low_resource is not None:
        for language in config.low_resource:
            check_known(language, sizes, "low-resource language")
        return tuple(arm for arm in sizes if arm in config.low_resource)
    if config.corpus == "synthetic":
        return _low_in_family(config.synthetic, sizes)
    if config.corpus in ("ted8", "catalogues") and set(sizes) <= set(ted.LANGUAGES):
        return tuple(arm for arm in sizes if arm in ted.LOW_RESOURCE)
    if config.corpus == "debian" and set(sizes) <= set(debian.LANGUAGES):
        return tuple(arm for arm in sizes if arm in debian.LOW_RESOURCE)
    limit = LOW_RESOURCE_SHARE * max(sizes.values(), default=0)
    return tuple(arm for arm, size in sizes.items() if size < limit)


def _low_in_family(config: SyntheticConfig, sizes: Mapping[Arm, int]) -> tuple[Arm, ...]:
    largest = {arm: max(members.values()) for members in config.tree().values() for arm in members}
    return tuple(arm for arm, size in sizes.items() if size < LOW_RESOURCE_SHARE * largest.get(arm, 0))


def _chosen(config: CorpusConfig, known: tuple[Arm, ...], corpus: Callable[[], Corpus]) -> Corpus:
    """The languages that the config lists; they are checked before anything is fetched."""
    for language in config.languages:
        check_known(language, known)
    opened = corpus()
    return {language: opened[language] for language in config.languages or known}


def _file_languages(config: CorpusConfig) -> tuple[Arm, ...]:
    if config.languages:
        return config.languages
    if isinstance(config.train, dict):
        return tuple(config.train)
    raise ValueError("no languages; list them, for example languages: [az, tr]")


def _files(config: CorpusConfig, language: Arm) -> dict[Split, ParallelText]:
    return {split: text_of_files(_patterns(config, split, language), language, config.target) for split in SPLITS}


def _patterns(config: CorpusConfig, split: Split, language: Arm) -> Patterns:
    patterns = {"train": config.train, "dev": config.dev, "test": config.test}[split]
    if isinstance(patterns, dict):
        if language not in patterns:
            raise ValueError(f"no {split} text for language {language!r}; add it under {split!r}, which is a mapping")
        return patterns[language]
    return patterns or ()
