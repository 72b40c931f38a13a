"""Checkpoints in the format of Hugging Face's M2M100, which NLLB has too: their sizes and their weights.

Sizes are read without torch. Weights come from safetensors, or from ``pytorch_model.bin`` with ``weights_only``, whole
or in shards; nothing that could run code is unpickled.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from rota.files import read_json
from rota.settings import ConfigError
from rota.student.config import Shape

if TYPE_CHECKING:
    from torch import Tensor

REMEDY: Final = "download or export the model again"
MODEL_TYPE: Final = "m2m_100"

_BUILT_IN: Final[Mapping[str, Any]] = {
    "activation_function": "relu",
    "scale_embedding": True,
    "bos_token_id": 0,
    "pad_token_id": 1,
    "eos_token_id": 2,
    "decoder_start_token_id": 2,
}
"""What Rota's network always does: a checkpoint that asks for something else would compute something else here."""

_ASSUMED: Final[Mapping[str, Any]] = {
    **_BUILT_IN,
    "tie_word_embeddings": True,
    "dropout": 0.1,
    "attention_dropout": 0.1,
}
"""What ``transformers`` assumes of an M2M100 whose ``config.json`` does not say."""

_SIZES: Final = ("vocab_size", "d_model", "encoder_layers", "decoder_layers")


@dataclass(frozen=True)
class Pretrained:
    """What a checkpoint's ``config.json`` says."""

    folder: Path
    shape: Shape
    dropout: float
    attention_dropout: float

    def weights(self) -> dict[str, Tensor]:
        """For a :class:`~rota.student.transformer.Transformer` of its shape."""
        return self._weights("cpu")

    def check(self) -> None:
        """Refuses weights that are missing, cut off or of other sizes, without keeping any in memory."""
        self._weights("meta")

    def _weights(self, device: str) -> dict[str, Tensor]:
        from rota.student.transformer import from_m2m100

        try:
            return from_m2m100(_read_tensors(self.folder, device), self.shape)
        except ValueError as mistake:
            raise ConfigError(f"student.start: {self.folder}: {mistake}") from None


def is_pretrained(folder: Path) -> bool:
    """Whether the folder has the config of a Hugging Face model."""
    return (folder / "config.json").is_file()


def is_ctranslate2(folder: Path) -> bool:
    """Whether the folder has the weights of CTranslate2 and none of Hugging Face."""
    theirs = [*folder.glob("model*.safetensors*"), *folder.glob("pytorch_model*.bin*")]
    return (folder / "model.bin").is_file() and not theirs


def read_pretrained(folder: Path) -> Pretrained:
    """The sizes of a checkpoint; one that Rota's network cannot be is refused by name."""
    path = folder / "config.json"
    config = {**_ASSUMED, **read_json(path, "model_type", remedy=REMEDY)}
    if config["model_type"] != MODEL_TYPE:
        theirs = f"{path}: model_type is {config['model_type']!r}"
        raise ConfigError(f"{theirs}; Rota starts from {MODEL_TYPE!r}, which are M2M100 and the dense NLLB models")
    missing = [name for name in _SIZES if name not in config]
    if missing:
        raise ConfigError(f"{path} does not say {missing[0]!r}; {REMEDY}")
    for name, ours in _BUILT_IN.items():
        if config[name] != ours:
            differs = f"{path}: {name} is {config[name]!r}, and Rota's network has {ours!r}"
            raise ConfigError(f"{differs}; start from a checkpoint that has that too")
    for name in ("attention_heads", "ffn_dim"):
        sizes = [config.get(f"{side}_{name}") for side in ("encoder", "decoder")]
        if sizes[0] != sizes[1] or sizes[0] is None:
            differ = f"{path}: encoder_{name} is {sizes[0]} and decoder_{name} is {sizes[1]}"
            raise ConfigError(f"{differ}; in Rota's network both sides have the same")
    shape = Shape(
        vocabulary=int(config["vocab_size"]),
        encoder_layers=int(config["encoder_layers"]),
        decoder_layers=int(config["decoder_layers"]),
        width=int(config["d_model"]),
        heads=int(config["encoder_attention_heads"]),
        feedforward=int(config["encoder_ffn_dim"]),
        tie_embeddings=bool(config["tie_word_embeddings"]),
    )
    return Pretrained(folder, shape, float(config["dropout"]), float(config["attention_dropout"]))


def _read_tensors(folder: Path, device: str) -> dict[str, Tensor]:
    """On the device ``meta`` they have their sizes alone."""
    for name, read in (("model.safetensors", _safetensors), ("pytorch_model.bin", _unpickled)):
        if (folder / name).is_file():
            return read(folder / name, device)
        index = folder / f"{name}.index.json"
        if index.is_file():
            shards = sorted(set(read_json(index, "weight_map", remedy=REMEDY)["weight_map"].values()))
            missing = [shard for shard in shards if not (folder / shard).is_file()]
            if missing:
                raise ValueError(f"{missing[0]} is missing, which {index.name} names; {REMEDY}")
            return {key: tensor for shard in shards for key, tensor in read(folder / shard, device).items()}
    raise ValueError(f"there are no weights (model.safetensors or pytorch_model.bin); {REMEDY}")


def _safetensors(path: Path, device: str) -> dict[str, Tensor]:
    import torch
    from safetensors import SafetensorError, safe_open
    from safetensors.torch import load_file

    try:
        if device != "meta":
            return load_file(path, device)
        with safe_open(path, "pt") as file:
            sizes = {name: file.get_slice(name).get_shape() for name in file.keys()}  # noqa: SIM118
        return {name: torch.empty(size, device=device) for name, size in sizes.items()}
    except SafetensorError as error:
        raise ValueError(f"{path.name} is damaged ({error}); {REMEDY}") from None


def _unpickled(path: Path, device: str) -> dict[str, Tensor]:
    import pickle

    import torch

    try:
        found: dict[str, Tensor] = torch.load(path, map_location=device, weights_only=True)
    except (pickle.UnpicklingError, RuntimeError, EOFError) as error:
        first = str(error).splitlines()[0]
        raise ValueError(f"{path.name} cannot be read as weights alone ({first}); {REMEDY}, as safetensors") from None
    return found
