"""The decoder one token at a time: keys and values of earlier tokens and of the source are kept, not computed again.

B sentences, W hypotheses (beams) of each, R = B * W rows, S source positions, H heads, K head width, D model width,
V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from rota.student.attention import Layout, split_heads
from rota.student.transformer import DecoderLayer, Transformer
from rota.types import IntArray


class StepDecoder:
    """One network and what it remembers of W unfinished hypotheses for each of B source sentences."""

    def __init__(self, network: Transformer, sources: Sequence[IntArray], beam: int) -> None:
        self.network, self.beam = network, beam
        self.length = 0
        layout = Layout(np.array([len(source) for source in sources]), network.shape.heads, network.device)
        ids_N = torch.from_numpy(np.concatenate(sources).astype(np.int64)).to(network.device)
        memory_ND = network.encode(ids_N, layout)
        self._visible_B11S = (layout.hide_padding == 0)[:, None]
        self._memory_2BHSK = [
            split_heads(layer.cross_attention.key_value(memory_ND), layout.key_value) for layer in self._layers
        ]
        width = network.shape.width // network.shape.heads
        empty = torch.empty(len(sources) * beam, network.shape.heads, 0, width, device=network.device)
        self._past_2RHTK = [(empty, empty) for _ in self._layers]

    def step(self, ids_R: Tensor) -> Tensor:
        """Reads one more token of every hypothesis; returns the R x V logits of the next one."""
        network = self.network
        positions_R = torch.full_like(ids_R, self.length)
        states_RD = network.add_positions(network.embedding(ids_R), positions_R, self.length + 1, None)
        for number, layer in enumerate(self._layers):
            states_RD = states_RD + self._attend_past(number, layer, layer.attention_norm(states_RD))
            states_RD = states_RD + self._attend_source(number, layer, layer.cross_attention_norm(states_RD))
            states_RD = states_RD + layer.feedforward(layer.feedforward_norm(states_RD))
        self.length += 1
        return functional.linear(network.decoder_norm(states_RD), network.output_matrix)

    def select(self, rows_R: Tensor) -> None:
        """Goes on with copies of these rows, in this order."""
        self._past_2RHTK = [(keys[rows_R], values[rows_R]) for keys, values in self._past_2RHTK]

    def drop_sentences(self, kept_B: Tensor) -> None:
        """Forgets the source of finished sentences; ``kept_B`` are the numbers of the others."""
        self._visible_B11S = self._visible_B11S[kept_B]
        self._memory_2BHSK = [(keys[kept_B], values[kept_B]) for keys, values in self._memory_2BHSK]

    @property
    def _layers(self) -> list[DecoderLayer]:
        return [layer for layer in self.network.decoder if isinstance(layer, DecoderLayer)]

    def _attend_past(self, number: int, layer: DecoderLayer, states_RD: Tensor) -> Tensor:
        rows, heads = len(states_RD), self.network.shape.heads
        joined = layer.attention.query_key_value(states_RD).view(rows, 3, heads, 1, -1)
        query, key, value = joined.unbind(1)
        keys, values = self._past_2RHTK[number]
        keys, values = torch.cat([keys, key], dim=2), torch.cat([values, value], dim=2)
        self._past_2RHTK[number] = keys, values
        mixed_RH1K = functional.scaled_dot_product_attention(query, keys, values)
        result: Tensor = layer.attention.out(mixed_RH1K.reshape(rows, -1))
        return result

    def _attend_source(self, number: int, layer: DecoderLayer, states_RD: Tensor) -> Tensor:
        # The hypotheses of a sentence are queries of the same attention: the source is never copied for them.
        heads = self.network.shape.heads
        query_BWHK = layer.cross_attention.query(states_RD).view(-1, self.beam, heads, states_RD.shape[1] // heads)
        keys, values = self._memory_2BHSK[number]
        mixed_BHWK = functional.scaled_dot_product_attention(
            query_BWHK.transpose(1, 2), keys, values, attn_mask=self._visible_B11S
        )
        result: Tensor = layer.cross_attention.out(mixed_BHWK.transpose(1, 2).reshape(states_RD.shape))
        return result
