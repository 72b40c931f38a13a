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
    check_measured,
    check_names,
    collect_missing,
    source_routes,
    with_sources,
)
from rota.data.corpora.directions import (
    BOTH_WAYS,
    Direction,
    arm_groups,
    check_low_resource,
    directed,
    directed_routes,
    direction_name,
    has_star,
    languages_among,
    languages_of,
    own_source_routes,
    own_source_texts,
    parsed,
    ranked,
    resolved,
    share_text,
)
from rota.data.corpora.language_files import check_keys, has_text, names_pairs, own_files, patterns_of_direction
from rota.data.corpora.parallel import (
    SPLITS,
    Corpus,
    MissingTexts,
    Needed,
    ParallelText,
    Patterns,
    Split,
    check_known,
    check_languages,
    fields_of,
    having,
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
            check_languages(languages, self.target)
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
            raise ValueError("'only_measured' names every language: there is nothing to train on; leave one out")
        check_low_resource(self.low_resource or (), self.all_languages, self.ranked_languages, self.only_measured)
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
    def ranked_languages(self) -> tuple[str, ...]:
        return ranked(self.dev_sets.values(), self.target, self.only_measured)

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
        names = list(map(direction_name, pairs))
        for name, source in self.sources.items():
            if source.direction and source.direction not in names:
                known = f"the direction of the source {name!r} is {source.direction!r}"
                raise ValueError(f"{known}, which 'directions' does not list; add it there")
        for pair in pairs:
            name = direction_name(pair)
            named = patterns_of_direction(self, "train", pair) is not None or self.is_made("train", pair)
            if name in self.sources_of(pair) and named:
                raise ValueError(f"{name!r} is a direction with text of its own and also a source; rename the source")

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
            if source.language:
                check_languages((source.language,), self.target)
            if name in (MIXED, MIXED_HIGH_RESOURCE):
                raise ValueError(f"a source cannot be named {name!r}: mixed batches have that name; rename it")
            if self.languages and source.language:
                check_known(source.language, self.languages, f"language of the source {name!r}:")

    def _named_languages(self) -> Iterator[tuple[str, ...]]:
        """The languages of each list or mapping that names some; the first one decides which the corpus has."""
        listed = list(self._listed_languages())
        yield from listed
        by_name = isinstance(self.directions, tuple) and not any(map(has_star, self.directions))
        if by_name and self.corpus == "files" and not any(listed):
            yield languages_of(resolved(self.directions or (), (), self.target), self.target)

    def _listed_languages(self) -> Iterator[tuple[str, ...]]:
        yield self.languages
        if self.corpus == "synthetic":
            yield tuple(chain.from_iterable(self.synthetic.tree().values()))
        for patterns in (self.train, self.dev, self.test):
            if isinstance(patterns, dict) and not (self.languages and self.directions):
                own = languages_among(patterns, self.directions, self.target)
                yield tuple(dict.fromkeys((*own, *self._source_languages))) if self.sources else own
        if self.corpus == "files":
            yield self._source_languages

    @property
    def _source_languages(self) -> tuple[str, ...]:
        pairs = [
            parsed(source.direction, self.languages, self.target)
            if source.direction
            else (source.language, self.target)
            for source in self.sources.values()
        ]
        return languages_of(pairs, self.target)

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
        of_languages = {name: source for name, source in self.sources.items() if source.language}
        routes = {**own, **source_routes(of_languages, self.target)}
        if not self.directions:
            return routes
        routes = directed_routes(routes, self.pairs, self.target)
        for pair in self.pairs:
            routes |= own_source_routes(self.sources_of(pair), pair)
        return routes

    def groups(self, arms: Mapping[Arm, Route]) -> dict[str, tuple[Arm, ...]]:
        """The arms that the name of a language, of a source, or of a part of one stands for, in all directions."""
        return arm_groups(arms, self.sources, by_language=bool(self.directions))

    def measured_by(self, name: Arm) -> tuple[Arm, ...]:
        """The dev sets of a source, or of an arm of one; none if it is something else."""
        routes = {arm: route for arm, route in self._routes.items() if arm not in self.all_languages}
        sources = arm_groups(routes, self.sources, by_language=False)
        return tuple(dict.fromkeys(routes[arm].dev for arm in sources.get(name, (name,)) if arm in routes))

    def trains_on(self, pair: Direction) -> bool:
        return set(pair).isdisjoint(self.only_measured)

    def sources_of(self, pair: Direction) -> dict[str, SourceConfig]:
        """The sources that have text of this direction alone."""
        return {name: source for name, source in self.sources.items() if source.direction == direction_name(pair)}

    def is_made(self, split: Split, pair: Direction) -> bool:
        """Whether text of a direction is made from that of its languages with the target."""
        named, sources = patterns_of_direction(self, split, pair) is not None, self.sources_of(pair)
        if self.target in pair and any(source.language in pair for source in self.sources.values()):
            return True
        if named or not sources:
            return not named
        if split == "train":  # sources of a direction come in place of joined text, and beside that of the language
            return self.target in pair and any(has_text(self, split, each) for each in pair if each != self.target)
        alone = patterns_of_direction(self, "train", pair) is None and not self.is_made("train", pair)
        return not (alone and all(source.own_sets for source in sources.values()))

    def undirected(self) -> tuple[CorpusConfig, Needed]:
        """The same text as languages into the target, of those languages that the directions need it of."""
        needed = {
            split: languages_of([pair for pair in self.pairs if self.is_made(split, pair)], self.target)
            for split in SPLITS
        }
        languages = tuple(dict.fromkeys(chain.from_iterable(needed.values())))
        measured = tuple(language for language in languages if language not in needed["train"])
        sources = {name: source for name, source in self.sources.items() if source.language in languages}
        changes = {"directions": None, "languages": languages, "sources": sources, "only_measured": measured}
        return self.model_copy(update=changes), needed

    @property
    def names_pairs(self) -> bool:
        """Whether all patterns name the files of any two languages."""
        given = [patterns for split in SPLITS if (patterns := getattr(self, split)) is not None]
        return bool(given) and all(not isinstance(patterns, dict) and names_pairs(patterns) for patterns in given)


def open_corpus(config: CorpusConfig, cache: Path) -> Corpus:
    """The text of every language, checked as far as possible without reading it.

    Files must exist and languages be known; named corpora are fetched into ``cache`` if it lacks them. Arms of sources
    come after their language.
    """
    check_keys(config)
    return _opened(config, cache)


def _opened(config: CorpusConfig, cache: Path, needed: Needed | None = None) -> Corpus:
    if config.directions:
        return _to_train(config, _in_directions(config, cache))
    corpus = _open_own(config, cache, needed)
    if not config.sources:
        return _to_train(config, corpus)

    def named(corpus: NamedCorpus, language: str) -> ParallelText:
        same = {"path": config.path, "mirror": config.mirror, "release": config.release}
        where = same if corpus == config.corpus else {}
        other = CorpusConfig(corpus=corpus, languages=(language,), **where)
        return _open_own(other, cache)[language]["train"]

    return _to_train(config, with_sources(config, corpus, named, measured=needed is None))


def _to_train(config: CorpusConfig, corpus: Corpus) -> Corpus:
    """Without the training text of languages that are only measured."""
    if not config.only_measured:
        return corpus
    kept: dict[Arm, Mapping[Split, ParallelText]] = {}
    for name, route in config.routes(corpus).items():
        trained = config.trains_on((route.source, route.target))
        kept[name] = {split: text for split, text in corpus[name].items() if trained or split != "train"}
    return {name: splits for name, splits in kept.items() if splits}


def _in_directions(config: CorpusConfig, cache: Path) -> Corpus:
    plain, needed = config.undirected()
    corpus = _opened(plain, cache, needed) if plain.languages else {}
    own: dict[Direction, dict[Arm, dict[Split, ParallelText]]] = {}
    missing = MissingTexts()
    for pair in config.pairs:
        texts: dict[Split, ParallelText] = {}
        for split in SPLITS:
            if (patterns := patterns_of_direction(config, split, pair)) is not None:
                with missing.collected():
                    texts[split] = text_of_files(patterns, *pair)
        for source in config.sources_of(pair).values():
            collect_missing(source, pair, missing)
        own[pair] = {direction_name(pair): texts}
    missing.check()
    for pair, arms in own.items():
        for arm, splits in own_source_texts(config.sources_of(pair), pair).items():
            arms[arm] = {**arms.get(arm, {}), **splits}
    found = directed(corpus, plain.routes(corpus), config.pairs, config.target, own, config.is_made)
    routes = config.routes(having(found, "train"))
    trained = {(route.source, route.target) for route in routes.values()}
    for pair in config.pairs:
        if pair not in trained and config.trains_on(pair):
            name = direction_name(pair)
            raise ValueError(f"no train text for the direction {name!r}; add it under 'train', or as a source")
    check_measured(config, found)
    return found


def _open_own(config: CorpusConfig, cache: Path, needed: Needed | None = None) -> Corpus:
    """The text of the languages themselves, without sources."""
    if config.corpus == "files":
        return own_files(config, needed)
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
        return tuple(arm for arm in languages if arm in config.low_resource)
    if config.corpus in ("ted8", "catalogues") and set(languages) <= set(ted.LANGUAGES):
        return tuple(arm for arm in languages if arm in ted.LOW_RESOURCE)
    if config.corpus == "debian" and set(languages) <= set(debian.LANGUAGES):
        return tuple(arm for arm in languages if arm in debian.LOW_RESOURCE)
    return () if config.corpus != "synthetic" and share_text(config.dev_sets.values(), languages) else None


def _low_in_family(config: SyntheticConfig, sizes: Mapping[Arm, int]) -> tuple[Arm, ...]:
    largest = {arm: max(members.values()) for members in config.tree().values() for arm in members}
    return tuple(arm for arm, size in sizes.items() if size < LOW_RESOURCE_SHARE * largest.get(arm, 0))


def _chosen(config: CorpusConfig, known: tuple[Arm, ...], corpus: Callable[[], Corpus]) -> Corpus:
    """The languages that the config lists; they are checked before anything is fetched."""
    for language in config.languages:
        check_known(language, known)
    opened = corpus()
    return {language: opened[language] for language in config.languages or known}
