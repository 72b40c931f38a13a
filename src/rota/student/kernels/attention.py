"""Attention over flat rows: in padded rectangles, or in one CUDA kernel of variable length that needs no padding.

The kernel, PyTorch's variable-length flash attention, has 16-bit numbers and no dropout of attention weights;
everything else goes through the rectangles.

N tokens of all sentences, B sentences, Q and T positions in the longest one (queries, keys), H heads, K head width,
D = H * K model width, P projections side by side in a row (query, key, value), G = B * H.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor
from torch.autograd import Function

from rota.student.hardware import upload
from rota.student.kernels.dropout import Noise
from rota.types import IntArray

WIDEST_HEAD: Final = 256
"""Numbers in a head, at most, for the kernel of variable length: the limit of flash attention."""


@dataclass(frozen=True)
class Parts:
    """Indices between flat rows, cut into P * H parts each, and the rectangle P x B x H x T that holds the parts."""

    shape: tuple[int, int, int, int]  # P, B, H, T
    into: Tensor  # P * B * H * T: index of the part that goes to this position; padding repeats the first row
    back: Tensor  # N * P * H: index of the position that holds this part


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
        """B + 1, 32 bits as the kernel needs it: the row at which each sentence starts, and the one after the last."""
        return upload(np.append(self._starts, len(self._positions)).astype(np.int32), self.device)

    @cached_property
    def hide_padding(self) -> Tensor:
        """B x 1 x T, added to attention scores: minus infinity where a key is padding."""
        padding_BT = np.arange(self.longest) >= self.lengths[:, None]
        return upload(np.where(padding_BT, -np.inf, 0.0).astype(np.float32), self.device)[:, None]

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
        # Flat positions, counted by hand, take half to two thirds of the time of indexing the rectangle.
        sentence = self.heads * self.longest
        first_N = np.repeat(sentence * np.arange(self.sentences), self.lengths) + self._positions
        here_PH = self.sentences * sentence * np.arange(projections)[:, None] + self.longest * np.arange(self.heads)
        back = (first_N[:, None] + here_PH.ravel()).ravel()
        into = np.zeros(projections * self.sentences * sentence, dtype=np.int64)
        into[back] = np.arange(len(back))
        return Parts(shape, upload(into, self.device), upload(back, self.device))


def attend_within(rows: Tensor, layout: Layout, noise: Noise | None, *, causal: bool) -> Tensor:
    """Self-attention. ``rows``: N x 3D, query, key and value side by side; the result has N x D."""
    if fits_varlen(rows, layout, noise, 3):
        query_NHK, key_NHK, value_NHK = _heads(rows, layout, 3)
        return _attend_varlen(query_NHK, key_NHK, value_NHK, layout, layout, causal=causal)
    hidden = layout.hide_future if causal else layout.hide_padding
    return attend([rows], [layout.query_key_value], hidden, layout.query, noise)


def attend_to(rows: Tensor, layout: Layout, memory: Tensor, memory_layout: Layout, noise: Noise | None) -> Tensor:
    """Cross-attention of N x D query rows to the rows of ``memory``, key and value side by side."""
    if fits_varlen(rows, layout, noise):
        (query_NHK,), (key_NHK, value_NHK) = _heads(rows, layout, 1), _heads(memory, layout, 2)
        return _attend_varlen(query_NHK, key_NHK, value_NHK, layout, memory_layout, causal=False)
    parts = [layout.query, memory_layout.key_value]
    return attend([rows, memory], parts, memory_layout.hide_padding, layout.query, noise)


def attend(
    rows: Sequence[Tensor], parts: Sequence[Parts], hidden: Tensor, back: Parts, noise: Noise | None = None
) -> Tensor:
    """Attention in padded rectangles, from flat rows to N x D flat rows.

    ``rows`` is one tensor with queries, keys and values side by side, or the queries and then keys with values;
    ``parts`` says where the parts of each go. ``hidden`` is added to the scores and has a shape that expands to
    B x Q x T; ``back`` says where the parts of the queries come from.
    """
    result: Tensor = _Attention.apply(hidden, noise, back, parts, *rows)  # type: ignore[no-untyped-call]
    return result


def split_heads(rows: Tensor, parts: Parts) -> tuple[Tensor, ...]:
    """N x (P * D) flat rows to P padded tensors B x H x T x K; padding is a copy of the first row."""
    projections, _, heads, _ = parts.shape
    width = rows.shape[1] // (projections * heads)
    return rows.reshape(-1, width).index_select(0, parts.into).view(*parts.shape, width).unbind(0)


class _Attention(Function):
    """By hand, because the dropout of the weights draws from our own generator, and because it is faster.

    The backward pass writes the gradients of queries, keys and values side by side, as the rows have them, and passes
    the scales of scores and dropout to matrix products, where they cost nothing. Products are in the precision of the
    rows, the softmax is in float32.
    """

    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, noise: Noise | None, back: Parts, parts: Sequence[Parts], *rows: Tensor
    ) -> Tensor:
        split = [split_heads(each, part) for each, part in zip(rows, parts, strict=True)]
        query_GQK, key_GTK, value_GTK = (projection.flatten(0, 1) for each in split for projection in each)
        _, sentences, heads, queries = back.shape
        scores_BHQT = query_GQK.new_empty(sentences, heads, queries, key_GTK.shape[1]).copy_(hidden[:, None])
        scores_GQT = scores_BHQT.flatten(0, 1)
        scores_GQT.baddbmm_(query_GQK, key_GTK.transpose(1, 2), alpha=query_GQK.shape[2] ** -0.5)
        weights_GQT = scores_GQT.softmax(-1, dtype=torch.float32)
        kept_GQT, ctx.scale = (None, 1.0) if noise is None else noise.attention_mask(weights_GQT)
        dropped_GQT = (weights_GQT if kept_GQT is None else weights_GQT * kept_GQT).to(value_GTK.dtype)
        mixed_GQK = _product(torch.empty_like(query_GQK), dropped_GQT, value_GTK, ctx.scale)
        ctx.parts, ctx.back = parts, back
        ctx.save_for_backward(query_GQK, key_GTK, value_GTK, weights_GQT, kept_GQT, dropped_GQT)
        return _join_heads(mixed_GQK, back)

    @staticmethod
    def backward(ctx: Any, gradient_ND: Tensor) -> Any:
        query_GQK, key_GTK, value_GTK, weights_GQT, kept_GQT, dropped_GQT = ctx.saved_tensors
        width = query_GQK.shape[2]
        mixed_GQK = torch.zeros_like(query_GQK)
        mixed_GQK.view(-1, width).index_copy_(0, ctx.back.back, gradient_ND.reshape(-1, width))
        room = [query_GQK.new_empty(part.shape[0], len(query_GQK), part.shape[3], width) for part in ctx.parts]
        to_query, to_key, to_value = (projection for each in room for projection in each)
        _product(to_value, dropped_GQT.transpose(1, 2), mixed_GQK, ctx.scale)
        to_weights = _product(torch.empty_like(dropped_GQT), mixed_GQK, value_GTK.transpose(1, 2), ctx.scale).float()
        if kept_GQT is not None:
            to_weights.mul_(kept_GQT)
        to_scores = torch.ops.aten._softmax_backward_data(to_weights, weights_GQT, -1, torch.float32)
        to_scores = to_scores.to(query_GQK.dtype)
        _product(to_query, to_scores, key_GTK, width**-0.5)
        _product(to_key, to_scores.transpose(1, 2), query_GQK, width**-0.5)
        return None, None, None, None, *(_join_heads(each, part) for each, part in zip(room, ctx.parts, strict=True))


def _product(result: Tensor, left: Tensor, right: Tensor, scale: float) -> Tensor:
    """``scale * left @ right``, written into ``result``."""
    return result.baddbmm_(left, right, beta=0, alpha=scale)


def _join_heads(heads: Tensor, parts: Parts) -> Tensor:
    """Padded tensors, P x G x T x K in memory, to N x (P * D) flat rows without the padding."""
    projections, _, per_row, _ = parts.shape
    width = heads.shape[-1]
    return heads.view(-1, width).index_select(0, parts.back).view(-1, projections * per_row * width)


@cache
def find_kernel() -> Callable[..., Any] | None:
    """The kernel of variable length, where torch has it in the form that we call.

    Looked for on CUDA alone: importing it loads all of ``torch.compile``, 78 MB.
    """
    try:
        from torch.nn.attention.varlen import varlen_attn
    except ImportError:
        return None
    return varlen_attn if "window_size" in inspect.signature(varlen_attn).parameters else None


def fits_varlen(rows: Tensor, layout: Layout, noise: Noise | None, projections: int = 1) -> bool:
    """Whether the kernel can take these rows, each of so many ``projections`` side by side."""
    width = rows.shape[1] // (projections * layout.heads)
    drops = noise is not None and noise.attention > 0
    return rows.is_cuda and not drops and suits_varlen(rows.device, rows.dtype, width)


def suits_varlen(device: torch.device, dtype: torch.dtype, width: int) -> bool:
    """Whether the kernel supports this number type, GPU (Ampere or later) and head width."""
    return (
        dtype in (torch.bfloat16, torch.float16)
        and width % 8 == 0
        and width <= WIDEST_HEAD
        and torch.cuda.get_device_capability(device) >= (8, 0)
        and find_kernel() is not None
    )


def _heads(rows: Tensor, layout: Layout, projections: int) -> tuple[Tensor, ...]:
    """N x (P * D) rows to P tensors N x H x K."""
    return rows.view(len(rows), projections, layout.heads, -1).unbind(1)


def _attend_varlen(
    query_NHK: Tensor, key_NHK: Tensor, value_NHK: Tensor, layout: Layout, memory: Layout, *, causal: bool
) -> Tensor:
    """Every row of ``layout`` attends to the rows of its sentence in ``memory``; if causal, to none after itself."""
    kernel = find_kernel()
    assert kernel is not None
    window = (-1, 0) if causal else (-1, -1)
    lengths = (layout.bounds, memory.bounds, layout.longest, memory.longest)
    mixed_NHK: Tensor = kernel(query_NHK, key_NHK, value_NHK, *lengths, window_size=window)
    return mixed_NHK.flatten(1)
