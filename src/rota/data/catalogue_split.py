"""Which program texts are worth learning from, and which of them are held out for dev and test."""

from __future__ import annotations

import re
from collections.abc import Mapping
from hashlib import blake2b
from typing import Final

from rota.data.corpus import Pair, Split, tidy
from rota.types import Arm

Strings = Mapping[Arm, Mapping[str, Pair]]
"""Language to key of the English string to pair."""

CYRILLIC: Final[tuple[Arm, ...]] = ("be", "ru")
# Sizes of (test, dev). Azerbaijani has so few strings that more would leave it no training text.
WANTED: Final[Mapping[Arm, tuple[int, int]]] = {"az": (150, 80)}
WANTED_BY_DEFAULT: Final = (300, 200)
HELD_OUT_WORDS: Final = range(2, 41)  # as the training text, but for the longest, which are rare
MIN_LETTERS: Final = 0.7  # of the characters that are no spaces

# Formats, markup, identifiers, tables of shortcuts, entities and addresses: the model could only copy them.
_JUNK = re.compile(r"[%{}<>$`\\|=_@#*~^\[\]←→↵•\n\t]|&\w|://|www\.|\.(?:html?|py|com|org|txt|css|js|xml|zip)\b")
_MNEMONIC = re.compile(r"(?<!\w)_(?=\w)")  # GTK underlines the letter after it: "_Open file"
_MNEMONIC_ASIDE = re.compile(r"\s*\(_\w\)")  # where no letter of the translation fits: "... (_O)"
_TAIL = re.compile(r"\s*(?::|\.\.\.|…)+$")
_WORD = re.compile(r"\w+")
_CYRILLIC_LETTER = re.compile(r"[\u0400-\u04ff]")


def clean_message(arm: Arm, english: str, translation: str) -> Pair | None:
    """The message as a pair of plain sentences, or ``None`` if it is not fit to learn from."""
    english, translation = english.strip(), translation.strip()
    if _MNEMONIC.search(english):
        english, translation = _MNEMONIC.sub("", english), _MNEMONIC_ASIDE.sub("", translation).replace("_", "", 1)
    if _JUNK.search(english) or _JUNK.search(translation):
        return None
    english, translation = _TAIL.sub("", tidy(english)), _TAIL.sub("", tidy(translation))
    if len(english.split()) < 2 or english.casefold() == translation.casefold():
        return None
    fit = _is_prose(english) and _is_prose(translation) and _has_right_script(arm, translation)
    return (translation, english) if fit else None


def _is_prose(text: str) -> bool:
    letters = sum(map(str.isalpha, text))
    return letters > 0 and letters >= MIN_LETTERS * (len(text) - text.count(" "))


def _has_right_script(arm: Arm, translation: str) -> bool:
    """Catches strings that were left in English, or filed under the wrong language."""
    letters = sum(map(str.isalpha, translation))
    cyrillic = len(_CYRILLIC_LETTER.findall(translation))
    return 2 * cyrillic > letters if arm in CYRILLIC else cyrillic == 0


def key_of(english: str) -> str:
    """What counts as the same English string: its words, whatever the case and the punctuation."""
    return " ".join(_WORD.findall(english.casefold()))


def split_strings(strings: Strings) -> dict[Arm, dict[Split, list[Pair]]]:
    """Train, dev and test of each language; an English string is in the same split everywhere."""
    place = hold_out(strings)
    corpus: dict[Arm, dict[Split, list[Pair]]] = {}
    for arm, pairs in strings.items():
        corpus[arm] = {"train": [], "dev": [], "test": []}
        for key in sorted(pairs, key=_shuffled):
            corpus[arm][place.get(key, "train")].append(pairs[key])
    return corpus


def hold_out(strings: Strings) -> dict[str, Split]:
    """The keys of the dev and test strings.

    The languages take their turns from the smallest to the largest; each takes what it still lacks, first the strings
    that most languages have, and never one that a language before it could train on.
    """
    coverage = _coverage(strings)
    chosen: dict[str, Split] = {}
    finished: set[str] = set()
    for arm in sorted(strings, key=lambda arm: (len(strings[arm]), arm)):
        candidates = [key for key in strings[arm] if key not in finished and len(key.split()) in HELD_OUT_WORDS]
        candidates.sort(key=lambda key: (-coverage[key], _shuffled(key)))
        _take(candidates, chosen, _missing(arm, strings[arm], chosen))
        finished.update(strings[arm])
    return chosen


def _coverage(strings: Strings) -> dict[str, int]:
    coverage: dict[str, int] = {}
    for pairs in strings.values():
        for key in pairs:
            coverage[key] = coverage.get(key, 0) + 1
    return coverage


def _missing(arm: Arm, pairs: Mapping[str, Pair], chosen: Mapping[str, Split]) -> dict[Split, int]:
    """How many strings each held-out split of a language still lacks; never so many that half its text is gone."""
    test, dev = WANTED.get(arm, WANTED_BY_DEFAULT)
    scale = min(1.0, len(pairs) / 2 / (test + dev))
    have = [chosen[key] for key in pairs if key in chosen]
    return {"test": int(test * scale) - have.count("test"), "dev": int(dev * scale) - have.count("dev")}


def _take(candidates: list[str], chosen: dict[str, Split], missing: Mapping[Split, int]) -> None:
    """Deals the candidates out, each to the split that lacks the larger share, so that both are of one kind."""
    needs = {split: count for split, count in missing.items() if count > 0}
    left = dict(needs)
    for key in candidates:
        if not any(left.values()):
            return
        if key not in chosen:
            split = max(left, key=lambda split: left[split] / needs[split])
            chosen[key] = split
            left[split] -= 1


def _shuffled(key: str) -> bytes:
    """A fixed order that has nothing to do with the alphabet or the program a string is from."""
    return blake2b(key.encode(), digest_size=8).digest()
