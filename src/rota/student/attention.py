"""From flat rows to rectangles and back: the only place where padding exists.

N tokens of all sentences, B sentences, Q and T positions in the longest one (queries, keys), H heads, K head width,
D = H * K model width, P projections side by side in a row (query, key, value).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.autograd import Function

from rota.student.dropout import Noise
from rota.student.hardware import upload
from rota.types import IntArray


@dataclass(frozen=True)
class Parts:
    """Where the P * H pieces of every row go in the rectangle P x B x H x T, and where they come from."""

    shape: tuple[int, int, int, int]  # P, B, H, T
    into: Tensor  # P * B * H * T: number of the piece of a row that fills this place; padding repeats the first row
    back: Tensor  # N * P * H: number of the place that holds this piece


class Layout:
    """The sentences of a batch, one after the other in flat rows; all layers share its index tensors."""

    def __init__(self, lengths: IntArray, heads: int, device: torch.device) -> None:
        self.lengths, self.heads, self.device = lengths.astype(np.int64), heads, device
        self.sentences, self.longest = len(lengths), int(lengths.max())
        self._starts = np.cumsum(self.lengths) - self.lengths
        self._positions = np.arange(self.lengths.sum()) - np.repeat(self._starts, self.lengths)

    @cached_property
    def positions(self) -> Tensor:
        """N: position of each row in its sentence, from 0."""
        return upload(self._positions, self.device)

    @cached_property
    def first_rows(self) -> Tensor:
        """B: row of the first token of each sentence."""
        return upload(self._starts, self.device)

    @cached_property
    def bounds(self) -> Tensor:
        """B + 1, 32 bits as kernels want it: the row at which each sentence starts, and the one after the last."""
        return upload(np.append(self._starts, len(self._positions)).astype(np.int32), self.device)

    @cached_property
    def hide_padding(self) -> Tensor:
        """B x 1 x T, added to attention scores: minus infinity where a key is padding."""
        padding_BT = np.arange(self.longest) >= self.lengths[:, None]
        return torch.from_numpy(np.where(padding_BT, -np.inf, 0.0).astype(np.float32)).to(self.device)[:, None]

    @cached_property
    def hide_future(self) -> Tensor:
        """1 x T x T, added to attention scores: minus infinity above the diagonal, which hides padding as well."""
        scores_TT = torch.full((self.longest, self.longest), -torch.inf, device=self.device)
        return scores_TT.triu(1)[None]

    @cached_property
    def query(self) -> Parts:
        return self._parts(1)

    @cached_property
    def key_value(self) -> Parts:
        return self._parts(2)

    @cached_property
    def query_key_value(self) -> Parts:
        return self._parts(3)

    def _parts(self, projections: int) -> Parts:
        shape = (projections, self.sentences, self.heads, self.longest)
        pieces_NPH = np.arange(len(self._positions) * projections * self.heads).reshape(-1, projections, self.heads)
        sentences_N = np.repeat(np.arange(self.sentences), self.lengths)
        into_PBHT = np.zeros(shape, dtype=np.int64)
        into_PBHT[:, sentences_N, :, self._positions] = pieces_NPH
        places_PBHT = np.arange(into_PBHT.size).reshape(shape)
        back_NPH = places_PBHT[:, sentences_N, :, self._positions]
        into, back = (upload(index.ravel(), self.device) for index in (into_PBHT, back_NPH))
        return Parts(shape, into, back)


def attend(
    query_BHQK: Tensor, key_BHTK: Tensor, value_BHTK: Tensor, hidden: Tensor, noise: Noise | None = None
) -> Tensor:
    """Attention by hand, because the dropout of its weights draws from our own generator.

    ``hidden`` is added to the scores and has a shape that expands to B x Q x T.
    """
    sentences, heads, queries, width = query_BHQK.shape
    keys = key_BHTK.shape[2]
    hidden_BHQT = hidden[:, None].expand(sentences, heads, queries, keys).to(query_BHQK.dtype)
    scores = torch.baddbmm(
        hidden_BHQT.reshape(sentences * heads, queries, keys),
        query_BHQK.flatten(0, 1),
        key_BHTK.flatten(0, 1).transpose(1, 2),
        alpha=width**-0.5,
    )
    weights = scores.softmax(-1)
    if noise is not None:
        weights = noise.drop_attention(weights)
    return torch.bmm(weights, value_BHTK.flatten(0, 1)).view(query_BHQK.shape)


def split_heads(rows: Tensor, parts: Parts) -> tuple[Tensor, ...]:
    """N x (P * D) flat rows to P padded tensors B x H x T x K."""
    heads_PBHTK: Tensor = _IntoHeads.apply(rows, parts)  # type: ignore[no-untyped-call]
    return heads_PBHTK.unbind(0)


def join_heads(heads_BHTK: Tensor, parts: Parts) -> Tensor:
    """A padded tensor B x H x T x K to N x D flat rows."""
    rows: Tensor = _FromHeads.apply(heads_BHTK, parts)  # type: ignore[no-untyped-call]
    return rows


class _IntoHeads(Function):
    """Padding is a copy of the first row; its gradient is dropped, because nothing real depends on it."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, parts: Parts) -> Tensor:
        ctx.parts, ctx.shape = parts, rows.shape
        projections, _, heads, _ = parts.shape
        width = rows.shape[1] // (projections * heads)
        return rows.reshape(-1, width).index_select(0, parts.into).view(*parts.shape, width)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        pieces = gradient.reshape(-1, gradient.shape[-1])
        return pieces.index_select(0, ctx.parts.back).view(ctx.shape), None


class _FromHeads(Function):
    @staticmethod
    def forward(ctx: Any, heads_BHTK: Tensor, parts: Parts) -> Tensor:
        ctx.parts, ctx.shape = parts, heads_BHTK.shape
        _, heads, _, width = heads_BHTK.shape
        return heads_BHTK.reshape(-1, width).index_select(0, parts.back).view(-1, heads * width)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        width = ctx.shape[-1]
        padded = gradient.new_zeros(ctx.shape).view(-1, width)
        return padded.index_copy_(0, ctx.parts.back, gradient.reshape(-1, width)).view(ctx.shape), None
