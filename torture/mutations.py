"""Changes of texts that people and programs get wrong: values, structure, bytes."""

from __future__ import annotations

import copy
import json
import random
import re
from collections.abc import Iterator
from typing import Any

from rota.config import parse_yaml

VALUES = (
    *(
        "",
        "null",
        "~",
        "-1",
        "0",
        "1",
        "3",
        "-0.0",
        "1e400",
        "-1e400",
        ".nan",
        ".inf",
        "-.inf",
        "9" * 40,
        "1e-320",
        "0.5",
    ),
    *(
        "true",
        "yes",
        "[]",
        "{}",
        "[1, 2]",
        "{a: 1}",
        "[" * 30,
        "{" * 30,
        "[" * 600,
        "!!bool 3",
        "!!python/object:os.system x",
    ),
    *(
        "&a [*a]",
        "*a",
        "'",
        '"',
        "a: b: c",
        "2024-13-45",
        "2024-01-01",
        "0x1F",
        "0o17",
        "1_000",
        "10%",
        "200%",
        "-5%",
        "%",
    ),
    *(
        "5k",
        "-5k",
        "5kk",
        "1e3k",
        "1/2",
        "1/0",
        "1/-2",
        "config.yaml",
        "run",
        "data",
        "nothing",
        "/dev/null",
        "/dev/full",
    ),
    *(
        "config.yaml/x",
        "{language}",
        "{side}",
        "{seed}",
        "{runs}",
        "{0}",
        "{",
        "${HOME}",
        "$(true)",
        "a\tb",
        "# x",
        "x" * 5000,
    ),
    *(
        "\x00",
        "\x1b[31m",
        "\ufeff",
        "\u202e",
        "\u2028",
        "é" * 300,
        "😀",
        "<script>alert(1)</script>",
        "a/b",
        ".",
        "|",
        "-",
    ),
    *(
        "uniform",
        "dqn",
        "tscl",
        "align",
        "mixed",
        "temperature",
        "lala",
        "lato",
        "en",
        "cpu",
        "cuda:7",
        "test",
        "dev",
        "macro",
    ),
)
JSON_VALUES = (
    *("null", "true", "-1", "0", "1e400", "NaN", "-Infinity", "9" * 40, "9" * 5000, '""', '"x"', "[]", "{}", "[[[]]]"),
    *(
        "[" * 3000,
        '{"a":' * 3000,
        '"\\ud800"',
        '"\\u0000"',
        '"<script>"',
        '"../x"',
        "1.5",
        '{"step": 1}',
        "0.1e",
        "'x'",
    ),
)

PLAIN = (
    *(
        None,
        True,
        False,
        0,
        1,
        -1,
        2,
        7,
        0.5,
        -0.5,
        1e308,
        10**30,
        float("nan"),
        float("inf"),
        "",
        "x",
        "1",
        "10%",
        "0%",
    ),
    *("100%", "1/3", "5k", "inf", "none", "uniform", "dqn", "tscl", "align", "mixed", "temperature", "tiny", "small"),
    *(
        "lala",
        "lato",
        "en",
        "{runs}",
        "{seed}",
        "run",
        "linear",
        "constant",
        "loss",
        "\ud800",
        "a\x00b",
        [],
        {},
        [0],
        ["lala"],
    ),
    *(
        ["lala", "lala"],
        [None],
        {"name": "dqn"},
        {"until": 3},
        {"": 0},
        [[]],
        "x" * 3000,
        "<b>",
        "/dev/null",
        "cuda",
        3.0,
    ),
)


def text(original: str, rng: random.Random) -> bytes:
    """One to four changes of YAML or another text."""
    if rng.random() < 0.5 and ": " in original:
        return tree(original, rng)
    changed = original
    for _ in range(rng.choice((1, 1, 1, 2, 3, 4))):
        changed = rng.choice(CHANGES)(changed, rng)
    data = changed.encode("utf-8", "surrogatepass")
    return flipped(data, rng) if rng.random() < 0.1 else data


