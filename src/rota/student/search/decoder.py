"""One network that reads target sentences token by token, with the keys and values of what it has read.

B sentences, W hypotheses (beams) of each, R = B * W rows, S source positions, P places in the caches (one for each
token read of a sentence by any of its hypotheses), H heads, K head width, D model width, V vocabulary.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from rota.student.hardware import upload
from rota.student.kernels.attention import Layout, split_heads
from rota.student.transformer import DecoderLayer, Transformer
from rota.types import IntArray

FIRST_ROOM: Final = 16
"""Steps for which there is room in the caches at first; they grow by half."""


class EncoderCache:
    """Encoder states, for networks that translate the same sentences again, as the windows of a selection do.

    All batches of a network are kept as long as the network lives; its weights must not change meanwhile.
    """

    def __init__(self) -> None:
        self._states: WeakKeyDictionary[Transformer, dict[bytes, Tensor]] = WeakKeyDictionary()

    def encode(self, network: Transformer, sources: Sequence[IntArray]) -> tuple[Tensor, Layout]:
        known = self._states.setdefault(network, {})
        layout, ids = _lay_out(network, sources)
        key = ids.tobytes() + layout.lengths.tobytes()
        if key not in known:
            known[key] = _encode(network, ids, layout)
        return known[key], layout

    def forget(self) -> None:
        """Frees the memory."""
        self._states.clear()


def _lay_out(network: Transformer, sources: Sequence[IntArray]) -> tuple[Layout, IntArray]:
    layout = Layout(np.array([len(source) for source in sources]), network.shape.heads, network.device)
    return layout, np.concatenate(sources).astype(np.int64)


@torch.inference_mode()
def _encode(network: Transformer, ids: IntArray, layout: Layout) -> Tensor:
    return network.encode(upload(ids, network.device), layout)


class StepDecoder:
    """One network and the keys and values of the unfinished hypotheses of B source sentences.

    Each sentence has one hypothesis at first, later W, the same number for all sentences. What a hypothesis has read
    stays where it was written when others take its place: each remembers the places of its own past. So nothing is
    copied when hypotheses change, and all hypotheses of a sentence are queries of one attention.
    """

    def __init__(self, network: Transformer, sources: Sequence[IntArray], cache: EncoderCache | None = None) -> None:
        self.network, self.length = network, 0
        if cache is None:
            layout, ids = _lay_out(network, sources)
            memory_ND = _encode(network, ids, layout)
        else:
            memory_ND, layout = cache.encode(network, sources)
        self._layers = [layer for layer in network.decoder if isinstance(layer, DecoderLayer)]
        self._padding_B11S = layout.hide_padding[:, None]
        self._memory_B2HSK = [
            torch.stack(split_heads(layer.cross_attention.key_value(memory_ND), layout.key_value), dim=1)
            for layer in self._layers
        ]
        heads, width = network.shape.heads, network.shape.width // network.shape.heads
        self._past_B2HPK = [
            torch.empty(len(sources), 2, heads, FIRST_ROOM, width, device=network.device) for _ in self._layers
        ]
        self._sentences, self._places = len(sources), 0
        # Added to the scores of attention: 0 where a place is of the hypothesis' own past, else minus infinity.
        self._own_BWP = torch.empty(len(sources), 1, 0, device=network.device)

    def step(self, ids_R: Tensor) -> Tensor:
        """Reads one more token of every hypothesis; returns the R x V logits of the next one."""
        network = self.network
        self._make_room(len(ids_R) // self._sentences)
        positions_R = ids_R.new_full((1,), self.length)  # one row of the table, for all hypotheses
        states_RD = network.add_positions(network.embedding(ids_R), positions_R, self.length + 1, None)
        for number, layer in enumerate(self._layers):
            states_RD = states_RD + self._attend_past(number, layer, layer.attention_norm(states_RD))
            states_RD = states_RD + self._attend_source(number, layer, layer.cross_attention_norm(states_RD))
            states_RD = states_RD + layer.feedforward(layer.feedforward_norm(states_RD))
        self.length += 1
        return functional.linear(network.decoder_norm(states_RD), network.output_matrix)

    def select(self, parents_BW: Tensor) -> None:
        """Goes on with copies of these hypotheses of each sentence, in this order."""
        self._own_BWP = self._own_BWP.gather(1, parents_BW[:, :, None].expand(-1, -1, self._places))

    def keep_sentences(self, kept_B: Tensor) -> None:
        """Goes on with the sentences of these indices: each stays where it is or takes the place of a finished one."""
        moved = (kept_B != torch.arange(len(kept_B), device=kept_B.device)).nonzero()[:, 0]
        self._sentences, from_where = len(kept_B), kept_B[moved]
        tables = (self._padding_B11S, self._own_BWP, *self._memory_B2HSK, *self._past_B2HPK)
        for table in tables if len(moved) else ():
            table.index_copy_(0, moved, table.index_select(0, from_where))
        self._padding_B11S, self._own_BWP = self._padding_B11S[: len(kept_B)], self._own_BWP[: len(kept_B)]
        self._memory_B2HSK = [table[: len(kept_B)] for table in self._memory_B2HSK]
        self._past_B2HPK = [table[: len(kept_B)] for table in self._past_B2HPK]

    def _make_room(self, hypotheses: int) -> None:
        """Places for one more token of every hypothesis, which only it has read."""
        before, self._places = self._places, self._places + hypotheses
        own_BWW = torch.full((hypotheses, hypotheses), -math.inf, device=self.network.device).fill_diagonal_(0.0)
        own_BWW = own_BWW.expand(self._sentences, -1, -1)
        self._own_BWP = torch.cat([self._own_BWP.expand(-1, hypotheses, -1), own_BWW], dim=2)
        if self._places > self._past_B2HPK[0].shape[3]:
            room = max(FIRST_ROOM * hypotheses, before + before // 2 + hypotheses)
            self._past_B2HPK = [_enlarged(table, before, room) for table in self._past_B2HPK]

    def _attend_past(self, number: int, layer: DecoderLayer, states_RD: Tensor) -> Tensor:
        heads, places = self.network.shape.heads, self._places
        joined = layer.attention.query_key_value(states_RD).view(self._sentences, -1, 3, heads, self._width)
        hypotheses = joined.shape[1]
        past_B2HPK = self._past_B2HPK[number]
        past_B2HPK[:, :, :, places - hypotheses : places] = joined[:, :, 1:].permute(0, 2, 3, 1, 4)
        keys, values = past_B2HPK[:, :, :, :places].unbind(1)
        # With one hypothesis every place is its own.
        hidden_B1WP = None if hypotheses == 1 else self._own_BWP[:, None]
        query_BHWK = joined[:, :, 0].transpose(1, 2)
        mixed_BHWK = functional.scaled_dot_product_attention(query_BHWK, keys, values, attn_mask=hidden_B1WP)
        result: Tensor = layer.attention.out(mixed_BHWK.transpose(1, 2).reshape(states_RD.shape))
        return result

    def _attend_source(self, number: int, layer: DecoderLayer, states_RD: Tensor) -> Tensor:
        keys, values = self._memory_B2HSK[number].unbind(1)
        query_BWHK = layer.cross_attention.query(states_RD).view(
            self._sentences, -1, self.network.shape.heads, self._width
        )
        mixed_BHWK = functional.scaled_dot_product_attention(
            query_BWHK.transpose(1, 2), keys, values, attn_mask=self._padding_B11S
        )
        result: Tensor = layer.cross_attention.out(mixed_BHWK.transpose(1, 2).reshape(states_RD.shape))
        return result

    @property
    def _width(self) -> int:
        return self.network.shape.width // self.network.shape.heads


def _enlarged(table_B2HPK: Tensor, used: int, room: int) -> Tensor:
    sentences, pair, heads, _, width = table_B2HPK.shape
    larger = table_B2HPK.new_empty(sentences, pair, heads, room, width)
    larger[:, :, :, :used] = table_B2HPK[:, :, :, :used]
    return larger
