"""Small networks and batches for the tests of the student."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from rota.student.config import Schedule, Shape, StudentConfig
from rota.student.kernels.attention import Layout
from rota.student.nmt import NMT
from rota.student.transformer import Transformer, to_m2m100
from rota.types import Batch

VOCABULARY = 23
CPU = torch.device("cpu")

Pair = tuple[list[int], list[int]]


def batch_of(pairs: list[Pair], arm: str = "az") -> Batch:
    """A batch of (source, target) sentences, which already have their end symbols."""
    sources, targets = zip(*pairs, strict=True)
    return Batch(
        arm,
        source=np.array([token for source in sources for token in source], dtype=np.int32),
        source_lengths=np.array([len(source) for source in sources], dtype=np.int32),
        target=np.array([token for target in targets for token in target], dtype=np.int32),
        target_lengths=np.array([len(target) for target in targets], dtype=np.int32),
        tokens_by_language={arm: sum(map(len, targets))},
    )


def random_pairs(*lengths: tuple[int, int], seed: int = 0) -> list[Pair]:
    """Pairs with the given (source, target) lengths, end symbols (2) included."""
    rng = np.random.default_rng(seed)

    def sentence(length: int) -> list[int]:
        return [*rng.integers(4, VOCABULARY, size=length - 1).tolist(), 2]

    return [(sentence(source), sentence(target)) for source, target in lengths]


def make_network(seed: int = 0, *, spread: float = 0.1, **changes: Any) -> Transformer:
    """A small network; ``spread`` is noise on all weights, biases and norms included, so that every one counts."""
    sizes = {"vocabulary": VOCABULARY, "encoder_layers": 2, "decoder_layers": 2, "width": 16, "heads": 2}
    generator = torch.Generator().manual_seed(seed)
    network = Transformer(Shape(**sizes | {"feedforward": 24} | changes), generator)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.add_(spread * torch.randn(parameter.shape, generator=generator))
    return network


def make_student(network: Transformer | None = None, **changes: Any) -> NMT:
    """A student without dropout, at its highest learning rate from the first step; ``changes`` of its settings."""
    other = {"seed": 1, "schedule": Schedule(peak=0.01, warmup=0), "team": None}
    other |= {name: changes.pop(name) for name in list(changes) if name in other}
    settings = StudentConfig(**{"dropout": 0.0, "attention_dropout": 0.0} | changes)
    return NMT(network or make_network(), settings, **other)


def states_of(network: Transformer, pairs: list[Pair]) -> torch.Tensor:
    """Decoder states of all target tokens of the pairs, run as one batch."""
    batch = batch_of(pairs)
    tensors = [torch.from_numpy(ids.astype(np.int64)) for ids in (batch.source, batch.target)]
    layouts = [Layout(lengths, network.shape.heads, CPU) for lengths in (batch.source_lengths, batch.target_lengths)]
    states: torch.Tensor = network(tensors[0], layouts[0], tensors[1], layouts[1], None)
    return states


def hugging_face_twin(network: Transformer) -> torch.nn.Module:
    """The same network, computed by Hugging Face: padded, and differentiated by autograd alone."""
    from transformers import M2M100Config, M2M100ForConditionalGeneration

    shape = network.shape
    config = M2M100Config(
        vocab_size=shape.vocabulary,
        d_model=shape.width,
        encoder_layers=shape.encoder_layers,
        decoder_layers=shape.decoder_layers,
        encoder_attention_heads=shape.heads,
        decoder_attention_heads=shape.heads,
        encoder_ffn_dim=shape.feedforward,
        decoder_ffn_dim=shape.feedforward,
        activation_function="relu",
        scale_embedding=True,
        tie_word_embeddings=shape.tie_embeddings,
    )
    twin = M2M100ForConditionalGeneration(config)
    twin.load_state_dict(to_m2m100(network.state_dict()), strict=True)
    return twin.eval()
