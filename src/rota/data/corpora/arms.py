"""Several training texts of a language, each an arm: their settings, and the text of each.

A source is text in files, that of a named corpus, or a part taken from the language's own text. A column of a TSV file
can divide it further, by domain or by quality; ``bins.py`` divides by length or rarity. Dev and test sets stay with the
language unless a source brings its own.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cache
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, Self

from pydantic import BeforeValidator, Field, SerializerFunctionWrapHandler, model_serializer, model_validator

from rota.data.corpora.bins import Difficulty, empty_part, equal_edges, split_text
from rota.data.corpora.parallel import (
    NAME,
    Corpus,
    MissingTexts,
    Pair,
    ParallelText,
    Patterns,
    Split,
    files_of,
    listed,
    read_lines,
    text_of_files,
    tidy,
)
from rota.settings import Count, Settings, where_used
from rota.types import Arm, Route

if TYPE_CHECKING:
    from rota.data.corpora.sources import CorpusConfig

NamedCorpus = Literal["ted8", "catalogues", "debian"]
_DIGEST: Final = 8  # bytes


def _as_written(value: Any) -> Any:
    """A bin such as 1 is the text ``1`` of the column; a number such as 0.50 would not be what stands there."""
    if isinstance(value, bool | float):
        raise ValueError(f"write it in quotes, as it stands in the column: {str(value)!r}")
    return str(value) if isinstance(value, int) else value


class SplitBy(Settings):
    """What divides a text into arms: a column of a TSV file, by its values or its numbers; or the text itself."""

    column: int | None = Field(None, description="counted from 1; the first two are source and target")
    by: Difficulty | None = None  # the length of the target, or how rare the words of the source are
    values: tuple[Annotated[str, BeforeValidator(_as_written)], ...] = ()  # an arm for each; other lines are left out
    bins: int | None = None  # as many arms of equal size, lowest numbers first
    edges: tuple[float, ...] = ()  # an arm below the first, between each two, and from the last on

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        if (self.column is None) == (self.by is None):
            raise ValueError("give either column (of a TSV file) or by (length, rarity)")
        if self.by and self.values:
            raise ValueError(f"values are those of a column; by: {self.by} needs bins or edges")
        if self.column is not None and self.column < 3:
            raise ValueError(f"column is {self.column}, and columns 1 and 2 are source and target; write 3 or more")
        if self.bins is not None and self.bins < 2:
            raise ValueError(f"bins is {self.bins}, which divides nothing; write 2 or more")
        given = [name for name in ("values", "bins", "edges") if getattr(self, name)]
        if len(given) != 1:
            found = " and ".join(given) if given else "none of them"
            raise ValueError(f"give one of values, bins and edges; here is {found}")
        for value in self.values:
            if not NAME.fullmatch(value):
                raise ValueError(f"the value {value!r} becomes part of a name; use letters, digits, '-', '_' or '.'")
        if list(self.edges) != sorted(set(self.edges)):
            raise ValueError(f"edges must rise: {', '.join(f'{edge:g}' for edge in self.edges)}")
        return self

    @property
    def parts(self) -> tuple[str, ...]:
        """What is added to the name of the source."""
        return self.values or tuple(str(number) for number in range(1, (self.bins or len(self.edges) + 1) + 1))


class SourceConfig(Settings):
    """One training text of a language, which serves all its directions, or of a single direction."""

    language: str = ""
    direction: str = ""  # in place of language, such as pt-gl: text of these two languages, in this order
    train: Patterns | None = None  # as data.train
    corpus: NamedCorpus | None = None  # the training text of this language in a named corpus
    take: Annotated[float, Field(gt=0, lt=1)] | None = None  # this share of the language's own text, chosen by hash
    duplicate: Annotated[float, Field(gt=0, le=1)] | None = None  # this share of its arm's pairs, which the arm keeps
    dev: Patterns | None = None  # with test: an own dev and test set beside those of the language
    test: Patterns | None = None
    at_most: Count | None = Field(None, description="of each arm, the first pairs that cleaning keeps")
    split_by: SplitBy | None = None

    @model_validator(mode="after")
    def _check(self) -> Self:
        if bool(self.language) == bool(self.direction):
            found = "both" if self.language else "neither"
            raise ValueError(f"a source has a language or, for text of one direction, a direction; here is {found}")
        given = [name for name in ("train", "corpus", "take", "duplicate") if getattr(self, name) is not None]
        if len(given) != 1:
            found = " and ".join(given) if given else "none of them; write for example train: text/web.gl.tsv"
            raise ValueError(f"a source has one of train, corpus, take and duplicate; here is {found}")
        if self.at_most is not None and self.at_most < 1:
            raise ValueError(f"at_most is {self.at_most}, which leaves no text; write 1 or more, or remove the source")
        if self.direction and self.train is None:
            raise ValueError(f"{given[0]!r} is of a language; a source of a direction has files, under 'train'")
        if (self.dev is None) != (self.test is None):
            raise ValueError("a source that brings dev text brings test text too; give both, or neither")
        if (
            self.split_by
            and self.split_by.column
            and (self.train is None or any("{side}" in pattern for pattern in listed(self.train)))
        ):
            raise ValueError("split_by.column needs a TSV file; give train such a file, without {side}")
        return self

    @model_serializer(mode="wrap")
    def _what_is_set(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return where_used(self, write(self), *type(self).model_fields)

    @property
    def own_sets(self) -> bool:
        return self.dev is not None

    def arms(self, name: str) -> tuple[Arm, ...]:
        """The names of its arms: ``gl-web``, or ``gl-web.1``, ``gl-web.2`` of one that is split."""
        return (name,) if self.split_by is None else tuple(f"{name}.{part}" for part in self.split_by.parts)


Sources = Mapping[str, SourceConfig]


def check_names(sources: Sources, target: str) -> None:
    """Raises for names that cannot be those of arms."""
    seen: set[Arm] = set()
    for name, source in sources.items():
        if not NAME.fullmatch(name):
            raise ValueError(f"{name!r} is not a name for a source; use letters, digits, '-', '_' or '.'")
        if name == target:
            raise ValueError(f"a source cannot be named {name!r}: that is the target language; rename it")
        if name == f"{source.language}-{target}":
            raise ValueError(
                f"a source cannot be named {name!r}: files of {source.language!r} have that name; rename it"
            )
        for arm in source.arms(name):
            if arm in seen:
                raise ValueError(f"two sources have an arm {arm!r}; rename one of them")
            seen.add(arm)


def source_routes(sources: Sources, target: str) -> dict[Arm, Route]:
    """For each arm and each own dev set of a source: the languages, and the dev and test set that it is measured by."""
    routes = {}
    for name, source in sources.items():
        dev = name if source.own_sets else source.language
        for each in (*source.arms(name), *((name,) if source.own_sets else ())):
            routes[each] = Route(source.language, target, dev)
    return routes


def with_sources(
    config: CorpusConfig, own: Corpus, named: Callable[[NamedCorpus, str], ParallelText], *, measured: bool
) -> Corpus:
    """The text of languages with that of their sources, which come after their language.

    ``measured``: they are the arms themselves, each of which needs a dev and a test set.
    """
    missing = MissingTexts()
    for source in config.sources.values():
        collect_missing(source, (source.language, config.target), missing)
    missing.check()
    corpus: dict[Arm, Mapping[Split, ParallelText]] = {}
    languages = tuple(dict.fromkeys((*own, *(source.language for source in config.sources.values()))))
    for language in languages:
        of_language = {name: source for name, source in config.sources.items() if source.language == language}
        texts = {language: dict(own.get(language, {}))}
        taken = _taken(texts[language], of_language)
        for name, source in of_language.items():
            for arm, splits in source_texts(name, source, (language, config.target), named, taken.get(name)).items():
                if arm in languages and (arm != language or "train" in texts[arm]):
                    raise ValueError(f"{arm!r} is a language with text of its own and also a source; rename the source")
                texts[arm] = {**texts.get(arm, {}), **splits}
        corpus |= {name: splits for name, splits in texts.items() if splits}
    if measured:
        check_measured(config, corpus)
    return corpus


def collect_missing(source: SourceConfig, pair: tuple[str, str], missing: MissingTexts) -> None:
    """What files of a source there are not."""
    for patterns in (source.train, source.dev, source.test):
        with missing.collected():
            if patterns is not None:
                files_of(patterns, *pair)


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


def check_measured(config: CorpusConfig, texts: Corpus) -> None:
    """Every arm needs the dev and test set that it is measured by."""
    for arm, route in config.routes(texts).items():
        direction = f"the direction '{route.source}-{route.target}'"
        what = direction if config.directions else f"language {route.source!r}"
        for split in ("dev", "test"):
            if "train" in texts[arm] and split not in texts.get(route.dev, {}):
                remedy = f"add it under {split!r}, or give the source {split} text of its own"
                raise ValueError(f"no {split} text for {what} (arm {arm!r}); {remedy}")


def source_texts(
    name: str,
    source: SourceConfig,
    pair: tuple[str, str],
    named: Callable[[NamedCorpus, str], ParallelText],
    taken: ParallelText | None = None,
) -> dict[str, dict[Split, ParallelText]]:
    """The texts of a source by arm, and its dev and test sets, if it has them; ``pair`` are its two languages.

    ``named`` gives the training text of a language in a named corpus; ``taken`` is what this source takes.
    """
    found: dict[str, dict[Split, ParallelText]] = {}
    if source.own_sets:
        found[name] = {
            "dev": text_of_files(source.dev or (), *pair),
            "test": text_of_files(source.test or (), *pair),
        }
    by = source.split_by
    if by is not None and by.column is not None:
        texts = _split_texts(source, pair)
    else:
        texts = [taken or _whole_text(source, pair, named)]
        if by is not None and by.by is not None:
            texts = split_text(texts[0], by.by, by.edges, by.parts)
    for arm, text in zip(source.arms(name), texts, strict=True):
        found[arm] = {"train": replace(text, at_most=source.at_most), **found.get(arm, {})}
    return found


def _whole_text(
    source: SourceConfig, pair: tuple[str, str], named: Callable[[NamedCorpus, str], ParallelText]
) -> ParallelText:
    if source.corpus is not None:
        return named(source.corpus, source.language)
    return text_of_files(source.train or (), *pair)


def taken_texts(text: ParallelText, takers: Mapping[Arm, SourceConfig]) -> tuple[ParallelText, dict[Arm, ParallelText]]:
    """What is left of a language's own text, and the parts that sources take; a hash of the pair decides."""
    shares = [source.take or 0.0 for source in takers.values()]
    if sum(shares) >= 1:
        raise ValueError(f"{', '.join(takers)} take {sum(shares):g} of {text.origin}; leave the language some of it")
    ends = [sum(shares[: number + 1]) for number in range(len(shares))]

    def part(number: int) -> Callable[[], Iterator[Pair]]:
        def read() -> Iterator[Pair]:
            return (pair for pair in text.read() if bisect_right(ends, _fraction(pair)) == number)

        return read

    parts = {arm: replace(text, read=part(number)) for number, arm in enumerate(takers)}
    return replace(text, read=part(len(shares))), parts


