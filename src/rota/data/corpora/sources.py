"""Which text to learn from: the settings of a corpus, and the registry of the named corpora."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
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
from rota.data.corpora.arms import (
    NamedCorpus,
    SourceConfig,
    check_names,
    duplicated_text,
    source_routes,
    source_texts,
    taken_texts,
)
from rota.data.corpora.directions import (
    BOTH_WAYS,
    Direction,
    directed,
    directed_routes,
    has_star,
    languages_of,
    resolved,
    through_pivot,
)
from rota.data.corpora.language_files import own_files, patterns_of
from rota.data.corpora.parallel import (
    NAME,
    SPLITS,
    Corpus,
    MissingTexts,
    ParallelText,
    Patterns,
    Split,
    check_known,
    fields_of,
    files_of,
    listed,
    text_of_files,
)
from rota.data.corpora.synthetic.corpus import synthetic_corpus
from rota.data.corpora.synthetic.families import SyntheticConfig
from rota.settings import Count, Settings
from rota.types import MIXED, MIXED_HIGH_RESOURCE, Arm, Route

LOW_RESOURCE_SHARE: Final = 0.2
"""A language with fewer training pairs than this share of the largest counts as low-resource by default."""


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
    hold_out: Count | None = Field(None, ge=1)  # sentences for each missing dev and test set, from the training text
    sources: dict[str, SourceConfig] = Field(default_factory=dict)  # training texts beside train, or in its place
    directions: tuple[str, ...] | Literal["both-ways"] | None = None  # None: every language into the target
    only_measured: tuple[str, ...] = ()  # languages with dev and test sets that are not trained on
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
        used = {
            "mirror": self.mirror,
            "release": self.corpus == "debian",
            "hold_out": self.hold_out,
            "sources": self.sources,
            "directions": self.directions,
            "only_measured": self.only_measured,
        }
        return {name for name, value in used.items() if not value}

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
        missing = [split for split in SPLITS if split not in given and split not in self._brought]
        if self.hold_out and "train" not in missing:
            missing = []
        if self.corpus == "files" and missing:
            pattern = f"a pattern such as text/{missing[0]}.{{language}}.tsv"
            instead = "" if missing[0] == "train" else ", or write hold_out: 200 to take it from the training text"
            raise ValueError(f"no {missing[0]} text; give {missing[0]!r} {pattern}{instead}")
        if self.corpus != "files" and self.hold_out:
            raise ValueError(f"'hold_out' is for corpus: files; {self.corpus!r} has dev and test sets")
        if self.corpus != "files" and given:
            raise ValueError(f"{given[0]!r} is for corpus: files; remove it, or the line corpus: {self.corpus}")
        if self.corpus != "ted8" and self.path is not None:
            raise ValueError(f"'path' is for corpus: ted8; the corpus {self.corpus!r} does not use it")
        if self.corpus != "debian" and (self.mirror is not None or self.release != debian.RELEASE):
            raise ValueError(f"'mirror' and 'release' are for corpus: debian; {self.corpus!r} does not use them")
        self._check_sources()
        self._check_directions()
        known = self.known_languages
        for language in self.only_measured if known else ():
            check_known(language, known, "language in only_measured")
        if known and set(self.only_measured) >= set(known):
            raise ValueError(
                "'only_measured' names every language, so that there is nothing to train on; leave one out"
            )
        if known and self.low_resource is not None:
            for language in self.low_resource:
                check_known(language, known, "low-resource language")
        return self

    @property
    def known_languages(self) -> tuple[str, ...]:
        """The languages as far as the config names them; empty if only the corpus itself knows."""
        return next(filter(None, self._named_languages()), ())

    @property
    def all_languages(self) -> tuple[str, ...]:
        """The same, and where only the corpus knows, those that it has by default."""
        defaults = {"ted8": ted.LANGUAGES, "catalogues": gettext.LANGUAGES, "debian": debian.LANGUAGES}
        return self.known_languages or defaults.get(self.corpus, ())

    @property
    def pairs(self) -> tuple[Direction, ...]:
        """The directions as pairs of languages; empty: every language into the target."""
        return resolved(self.directions, self.all_languages, self.target) if self.directions else ()

    @property
    def tags_targets(self) -> bool:
        """Whether a target sentence begins with the tag of its language: if there are several of those."""
        return len({target for _, target in self.pairs}) > 1

    def _check_directions(self) -> None:
        if self.directions == ():
            raise ValueError("'directions' is empty; write for example directions: [gl-en, en-gl], or both-ways")
        pairs = self.pairs
        for pair in pairs:
            if pairs.count(pair) > 1:
                raise ValueError(f"the direction {'-'.join(pair)!r} is listed twice; remove one")
        if self.directions == BOTH_WAYS and not pairs:
            raise ValueError("directions: both-ways needs the languages; list them, for example languages: [az, tr]")

    @property
    def _brought(self) -> set[str]:
        """Splits that no pattern need name, because sources bring them."""
        if not self.sources:
            return set()
        own = all(source.own_sets for source in self.sources.values())
        return {"train", "dev", "test"} if own and self.train is None else {"train"}

    def _check_sources(self) -> None:
        check_names(self.sources, self.target)
        for name, source in self.sources.items():
            _check_languages((source.language,), self.target)
            if name in (MIXED, MIXED_HIGH_RESOURCE):
                raise ValueError(f"a source cannot be named {name!r}: mixed batches have that name; rename it")
            if self.languages:
                check_known(source.language, self.languages, f"language of the source {name!r}:")

    def _named_languages(self) -> Iterator[tuple[str, ...]]:
        """The languages of each list or mapping that names some; the first one decides which the corpus has."""
        yield self.languages
        if self.corpus == "synthetic":
            yield tuple(chain.from_iterable(self.synthetic.tree().values()))
        for patterns in (self.train, self.dev, self.test):
            if isinstance(patterns, dict):
                yield tuple(dict.fromkeys((*patterns, *self._source_languages))) if self.sources else tuple(patterns)
        if self.corpus == "files":
            yield self._source_languages
        if isinstance(self.directions, tuple) and self.corpus == "files" and not any(map(has_star, self.directions)):
            yield languages_of(resolved(self.directions, (), self.target), self.target)

    @property
    def _source_languages(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(source.language for source in self.sources.values()))

    def routes(self, names: Iterable[Arm]) -> dict[Arm, Route]:
        """What each arm and each dev set of a corpus translates, and which dev set an arm is measured by."""
        routes = self._routes
        return {
            name: routes[name] if self.directions else routes.get(name, Route(name, self.target, name))
            for name in names
        }

    @property
    def dev_sets(self) -> dict[Arm, Route]:
        """The dev sets, as far as the config knows the languages, and what they translate."""
        return {name: route for name, route in self._routes.items() if route.dev == name}

    @property
    def _routes(self) -> dict[Arm, Route]:
        own = {name: Route(name, self.target, name) for name in self.all_languages}
        routes = {**own, **source_routes(self.sources, self.target)}
        return directed_routes(routes, self.pairs, self.target) if self.directions else routes

    def undirected(self) -> CorpusConfig:
        """The same text as languages into the target, of those languages that the directions need it of."""
        needed = through_pivot(self.pairs, self.target, joined=not self.names_pairs)
        sources = {name: source for name, source in self.sources.items() if source.language in needed}
        changes = {"directions": None, "languages": needed, "sources": sources, "only_measured": ()}
        return self.model_copy(update=changes)

    @property
    def names_pairs(self) -> bool:
        """Whether patterns name the files of any two languages: they have ``{side}``, or both names, but no one."""
        given = [patterns for split in SPLITS if (patterns := getattr(self, split)) is not None]
        return bool(given) and all(
            not isinstance(patterns, dict)
            and all("language" not in fields_of(pattern) and fields_of(pattern) for pattern in listed(patterns))
            for patterns in given
        )


def _check_languages(languages: tuple[str, ...], target: str) -> None:
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


def open_corpus(config: CorpusConfig, cache: Path) -> Corpus:
    """The text of every language, checked as far as possible without reading it.

    Files must exist and languages be known; named corpora are fetched into ``cache`` if it lacks them. Arms of sources
    come after their language.
    """
    if config.directions:
        return _to_train(config, _in_directions(config, cache))
    corpus = _open_own(config, cache)
    return _to_train(config, _with_sources(config, corpus, cache) if config.sources else corpus)


def _to_train(config: CorpusConfig, corpus: Corpus) -> Corpus:
    """Without the training text of languages that are only measured."""
    if not config.only_measured:
        return corpus
    kept: dict[Arm, Mapping[Split, ParallelText]] = {}
    for name, route in config.routes(corpus).items():
        trained = {route.source, route.target}.isdisjoint(config.only_measured)
        kept[name] = {split: text for split, text in corpus[name].items() if trained or split != "train"}
    return {name: splits for name, splits in kept.items() if splits}


def _in_directions(config: CorpusConfig, cache: Path) -> Corpus:
    plain = config.undirected()
    corpus = open_corpus(plain, cache) if plain.languages else {}
    missing = MissingTexts()
    for pair in config.pairs if config.names_pairs else ():
        for split in SPLITS if config.target not in pair else ():
            with missing.collected():
                text_of_files(patterns_of(config, split, pair[0]), *pair)
    missing.check()

    def direct(split: Split, pair: Direction) -> ParallelText | None:
        return text_of_files(patterns_of(config, split, pair[0]), *pair) if config.names_pairs else None

    return directed(corpus, plain.routes(corpus), config.pairs, config.target, direct)


def _open_own(config: CorpusConfig, cache: Path) -> Corpus:
    """The text of the languages themselves, without sources."""
    if config.corpus == "files":
        return own_files(config)
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


def _with_sources(config: CorpusConfig, own: Corpus, cache: Path) -> Corpus:
    def named(corpus: NamedCorpus, language: str) -> ParallelText:
        same = {"path": config.path, "mirror": config.mirror, "release": config.release}
        where = same if corpus == config.corpus else {}
        other = CorpusConfig(corpus=corpus, languages=(language,), **where)
        return _open_own(other, cache)[language]["train"]

    missing = MissingTexts()
    for source in config.sources.values():
        for patterns in (source.train, source.dev, source.test):
            with missing.collected():
                if patterns is not None:
                    files_of(patterns, source.language, config.target)
    missing.check()
    corpus: dict[Arm, Mapping[Split, ParallelText]] = {}
    languages = tuple(dict.fromkeys((*own, *(source.language for source in config.sources.values()))))
    for language in languages:
        of_language = {name: source for name, source in config.sources.items() if source.language == language}
        texts = {language: dict(own.get(language, {}))}
        taken = _taken(texts[language], of_language)
        for name, source in of_language.items():
            for arm, splits in source_texts(name, source, config.target, named, taken.get(name)).items():
                if arm in languages and (arm != language or "train" in texts[arm]):
                    raise ValueError(f"{arm!r} is a language with text of its own and also a source; rename the source")
                texts[arm] = {**texts.get(arm, {}), **splits}
        _check_measured(config, language, texts)
        corpus |= {name: splits for name, splits in texts.items() if splits}
    return corpus


def _taken(own: dict[Split, ParallelText], sources: Mapping[Arm, SourceConfig]) -> dict[Arm, ParallelText]:
    """The parts that sources take of a language's own training text, which then has the rest, and those they repeat."""
    takers = {name: source for name, source in sources.items() if source.take is not None}
    copies = {name: source.duplicate for name, source in sources.items() if source.duplicate is not None}
    if not takers and not copies:
        return {}
    if "train" not in own:
        names = ", ".join((*takers, *copies))
        raise ValueError(f"{names} take a share of the language's own text, and it has none; give it train")
    own["train"], parts = taken_texts(own["train"], takers)
    part = sum(source.take or 0.0 for source in takers.values())
    return parts | {name: duplicated_text(own["train"], share, part) for name, share in copies.items()}


