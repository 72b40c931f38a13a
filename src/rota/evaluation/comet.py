"""COMET by unbabel-comet: an extra, imported only when it is asked for, loaded once for all languages."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

import torch
from ruamel.yaml import YAML

from rota.files import sha256_of
from rota.student.hardware import find_device, memory_for

DEFAULT: Final = "Unbabel/wmt22-comet-da"
BATCH: Final = 32  # sentences, of similar length
_REMEDY: Final = "leave the GPU out with CUDA_VISIBLE_DEVICES=-1, or take a smaller model"
ENCODER_FILES: Final = ["config.json", "tokenizer*", "special_tokens_map.json", "*.model", "vocab.txt"]


@dataclass(frozen=True)
class Comet:
    """A loaded COMET model. ``signature`` names it, the library's version and the checksum of the weights."""

    model: Any
    name: str
    signature: str

    @classmethod
    def load(cls, name: str | Path = DEFAULT, device: str = "auto") -> Comet:
        """A model by its name on the Hugging Face hub, or by its folder or checkpoint file on this machine."""
        library = _library()
        checkpoint = find_checkpoint(name)
        with memory_for(lambda: f"loading COMET's model {name}; {_REMEDY}."):
            model = _load(library, checkpoint).to(find_device(device)).eval()
        known_as = _known_as(name, checkpoint)
        signature = f"comet:{known_as}|version:{version('unbabel-comet')}|sha:{sha256_of(checkpoint)[:12]}"
        return cls(model, known_as, signature)

    def score(
        self,
        sources: Sequence[str],
        hypotheses: Sequence[str],
        references: Sequence[str],
        *,
        progress: Callable[[int], None] = lambda _: None,
    ) -> tuple[float, list[float]]:
        """The mean over the sentences and each sentence's own score, x 100; ``progress`` hears how many were done."""
        if not len(sources) == len(hypotheses) == len(references) > 0:
            counts = f"{len(sources)} sources, {len(hypotheses)} translations, {len(references)} references"
            raise ValueError(f"COMET needs as many of each, and at least one: {counts}")
        texts = list(zip(sources, hypotheses, references, strict=True))
        # As in the library's own predict: sentences of similar length together, so that little is padded.
        order = sorted(range(len(texts)), key=lambda index: len(texts[index][0]))
        scores = [0.0] * len(texts)
        for start in range(0, len(order), BATCH):
            batch = order[start : start + BATCH]
            for index, value in zip(batch, self._batch([texts[index] for index in batch]), strict=True):
                scores[index] = 100 * value
            progress(len(batch))
        return sum(scores) / len(scores), scores

    def _batch(self, texts: Sequence[tuple[str, str, str]]) -> list[float]:
        samples = [dict(zip(("src", "mt", "ref"), text, strict=True)) for text in texts]
        with torch.inference_mode(), memory_for(lambda: f"scoring {len(texts)} sentences with COMET; {_REMEDY}."):
            inputs = _to_device(self.model.prepare_for_inference(samples), self.model.device)
            values: list[float] = self.model.predict_step(inputs)["scores"].tolist()
        return values


def _to_device(inputs: Any, device: torch.device) -> Any:
    """The inputs of a regression model are one dictionary, those of a unified model several."""
    if isinstance(inputs, Mapping):
        return {name: value.to(device) if hasattr(value, "to") else value for name, value in inputs.items()}
    return tuple(_to_device(each, device) for each in inputs)


def _library() -> Any:
    try:
        with warnings.catch_warnings():
            # An old torchmetrics below it imports pkg_resources.
            warnings.filterwarnings("ignore", message="pkg_resources is deprecated", category=UserWarning)
            import comet
    except ModuleNotFoundError as error:
        raise ValueError(f"COMET is not installed ({error}); pip install unbabel-comet") from None
    logging.getLogger("comet").setLevel(logging.WARNING)  # it announces every model it has loaded
    return comet


def find_checkpoint(name: str | Path) -> Path:
    """The file with the weights of a model that is named by folder, by file, or as on the hub."""
    path = Path(name).expanduser()
    if path.is_dir():
        path = path / "checkpoints" / "model.ckpt"
        if not path.is_file():
            raise ValueError(
                f"{path} is missing; a COMET model is a folder with hparams.yaml and checkpoints/model.ckpt"
            )
    elif not path.is_file():
        if len(path.parts) > 2 or path.suffix == ".ckpt" or str(name).startswith((".", "/", "~")):
            raise ValueError(
                f"no COMET model {str(name)!r}; give its folder, its model.ckpt, or a name such as {DEFAULT}"
            )
        path = _from_hub(str(name))
    if not (path.parents[1] / "hparams.yaml").is_file():
        raise ValueError(
            f"{path.parents[1] / 'hparams.yaml'} is missing; it lies in the folder above the one of {path.name}"
        )
    return path


def _from_hub(name: str) -> Path:
    repository = name if "/" in name else f"Unbabel/{name}"
    folder, problem = _fetch(repository, "checkpoints/model.ckpt")
    if folder is None:
        raise ValueError(
            f"COMET model {repository!r} is not on this machine and cannot be fetched ({problem}); "
            f"where there is a network run: hf download {repository} --local-dir DIR, then give DIR as the model"
        )
    return folder / "checkpoints" / "model.ckpt"


def _load(library: Any, checkpoint: Path) -> Any:
    """Loaded by the library; the encoder's tokenizer and shape come from the hub or from a folder in hparams.yaml."""
    hparams = checkpoint.parents[1] / "hparams.yaml"
    encoder = str(YAML(typ="safe", pure=True).load(hparams).get("pretrained_model"))
    is_folder = Path(encoder).is_dir()
    if not is_folder:
        found, problem = _fetch(encoder, "config.json", patterns=ENCODER_FILES)
        if found is None:
            raise ValueError(
                f"the encoder {encoder!r} of {checkpoint} is not on this machine and cannot be fetched ({problem}); "
                f"where there is a network run: hf download {encoder} --include '*.json' '*.model' --local-dir DIR, "
                f"then write pretrained_model: DIR into {hparams}"
            )
    # The library prefers the names stored in the weights; a folder that someone wrote into hparams.yaml must win here.
    return library.load_from_checkpoint(str(checkpoint), local_files_only=True, reload_hparams=is_folder)


def _fetch(repository: str, needed: str, patterns: list[str] | None = None) -> tuple[Path | None, str]:
    """The folder of a repository of the hub that has a file; what was fetched before is used without the network.

    Without such a folder, the kind of the problem.
    """
    from huggingface_hub import snapshot_download

    problem = ""
    for local in (True, False):
        try:
            folder = Path(snapshot_download(repository, allow_patterns=patterns, local_files_only=local))
        except Exception as error:  # the hub has a dozen of its own, and there are those of the network below
            problem = type(error).__name__
            continue
        if (folder / needed).is_file():
            return folder, ""
        problem = f"no {needed}"
    return None, problem


def _known_as(name: str | Path, checkpoint: Path) -> str:
    """The last part of the name, or of the model's folder."""
    return checkpoint.parents[1].resolve().name if Path(name).expanduser().exists() else Path(name).name
