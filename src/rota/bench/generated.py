"""The data of the benchmarks that need a corpus: a prepared folder, or generated languages, made once."""

from __future__ import annotations

from pathlib import Path

from rota import api
from rota.bench.pieces import Piece
from rota.config import parse_config
from rota.data.store import Store

SMALL = 2_000
"""Below so many subwords the generated corpus is a small one, for a quick look."""


def open_data(piece: Piece) -> Store:
    """Generated text has 8 languages with dev sets as large as TED's; its sentences are shorter."""
    if piece.data is not None:
        return Store.open(Path(piece.data))
    small = piece.vocabulary < SMALL
    languages = {"languages": 4, "high": 300, "low": 100, "dev": 60, "test": 20}
    if not small:
        languages = {"languages": 8, "high": 40_000, "low": 4_000, "dev": 1_000, "test": 100}
    folder = api.cache_folder() / "bench" / f"generated-{piece.vocabulary}"
    data = {
        "corpus": "synthetic",
        "synthetic": languages,
        "subwords": {"size": piece.vocabulary},
        "folder": str(folder),
    }
    return api.prepare(parse_config({"name": "bench", "data": data}, origin="rota bench"))