def held_out_texts(
    text: ParallelText, splits: Sequence[Split], most: int
) -> tuple[ParallelText, dict[Split, ParallelText]]:
    """What is left of a training text, and the dev or test sets taken from it: ``most`` sentences, at most a tenth.

    A hash of the target sentence decides: texts of the same sentences in several languages hold out the same ones, and
    no held-out sentence is left in training.
    """

    @cache
    def bounds() -> list[float]:
        """The hashes at which a set begins, and the end of the last one."""
        count, lowest = 0, set[float]()
        for _, target in text.read():
            count += 1
            if target:
                lowest.add(_fraction((target,)))
            if len(lowest) > 4 * most * len(splits):
                lowest = set(sorted(lowest)[: most * len(splits)])
        each = max(1, min(most, count // 10))
        ranked = [*sorted(lowest), 1.0]
        return [0.0, *(ranked[min(each * number, len(ranked) - 1)] for number in range(1, len(splits) + 1))]

    def part(number: int) -> Callable[[], Iterator[Pair]]:
        return lambda: (pair for pair in text.read() if bisect_right(bounds(), _fraction(pair[1:])) == number)

    sets = {split: replace(text, read=part(number)) for number, split in enumerate(splits, start=1)}
    return replace(text, read=part(len(splits) + 1)), sets


def duplicated_text(text: ParallelText, share: float, taken: float) -> ParallelText:
    """A share of the pairs that a language's arm has, after sources took the part ``taken`` of its text."""
    begin = 1 - share * (1 - taken)  # those that are left have the fractions from ``taken`` to 1
    return replace(text, read=lambda: (pair for pair in text.read() if _fraction(pair) >= begin))


def _fraction(sides: Sequence[str]) -> float:
    """Of the pair as a number from 0 to 1: the same for equal pairs, so that no pair is in two arms."""
    hashed = blake2b("\t".join(sides).encode(), digest_size=_DIGEST).digest()
    return int.from_bytes(hashed, "little") / float(2 ** (8 * _DIGEST))


def _split_texts(source: SourceConfig, pair: tuple[str, str]) -> list[ParallelText]:
    assert source.split_by is not None
    files = files_of(source.train or (), *pair)
    origin, by = " + ".join(map(str, files)), source.split_by
    part_of = _part_of(files, by)

    def reader(number: int) -> Callable[[], Iterator[Pair]]:
        def read() -> Iterator[Pair]:
            choose, empty = part_of(), True
            for pair, value in _columns(files, by):
                if choose(value) == number:
                    empty = False
                    yield pair
            if empty:
                part = by.parts[number]
                if by.values:
                    raise ValueError(f"{origin}: no line has {part!r} in column {by.column}; change split_by.values")
                raise ValueError(empty_part(origin, part, "the same number", by.edges))

        return read

    return [ParallelText(f"{origin}, part {part}", files, reader(number)) for number, part in enumerate(by.parts)]


def _part_of(files: tuple[Path, ...], by: SplitBy) -> Callable[[], Callable[[Any], int | None]]:
    """When it is first needed: what part of the text a value of the column belongs to; None: to none."""

    @cache
    def make() -> Callable[[Any], int | None]:
        if by.values:
            return {value: number for number, value in enumerate(by.values)}.get
        edges = list(by.edges) if by.edges else _equal_bins(files, by)
        return lambda value: bisect_right(edges, value)

    return make


def _equal_bins(files: tuple[Path, ...], by: SplitBy) -> list[float]:
    """The numbers at which the lines are divided into as many parts of equal size as bins; ties stay together."""
    return equal_edges([float(value) for _, value in _columns(files, by)], by.bins or 1)


def _columns(files: tuple[Path, ...], by: SplitBy) -> Iterator[tuple[Pair, str | float]]:
    """Every pair of the files with the value of its column: a number, unless parts are named by values."""
    assert by.column is not None
    for path in files:
        for number, line in enumerate(read_lines(path), start=1):
            columns = line.split("\t")
            if len(columns) < by.column:
                found = f"{len(columns)} column{'' if len(columns) == 1 else 's'}"
                raise ValueError(f"{path}, line {number}: {found}; split_by.column is {by.column}")
            value = columns[by.column - 1].strip()
            yield (tidy(columns[0]), tidy(columns[1])), value if by.values else _number(value, path, number)


def _number(value: str, path: Path, line: int) -> float:
    with suppress(ValueError):
        if not math.isnan(number := float(value)):
            return number
    header = " (a header? remove it)" if line == 1 and value.lower() != "nan" else ""
    raise ValueError(f"{path}, line {line}: {value!r} is not a number{header}; split_by needs one, or values")
