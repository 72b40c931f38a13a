"""Output projection and cross-entropy together, a chunk of rows at a time: all logits are never in memory at once.

N target tokens, C rows of a chunk, V vocabulary, D model width.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

_BITS = math.log2(math.e)
"""exp(x) is exp2 of x times this."""

_TINY = torch.finfo(torch.float32).tiny
"""A mean probability counts as at least this: the logarithm of 0 would be infinite (87 nats instead)."""

CHUNK_LOGITS = 2**22
"""Logits held at once (16 MB in float32): with half of it training is 3 % slower (8,000 words, 32 MB of cache)."""

CHUNK_LOGITS_ELSEWHERE = 2**26
"""The same on an accelerator (256 MB), where few large kernels are faster and there is no such cache."""

CHUNK_ROWS = 128
"""The least number of rows, however large the vocabulary: with fewer the matrix products are slow."""


def smoothed_loss(
    states_ND: Tensor,
    output_VD: Tensor,
    target_N: Tensor,
    *,
    label_smoothing: float,
    factors_N: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Summed label-smoothed cross-entropy, to differentiate, and the cross-entropy of every token without smoothing.

    Smoothing spreads ``label_smoothing`` evenly over the whole vocabulary, as ``torch.nn.functional.cross_entropy``.
    ``factors_N`` multiply the loss of each token in the sum, not in the losses that are returned beside it.
    """
    smoothed, losses_N = _SmoothedLoss.apply(states_ND, output_VD, target_N, label_smoothing, factors_N)  # type: ignore[no-untyped-call]
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


def examined_tokens(states_ND: Tensor, output_VD: Tensor, target_N: Tensor, *, temperatures: Sequence[float]) -> Tensor:
    """Rows of N: the loss in nats; 1 where no token is likelier than the target; the loss at each temperature."""

    def examine(states_CD: Tensor, output_VD: Tensor, target_C: Tensor) -> Tensor:
        return _examined(*_logits(states_CD, output_VD, target_C), temperatures)

    return _in_chunks(examine, states_ND, output_VD, target_N)


def examined_together(
    networks: Sequence[tuple[Tensor, Tensor]], target_N: Tensor, *, temperatures: Sequence[float]
) -> Tensor:
    """The same of an ensemble, from the N x D states and the output matrix of each network.

    Probabilities are averaged, as in the search; a temperature divides the logarithms of the averages.
    """
    several = [_lowered(states_ND.detach(), output_VD.detach()) for states_ND, output_VD in networks]
    rows, found = _chunk_rows(several[0][1]), []
    for start in range(0, len(target_N), rows):
        chunk = slice(start, start + rows)
        parts = [(states_ND[chunk], output_VD) for states_ND, output_VD in several]
        found.append(_examined(*_mean_logits(parts, target_N[chunk]), temperatures))
    return torch.cat(found, dim=1)


def _examined(logits_CV: Tensor, highest_C1: Tensor, wanted_C1: Tensor, temperatures: Sequence[float]) -> Tensor:
    """Overwrites the logits. ``argmax`` would take longer than all the rest without temperatures."""
    correct_C = (wanted_C1 == highest_C1)[:, 0]
    shifted_CV, missing_C = logits_CV.sub_(highest_C1), (highest_C1 - wanted_C1)[:, 0]
    scaled_CV = torch.empty_like(shifted_CV) if temperatures else shifted_CV
    at_temperatures = []
    for temperature in temperatures:
        sums_C = torch.mul(shifted_CV, 1 / temperature, out=scaled_CV).exp2_().sum(1)
        at_temperatures.append((sums_C.log2() + missing_C / temperature) / _BITS)
    losses_C = (shifted_CV.exp2_().sum(1, keepdim=True).log2() + highest_C1 - wanted_C1)[:, 0] / _BITS
    return torch.stack([losses_C, correct_C.float(), *at_temperatures])


