"""Translation in several directions: which ones a config asks for, and the text of each.

Text of a language and the pivot (``data.target``) serves both directions. Text of two other languages comes from files
that name them, or is joined: sentences whose translation into the pivot is the same.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product
from typing import Final

from rota.data.corpora.parallel import Corpus, Pair, ParallelText, Split
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
    named = [None if has_star(written) else _parsed(written, languages, pivot) for written in directions]
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


def _parsed(written: str, languages: Collection[str], pivot: str) -> Direction:
    parts = written.split("-")
    halves = [("-".join(parts[:place]), "-".join(parts[place:])) for place in range(1, len(parts))]
    known = {*languages, pivot}
    fitting = [pair for pair in halves if pair[0] != pair[1] and (not languages or set(pair) <= known)]
    if len(fitting) > 1:
        readings = " or ".join(" into ".join(pair) for pair in fitting)
        remedy = "rename one of them" if languages else "list the languages, for example languages: [gl, pt-br]"
        raise ValueError(f"{written!r} may be {readings}; {remedy}")
    if not fitting:
        among = f" of {', '.join(sorted(known))}" if languages else ""
        raise ValueError(f"{written!r} is not a direction between two languages{among}; write for example gl-en")
    return fitting[0]


def languages_of(directions: Sequence[Direction], pivot: str) -> tuple[str, ...]:
    """All languages but the pivot, in order."""
    return tuple(dict.fromkeys(language for pair in directions for language in pair if language != pivot))


def through_pivot(directions: Sequence[Direction], pivot: str, *, joined: bool) -> tuple[str, ...]:
    """The languages whose text with the pivot is needed; ``joined``: also for pairs of two other languages."""
    needed = [pair for pair in directions if joined or pivot in pair]
    return languages_of(needed, pivot)


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


def directed(
    corpus: Corpus,
    routes: Mapping[Arm, Route],
    directions: Sequence[Direction],
    pivot: str,
    direct: Callable[[Split, Direction], ParallelText | None],
) -> Corpus:
    """The text of every direction. ``corpus`` has that of languages with the pivot, ``direct`` that of other pairs."""
    found: dict[Arm, dict[Split, ParallelText]] = {}
    for direction in directions:
        if pivot not in direction:
            found[direction_name(direction)] = {
                split: direct(split, direction) or _joined(*_texts(corpus, split, direction))
                for split in ("train", "dev", "test")
            }
            continue
        for name, splits in corpus.items():
            if {routes[name].source, pivot} == set(direction):
                turned = {split: _turned(text, direction[0] == pivot) for split, text in splits.items()}
                found[directed_name(name, routes[name].source, direction)] = turned
    return found


def _texts(corpus: Corpus, split: Split, direction: Direction) -> list[ParallelText]:
    for language in direction:
        if split not in corpus.get(language, {}):
            lacks = f"{language!r} has no {split} text of its own to be joined for {direction_name(direction)!r}"
            raise ValueError(f"{lacks}; name files of the two languages with {{side}}")
    return [corpus[language][split] for language in direction]


def _turned(text: ParallelText, turn: bool) -> ParallelText:
    """The text as it is, or from the pivot into the language."""
    return replace(text, read=lambda: ((target, source) for source, target in text.read())) if turn else text


def _joined(first: ParallelText, second: ParallelText) -> ParallelText:
    """Pairs of sentences that have the same translation into the pivot; of several with the same one, the first."""

    def read() -> Iterator[Pair]:
        by_pivot: dict[str, str] = {}
        for source, pivot in first.read():
            by_pivot.setdefault(pivot, source)
        for target, pivot in second.read():
            if pivot in by_pivot:
                yield by_pivot.pop(pivot), target

    files = tuple(dict.fromkeys((*first.files, *second.files)))
    return ParallelText(f"{first.origin} joined with {second.origin}", files, read, first.size)
