"""A trained run as a translator: text in, English out. One checkpoint, the average of several, or an ensemble."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, get_args

import numpy as np
import torch

from rota.data.corpora.parallel import tidy
from rota.data.subwords import Subwords
from rota.evaluation.config import Combine
from rota.runs import Run, standing
from rota.runs.checkpoints import Checkpoint
from rota.student.config import StudentConfig
from rota.student.hardware import find_device, memory_for
from rota.student.search import EncoderCache, translate
from rota.student.transformer import Transformer
from rota.types import IntArray

_REMEDY = "use fewer (--combine last), or leave the GPU out with CUDA_VISIBLE_DEVICES=-1"


class Translator:
    """Networks that share one vocabulary; several of them are an ensemble."""

    def __init__(self, networks: Sequence[Transformer], subwords: Subwords) -> None:
        self.networks, self.subwords = networks, subwords

    @classmethod
    def load(
        cls,
        run: Path | str,
        *,
        step: int | None = None,
        steps: Sequence[int] | None = None,
        combine: Combine = "last",
        device: str = "auto",
    ) -> Translator:
        """The checkpoint of ``step``, by default the last one; or the checkpoints of ``steps`` put together."""
        if step is not None and steps is not None:
            raise ValueError(f"step {step} and steps {list(steps)} name two models; give one of them")
        run = Path(run)
        return Loader(run, device).translator(steps or [find_checkpoint(run, step).step], combine)

    def translate(
        self,
        texts: Sequence[str],
        language: str | Sequence[str],
        *,
        beam: int = 5,
        length_penalty: float = 1.0,
        progress: Callable[[int], None] | None = None,
        cache: EncoderCache | None = None,
    ) -> list[str]:
        """Translations in the order of ``texts``, blank for blank; ``progress`` hears how many were done just now.

        ``language`` is that of all texts, or one for each; ``cache``: see :func:`rota.student.search.translate`.
        """
        languages = [language] * len(texts) if isinstance(language, str) else list(language)
        tidied = [tidy(text) for text in texts]
        places, sources = self._encode(tidied, languages)
        found = translate(
            self.networks, sources, beam=beam, length_penalty=length_penalty, progress=progress, cache=cache
        )
        translations = [""] * len(texts)
        for place, text in zip(places, self.subwords.decode_batch([best.ids for best in found]), strict=True):
            translations[place] = text
        return translations

    def _encode(self, texts: Sequence[str], languages: Sequence[str]) -> tuple[list[int], list[IntArray]]:
        """Places of the texts that are not blank, and their ids."""
        everything: dict[int, IntArray] = {}
        for language in dict.fromkeys(languages):
            places = [place for place, text in enumerate(texts) if text and languages[place] == language]
            encoded = self.subwords.encode_sources(language, [texts[place] for place in places])
            everything.update(zip(places, map(np.asarray, encoded), strict=True))
        return list(everything), list(everything.values())


class Loader:
    """Reads networks of one run; those of the last few steps stay in memory, because windows overlap."""

    def __init__(self, run: Path, device: str = "auto", keep: int = 1) -> None:
        self.run, self.keep = run, keep
        self.config = StudentConfig.model_validate(read_run(run)["config"]["student"])
        self.subwords = Subwords.load(run / "subwords.json")
        self.device = find_device(device)
        self._networks: dict[int, Transformer] = {}

    def translator(self, steps: Sequence[int], combine: Combine = "last") -> Translator:
        """The checkpoints of ``steps`` as one model; ``last`` takes the last of them."""
        if combine not in get_args(Combine):
            raise ValueError(f"combine is {combine!r}; it is one of {', '.join(get_args(Combine))}")
        chosen = steps[-1:] if combine == "last" else steps
        with memory_for(lambda: f"loading {len(chosen)} of the checkpoints in {self.run}; {_REMEDY}."):
            networks = [self.network(step) for step in chosen]
            if combine == "average" and len(networks) > 1:
                networks = [self._make(average_weights([network.state_dict() for network in networks]))]
        return Translator(networks, self.subwords)

    def network(self, step: int) -> Transformer:
        if step not in self._networks:
            self._networks[step] = self._make(find_checkpoint(self.run, step).network())
        self._networks[step] = self._networks.pop(step)  # the newest request goes last
        while len(self._networks) > self.keep:
            del self._networks[next(iter(self._networks))]
        return self._networks[step]

    def _make(self, weights: dict[str, torch.Tensor]) -> Transformer:
        network = Transformer(self.config.shape(self.subwords.vocabulary))
        network.load_state_dict(weights)
        return network.to(self.device).eval()


def average_weights(states: Sequence[dict[str, torch.Tensor]]) -> dict[str, torch.Tensor]:
    """The mean of every weight, summed in float64."""
    means = {}
    for name, first in states[0].items():
        total = first.double()
        for other in states[1:]:
            total = total + other[name].double()
        means[name] = (total / len(states)).to(first.dtype)
    return means


def read_run(run: Path) -> dict[str, Any]:
    """The ``run.json`` of a run folder."""
    found = Run(run)
    found.setting("config.evaluation")
    return found.about


def selected_model(run: Path) -> tuple[list[int], Combine]:
    """The checkpoints that ``rota evaluate --select`` found best, and how they are put together."""
    found = standing.selected_model(Run(run))
    if found is None:
        raise ValueError(f"{run} has no selection.json; run rota evaluate {run} --select low-resource first")
    return list(found.steps), found.combine


def find_checkpoint(run: Path, step: int | None) -> Checkpoint:
    """The intact checkpoint of a step, or the last one that is intact."""
    return Run(run).checkpoint(step)


def find_window(run: Path, size: int, step: int | None = None) -> tuple[int, ...]:
    """Steps of the ``size`` intact checkpoints that end with ``step``, by default with the last; fewer if need be."""
    return Run(run).checkpoints().window(size, step)


def find_windows(run: Path, size: int) -> Sequence[tuple[int, ...]]:
    """Steps of every ``size`` consecutive intact checkpoints, oldest first; of all there are, if they are fewer."""
    return Run(run).checkpoints().windows(size)
