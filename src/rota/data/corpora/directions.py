"""Translation in several directions: which ones a config asks for, and the text of each.

Text of a language and the pivot (``data.target``) serves both directions. Text of two other languages comes from files
that name them, from sources of that direction, or is joined: sentences whose translation into the pivot is the same.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain, islice, product
from typing import Final

from rota.data.corpora.arms import NamedCorpus, Sources, source_texts
from rota.data.corpora.parallel import SPLITS, Corpus, Pair, ParallelText, Split, check_known
from rota.types import Arm, Route

BOTH_WAYS: Final = "both-ways"

Direction = tuple[str, str]
"""The language of the source, and that of the target."""

Directions = tuple[str, ...] | str
"""As in a config: names such as ``gl-en`` or, with a star for every language, ``*-en``; or ``both-ways``."""


def direction_name(direction: Direction) -> str:
    return "-".join(direction)


def resolved(directions: Directions, languages: Sequence[str], pivot: str) -> tuple[Direction, ...]:
    """The directions that a config asks for; ``both-ways``: each language into the pivot and out of it."""
    if isinstance(directions, str):
        return tuple(pair for language in languages for pair in ((language, pivot), (pivot, language)))
    # What is listed by name keeps its place, wherever a star would match it too.
    named = [None if has_star(written) else parsed(written, languages, pivot) for written in directions]
    found: list[Direction] = []
    for written, pair in zip(directions, named, strict=True):
        if pair is not None:
            found.append(pair)
            continue
        new = [each for each in _matched(written, languages, pivot) if each not in found and each not in named]
        if not new:
            further = f"no further direction between two languages of {', '.join((*languages, pivot))}"
            raise ValueError(f"{written!r} matches {further}; remove it, or write for example *-{pivot}")
        found += new
    return tuple(found)


def has_star(written: str) -> bool:
    return "*" in written.split("-")


def _matched(written: str, languages: Sequence[str], pivot: str) -> Iterator[Direction]:
    """The directions that are meant by a name with a star, in the order of the languages; the pivot comes last."""
    if not languages:
        raise ValueError(f"the star in {written!r} needs the languages; list them, for example languages: [az, tr]")
    known = (*languages, pivot)
    for source, target in product(known, known):
        if source != target and written in (f"*-{target}", f"{source}-*", "*-*"):
            yield source, target


def parsed(written: str, languages: Collection[str], pivot: str) -> Direction:
    """The two languages that a name such as ``gl-en`` is made of; ``languages``: the known ones, if any."""
    known = {*languages, pivot}
    fitting = [pair for pair in _halves(written) if pair[0] != pair[1] and (not languages or set(pair) <= known)]
    if len(fitting) > 1:
        readings = " or ".join(" into ".join(pair) for pair in fitting)
        remedy = "rename one of them" if languages else "list the languages, for example languages: [gl, pt-br]"
        raise ValueError(f"{written!r} may be {readings}; {remedy}")
    if not fitting:
        among = f" of {', '.join(sorted(known))}" if languages else ""
        raise ValueError(f"{written!r} is not a direction between two languages{among}; write for example gl-en")
    return fitting[0]


def _halves(written: str) -> list[Direction]:
    parts = written.split("-")
    return [("-".join(parts[:place]), "-".join(parts[place:])) for place in range(1, len(parts))]


def is_direction(key: str, directions: Directions | None, languages: Collection[str], pivot: str) -> bool:
    """Whether a key of a mapping, which may be a language, is one of the directions, or one between two languages."""
    if not directions or key in languages:
        return False
    named = not isinstance(directions, str) and key in directions
    return named or any({*pair} <= {*languages, pivot} for pair in _halves(key))


def languages_among(keys: Iterable[str], directions: Directions | None, pivot: str) -> tuple[str, ...]:
    """The languages that keys of a mapping name, by themselves or in the name of a direction."""
    names = list(keys)
    found: dict[str, None] = {}
    for key in names:
        others = [name for name in names if name != key]
        if not is_direction(key, directions, others, pivot):
            found[key] = None
        elif not any({*pair} <= {*others, pivot} for pair in _halves(key)):
            found |= dict.fromkeys(languages_of([parsed(key, (), pivot)], pivot))
    return tuple(found)


def languages_of(directions: Sequence[Direction], pivot: str) -> tuple[str, ...]:
    """All languages but the pivot, in order."""
    return tuple(dict.fromkeys(language for pair in directions for language in pair if language != pivot))


def ranked(sets: Iterable[Route], pivot: str, only_measured: Collection[str]) -> tuple[str, ...]:
    """The languages of these dev sets that can be low-resource or high-resource: those with training text."""
    languages = languages_of([(route.source, route.target) for route in sets], pivot)
    return tuple(language for language in languages if language not in only_measured)


def share_text(sets: Collection[Route], languages: Collection[str]) -> bool:
    """Whether all of these languages have the same text: one alone, or the two of ``pt-gl`` and ``gl-pt``."""
    pairs = [{frozenset((r.source, r.target)) for r in sets if each in (r.source, r.target)} for each in languages]
    return len(pairs) == 1 or all(each and each == pairs[0] for each in pairs)


def check_low_resource(
    named: Iterable[str], known: Collection[str], languages: Collection[str], only_measured: Collection[str]
) -> None:
    """Refuses a list of low-resource languages with one that cannot be; of those known, ``languages`` are ranked."""
    for language in named if known else ():
        check_known(language, known, "low-resource language")
        if language not in languages:
            why = "is in 'only_measured' and not trained on" if language in only_measured else "is in no direction"
            raise ValueError(f"'low_resource' names {language!r}, which {why}; remove it there")


def directed_name(name: Arm, language: str, direction: Direction) -> Arm:
    """``gl`` becomes ``gl-en``, and ``gl-web``, a source of it, ``gl-en.gl-web``."""
    return direction_name(direction) if name == language else f"{direction_name(direction)}.{name}"


def directed_routes(routes: Mapping[Arm, Route], directions: Sequence[Direction], pivot: str) -> dict[Arm, Route]:
    """Of all arms and dev sets; ``routes`` are those into the pivot, by language and source."""
    found = {}
    for direction in directions:
        found[direction_name(direction)] = Route(*direction, direction_name(direction))
        for name, route in routes.items():
            if set(direction) == {route.source, pivot}:
                dev = directed_name(route.dev, route.source, direction)
                found[directed_name(name, route.source, direction)] = Route(*direction, dev)
    return found


def source_name(name: Arm, direction: Direction) -> Arm:
    """``pt-gl.web`` of the source ``web``; a source with the name of its direction is that arm."""
    whole = direction_name(direction)
    return name if name == whole else f"{whole}.{name}"


def own_source_routes(sources: Sources, direction: Direction) -> dict[Arm, Route]:
    """Of the arms and dev sets of sources that have text of this direction alone."""
    routes = {}
    for name, source in sources.items():
        dev = source_name(name, direction) if source.own_sets else direction_name(direction)
        for each in (*source.arms(name), *((name,) if source.own_sets else ())):
            routes[source_name(each, direction)] = Route(*direction, dev)
    return routes


def own_source_texts(sources: Sources, direction: Direction) -> dict[Arm, dict[Split, ParallelText]]:
    found: dict[Arm, dict[Split, ParallelText]] = {}
    for name, source in sources.items():
        for arm, splits in source_texts(name, source, direction, _no_corpus).items():
            found[source_name(arm, direction)] = splits
    return found


def arm_groups(arms: Mapping[Arm, Route], sources: Sources, *, by_language: bool) -> dict[str, tuple[Arm, ...]]:
    """The arms of each source, of each part of one that is split, and of each language, from it or into it."""
    names = {part: source for source, each in sources.items() for part in each.arms(source)}
    found: dict[str, dict[Arm, None]] = {}
    for arm, route in arms.items():
        part = arm.removeprefix(f"{direction_name((route.source, route.target))}.")
        of_source = (names[part], part) if part in names else ()
        for name in (*((route.source, route.target) if by_language else ()), *of_source):
            found.setdefault(name, {})[arm] = None
    return {name: tuple(of_name) for name, of_name in found.items() if name not in arms}


def _no_corpus(corpus: NamedCorpus, language: str) -> ParallelText:
    raise AssertionError(f"{corpus} {language}: the text of a direction is in files")


def directed(
    corpus: Corpus,
    routes: Mapping[Arm, Route],
    directions: Sequence[Direction],
    pivot: str,
    own: Mapping[Direction, Mapping[Arm, Mapping[Split, ParallelText]]],
    is_made: Callable[[Split, Direction], bool],
) -> Corpus:
    """The text of every direction. ``corpus`` has that of languages with the pivot, ``own`` that of directions.

    ``is_made`` says of which splits of a direction the text is made from that of languages.
    """
    found: dict[Arm, dict[Split, ParallelText]] = {}
    for direction in directions:
        of_direction = own.get(direction, {})
        name = direction_name(direction)
        made: dict[Arm, dict[Split, ParallelText]] = {}
        if pivot not in direction:
            made[name] = {
                split: _made(corpus, routes, split, direction) for split in SPLITS if is_made(split, direction)
            }
        for each, splits in corpus.items():
            if {routes[each].source, pivot} == set(direction):
                turned = {split: _turned(text, direction[0] == pivot) for split, text in splits.items()}
                made[directed_name(each, routes[each].source, direction)] = turned
        for arm in dict.fromkeys((name, *made, *of_direction)):
            if splits := {**made.get(arm, {}), **of_direction.get(arm, {})}:
                found[arm] = splits
    return found


def _made(corpus: Corpus, routes: Mapping[Arm, Route], split: Split, direction: Direction) -> ParallelText:
    """Joined from the text that both languages have with the pivot."""
    first, second = (_text(corpus, routes, split, language, direction) for language in direction)
    return _joined(first, second, split, direction)


def _text(
    corpus: Corpus, routes: Mapping[Arm, Route], split: Split, language: str, direction: Direction
) -> ParallelText:
    """The language's own text; of one that has training text in sources alone, that of all its sources."""
    if split in corpus.get(language, {}):
        return corpus[language][split]
    arms = [name for name, route in routes.items() if route.source == language and split == "train"]
    texts = [corpus[name]["train"] for name in arms if "train" in corpus[name]]
    if not texts:
        name = direction_name(direction)
        lacks = f"{language!r} has no {split} text of its own to be joined for {name!r}"
        raise ValueError(f"{lacks}; give {split!r} text under the key {name!r}, or name files with {{side}}")

    def read() -> Iterator[Pair]:
        return chain.from_iterable(islice(text.read(), text.at_most) for text in texts)

    files = tuple(dict.fromkeys(chain.from_iterable(text.files for text in texts)))
    return ParallelText(", ".join(text.origin for text in texts), files, read, sum(text.size for text in texts))


def _turned(text: ParallelText, turn: bool) -> ParallelText:
    """The text as it is, or from the pivot into the language."""
    return replace(text, read=lambda: ((target, source) for source, target in text.read())) if turn else text


def _joined(first: ParallelText, second: ParallelText, split: Split, direction: Direction) -> ParallelText:
    """Pairs of sentences that have the same translation into the pivot; of several with the same one, the first."""
    origin = f"{first.origin} joined with {second.origin}"

    def read() -> Iterator[Pair]:
        by_pivot: dict[str, str] = {}
        empty = True
        for source, pivot in first.read():
            if source and pivot:  # a missing translation is an empty line, and two of them are not the same sentence
                by_pivot.setdefault(pivot, source)
        for target, pivot in second.read():
            if target and pivot in by_pivot:
                empty = False
                yield by_pivot.pop(pivot), target
        if empty:
            name = direction_name(direction)
            remedy = f"give {split!r} text of these two languages under the key {name!r}"
            source = f", or write a source with direction: {name}" if split == "train" else ""
            raise ValueError(f"{origin}: no two sentences have the same translation; {remedy}{source}")

    files = tuple(dict.fromkeys((*first.files, *second.files)))
    return ParallelText(origin, files, read, first.size)
