"""A trained run as a translator: text in, English out."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from rota.checkpoint import Checkpoint, Checkpoints, damaged_file
from rota.data.corpus import tidy
from rota.data.subwords import Subwords
from rota.student.config import StudentConfig
from rota.student.nmt import find_device
from rota.student.search import translate
from rota.student.transformer import Transformer

logger = logging.getLogger(__name__)


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
        """Translations in the order of ``texts``, blank for blank; ``progress`` hears how many were done just now."""
        tidied = [tidy(text) for text in texts]
        places = [place for place, text in enumerate(tidied) if text]
        encoded = self.subwords.encode_sources(language, [tidied[place] for place in places])
        sources = [np.asarray(ids) for ids in encoded]
        found = translate(self.networks, sources, beam=beam, length_penalty=length_penalty, progress=progress)
        translations = [""] * len(texts)
        for place, text in zip(places, self.subwords.decode_batch([best.ids for best in found]), strict=True):
            translations[place] = text
        return translations


def read_run(run: Path) -> dict[str, Any]:
    """The ``run.json`` of a run folder."""
    path = run / "run.json"
    if not path.is_file():
        raise ValueError(f"{run} is no run folder (no run.json); give the folder that rota train wrote")
    content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return content


def find_checkpoint(run: Path, step: int | None) -> Checkpoint:
    """The intact checkpoint of a step, or the last one that is intact."""
    found = {checkpoint.step: checkpoint for checkpoint in Checkpoints(run / "checkpoints").list()}
    if not found:
        raise ValueError(f"{run} has no checkpoint yet; train it first with rota train")
    if step is not None and step not in found:
        raise ValueError(f"{run} has no checkpoint of step {step}; it has {', '.join(map(str, found))}")
    for checkpoint in [found[step]] if step is not None else reversed(found.values()):
        damage = damaged_file(checkpoint)
        if damage is None:
            return checkpoint
        logger.warning("checkpoint %s is damaged (%s)", checkpoint.folder, damage)
    raise ValueError(f"{run} has no intact checkpoint{'' if step is None else f' of step {step}'}; train it again")
