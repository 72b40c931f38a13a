"""Plain values from YAML 1.2, of a size and shape that a config can have; all else is refused before it is built."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.events import AliasEvent, CollectionEndEvent, CollectionStartEvent

LONGEST: Final = 256_000
"""Characters of a text; a config with patterns for a thousand languages has a third of that."""

DEEPEST: Final = 20
"""Levels of nesting; a config has about five."""

MOST_VALUES: Final = 50_000
"""Values of a text with its aliases written out."""


class YAMLMistakeError(Exception):
    """What is wrong, in one line, and in which line of the text, if that is known."""

    def __init__(self, problem: str, line: int | None = None) -> None:
        super().__init__(" ".join(problem.split()))
        self.line = line


def parse_yaml(text: str) -> Any:
    """Plain values; a text that is too large, too deep or has tags is refused before anything is made of it."""
    if len(text) > LONGEST:
        raise YAMLMistakeError(f"{len(text):,} characters are too many; a config has at most {LONGEST:,}")
    try:
        _check_events(YAML(typ="safe", pure=True).parse(text))
        return YAML(typ="safe", pure=True).load(text)
    except MarkedYAMLError as error:
        mark = error.problem_mark
        raise YAMLMistakeError(str(error.problem), None if mark is None else mark.line + 1) from None
    except (YAMLError, ValueError) as error:  # ValueError: a date such as 2024-13-45
        raise YAMLMistakeError(str(error)) from None


def _check_events(events: Iterable[Any]) -> None:
    """Refuses tags, deep nesting, and aliases that repeat themselves or too much; the parser itself would recurse."""
    open_nodes: list[tuple[str | None, int]] = []  # anchor and first value of every list or mapping that is open
    sizes: dict[str, int] = {}  # values below each anchor, aliases counted as often as they are used
    count = 0
    for event in events:
        line = event.start_mark.line + 1
        if getattr(event, "tag", None) is not None:
            raise YAMLMistakeError(f"the tag {_untagged(event)} is not supported; write the plain value", line)
        if isinstance(event, AliasEvent):
            if any(anchor == event.anchor for anchor, _ in open_nodes):
                raise YAMLMistakeError(f"*{event.anchor} stands inside itself; write out what is meant", line)
            count += sizes.get(event.anchor, 0)
        elif isinstance(event, CollectionStartEvent):
            open_nodes.append((event.anchor, count))
        elif isinstance(event, CollectionEndEvent):
            anchor, before = open_nodes.pop()
            if anchor is not None:
                sizes[anchor] = count - before
        count += 1
        if len(open_nodes) > DEEPEST:
            raise YAMLMistakeError(f"more than {DEEPEST} levels of nesting; a config has about five", line)
        if count > MOST_VALUES:
            raise YAMLMistakeError(f"more than {MOST_VALUES:,} values, aliases written out; leave some out", line)


def _untagged(event: Any) -> str:
    tag = str(event.tag).replace("tag:yaml.org,2002:", "!!")
    return repr(tag if len(tag) <= 40 else tag[:37] + "...")
