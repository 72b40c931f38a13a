"""The named corpora, and one door to all of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from rota.data import catalogues, ted
from rota.data.corpus import SPLITS, Corpus, CorpusConfig, ParallelText, Patterns, Split, check_known, text_of_files
from rota.data.families import SyntheticConfig
from rota.data.synthetic import synthetic_corpus
from rota.types import Arm

LOW_RESOURCE_SHARE: Final = 0.2
"""A language with fewer training pairs than this share of the largest counts as low-resource, unless told."""


def open_corpus(config: CorpusConfig, cache: Path) -> Corpus:
    """The text of every language, checked as far as can be without reading it.

    Files must exist and languages be known; ``ted8`` and ``catalogues`` are fetched into ``cache`` if it lacks them.
    """
    if config.corpus == "files":
        return {language: _files(config, language) for language in _file_languages(config)}
    if config.corpus == "ted8":
        return ted.ted_corpus(config.languages or ted.LANGUAGES, cache, config.path, target=config.target)
    if config.target != "en":
        raise ValueError(f"target {config.target!r}; the corpus {config.corpus!r} translates into 'en' only")
    if config.corpus == "catalogues":
        return _chosen(config, catalogues.LANGUAGES, lambda: catalogues.catalogue_corpus(cache))
    corpus = synthetic_corpus(config.synthetic)
    return _chosen(config, tuple(corpus), lambda: corpus)


def low_resource(config: CorpusConfig, sizes: Mapping[Arm, int]) -> tuple[Arm, ...]:
    """The languages whose scores are averaged as low-resource, in the order of ``sizes`` (training pairs).

    What the config lists; else what the named corpus is known for (the paper's az, be, gl, sk); else those with less
    than a fifth of the training pairs of the largest language, in synthetic corpora the largest of their family.
    """
    if config.low_resource is not None:
        for language in config.low_resource:
            check_known(language, sizes, "low-resource language")
        return tuple(arm for arm in sizes if arm in config.low_resource)
    if config.corpus == "synthetic":
        return _low_in_family(config.synthetic, sizes)
    if config.corpus in ("ted8", "catalogues") and set(sizes) <= set(ted.LANGUAGES):
        return tuple(arm for arm in sizes if arm in ted.LOW_RESOURCE)
    limit = LOW_RESOURCE_SHARE * max(sizes.values(), default=0)
    return tuple(arm for arm, size in sizes.items() if size < limit)


def _low_in_family(config: SyntheticConfig, sizes: Mapping[Arm, int]) -> tuple[Arm, ...]:
    largest = {arm: max(members.values()) for members in config.tree().values() for arm in members}
    return tuple(arm for arm, size in sizes.items() if size < LOW_RESOURCE_SHARE * largest.get(arm, 0))


def _chosen(config: CorpusConfig, known: tuple[Arm, ...], corpus: Callable[[], Corpus]) -> Corpus:
    """The languages that the config lists; they are checked before anything is fetched."""
    for language in config.languages:
        check_known(language, known)
    opened = corpus()
    return {language: opened[language] for language in config.languages or known}


def _file_languages(config: CorpusConfig) -> tuple[Arm, ...]:
    if config.languages:
        return config.languages
    if isinstance(config.train, dict):
        return tuple(config.train)
    raise ValueError("no languages; list them, for example languages: [az, tr]")


def _files(config: CorpusConfig, language: Arm) -> dict[Split, ParallelText]:
    return {split: text_of_files(_patterns(config, split, language), language, config.target) for split in SPLITS}


def _patterns(config: CorpusConfig, split: Split, language: Arm) -> Patterns:
    patterns = {"train": config.train, "dev": config.dev, "test": config.test}[split]
    if isinstance(patterns, dict):
        if language not in patterns:
            raise ValueError(f"no {split} text for language {language!r}; add it under {split!r}, which is a mapping")
        return patterns[language]
    return patterns or ()
