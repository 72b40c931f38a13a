"""Cross-entropy of one model on whole dev or test sets: a score without a search, and with less noise than BLEU.

Every target token is predicted with the reference before it. The sums of the sentences are kept in a file, for tests of
significance; what was measured once is read from the records.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from rota.data.store import Store
from rota.evaluation.metrics import Score
from rota.evaluation.translator import Counter, Loader, Progress
from rota.files import damaged, sha256_of, short_hash, write_atomically
from rota.runs import Entry, Run
from rota.runs.standing import Model, Split, model_of
from rota.student.likelihood import examine, fit
from rota.student.transformer import Transformer
from rota.types import Arm, Examined

METRIC = "loss"
DETAILS = ("tokens", "calibrated", "temperature", "accuracy", "sentence_scores")
"""What an entry of the records says beside the loss itself."""


class Losses:
    """The losses of one model on one split, language by language."""

    def __init__(self, loader: Loader, model: Model, split: Split, store: Store, progress: Progress) -> None:
        self._loader, self._model, self._split, self._store = loader, model, split, store
        self._progress = progress

    def of(self, arm: Arm) -> Score:
        """Nats per token over all sentences of a language, with what else the same pass tells."""
        known = self._known.get(arm)
        if known is not None and (self._loader.run.folder / known["sentence_scores"]).is_file():
            check_unchanged(
                self._loader.run, self._loader.run.folder / known["sentence_scores"], known, "sentence_scores"
            )
            return Score(METRIC, float(known["score"]), self.signature, {name: known[name] for name in DETAILS})
        sentences = self._store.split(self._split)
        batch = sentences.batch(arm, np.arange(*sentences.range(arm)))
        counter = Counter(f"loss of {arm}", batch.sentences, self._progress)
        counter.reach(0)
        examined = examine(self._networks, batch)
        counter.reach(batch.sentences)
        found = fit(examined)
        details = {"tokens": int(examined.tokens.sum()), "calibrated": found.calibrated}
        details |= {"temperature": found.temperature, "accuracy": found.accuracy}
        return Score(METRIC, found.loss, self.signature, {**details, "sentence_scores": self._write(arm, examined)})

    @cached_property
    def signature(self) -> str:
        """Losses per token can be compared between models of one vocabulary only: its checksum is part of it."""
        checksum = sha256_of(self._loader.run.subwords_path)[:12]
        return f"nats per token|smoothing:no|vocabulary:{self._loader.subwords.vocabulary}|subwords:{checksum}"

    @cached_property
    def _networks(self) -> list[Transformer]:
        return list(self._loader.translator(self._model.steps, self._model.combine).networks)

    @cached_property
    def _known(self) -> dict[Arm, Entry]:
        """By language, what was recorded of the same weights; neither a search nor a selection changes it."""
        return {
            entry["language"]: entry
            for entry in self._loader.run.read("evals")
            if entry["metric"] == METRIC
            and entry["split"] == self._split
            and entry["signature"] == self.signature
            and model_of(entry).name == self._model.name
        }

    def _write(self, arm: Arm, examined: Examined) -> str:
        run = self._loader.run
        path = run.losses_folder / f"{self._model.name}.{self._split}.{arm}.tsv"
        lines = zip(examined.sums.tolist(), examined.tokens.tolist(), strict=True)
        write_atomically(path, "".join(f"{nats!r}\t{tokens}\n" for nats, tokens in lines))
        return path.relative_to(run.folder).as_posix()


def check_unchanged(run: Run, path: Path, entry: Mapping[str, Any], kind: str) -> None:
    """Raises an error if a file is not what it was when an entry of ``evals.jsonl`` was made from it.

    A missing file is not one that was changed, and entries of earlier versions have no hashes.
    """
    recorded = entry.get("hashes", {}).get(kind)
    if recorded is not None and path.is_file() and short_hash(path) != recorded:
        remedy = f"delete it and run rota evaluate {run} again"
        raise damaged(path, "it is not what was scored", remedy)


def read_losses(run: Run, entry: dict[str, Any], sentences: int) -> list[tuple[float, float]]:
    """Nats and tokens of each sentence, as they were written when the model was scored."""
    path = run.folder / str(entry["sentence_scores"])
    if not path.is_file():
        raise ValueError(f"{path} is missing; run rota evaluate {run} again")
    check_unchanged(run, path, entry, "sentence_scores")
    found = [line.split("\t") for line in path.read_text(encoding="utf-8").splitlines()]
    if len(found) != sentences or any(len(line) != 2 for line in found):
        raise ValueError(f"{path} does not have {sentences} lines of two numbers; delete it and evaluate {run} again")
    return [(float(nats), float(tokens)) for nats, tokens in found]