def tree(original: str, rng: random.Random) -> bytes:
    """YAML with one to three values of another kind, or under another key; as JSON, so that it can be parsed."""
    root = {"": parse_yaml(original)}
    for _ in range(rng.choice((1, 1, 2, 3))):
        places = list(_places(root))
        inside, at = rng.choice(places)
        other, key = rng.choice(places)
        inside[at] = copy.deepcopy(rng.choice((*PLAIN, other[key], {str(at): inside[at]}, [inside[at]])))
        if isinstance(inside, dict) and inside is not root and rng.random() < 0.1:
            inside[rng.choice(("name", "steps", "nothing", ""))] = inside.pop(at)
    return json.dumps(root[""]).encode()


def _places(inside: Any) -> Iterator[tuple[Any, Any]]:
    for at, value in inside.items() if isinstance(inside, dict) else enumerate(inside):
        yield inside, at
        if isinstance(value, dict | list):
            yield from _places(value)


def record(original: str, rng: random.Random) -> bytes:
    """One to three changes of JSON or lines of JSON."""
    changed = original
    for _ in range(rng.choice((1, 1, 2, 3))):
        changed = rng.choice((json_value, json_value, json_value, key, lines, cut, joined))(changed, rng)
    return changed.encode("utf-8", "surrogatepass")


def without_checks(original: str) -> str:
    """A record or JSON file as version 0.1 wrote it: nothing but its content tells that it was changed."""
    return re.sub(r',\s*"check": "[0-9a-f]{8}"(?=\s*}\s*$)', "", original, flags=re.MULTILINE)


def flipped(data: bytes, rng: random.Random) -> bytes:
    """One bit of one byte, or another byte in its place."""
    if not data:
        return b"\x00"
    place = rng.randrange(len(data))
    other = data[place] ^ (1 << rng.randrange(8)) if rng.random() < 0.5 else (data[place] + rng.randrange(1, 256)) % 256
    return data[:place] + bytes([other]) + data[place + 1 :]


def value(original: str, rng: random.Random) -> str:
    """Another value after one of the colons."""
    found = list(re.finditer(r"(?<=: )[^,{}\n]+", original))
    if not found:
        return original
    match = rng.choice(found)
    return original[: match.start()] + rng.choice(VALUES) + original[match.end() :]


def json_value(original: str, rng: random.Random) -> str:
    found = list(re.finditer(r'(?<=":)\s*("[^"]*"|[-0-9.e+]+|true|false|null|[\[{])', original))
    if not found:
        return rng.choice(JSON_VALUES)
    match = rng.choice(found)
    return original[: match.start()] + rng.choice(JSON_VALUES) + original[match.end() :]


def key(original: str, rng: random.Random) -> str:
    """A word before a colon is another word of the text, or nonsense."""
    found = list(re.finditer(r"[\w-]+(?=\"?:)", original))
    if not found:
        return original
    match = rng.choice(found)
    other = rng.choice((rng.choice(found).group(), "steps", "name", "nothing", "", "0", "__class__", "😀"))
    return original[: match.start()] + other + original[match.end() :]


def insertion(original: str, rng: random.Random) -> str:
    place = rng.randrange(len(original) + 1)
    return original[:place] + rng.choice(VALUES) + original[place:]


def lines(original: str, rng: random.Random) -> str:
    """A line twice, lost, moved or indented."""
    found = original.split("\n")
    place = rng.randrange(len(found))
    line = found[place]
    how = rng.randrange(4)
    if how == 0:
        found.insert(rng.randrange(len(found) + 1), line)
    elif how == 1:
        del found[place]
    elif how == 2:
        found[place] = " " * rng.randrange(1, 6) + line
    else:
        found.insert(rng.randrange(len(found)), found.pop(place))
    return "\n".join(found)


def cut(original: str, rng: random.Random) -> str:
    """A piece is missing, at the end or in the middle."""
    start = rng.randrange(len(original) + 1)
    stop = len(original) if rng.random() < 0.3 else min(len(original), start + rng.randrange(40))
    return original[:start] + original[stop:]


def joined(original: str, rng: random.Random) -> str:
    """A piece of the text somewhere else in it again."""
    start = rng.randrange(len(original) + 1)
    piece = original[start : start + rng.randrange(60)]
    place = rng.randrange(len(original) + 1)
    return original[:place] + piece + original[place:]


CHANGES = (value, value, value, value, key, insertion, lines, cut, joined)