def _check_measured(config: CorpusConfig, language: str, texts: Mapping[Arm, Mapping[Split, ParallelText]]) -> None:
    """Every arm needs the dev and test set that it is measured by."""
    for arm, route in config.routes(texts).items():
        for split in ("dev", "test"):
            if "train" in texts[arm] and split not in texts.get(route.dev, {}):
                remedy = f"add it under {split!r}, or give the source {split} text of its own"
                raise ValueError(f"no {split} text for language {language!r} (arm {arm!r}); {remedy}")


def low_resource(config: CorpusConfig, sizes: Mapping[Arm, int]) -> tuple[Arm, ...]:
    """The languages whose scores are averaged as low-resource, in the order of ``sizes`` (training pairs).

    What the config lists; else what the named corpus is known for (the paper's az, be, gl, sk); else those with less
    than a fifth of the training pairs of the largest language, in synthetic corpora the largest of their family.
    """
    named = low_resource_by_name(config, tuple(sizes))
    if named is not None:
        return named
    if config.corpus == "synthetic":
        return _low_in_family(config.synthetic, sizes)
    limit = LOW_RESOURCE_SHARE * max(sizes.values(), default=0)
    return tuple(arm for arm, size in sizes.items() if size < limit)


def low_resource_by_name(config: CorpusConfig, languages: tuple[Arm, ...]) -> tuple[Arm, ...] | None:
    """The same where the amount of text does not matter; None where it does."""
    if config.low_resource is not None:
        for language in config.low_resource:
            check_known(language, languages, "low-resource language")
        return tuple(arm for arm in languages if arm in config.low_resource)
    if config.corpus in ("ted8", "catalogues") and set(languages) <= set(ted.LANGUAGES):
        return tuple(arm for arm in languages if arm in ted.LOW_RESOURCE)
    if config.corpus == "debian" and set(languages) <= set(debian.LANGUAGES):
        return tuple(arm for arm in languages if arm in debian.LOW_RESOURCE)
    return () if len(languages) == 1 and config.corpus != "synthetic" else None


def _low_in_family(config: SyntheticConfig, sizes: Mapping[Arm, int]) -> tuple[Arm, ...]:
    largest = {arm: max(members.values()) for members in config.tree().values() for arm in members}
    return tuple(arm for arm, size in sizes.items() if size < LOW_RESOURCE_SHARE * largest.get(arm, 0))


def _chosen(config: CorpusConfig, known: tuple[Arm, ...], corpus: Callable[[], Corpus]) -> Corpus:
    """The languages that the config lists; they are checked before anything is fetched."""
    for language in config.languages:
        check_known(language, known)
    opened = corpus()
    return {language: opened[language] for language in config.languages or known}
