"""The corpus of generated languages: sentences of the small English grammar, said in each of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property, lru_cache, partial

import numpy as np

from rota.data.corpora.parallel import Corpus, Pair, ParallelText, Split
from rota.data.corpora.synthetic import english
from rota.data.corpora.synthetic.english import Sentence
from rota.data.corpora.synthetic.families import (
    Ancestor,
    Language,
    SyntheticConfig,
    make_ancestor,
    make_language,
    rng_for,
)
from rota.types import Arm

_CHUNK = 1000
_BYTES = 100  # of a pair, approximately


def synthetic_corpus(config: SyntheticConfig) -> Corpus:
    """All languages, generated as they are read. Each depends only on its own name and family, not on the others."""
    held_out = lru_cache(maxsize=1)(partial(_held_out_sentences, config))
    corpus: dict[Arm, dict[Split, ParallelText]] = {}
    for family, members in config.tree().items():
        ancestor = lru_cache(maxsize=1)(partial(make_ancestor, rng_for(config.seed, family)))
        for name, size in members.items():
            corpus[name] = _texts(_Speaker(config, family, name, ancestor), size, held_out)
    return corpus


class _Speaker:
    """One language, made when it is first needed: 512 languages cost nothing until they are read."""

    def __init__(self, config: SyntheticConfig, family: str, name: str, ancestor: Callable[[], Ancestor]) -> None:
        self.config = config
        self.name = name
        self._family = family
        self._ancestor = ancestor

    @cached_property
    def language(self) -> Language:
        return make_language(self._ancestor(), self.rng("language"), self.config.relatedness)

    def rng(self, purpose: str) -> np.random.Generator:
        return rng_for(self.config.seed, self._family, self.name, purpose)

    def pair(self, sentence: Sentence) -> Pair:
        return " ".join(self.language.say(sentence)), english.say(sentence)


Sentences = Callable[[], list[Sentence]]


def _texts(speaker: _Speaker, size: int, held_out: Sentences) -> dict[Split, ParallelText]:
    origin, dev = f"synthetic {speaker.name}", speaker.config.dev
    return {
        "train": ParallelText(origin, (), lambda: _train(speaker, size, held_out()), _BYTES * size),
        "dev": ParallelText(origin, (), lambda: map(speaker.pair, held_out()[:dev])),
        "test": ParallelText(origin, (), lambda: map(speaker.pair, held_out()[dev:])),
    }


def _sentences(rng: np.random.Generator) -> Iterator[Sentence]:
    while True:
        for numbers in rng.integers(0, 2**31, size=(_CHUNK, english.DRAWS)).tolist():
            yield english.compose(numbers)


def _held_out_sentences(config: SyntheticConfig) -> list[Sentence]:
    """Dev and test sentences, the same for every language so that their scores can be compared."""
    chosen: dict[str, Sentence] = {}
    for sentence in _sentences(rng_for(config.seed, "held out")):
        chosen.setdefault(english.say(sentence), sentence)
        if len(chosen) == config.dev + config.test:
            break
    return list(chosen.values())


def _train(speaker: _Speaker, size: int, held_out: list[Sentence]) -> Iterator[Pair]:
    """Distinct pairs whose English is in no dev or test set; a share of the source words is noise."""
    noise = _Noise(speaker)
    seen = set(map(english.say, held_out))
    target = len(seen) + size
    for sentence in _sentences(speaker.rng("train")):
        if len(seen) == target:
            return
        source, said = speaker.pair(sentence)
        if said not in seen:
            seen.add(said)
            yield noise(source), said


class _Noise:
    """Replaces a share of the words by others of the same language."""

    def __init__(self, speaker: _Speaker) -> None:
        self._rng = speaker.rng("noise")
        self._share = speaker.config.noise
        tables = speaker.language.forms.values()
        self._words = [form for table in tables for forms in table for form in forms] if self._share else []

    def __call__(self, source: str) -> str:
        if not self._share:
            return source
        words = source.split()
        for position in np.flatnonzero(self._rng.random(len(words)) < self._share):
            words[position] = self._words[self._rng.integers(len(self._words))]
        return " ".join(words)
