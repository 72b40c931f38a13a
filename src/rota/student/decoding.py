"""The decoder one token at a time: keys and values of earlier tokens and of the source are kept, not computed again.

B sentences, W hypotheses (beams) of each, R = B * W rows, S source positions, H heads, K head width, D model width,
V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from rota.student.attention import Layout, split_heads
from rota.student.hardware import upload
from rota.student.transformer import DecoderLayer, Transformer
from rota.types import IntArray


class EncoderCache:
    """What encoders said, for networks that translate the same sentences again, as the windows of a selection do.

    Each remembers all batches it has seen, as long as the network lives; its weights must not change meanwhile.
    """

    def __init__(self) -> None:
        self._states: WeakKeyDictionary[Transformer, dict[bytes, Tensor]] = WeakKeyDictionary()

    def encode(self, network: Transformer, ids: IntArray, layout: Layout) -> Tensor:
        known = self._states.setdefault(network, {})
        key = ids.tobytes() + layout.lengths.tobytes()
        if key not in known:
            known[key] = _encode(network, ids, layout)
        return known[key]

    def forget(self) -> None:
        """Makes room."""
        self._states.clear()


def _encode(network: Transformer, ids: IntArray, layout: Layout) -> Tensor:
    return network.encode(upload(ids, network.device), layout)


class StepDecoder:
    """One network and what it remembers of the unfinished hypotheses of B source sentences.

    Each sentence has one hypothesis at first; ``select`` makes them W, the same number for all sentences.
    """

    def __init__(self, network: Transformer, sources: Sequence[IntArray], cache: EncoderCache | None = None) -> None:
        self.network, self.length = network, 0
        layout = Layout(np.array([len(source) for source in sources]), network.shape.heads, network.device)
        ids = np.concatenate(sources).astype(np.int64)
        memory_ND = _encode(network, ids, layout) if cache is None else cache.encode(network, ids, layout)
        self._layers = [layer for layer in network.decoder if isinstance(layer, DecoderLayer)]
        self._hidden_B11S = layout.hide_padding[:, None]
        self._memory_2BHSK = [
            split_heads(layer.cross_attention.key_value(memory_ND), layout.key_value) for layer in self._layers
        ]
        width = network.shape.width // network.shape.heads
        empty = torch.empty(len(sources), network.shape.heads, 0, width, device=network.device)
        self._past_2RHTK = [(empty, empty) for _ in self._layers]

    def step(self, ids_R: Tensor) -> Tensor:
        """Reads one more token of every hypothesis; returns the R x V logits of the next one."""
        network = self.network
        positions_R = ids_R.new_full((1,), self.length)  # one row of the table, for all hypotheses
        states_RD = network.add_positions(network.embedding(ids_R), positions_R, self.length + 1, None)
        for number, layer in enumerate(self._layers):
            states_RD = states_RD + self._attend_past(number, layer, layer.attention_norm(states_RD))
            states_RD = states_RD + self._attend_source(number, layer, layer.cross_attention_norm(states_RD))
            states_RD = states_RD + layer.feedforward(layer.feedforward_norm(states_RD))
        self.length += 1
        return functional.linear(network.decoder_norm(states_RD), network.output_matrix)

    def select(self, rows_R: Tensor) -> None:
        """Goes on with copies of these rows, in this order."""
        if not _is_everything(rows_R, len(self._past_2RHTK[0][0])):
            self._past_2RHTK = [_take(pair, rows_R) for pair in self._past_2RHTK]

    def drop_sentences(self, kept_B: Tensor) -> None:
        """Forgets the source of finished sentences; ``kept_B`` are the numbers of the others."""
        self._hidden_B11S = self._hidden_B11S.index_select(0, kept_B)
        self._memory_2BHSK = [_take(pair, kept_B) for pair in self._memory_2BHSK]

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
        keys, values = self._memory_2BHSK[number]
        sentences, heads, _, width = keys.shape
        query_BWHK = layer.cross_attention.query(states_RD).view(sentences, -1, heads, width)
        mixed_BHWK = functional.scaled_dot_product_attention(
            query_BWHK.transpose(1, 2), keys, values, attn_mask=self._hidden_B11S
        )
        result: Tensor = layer.cross_attention.out(mixed_BHWK.transpose(1, 2).reshape(states_RD.shape))
        return result


def _take(pair: Sequence[Tensor], rows: Tensor) -> tuple[Tensor, Tensor]:
    # Five times as fast on a CPU as an index in brackets.
    keys, values = pair
    return keys.index_select(0, rows), values.index_select(0, rows)


def _is_everything(rows_R: Tensor, count: int) -> bool:
    """Whether these are all rows in their order, as often in greedy search: then nothing need be copied."""
    return len(rows_R) == count and torch.equal(rows_R, torch.arange(count, device=rows_R.device))
