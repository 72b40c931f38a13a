"""Output projection and cross-entropy together, a chunk of rows at a time: all logits are never in memory at once.

N target tokens, C rows of a chunk, V vocabulary, D model width.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

_BITS = math.log2(math.e)
"""exp(x) is exp2 of x times this."""

CHUNK_LOGITS = 2**22
"""Logits held at once (16 MB in float32): with half of it training is 3 % slower (8,000 words, 32 MB of cache)."""

CHUNK_LOGITS_ELSEWHERE = 2**26
"""The same on an accelerator (256 MB), where few large kernels are faster and there is no such cache."""

CHUNK_ROWS = 128
"""The least number of rows, however large the vocabulary: with fewer the matrix products are slow."""


def smoothed_loss(
    states_ND: Tensor, output_VD: Tensor, target_N: Tensor, *, label_smoothing: float
) -> tuple[Tensor, Tensor]:
    """Summed label-smoothed cross-entropy, to differentiate, and the cross-entropy of every token without smoothing.

    Smoothing spreads ``label_smoothing`` evenly over the whole vocabulary, as ``torch.nn.functional.cross_entropy``.
    """
    smoothed, losses_N = _SmoothedLoss.apply(states_ND, output_VD, target_N, label_smoothing)  # type: ignore[no-untyped-call]
    return smoothed, losses_N


def token_losses(states_ND: Tensor, output_VD: Tensor, target_N: Tensor, *, label_smoothing: float = 0.0) -> Tensor:
    """Cross-entropy of every target token in nats, without gradients; without smoothing unless asked for."""
    states_ND, output_VD = _lowered(states_ND.detach(), output_VD.detach())
    rows = _chunk_rows(output_VD)
    chunks = [slice(start, start + rows) for start in range(0, len(target_N), rows)]
    found = [_exponentials(states_ND[chunk], output_VD, target_N[chunk])[2:] for chunk in chunks]
    losses_N, normaliser_N = (torch.cat(parts) for parts in zip(*found, strict=True))
    if not label_smoothing:
        return losses_N
    # The mean logit over the vocabulary is one product with the mean row of the output matrix.
    even_N = normaliser_N - (states_ND @ output_VD.mean(0)).float()
    return (1 - label_smoothing) * losses_N + label_smoothing * even_N


def _chunk_rows(output_VD: Tensor) -> int:
    logits = CHUNK_LOGITS if output_VD.device.type == "cpu" else CHUNK_LOGITS_ELSEWHERE
    return max(CHUNK_ROWS, logits // len(output_VD))


def _lowered(*tensors: Tensor) -> tuple[Tensor, ...]:
    """In the precision that autocast asks for, which does not reach into our own functions."""
    device = tensors[0].device.type
    if not torch.is_autocast_enabled(device):
        return tensors
    return tuple(tensor.to(torch.get_autocast_dtype(device)) for tensor in tensors)


def _exponentials(states_CD: Tensor, output_VD: Tensor, target_C: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """exp(logit - highest) and its row sums, both float32; the losses; the log of the normaliser.

    Logits are to base 2 until the end: exp2 takes 0.6 of the time of exp.
    """
    logits_CV = torch.addmm(states_CD.new_empty(1), states_CD, output_VD.t(), beta=0, alpha=_BITS).float()
    highest_C1 = logits_CV.amax(1, keepdim=True)
    wanted_C1 = logits_CV.gather(1, target_C[:, None])
    exponentials_CV = logits_CV.sub_(highest_C1).exp2_()
    sums_C1 = exponentials_CV.sum(1, keepdim=True)
    normaliser_C1 = sums_C1.log2() + highest_C1
    return exponentials_CV, sums_C1, (normaliser_C1 - wanted_C1)[:, 0] / _BITS, normaliser_C1[:, 0] / _BITS


class _SmoothedLoss(Function):
    """Computes the gradients in the forward pass, while a chunk of logits is in cache; backward only scales them.

    With p the softmax, e the smoothing and u one over the vocabulary size, the gradient of a row of logits is
    p - (1 - e) at the target - e * u everywhere. The last, constant term needs no logits: it adds the same vector to
    the gradients of all states and of all rows of the output matrix. In the same way the mean logit of a row is its
    state times the mean row of the output matrix.
    """

    @staticmethod
    def forward(
        ctx: Any, states_ND: Tensor, output_VD: Tensor, target_N: Tensor, smoothing: float
    ) -> tuple[Tensor, Tensor]:
        lowered_ND, lowered_VD = _lowered(states_ND, output_VD)
        mean_D = output_VD.float().mean(0)
        states_gradient = torch.empty_like(states_ND, dtype=torch.float32)
        output_gradient = torch.zeros_like(output_VD, dtype=torch.float32)
        losses, normalisers = [], []
        rows = _chunk_rows(output_VD)
        for start in range(0, len(target_N), rows):
            chunk = slice(start, start + rows)
            states_CD, target_C1 = lowered_ND[chunk], target_N[chunk, None]
            weights_CV, sums_C1, losses_C, normaliser_C = _exponentials(states_CD, lowered_VD, target_N[chunk])
            losses.append(losses_C)
            normalisers.append(normaliser_C)
            weights_CV.scatter_add_(1, target_C1, sums_C1 * (smoothing - 1))
            weights_CV = weights_CV.to(lowered_VD.dtype)
            states_gradient[chunk] = torch.mm(weights_CV, lowered_VD).float().div_(sums_C1)
            _add_product(output_gradient, weights_CV, (states_CD / sums_C1).to(lowered_VD.dtype))
        states_gradient.sub_(mean_D, alpha=smoothing)
        output_gradient.sub_(states_ND.float().sum(0), alpha=smoothing / len(output_VD))
        ctx.save_for_backward(states_gradient.to(states_ND.dtype), output_gradient.to(output_VD.dtype))
        losses_N = torch.cat(losses)
        ctx.mark_non_differentiable(losses_N)
        uniform = torch.cat(normalisers).sum() - states_ND.float().sum(0) @ mean_D
        return (1 - smoothing) * losses_N.sum() + smoothing * uniform, losses_N

    @staticmethod
    def backward(ctx: Any, gradient: Tensor, _: Tensor) -> Any:
        states_gradient, output_gradient = ctx.saved_tensors
        return states_gradient.mul_(gradient), output_gradient.mul_(gradient), None, None


def _add_product(total_VD: Tensor, weights_CV: Tensor, states_CD: Tensor) -> None:
    if weights_CV.dtype == total_VD.dtype:
        total_VD.addmm_(weights_CV.t(), states_CD)
    else:
        total_VD.add_(torch.mm(weights_CV.t(), states_CD))
