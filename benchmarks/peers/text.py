"""The same segmented text for every peer: pairs of all languages. A subword is `t` and its number; the tag is first."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from rota.data.store import Flat, Store
from rota.data.subwords import SPECIALS

HELD_OUT = 200
"""Pairs that peers want for validation, which never happens."""


def pairs_in(folder: Path) -> int:
    return len(np.load(folder / "pairs.npy"))


def write_text(store: Store, folder: Path, pairs: int) -> None:
    """Pairs drawn from the training text, as many as asked for if there are, and the vocabulary; once."""
    if (folder / "pairs.npy").exists():
        return
    folder.mkdir(parents=True, exist_ok=True)
    train = store.split("train")
    drawn = np.random.default_rng(1).permutation(len(train))[: pairs + HELD_OUT]
    for name, indices in (("dev", drawn[:HELD_OUT]), ("train", drawn[HELD_OUT:])):
        for side, flat in (("src", train.source), ("tgt", train.target)):
            (folder / f"{name}.{side}").write_text("\n".join(lines(flat, indices)) + "\n", encoding="utf-8")
    words = [word(number) for number in range(len(SPECIALS), store.manifest.vocabulary)]
    (folder / "vocabulary.txt").write_text("\n".join(words) + "\n", encoding="utf-8")
    (folder / "dict.txt").write_text("".join(f"{each} 1\n" for each in words), encoding="utf-8")
    np.save(folder / "pairs.npy", drawn[HELD_OUT:])


def lines(flat: Flat, indices: np.ndarray) -> list[str]:
    """Sentences without their end, which every peer adds itself."""
    tokens, lengths = flat.gather(indices)
    parts = np.split(tokens, np.cumsum(lengths)[:-1])
    return [" ".join(map(word, part[:-1])) for part in parts]


def word(number: int) -> str:
    return f"t{number}"
