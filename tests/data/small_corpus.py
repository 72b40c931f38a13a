"""Twelve small files, and how they are prepared."""

from __future__ import annotations

import numpy as np

from rota.data.corpora.sources import CorpusConfig
from rota.data.preparation.cleaning import CleaningConfig
from rota.data.preparation.stages import prepare
from rota.data.store import Store
from rota.data.subwords import SubwordsConfig

WORDS = ["sea", "sky", "hill", "road", "bird", "lamp", "tree", "wind", "rain", "snow", "star", "moon", "boat"]


def sentences(count, seed):
    rng = np.random.default_rng(seed)
    return [" ".join(rng.choice(WORDS, rng.integers(3, 12))) + f" {seed}{number}" for number in range(count)]


def write_corpus(folder, train=None, **changes):
    """Three splits of az (30, 5 and 5 pairs) and tr (80, 6 and 6); the source is the English in capitals."""
    folder.mkdir(exist_ok=True)
    counts = {"az": {"train": 30, "dev": 5, "test": 5}, "tr": {"train": 80, "dev": 6, "test": 6}}
    for number, (language, splits) in enumerate(counts.items()):
        for split, count in splits.items():
            english = sentences(count, 10 * number + len(split))
            if split == "train" and train and language in train:
                english = train[language](english)
            for side, texts in ((language, [text.upper() for text in english]), ("en", english)):
                (folder / f"{split}.{language}.{side}").write_text("".join(f"{text}\n" for text in texts))
    patterns = {split: f"{folder}/{split}.{{language}}.{{side}}" for split in ("train", "dev", "test")}
    return CorpusConfig(languages=("az", "tr"), low_resource=("az",), **patterns, **changes)


def run(corpus, folder, *, cleaning=None, subwords=None, seed=1, **options) -> Store:
    subwords = subwords or SubwordsConfig(size=400, lines=50)
    cleaning = cleaning or CleaningConfig()
    return prepare(corpus, cleaning, subwords, folder, cache=folder.parent / "cache", seed=seed, **options)
