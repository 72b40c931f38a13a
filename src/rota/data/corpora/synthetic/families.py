"""Language families made in code: a proto-lexicon, regular sound changes, own affixes and word order."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Final, Literal, Self
from zlib import crc32

import numpy as np
from pydantic import Field, model_validator

from rota.data.corpora.synthetic import english
from rota.data.corpora.synthetic.english import Clause, NounPhrase, Sentence
from rota.settings import Count, Settings

WordOrder = Literal["SOV", "SVO", "VSO"]
ORDERS: Final[tuple[WordOrder, ...]] = ("SOV", "SVO", "VSO")
CONSONANTS: Final = "bdfghjklmnprstvz"
VOWELS: Final = "aeiou"
# What a sound may become in a daughter language.
SHIFTS: Final = {"p": "f", "t": "d", "k": "g", "s": "z", "b": "v", "l": "r", "m": "n", "a": "e", "o": "u", "i": "y"}
SHIFTS_PER_LANGUAGE: Final = 3
LEXEMES: Final = {
    "noun": len(english.NOUNS),
    "adjective": len(english.ADJECTIVES),
    "verb": len(english.VERBS),
    "adverb": len(english.ADVERBS),
    "preposition": len(english.PREPOSITIONS),
    "conjunction": len(english.CONJUNCTIONS),
    "determiner": len(english.DETERMINERS),
}
AFFIXES: Final = ("plural", "accusative", "past")

Share = Annotated[float, Field(ge=0, le=1)]


class SyntheticConfig(Settings):
    """Sizes and kinship of the generated languages.

    ``families`` maps a family to its languages and their training sizes; without it, ``languages`` languages are
    named and put into families of ``family_size``, the first of each family with ``high`` training pairs and the
    others with ``low``.
    """

    families: dict[str, dict[str, Count]] | None = None
    languages: Annotated[Count, Field(ge=1, le=10_000)] = 4
    family_size: Annotated[Count, Field(ge=1)] = 2
    high: Annotated[Count, Field(ge=1)] = 8_000
    low: Annotated[Count, Field(ge=1)] = 400
    dev: Annotated[Count, Field(ge=1)] = 200
    test: Annotated[Count, Field(ge=1)] = 300
    relatedness: Share = 0.9  # of a language's words and affixes that follow from the proto-language by sound change
    noise: Share = 0.0  # of the source words of training text that are replaced by a random word
    seed: Annotated[int, Field(ge=0)] = 1

    @model_validator(mode="after")
    def _check(self) -> Self:
        names = [name for members in (self.families or {}).values() for name in members]
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"language {name!r} is in two families; rename one")
        if self.families is not None and not names:
            raise ValueError("'families' names no language; write for example families: {kelic: {kela: 8k, kelo: 400}}")
        for members in (self.families or {}).values():
            for name, size in members.items():
                if size < 1:
                    raise ValueError(f"language {name!r} has {size} training pairs; it needs at least 1")
        return self

    def tree(self) -> Mapping[str, Mapping[str, int]]:
        """The families with their languages and training sizes, given or named here."""
        if self.families is not None:
            return self.families
        tree: dict[str, dict[str, int]] = {}
        for number in range(self.languages):
            family_number, member = divmod(number, self.family_size)
            family = _syllables(family_number)
            tree.setdefault(family, {})[family + _syllables(member)] = self.low if member else self.high
        return tree


def _syllables(number: int) -> str:
    """0 to ``ka``, 1 to ``ro``, ...: a numeral whose digits are syllables, so that names can be spoken."""
    count = len(CONSONANTS) * len(VOWELS)
    head, digit = divmod(number, count)
    # 33 shares no factor with the 80 syllables: neighbours do not look alike.
    consonant, vowel = divmod((digit * 33 + 35) % count, len(VOWELS))
    return (_syllables(head - 1) if head else "") + CONSONANTS[consonant] + VOWELS[vowel]


def rng_for(seed: int, *names: str) -> np.random.Generator:
    """A generator for each name, independent of everything else that is generated."""
    return np.random.default_rng([seed, *(crc32(name.encode()) for name in names)])


@dataclass(frozen=True)
class Ancestor:
    """What the languages of a family inherit."""

    stems: Mapping[str, list[str]]  # word class to the stem of each lexeme
    affixes: Mapping[str, str]
    order: WordOrder
    adjective_last: bool


@dataclass(frozen=True)
class Language:
    """All word forms of a language and how it orders them."""

    forms: Mapping[str, list[tuple[str, ...]]]  # word class, lexeme, inflection
    order: WordOrder
    adjective_last: bool

    def say(self, sentence: Sentence) -> list[str]:
        words = self._clause(sentence.first)
        if sentence.conjunction is not None and sentence.second is not None:
            words += [self.forms["conjunction"][sentence.conjunction][0], *self._clause(sentence.second)]
        return words

    def _clause(self, clause: Clause) -> list[str]:
        parts = {
            "S": self._noun_phrase(clause.subject, accusative=False),
            "V": [self.forms["verb"][clause.verb][clause.past]],
            "O": [] if clause.object is None else self._noun_phrase(clause.object, accusative=True),
        }
        words = [word for part in self.order for word in parts[part]]
        if clause.place is not None:
            words += self._place(*clause.place)
        if clause.adverb is not None:
            words.append(self.forms["adverb"][clause.adverb][0])
        return words

    def _place(self, preposition: int, phrase: NounPhrase) -> list[str]:
        words = self._noun_phrase(phrase, accusative=False)
        adposition = self.forms["preposition"][preposition][0]
        return [*words, adposition] if self.order == "SOV" else [adposition, *words]

    def _noun_phrase(self, phrase: NounPhrase, *, accusative: bool) -> list[str]:
        words = [self.forms["noun"][phrase.noun][phrase.plural + 2 * accusative]]
        if phrase.adjective is not None:
            words.insert(len(words) if self.adjective_last else 0, self.forms["adjective"][phrase.adjective][0])
        return [self.forms["determiner"][phrase.determiner][0], *words]


def make_ancestor(rng: np.random.Generator) -> Ancestor:
    words = _new_words(rng)
    return Ancestor(
        stems={kind: [next(words) for _ in range(count)] for kind, count in LEXEMES.items()},
        affixes=dict(zip(AFFIXES, _new_affixes(rng), strict=True)),
        order=ORDERS[rng.integers(len(ORDERS))],
        adjective_last=bool(rng.integers(2)),
    )


def make_language(ancestor: Ancestor, rng: np.random.Generator, relatedness: float) -> Language:
    """A daughter of ``ancestor``; no two of its word forms are the same, so its sentences are not ambiguous."""
    heritage = _Heritage(rng, relatedness)
    affixes = {
        name: heritage.change(ancestor.affixes[name]) if heritage.inherits() else own
        for name, own in zip(AFFIXES, _new_affixes(rng), strict=True)
    }
    while affixes["plural"] == affixes["accusative"]:  # an ending of its own may be an inherited one
        affixes["accusative"] = _new_affixes(rng)[0]
    taken: set[str] = set()
    forms = {kind: [heritage.forms(kind, stem, affixes, taken) for stem in ancestor.stems[kind]] for kind in LEXEMES}
    order = ancestor.order if heritage.inherits() else ORDERS[rng.integers(len(ORDERS))]
    adjective_last = ancestor.adjective_last if heritage.inherits() else bool(rng.integers(2))
    return Language(forms, order, adjective_last)


class _Heritage:
    """How one language treats what it inherits: its sound changes and its own new words."""

    def __init__(self, rng: np.random.Generator, relatedness: float) -> None:
        self._rng = rng
        self._relatedness = relatedness
        self._new_words = _new_words(rng)
        shifted = rng.choice(sorted(SHIFTS), size=SHIFTS_PER_LANGUAGE, replace=False)
        self._shifts = str.maketrans({str(sound): SHIFTS[str(sound)] for sound in shifted})
        self._drops_final_vowel = bool(rng.integers(2))

    def inherits(self) -> bool:
        return bool(self._rng.random() < self._relatedness)

    def change(self, word: str) -> str:
        changed = word.translate(self._shifts)
        drops = self._drops_final_vowel and len(changed) > 4 and changed[-1] in VOWELS
        return changed[:-1] if drops else changed

    def forms(self, kind: str, stem: str, affixes: Mapping[str, str], taken: set[str]) -> tuple[str, ...]:
        """All forms of one lexeme, with a new stem if the language has no use for the old one."""
        candidate = self.change(stem) if self.inherits() else next(self._new_words)
        while not taken.isdisjoint(forms := _inflect(kind, candidate, affixes)):
            candidate = next(self._new_words)
        taken.update(forms)
        return forms


def _inflect(kind: str, stem: str, affixes: Mapping[str, str]) -> tuple[str, ...]:
    """Nouns: singular, plural, and the same as an object; verbs: present, past; others do not change."""
    if kind == "noun":
        numbers = (stem, stem + affixes["plural"])
        return (*numbers, *(form + affixes["accusative"] for form in numbers))
    return (stem, stem + affixes["past"]) if kind == "verb" else (stem,)


def _new_words(rng: np.random.Generator) -> Iterator[str]:
    """Endless distinct words of two or three syllables."""
    seen: set[str] = set()
    while True:
        for numbers in rng.integers(0, 2**31, size=(500, 4)).tolist():
            word = "".join(_syllable(number) for number in numbers[: 2 + numbers[3] % 2])
            if word not in seen:
                seen.add(word)
                yield word


def _syllable(number: int) -> str:
    number, consonant = divmod(number, len(CONSONANTS))
    return CONSONANTS[consonant] + VOWELS[number % len(VOWELS)]


def _new_affixes(rng: np.random.Generator) -> list[str]:
    """Three different endings, consonant, vowel, consonant: none is the beginning of another."""
    endings: dict[str, None] = {}
    while len(endings) < len(AFFIXES):
        first, vowel, last = rng.integers(len(CONSONANTS)), rng.integers(len(VOWELS)), rng.integers(len(CONSONANTS))
        endings[CONSONANTS[first] + VOWELS[vowel] + CONSONANTS[last]] = None
    return list(endings)
