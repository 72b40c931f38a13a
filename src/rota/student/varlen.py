"""Attention over flat rows in one kernel, without padding: PyTorch's variable-length flash attention.

It exists on CUDA, for 16-bit numbers, and drops no attention weights; everything else goes through the padded
rectangles of :mod:`rota.student.attention`. N rows, P projections side by side, H heads, K head width.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch import Tensor

from rota.student.attention import Layout
from rota.student.dropout import Noise


@cache
def find_kernel() -> Callable[..., Any] | None:
    """The kernel, where torch has it; versions that say otherwise what is causal are passed over.

    Looked for on CUDA alone: importing it brings all of ``torch.compile`` into memory, 78 MB.
    """
    try:
        from torch.nn.attention.varlen import varlen_attn
    except ImportError:
        return None
    return varlen_attn if "window_size" in inspect.signature(varlen_attn).parameters else None


def fits(rows: Tensor, layout: Layout, noise: Noise | None) -> bool:
    """Whether the kernel can do it: its number type, its device (Ampere or later), its head width, no dropout."""
    return (
        rows.is_cuda
        and rows.dtype in (torch.bfloat16, torch.float16)
        and (noise is None or noise.attention == 0)
        and rows.shape[1] // layout.heads % 8 == 0
        and torch.cuda.get_device_capability(rows.device) >= (8, 0)
        and find_kernel() is not None
    )


def heads(rows: Tensor, layout: Layout, projections: int) -> tuple[Tensor, ...]:
    """N x (P * H * K) rows to P tensors N x H x K."""
    return rows.view(len(rows), projections, layout.heads, -1).unbind(1)


def attend(
    query_NHK: Tensor, key_NHK: Tensor, value_NHK: Tensor, layout: Layout, memory: Layout, *, causal: bool
) -> Tensor:
    """Every row of ``layout`` looks at the rows of its sentence in ``memory``; if causal, at none after itself."""
    kernel = find_kernel()
    assert kernel is not None
    window = (-1, 0) if causal else (-1, -1)
    lengths = (layout.bounds, memory.bounds, layout.longest, memory.longest)
    mixed_NHK: Tensor = kernel(query_NHK, key_NHK, value_NHK, *lengths, window_size=window)
    return mixed_NHK.flatten(1)
