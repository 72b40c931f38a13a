"""``python -m rota.data.worker``: does units of a preparation for ``workers.py``, one JSON line each way.

The first line says which preparation: its recipe, the cache of named corpora, the partial folder and the length of a
piece. Every other line is a unit. The answers are pairs done, an error, or that the unit is done.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from rota.data.partial import Partial, Unit
from rota.data.recipe import Recipe
from rota.data.sources import open_corpus
from rota.data.units import Workshop
from rota.data.workers import MISTAKES


def main() -> None:
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8", buffering=1)
    os.dup2(2, 1)  # whatever else writes to standard output must not be taken for an answer

    def answer(message: dict[str, Any]) -> None:
        answers.write(json.dumps(message) + "\n")

    messages = _messages()
    workshop = None
    for message in messages:
        try:
            if workshop is None:
                workshop = _workshop(message)
            else:
                workshop.do(Unit(**message), lambda pairs: answer({"pairs": pairs}))
                answer({"done": message})
        except tuple(MISTAKES.values()) as error:
            kind = next(name for name, known in MISTAKES.items() if isinstance(error, known))
            answer({"error": kind, "message": str(error)})


def _workshop(about: dict[str, Any]) -> Workshop:
    recipe = Recipe.from_settings(about["recipe"])
    partial = Partial(Path(about["folder"]), recipe)
    return Workshop(recipe, open_corpus(recipe.corpus, Path(about["cache"])), partial, about["piece"])


def _messages() -> Iterator[dict[str, Any]]:
    """What the parent sends; when it is gone, killed perhaps, this process ends at once, even amid a unit."""
    received: SimpleQueue[str] = SimpleQueue()

    def listen() -> None:
        for line in sys.stdin:
            received.put(line)
        os._exit(1)

    threading.Thread(target=listen, daemon=True).start()
    while True:
        yield json.loads(received.get())


if __name__ == "__main__":
    main()
