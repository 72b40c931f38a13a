"""Attention over flat rows in one kernel, without padding: PyTorch's variable-length flash attention.

It exists on CUDA, for 16-bit numbers, and drops no attention weights; everything else goes through the padded
rectangles of :mod:`rota.student.attention`. N rows, P projections side by side, H heads, K head width.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import cache
from typing import Any, Final

import torch
from torch import Tensor

from rota.student.attention import Layout
from rota.student.dropout import Noise

WIDEST: Final = 256
"""Numbers in a head, at most: the limit of flash attention."""


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


def fits(rows: Tensor, layout: Layout, noise: Noise | None, projections: int = 1) -> bool:
    """Whether the kernel can do it with these rows, each of so many ``projections`` side by side."""
    width = rows.shape[1] // (projections * layout.heads)
    drops = noise is not None and noise.attention > 0
    return rows.is_cuda and not drops and suits(rows.device, rows.dtype, width)


def suits(device: torch.device, dtype: torch.dtype, width: int) -> bool:
    """Whether the kernel has this number type, GPU (Ampere or later) and head width."""
    return (
        dtype in (torch.bfloat16, torch.float16)
        and width % 8 == 0
        and width <= WIDEST
        and torch.cuda.get_device_capability(device) >= (8, 0)
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
