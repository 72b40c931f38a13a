"""The network, top to bottom: a pre-norm Transformer that computes nothing on padding.

Weight for weight it is Hugging Face's M2M100: see :func:`to_m2m100`. N tokens of all sentences (flat rows),
D model width, F feed-forward width, V vocabulary.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final

import torch
from torch import Tensor, nn
from torch.nn import functional

from rota.student.config import Shape
from rota.student.kernels.attention import Layout, attend_to, attend_within
from rota.student.kernels.dropout import Noise
from rota.student.kernels.linear import Linear

BOS: Final = 0
PAD: Final = 1
EOS: Final = 2
UNK: Final = 3
DECODER_START: Final = EOS
"""Special symbols are those of M2M100; the data part uses the same numbers."""

FIRST_POSITION: Final = PAD + 1
"""Row of the sinusoid table at which sentences start, as in M2M100."""


class SelfAttention(nn.Module):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.query_key_value = Linear(shape.width, 3 * shape.width)
        self.out = Linear(shape.width, shape.width)

    def forward(self, states_ND: Tensor, layout: Layout, noise: Noise | None, *, causal: bool) -> Tensor:
        mixed_ND = attend_within(self.query_key_value(states_ND), layout, noise, causal=causal)
        result: Tensor = self.out(mixed_ND)
        return result


class CrossAttention(nn.Module):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.query = Linear(shape.width, shape.width)
        self.key_value = Linear(shape.width, 2 * shape.width)
        self.out = Linear(shape.width, shape.width)

    def forward(
        self, states_ND: Tensor, layout: Layout, memory_ND: Tensor, memory_layout: Layout, noise: Noise | None
    ) -> Tensor:
        query_ND, memory = self.query(states_ND), self.key_value(memory_ND)
        result: Tensor = self.out(attend_to(query_ND, layout, memory, memory_layout, noise))
        return result


class FeedForward(nn.Module):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.inner = Linear(shape.width, shape.feedforward)
        self.outer = Linear(shape.feedforward, shape.width)

    def forward(self, states_ND: Tensor, noise: Noise | None = None) -> Tensor:
        inner_NF = self.inner(states_ND)
        result: Tensor = (
            self.outer(inner_NF.relu())
            if noise is None
            else self.outer(noise.relu_dropped(inner_NF), scale=noise.states_scale)
        )
        return result


class Layer(nn.Module):
    """The feed-forward block with which the layers of both sides end."""

    feedforward_norm: nn.LayerNorm
    feedforward: FeedForward

    def feed(self, states_ND: Tensor, noise: Noise | None) -> Tensor:
        return _add(states_ND, self.feedforward(self.feedforward_norm(states_ND), noise), noise)


class EncoderLayer(Layer):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(shape.width)
        self.attention = SelfAttention(shape)
        self.feedforward_norm = nn.LayerNorm(shape.width)
        self.feedforward = FeedForward(shape)

    def forward(self, states_ND: Tensor, layout: Layout, noise: Noise | None) -> Tensor:
        update = self.attention(self.attention_norm(states_ND), layout, noise, causal=False)
        return self.feed(_add(states_ND, update, noise), noise)


class DecoderLayer(Layer):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(shape.width)
        self.attention = SelfAttention(shape)
        self.cross_attention_norm = nn.LayerNorm(shape.width)
        self.cross_attention = CrossAttention(shape)
        self.feedforward_norm = nn.LayerNorm(shape.width)
        self.feedforward = FeedForward(shape)

    def forward(
        self, states_ND: Tensor, layout: Layout, memory_ND: Tensor, memory_layout: Layout, noise: Noise | None
    ) -> Tensor:
        update = self.attention(self.attention_norm(states_ND), layout, noise, causal=True)
        states_ND = _add(states_ND, update, noise)
        update = self.cross_attention(self.cross_attention_norm(states_ND), layout, memory_ND, memory_layout, noise)
        return self.feed(_add(states_ND, update, noise), noise)


class Transformer(nn.Module):
    """Encoder, decoder and the output matrix. ``noise=None`` is evaluation; there is no train or eval mode."""

    def __init__(self, shape: Shape, generator: torch.Generator | None = None) -> None:
        super().__init__()
        self.shape = shape
        self.embedding = nn.Embedding(shape.vocabulary, shape.width)
        self.encoder = nn.ModuleList(EncoderLayer(shape) for _ in range(shape.encoder_layers))
        self.encoder_norm = nn.LayerNorm(shape.width)
        self.decoder = nn.ModuleList(DecoderLayer(shape) for _ in range(shape.decoder_layers))
        self.decoder_norm = nn.LayerNorm(shape.width)
        self.output = None if shape.tie_embeddings else nn.Linear(shape.width, shape.vocabulary, bias=False)
        self._sinusoids = sinusoids(256, shape.width)
        self._initialise(generator)

    @property
    def device(self) -> torch.device:
        return self.embedding.weight.device

    @property
    def output_matrix(self) -> Tensor:
        """V x D: the matrix that turns decoder states into logits."""
        return self.embedding.weight if self.output is None else self.output.weight

    def forward(
        self, source_N: Tensor, source_layout: Layout, target_N: Tensor, target_layout: Layout, noise: Noise | None
    ) -> Tensor:
        """Decoder states: for each target token the row that predicts it, before the output projection."""
        # One lookup for both sides, so that the backward pass makes one dense gradient of the embedding.
        ids = torch.cat([source_N, shift_right(target_N, target_layout)])
        source_ND, target_ND = self.embedding(ids).split([len(source_N), len(target_N)])
        source_ND = self.add_positions(source_ND, source_layout.positions, source_layout.longest, noise)
        memory_ND = self._encode(source_ND, source_layout, noise)
        states_ND = self.add_positions(target_ND, target_layout.positions, target_layout.longest, noise)
        for layer in self.decoder:
            states_ND = layer(states_ND, target_layout, memory_ND, source_layout, noise)
        result: Tensor = self.decoder_norm(states_ND)
        return result

    def encode(self, source_N: Tensor, layout: Layout) -> Tensor:
        """Encoder states in evaluation, one row per source token."""
        states_ND = self.add_positions(self.embedding(source_N), layout.positions, layout.longest, None)
        return self._encode(states_ND, layout, None)

    def add_positions(self, embedded_ND: Tensor, positions_N: Tensor, longest: int, noise: Noise | None) -> Tensor:
        """What the first layer reads: scaled embeddings plus sinusoids. No position reaches ``longest``."""
        table = self._table(longest + FIRST_POSITION)
        rows_ND = table.index_select(0, positions_N + FIRST_POSITION)
        states_ND = torch.add(rows_ND, embedded_ND, alpha=math.sqrt(self.shape.width))
        return states_ND if noise is None else noise.drop_states(states_ND)

    def _encode(self, states_ND: Tensor, layout: Layout, noise: Noise | None) -> Tensor:
        for layer in self.encoder:
            states_ND = layer(states_ND, layout, noise)
        result: Tensor = self.encoder_norm(states_ND)
        return result

    def _table(self, rows: int) -> Tensor:
        table = self._sinusoids  # ours to keep: another thread may put one there that is too short for us
        if rows > len(table):
            table = sinusoids(2 * rows, self.shape.width)
        self._sinusoids = table = table.to(self.device)
        return table

    def _initialise(self, generator: torch.Generator | None) -> None:
        """Xavier uniform for projections, joined ones taken as one matrix; unit variance for scaled embeddings."""
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.xavier_uniform_(module.weight, generator=generator)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)
        matrices = [self.embedding.weight] if self.output is None else [self.embedding.weight, self.output.weight]
        for matrix in matrices:
            nn.init.normal_(matrix, std=self.shape.width**-0.5, generator=generator)


def _add(states_ND: Tensor, update_ND: Tensor, noise: Noise | None) -> Tensor:
    return states_ND + update_ND if noise is None else noise.add_dropped(states_ND, update_ND)


def shift_right(target_N: Tensor, layout: Layout) -> Tensor:
    """The input of the decoder: every target token moves one row down, each sentence starts with the start symbol."""
    return target_N.roll(1).index_fill(0, layout.first_rows, DECODER_START)


def sinusoids(rows: int, width: int) -> Tensor:
    """The position table of M2M100: sines in the first half of a row, cosines in the second."""
    half = width // 2
    frequencies = torch.exp(torch.arange(half).float() * -(math.log(10_000) / (half - 1)))
    angles = torch.arange(rows).float()[:, None] * frequencies
    return torch.cat([angles.sin(), angles.cos()], dim=1)


def logits(network: Transformer, states_ND: Tensor) -> Tensor:
    """Decoder states to all N x V logits at once."""
    return functional.linear(states_ND, network.output_matrix)


_SINGLE_NAMES = {
    "attention_norm": "self_attn_layer_norm",
    "attention.out": "self_attn.out_proj",
    "cross_attention_norm": "encoder_attn_layer_norm",
    "cross_attention.query": "encoder_attn.q_proj",
    "cross_attention.out": "encoder_attn.out_proj",
    "feedforward_norm": "final_layer_norm",
    "feedforward.inner": "fc1",
    "feedforward.outer": "fc2",
}
_JOINED_NAMES = {
    "attention.query_key_value": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
    "cross_attention.key_value": ("encoder_attn.k_proj", "encoder_attn.v_proj"),
}


def to_m2m100(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """The ``state_dict`` of a :class:`Transformer` under the names of ``M2M100ForConditionalGeneration``."""
    renamed = {}
    for name, tensor in state.items():
        place, kind = name.rsplit(".", 1)
        side, *inner = place.split(".", 2)
        if not inner:
            continue
        module = inner[1]
        targets = _JOINED_NAMES.get(module) or (_SINGLE_NAMES[module],)
        for target, part in zip(targets, tensor.chunk(len(targets)), strict=True):
            renamed[f"model.{side}.layers.{inner[0]}.{target}.{kind}"] = part
    for side in ("encoder", "decoder"):
        for kind in ("weight", "bias"):
            renamed[f"model.{side}.layer_norm.{kind}"] = state[f"{side}_norm.{kind}"]
        renamed[f"model.{side}.embed_tokens.weight"] = state["embedding.weight"]
    renamed["model.shared.weight"] = state["embedding.weight"]
    renamed["lm_head.weight"] = state.get("output.weight", state["embedding.weight"])
    return renamed


def from_m2m100(tensors: Mapping[str, Tensor], shape: Shape) -> dict[str, Tensor]:
    """The inverse of :func:`to_m2m100`: float32 tensors for a :class:`Transformer` of that shape, all of them used.

    Tensors on the device ``meta``, which have sizes alone, are checked as far as that goes.
    """
    left = {name: tensor for name, tensor in tensors.items() if not name.endswith(_NOT_LEARNED)}
    for name, tensor in left.items():
        _check_size(name, tensor, shape)
    layers = f"config.json says encoder_layers {shape.encoder_layers} and decoder_layers {shape.decoder_layers}"
    embedding = _shared_embedding(left)

    def read(name: str) -> Tensor:
        if name not in left:
            raise ValueError(f"the checkpoint has no tensor {name!r}, and {layers}; {TOGETHER}")
        return left.pop(name).float()

    state = {"embedding.weight": embedding}
    for side in ("encoder", "decoder"):
        for number in range(getattr(shape, f"{side}_layers")):
            modules = {**{ours: (theirs,) for ours, theirs in _SINGLE_NAMES.items()}, **_JOINED_NAMES}
            for ours, theirs in modules.items():
                if side == "encoder" and ours.startswith("cross_attention"):
                    continue
                for kind in ("weight", "bias"):
                    parts = [read(f"model.{side}.layers.{number}.{each}.{kind}") for each in theirs]
                    state[f"{side}.{number}.{ours}.{kind}"] = torch.cat(parts)
        for kind in ("weight", "bias"):
            state[f"{side}_norm.{kind}"] = read(f"model.{side}.layer_norm.{kind}")
    output = left.pop("lm_head.weight", embedding)
    if not shape.tie_embeddings:
        state["output.weight"] = output.float()
    elif not _equal(output.float(), embedding):
        raise ValueError(
            "lm_head.weight differs from the embeddings although tie_word_embeddings is true in config.json"
        )
    if left:
        found = f"Rota's network has no place for the tensor {min(left)!r} of the checkpoint"
        raise ValueError(f"{found}; {layers}: {TOGETHER}" if ".layers." in min(left) else found)
    return state


TOGETHER: Final = "take config.json and weights from the same model"


def _check_size(name: str, tensor: Tensor, shape: Shape) -> None:
    """The sizes that ``config.json`` says, of those tensors that the network has."""
    module, _, kind = name.rpartition(".")
    place = module.rpartition(".")[2]
    width, inner = ("d_model", shape.width), ("ffn_dim", shape.feedforward)
    rows, columns = {"fc1": (inner, width), "fc2": (width, inner)}.get(place, (width, width))
    if place in ("shared", "embed_tokens", "lm_head"):
        rows = ("vocab_size", shape.vocabulary)
    elif not place.endswith(("layer_norm", "_proj", "fc1", "fc2")):
        return
    expected = [rows] if kind == "bias" or place.endswith("layer_norm") else [rows, columns]
    if list(tensor.shape) != [size for _, size in expected]:
        found = " x ".join(map(str, tensor.shape))
        wanted = " x ".join(f"{setting} {size}" for setting, size in expected)
        raise ValueError(f"the tensor {name!r} is {found}, and config.json says {wanted}; {TOGETHER}")


def _equal(one: Tensor, other: Tensor) -> bool:
    return one.shape == other.shape and (one.is_meta or torch.equal(one, other))


_NOT_LEARNED = ("embed_positions.weights", "embed_positions.weight", "final_logits_bias")
"""Tables that some checkpoints save although they follow from their size."""


def _shared_embedding(tensors: dict[str, Tensor]) -> Tensor:
    """The one matrix that both sides use, under whichever of its names it was saved; takes all of them away."""
    names = ("model.shared.weight", "model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight")
    found = [tensors.pop(name) for name in names if name in tensors]
    if not found and "lm_head.weight" in tensors:
        found = [tensors["lm_head.weight"]]
    if not found:
        raise ValueError(f"the checkpoint has no embeddings (no tensor {names[0]!r})")
    if not all(_equal(found[0], other) for other in found[1:]):
        raise ValueError("encoder and decoder of the checkpoint have embeddings of their own; in Rota they share one")
    return found[0].float()