def _mean_logits(networks: Sequence[tuple[Tensor, Tensor]], target_C: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Logarithms to base 2 of the mean probabilities, in the form of :func:`_logits`."""
    total_CV: Tensor | None = None
    for states_CD, output_VD in networks:
        logits_CV, highest_C1, _ = _logits(states_CD, output_VD, target_C)
        probabilities_CV = logits_CV.sub_(highest_C1).exp2_()
        probabilities_CV.div_(probabilities_CV.sum(1, keepdim=True))
        total_CV = probabilities_CV if total_CV is None else total_CV.add_(probabilities_CV)
    assert total_CV is not None, "there is at least one network"
    mean_CV = total_CV.div_(len(networks)).clamp_min_(_TINY).log2_()
    return mean_CV, mean_CV.amax(1, keepdim=True), mean_CV.gather(1, target_C[:, None])


def uncertain_tokens(states_ND: Tensor, output_VD: Tensor, target_N: Tensor) -> Tensor:
    """Four rows of N, in nats: the loss, its probability, the entropy, the log-probability of the likeliest token."""

    def measure(states_CD: Tensor, output_VD: Tensor, target_C: Tensor) -> Tensor:
        logits_CV, highest_C1, wanted_C1 = _logits(states_CD, output_VD, target_C)
        shifted_CV = logits_CV.sub_(highest_C1)
        exponentials_CV = shifted_CV.exp2()
        sums_C = exponentials_CV.sum(1)
        logs_C = sums_C.log2()
        losses_C = (logs_C[:, None] + highest_C1 - wanted_C1)[:, 0] / _BITS
        entropies_C = (logs_C - exponentials_CV.mul_(shifted_CV).sum(1) / sums_C) / _BITS
        return torch.stack([losses_C, (-losses_C).exp(), entropies_C, -logs_C / _BITS])

    return _in_chunks(measure, states_ND, output_VD, target_N)


def _in_chunks(
    measure: Callable[[Tensor, Tensor, Tensor], Tensor], states_ND: Tensor, output_VD: Tensor, target_N: Tensor
) -> Tensor:
    """Rows of N, of which ``measure`` computes C columns at a time from C states, the output matrix and C targets."""
    states_ND, output_VD = _lowered(states_ND.detach(), output_VD.detach())
    rows = _chunk_rows(output_VD)
    chunks = [slice(start, start + rows) for start in range(0, len(target_N), rows)]
    return torch.cat([measure(states_ND[chunk], output_VD, target_N[chunk]) for chunk in chunks], dim=1)


def _chunk_rows(output_VD: Tensor) -> int:
    logits = CHUNK_LOGITS if output_VD.device.type == "cpu" else CHUNK_LOGITS_ELSEWHERE
    return max(CHUNK_ROWS, logits // len(output_VD))


def _lowered(*tensors: Tensor) -> tuple[Tensor, ...]:
    """In the precision that autocast asks for, which does not reach into our own functions."""
    device = tensors[0].device.type
    if not torch.is_autocast_enabled(device):
        return tensors
    return tuple(tensor.to(torch.get_autocast_dtype(device)) for tensor in tensors)


def _logits(states_CD: Tensor, output_VD: Tensor, target_C: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Logits to base 2 in float32, because exp2 takes 0.6 of the time of exp; the highest of each row; the target's."""
    logits_CV = torch.addmm(states_CD.new_empty(1), states_CD, output_VD.t(), beta=0, alpha=_BITS).float()
    return logits_CV, logits_CV.amax(1, keepdim=True), logits_CV.gather(1, target_C[:, None])


def _exponentials(states_CD: Tensor, output_VD: Tensor, target_C: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """exp(logit - highest) and its row sums, both float32; the losses and the log of the normaliser in nats."""
    logits_CV, highest_C1, wanted_C1 = _logits(states_CD, output_VD, target_C)
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
        ctx: Any, states_ND: Tensor, output_VD: Tensor, target_N: Tensor, smoothing: float, factors_N: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        lowered_ND, lowered_VD = _lowered(states_ND, output_VD)
        mean_D = output_VD.float().mean(0)
        states_gradient = torch.empty_like(states_ND, dtype=torch.float32)
        # None: the matrix is frozen.
        output_gradient = torch.zeros_like(output_VD, dtype=torch.float32) if ctx.needs_input_grad[1] else None
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
            if output_gradient is not None:
                shares_CD = _times(states_CD / sums_C1, factors_N, chunk)
                _add_product(output_gradient, weights_CV, shares_CD.to(lowered_VD.dtype))
        states_gradient.sub_(mean_D, alpha=smoothing)
        states_gradient = _times(states_gradient, factors_N)
        sum_D = _times(states_ND.float(), factors_N).sum(0)
        if output_gradient is not None:
            output_gradient = output_gradient.sub_(sum_D, alpha=smoothing / len(output_VD)).to(output_VD.dtype)
        ctx.save_for_backward(states_gradient.to(states_ND.dtype), output_gradient)
        losses_N = torch.cat(losses)
        ctx.mark_non_differentiable(losses_N)
        uniform = _times(torch.cat(normalisers), factors_N).sum() - sum_D @ mean_D
        return (1 - smoothing) * _times(losses_N, factors_N).sum() + smoothing * uniform, losses_N

    @staticmethod
    def backward(ctx: Any, gradient: Tensor, _: Tensor) -> Any:
        states_gradient, output_gradient = ctx.saved_tensors
        to_output = None if output_gradient is None else output_gradient.mul_(gradient)
        return states_gradient.mul_(gradient), to_output, None, None, None


def _times(rows: Tensor, factors_N: Tensor | None, chunk: slice = slice(None)) -> Tensor:
    """Each row times its factor."""
    if factors_N is None:
        return rows
    factors = factors_N[chunk]
    return rows * (factors if rows.dim() == 1 else factors[:, None])


def _add_product(total_VD: Tensor, weights_CV: Tensor, states_CD: Tensor) -> None:
    if weights_CV.dtype == total_VD.dtype:
        total_VD.addmm_(weights_CV.t(), states_CD)
    else:
        total_VD.add_(torch.mm(weights_CV.t(), states_CD))
