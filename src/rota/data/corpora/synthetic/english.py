"""A small English grammar: what the synthetic languages talk about, and how English says it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


NOUNS: Final = _words(
    "apple artist baker bank bear bird boat book bottle box boy bridge brother castle cat chair child church city "
    "cloud cook corner cow dancer daughter doctor dog door dragon engine farmer father fence field fish flower "
    "forest friend garden girl glass goat guard guest hammer hat hill horse hotel house hunter island judge key "
    "king kitchen knife lady lake lamp lawyer leaf letter library lion man map market mirror mother mountain "
    "mouse neighbour nurse office orange painter park picture pilot pirate plate poet prince queen rabbit ring "
    "river road rope sailor school sheep ship shoe singer sister soldier son spoon stone storm student table "
    "teacher thief tower town train tree uncle valley village wagon wall watch whale window wolf woman writer"
)
IRREGULAR_PLURALS: Final = {
    "child": "children", "fish": "fish", "knife": "knives", "leaf": "leaves", "man": "men", "mouse": "mice",
    "sheep": "sheep", "thief": "thieves", "wolf": "wolves", "woman": "women",
}  # fmt: skip
ADJECTIVES: Final = _words(
    "big black blue brave bright broken brown busy calm cheap clean clever cold dark dirty empty famous fat "
    "friendly funny green happy heavy honest hungry kind lazy light little lonely loud narrow new noisy old "
    "pretty proud quiet red rich round sad sharp shy silent small soft strange strong tall tired ugly warm weak "
    "white wild wise young"
)
TRANSITIVE: Final = _words(
    "admire answer break buy call carry catch chase clean close cover defend describe draw drop fear feed find "
    "follow forget greet guard hate hear help hide hold know leave like lose love need notice open paint pull "
    "push remember repair see sell steal touch trust visit wash watch"
)
INTRANSITIVE: Final = _words(
    "arrive cough cry dance disappear fall fight jump laugh listen pray rest return run shout sing sit sleep "
    "smile stand swim talk travel wait walk whisper work yawn"
)
IRREGULAR_PASTS: Final = {
    "break": "broke", "buy": "bought", "catch": "caught", "draw": "drew", "drop": "dropped", "fall": "fell",
    "feed": "fed", "fight": "fought", "find": "found", "forget": "forgot", "hear": "heard", "hide": "hid",
    "hold": "held", "know": "knew", "leave": "left", "lose": "lost", "run": "ran", "see": "saw", "sell": "sold",
    "sing": "sang", "sit": "sat", "sleep": "slept", "stand": "stood", "steal": "stole", "swim": "swam",
}  # fmt: skip
ADVERBS: Final = _words(
    "again alone always badly carefully early gladly late never now often quickly quietly rarely secretly slowly "
    "sometimes soon suddenly today tonight together twice well yesterday"
)
PREPOSITIONS: Final = _words("above at behind beside from in near on under without")
CONJUNCTIONS: Final = _words("and because but while")
DETERMINERS: Final = (
    ("the", "the"), ("a", "some"), ("this", "these"), ("that", "those"), ("my", "my"), ("your", "your"), ("no", "no"),
)  # fmt: skip
VERBS: Final = TRANSITIVE + INTRANSITIVE
DRAWS: Final = 24  # random numbers that one sentence may use up


class NounPhrase(NamedTuple):
    """Numbers are positions in the lists above."""

    determiner: int
    adjective: int | None
    noun: int
    plural: bool


class Clause(NamedTuple):
    subject: NounPhrase
    verb: int
    past: bool
    object: NounPhrase | None
    adverb: int | None
    place: tuple[int, NounPhrase] | None  # preposition and what it governs


class Sentence(NamedTuple):
    first: Clause
    conjunction: int | None
    second: Clause | None


def compose(numbers: list[int]) -> Sentence:
    """A sentence of 3 to 12 English words from ``DRAWS`` random non-negative integers."""
    draw = iter(numbers).__next__
    joined = draw() % 4 == 0
    first = _clause(draw, place=not joined)
    if not joined:
        return Sentence(first, None, None)
    conjunction = draw() % len(CONJUNCTIONS)
    return Sentence(first, conjunction, _bare_clause(draw))


def _clause(draw: Callable[[], int], *, place: bool) -> Clause:
    subject = _noun_phrase(draw)
    verb = draw() % len(VERBS)
    patient = _noun_phrase(draw) if verb < len(TRANSITIVE) else None
    past = draw() % 2 == 0
    adverb = draw() % len(ADVERBS) if draw() % 3 == 0 else None
    if not place or draw() % 3:
        return Clause(subject, verb, past, patient, adverb, None)
    where = NounPhrase(draw() % len(DETERMINERS), None, draw() % len(NOUNS), draw() % 3 == 0)
    return Clause(subject, verb, past, patient, adverb, (draw() % len(PREPOSITIONS), where))


def _bare_clause(draw: Callable[[], int]) -> Clause:
    subject = _noun_phrase(draw)._replace(adjective=None)
    return Clause(subject, len(TRANSITIVE) + draw() % len(INTRANSITIVE), draw() % 2 == 0, None, None, None)


def _noun_phrase(draw: Callable[[], int]) -> NounPhrase:
    determiner, noun, plural = draw() % len(DETERMINERS), draw() % len(NOUNS), draw() % 3 == 0
    shade = draw() % (2 * len(ADJECTIVES))
    return NounPhrase(determiner, shade if shade < len(ADJECTIVES) else None, noun, plural)


def say(sentence: Sentence) -> str:
    """The sentence in English, without capitals or a full stop."""
    words = _say_clause(sentence.first)
    if sentence.conjunction is not None and sentence.second is not None:
        words += [CONJUNCTIONS[sentence.conjunction], *_say_clause(sentence.second)]
    return " ".join(words)


def _say_clause(clause: Clause) -> list[str]:
    words = _say_noun_phrase(clause.subject)
    words.append(_verb_form(VERBS[clause.verb], past=clause.past, plural=clause.subject.plural))
    if clause.object is not None:
        words += _say_noun_phrase(clause.object)
    if clause.adverb is not None:
        words.append(ADVERBS[clause.adverb])
    if clause.place is not None:
        words += [PREPOSITIONS[clause.place[0]], *_say_noun_phrase(clause.place[1])]
    return words


def _say_noun_phrase(phrase: NounPhrase) -> list[str]:
    noun = plural(NOUNS[phrase.noun]) if phrase.plural else NOUNS[phrase.noun]
    words = [noun] if phrase.adjective is None else [ADJECTIVES[phrase.adjective], noun]
    determiner = DETERMINERS[phrase.determiner][phrase.plural]
    return ["an" if determiner == "a" and words[0][0] in "aeiou" else determiner, *words]


def plural(noun: str) -> str:
    return IRREGULAR_PLURALS.get(noun) or _with_s(noun)


def _verb_form(verb: str, *, past: bool, plural: bool) -> str:
    if past:
        return IRREGULAR_PASTS.get(verb) or _with_ed(verb)
    return verb if plural else _with_s(verb)


def _with_s(word: str) -> str:
    if word.endswith("y") and word[-2] not in "aeiou":
        return word[:-1] + "ies"
    return word + ("es" if word.endswith(("s", "x", "ch", "sh")) else "s")


def _with_ed(verb: str) -> str:
    if verb.endswith("y") and verb[-2] not in "aeiou":
        return verb[:-1] + "ied"
    return verb + ("d" if verb.endswith("e") else "ed")
