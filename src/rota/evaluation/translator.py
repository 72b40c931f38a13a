"""A trained run as a translator: text in, English out."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from rota.checkpoint import Checkpoint, Checkpoints
from rota.data.subwords import Subwords
from rota.student.config import StudentConfig
from rota.student.nmt import find_device
from rota.student.search import translate
from rota.student.transformer import Transformer


class Translator:
    """Networks that share one vocabulary; several of them are an ensemble."""

    def __init__(self, networks: Sequence[Transformer], subwords: Subwords) -> None:
        self.networks, self.subwords = networks, subwords

    @classmethod
    def load(cls, run: Path | str, *, step: int | None = None, device: str = "auto") -> Translator:
        """The network of a run's checkpoint: that of ``step``, or the last one."""
        run = Path(run)
        config = StudentConfig.model_validate(read_run(run)["config"]["student"])
        subwords = Subwords.load(run / "subwords.json")
        network = Transformer(config.shape(subwords.vocabulary))
        network.load_state_dict(find_checkpoint(run, step).network())
        return cls([network.to(find_device(device)).eval()], subwords)

    def translate(
        self,
        texts: Sequence[str],
        language: str,
        *,
        beam: int = 5,
        length_penalty: float = 1.0,
        progress: Callable[[int], None] | None = None,
    ) -> list[str]:
        """Translations in the order of ``texts``; ``progress`` hears how many are done so far."""
        sources = [np.asarray(ids) for ids in self.subwords.encode_sources(language, [text.strip() for text in texts])]
        found = translate(self.networks, sources, beam=beam, length_penalty=length_penalty, progress=progress)
        return self.subwords.decode_batch([hypothesis.ids for hypothesis in found])


def read_run(run: Path) -> dict[str, Any]:
    """The ``run.json`` of a run folder."""
    path = run / "run.json"
    if not path.is_file():
        raise ValueError(f"{run} is no run folder (no run.json); give the folder that rota train wrote")
    content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return content


def find_checkpoint(run: Path, step: int | None) -> Checkpoint:
    """The checkpoint of a step, or the last one."""
    found = Checkpoints(run / "checkpoints").list()
    if not found:
        raise ValueError(f"{run} has no checkpoint yet; train it first with rota train")
    if step is None:
        return found[-1]
    for checkpoint in found:
        if checkpoint.step == step:
            return checkpoint
    steps = ", ".join(str(checkpoint.step) for checkpoint in found)
    raise ValueError(f"{run} has no checkpoint of step {step}; it has {steps}")
