"""Rota on the same pairs: its own stream over them, its own student."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from counting import Counter, settings

from rota.data.batches import LanguageStream
from rota.data.store import Store
from rota.student.config import StudentConfig
from rota.student.nmt import build_student
from rota.types import MIXED


def main() -> None:
    wanted = settings()
    counter = Counter(wanted)
    store = Store.open(Path(wanted.data))
    indices = np.load(Path(wanted.text) / "pairs.npy")
    stream = LanguageStream(store.split("train"), MIXED, indices, tokens=wanted.tokens, seed=wanted.seed)
    config = StudentConfig.model_validate(
        {"preset": wanted.preset, "device": "cpu", "dropout": wanted.dropout, "label_smoothing": wanted.label_smoothing}
    )
    student = build_student(config, vocabulary=wanted.vocabulary, steps=100_000, seed=wanted.seed)
    for batch in stream:
        # Rows are flat: nothing is computed on padding outside attention.
        counter.count(batch.tokens, batch.tokens)
        student.update([batch])


if __name__ == "__main__":
    main()
