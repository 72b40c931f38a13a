"""Linear layers with the backward pass by hand, for CPUs.

The gradient of a bias is the sum over all rows; as a product with a vector of ones it takes a third of the time of a
sum. A factor of the input, such as the scale of dropout, is passed to the matrix products, where it costs nothing.

N rows, I and O numbers in a row before and after.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import Function
from torch.nn import functional


class Linear(nn.Linear):
    def forward(self, rows_NI: Tensor, scale: float = 1.0) -> Tensor:
        """The layer of ``scale * rows_NI``."""
        if not torch.is_grad_enabled() or rows_NI.device.type != "cpu" or torch.is_autocast_enabled("cpu"):
            return functional.linear(rows_NI if scale == 1 else rows_NI * scale, self.weight, self.bias)
        result: Tensor = _ScaledLinear.apply(rows_NI, self.weight, self.bias, scale)  # type: ignore[no-untyped-call]
        return result


class _ScaledLinear(Function):
    @staticmethod
    def forward(ctx: Any, rows_NI: Tensor, weight_OI: Tensor, bias_O: Tensor, scale: float) -> Tensor:
        ctx.save_for_backward(rows_NI, weight_OI)
        ctx.scale = scale
        return torch.addmm(bias_O, rows_NI, weight_OI.t(), alpha=scale)

    @staticmethod
    def backward(ctx: Any, gradient_NO: Tensor) -> Any:
        rows_NI, weight_OI = ctx.saved_tensors
        needs_rows, needs_weight, _, _ = ctx.needs_input_grad
        to_rows = _product(torch.empty_like(rows_NI), gradient_NO, weight_OI, ctx.scale) if needs_rows else None
        if not needs_weight:  # a frozen layer; the bias is too
            return to_rows, None, None, None
        to_weight = _product(torch.empty_like(weight_OI), gradient_NO.t(), rows_NI, ctx.scale)
        return to_rows, to_weight, torch.mv(gradient_NO.t(), gradient_NO.new_ones(len(gradient_NO))), None


def _product(result: Tensor, left: Tensor, right: Tensor, scale: float) -> Tensor:
    """``scale * left @ right``, written into ``result``."""
    return result.addmm_(left, right, beta=0, alpha=scale)
