"""Feed-forward blocks through ``torch.compile``: norm, two products, ReLU, dropout and the sum in a few kernels.

The number of rows is the only size of a block that differs between batches, so a few compilations with dynamic shapes
(training and measuring, either kind of layer) serve all of them. Attention stays as it is: the sizes of its rectangles
differ too, and reasoning about them takes the compiler minutes. The masks of a block are drawn before it, in the order
of the plain one: both drop the same.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec

import torch
from torch import Tensor
from torch.nn import functional

from rota.student.dropout import Noise
from rota.student.transformer import Layer, Transformer

Block = Callable[[Layer, Tensor, Tensor | None, Tensor | None, float], Tensor]


def compile_blocks(network: Transformer, backend: str = "inductor") -> None:
    """From now on the layers of this network use compiled blocks; names of weights stay as they are."""
    check_compiler(network.device)
    # Else the compiler cuts a block in two where DistributedDataParallel begins another bucket, and fails on the scale
    # of dropout, which is a number (torch 2.13). A block is small: its gradients go out soon enough.
    torch._dynamo.config.optimize_ddp = False
    block: Block = torch.compile(_block, dynamic=True, backend=backend)
    for layer in (*network.encoder, *network.decoder):
        assert isinstance(layer, Layer)
        setattr(layer, "feed", partial(_feed, layer, block))  # noqa: B010


def check_compiler(device: torch.device) -> None:
    """Refuses where ``torch.compile`` would fail at the first update, for want of what compiles its kernels."""
    if device.type == "cpu" and not any(map(shutil.which, (os.environ.get("CXX", "g++"), "clang++"))):
        raise ValueError("student.compile needs a C++ compiler on a CPU; install g++, or write student.compile: false")
    if device.type == "cuda" and find_spec("triton") is None:
        raise ValueError("student.compile needs Triton on a GPU; install triton, or write student.compile: false")
    if device.type == "cuda" and torch.cuda.get_device_capability(device) < (7, 0):
        raise ValueError("student.compile needs a GPU of 2017 or later (Volta); write student.compile: false")


def _feed(layer: Layer, block: Block, states_ND: Tensor, noise: Noise | None) -> Tensor:
    if noise is None:
        return block(layer, states_ND, None, None, 1.0)
    rows, width = states_ND.shape
    inner_kept_NF = noise.states_mask(rows, layer.feedforward.inner.out_features)
    return block(layer, states_ND, inner_kept_NF, noise.states_mask(rows, width), noise.states_scale)


def _block(
    layer: Layer, states_ND: Tensor, inner_kept_NF: Tensor | None, kept_ND: Tensor | None, scale: float
) -> Tensor:
    inner, outer = layer.feedforward.inner, layer.feedforward.outer
    inner_NF = functional.linear(layer.feedforward_norm(states_ND), inner.weight, inner.bias).relu()
    if inner_kept_NF is not None:
        inner_NF = inner_NF * inner_kept_NF * scale
    update_ND = functional.linear(inner_NF, outer.weight, outer.bias)
    return states_ND + (update_ND if kept_ND is None else update_ND * kept_ND * scale)
