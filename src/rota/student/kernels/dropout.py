"""Dropout whose random numbers come from a generator that is passed in: no hidden state, nothing to resume."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.autograd import Function

_LEVELS = 256
_LOWEST = -(2**63)


def mixed_seed(seed: int, step: int, number: int, piece: int = 0) -> int:
    """For one piece of one batch of one update; the first piece has the seed of the whole batch."""
    entropy = [seed, step, number, *([piece] if piece else [])]
    return int(np.random.SeedSequence(entropy).generate_state(1, np.uint64)[0] >> np.uint64(1))


@dataclass(frozen=True)
class Noise:
    """Where dropout draws from during one forward pass, and how often it drops.

    Probabilities are rounded to 1/256, because a mask is made from random bytes, eight per 64-bit draw (0.3
    becomes 77/256 = 0.3008); what is kept is scaled by the rounded probability, so expectations are exact.
    """

    generator: torch.Generator
    states: float  # of embeddings, of what attention and feed-forward add, and inside the feed-forward
    attention: float  # of the attention weights
    words: float = 0.0  # of the tokens that the network reads, on both sides

    def drop_words(self, ids: Tensor, unknown: int) -> Tensor:
        """The tokens with some of them replaced by ``unknown``."""
        threshold = _threshold(self.words)
        return ids if threshold == 0 else torch.where(_kept(ids, threshold, self.generator).bool(), ids, unknown)

    def drop_states(self, states: Tensor) -> Tensor:
        threshold = _threshold(self.states)
        if threshold == 0:
            return states
        result: Tensor = _Dropped.apply(states, threshold, self.generator)  # type: ignore[no-untyped-call]
        return result

    def attention_mask(self, weights: Tensor) -> tuple[Tensor | None, float]:
        """Which attention weights are kept, as bytes, or None for all of them; and the factor of those kept."""
        threshold = _threshold(self.attention)
        return (_kept(weights, threshold, self.generator), _scale(threshold)) if threshold else (None, 1.0)

    def add_dropped(self, residual: Tensor, update: Tensor) -> Tensor:
        """``residual + dropout(update)`` in one pass."""
        threshold = _threshold(self.states)
        if threshold == 0:
            return residual + update
        result: Tensor = _AddDropped.apply(residual, update, threshold, self.generator)  # type: ignore[no-untyped-call]
        return result

    @property
    def states_scale(self) -> float:
        """The factor of kept states."""
        return _scale(_threshold(self.states))

    def relu_dropped(self, states: Tensor) -> Tensor:
        """``dropout(relu(states))`` without the factor ``states_scale``, which is left to the caller.

        Overwrites ``states``, which must not be used afterwards.
        """
        threshold = _threshold(self.states)
        if threshold == 0:
            return states.relu()
        result: Tensor = _ReluDropped.apply(states, threshold, self.generator)  # type: ignore[no-untyped-call]
        return result


def _threshold(probability: float) -> int:
    """How many of the 256 values of a byte mean "drop"; at least one for every probability above 0."""
    return 0 if probability == 0 else min(max(round(probability * _LEVELS), 1), _LEVELS - 1)


def _kept(like: Tensor, threshold: int, generator: torch.Generator) -> Tensor:
    """Bytes in the shape of ``like``, 1 with probability 1 - threshold / 256, else 0."""
    count = like.numel()
    draws = torch.empty((count + 7) // 8, dtype=torch.int64, device=like.device)
    # Without its bounds random_ leaves the sign bit 0, and every eighth byte would be biased.
    draws.random_(_LOWEST, None, generator=generator)
    # In place and as bytes, not as booleans: on CPUs 15 times as fast, and multiplying by it twice as fast.
    return draws.view(torch.uint8)[:count].ge_(threshold).view(like.shape)


def _scale(threshold: int) -> float:
    return _LEVELS / (_LEVELS - threshold)


class _Dropped(Function):
    @staticmethod
    def forward(ctx: Any, states: Tensor, threshold: int, generator: torch.Generator) -> Tensor:
        kept = _kept(states, threshold, generator)
        ctx.save_for_backward(kept)
        ctx.scale = _scale(threshold)
        return (states * kept).mul_(ctx.scale)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        (kept,) = ctx.saved_tensors
        return (gradient * kept).mul_(ctx.scale), None, None


class _AddDropped(Function):
    @staticmethod
    def forward(ctx: Any, residual: Tensor, update: Tensor, threshold: int, generator: torch.Generator) -> Tensor:
        kept = _kept(update, threshold, generator)
        ctx.save_for_backward(kept)
        ctx.scale = _scale(threshold)
        ctx.dtype = update.dtype
        return torch.addcmul(residual, update, kept.to(update.dtype), value=ctx.scale)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        (kept,) = ctx.saved_tensors
        return gradient, (gradient * kept).mul_(ctx.scale).to(ctx.dtype), None, None


class _ReluDropped(Function):
    """Saves its output alone, which the next projection saves anyway: what is above zero was kept."""

    @staticmethod
    def forward(ctx: Any, states: Tensor, threshold: int, generator: torch.Generator) -> Tensor:
        ctx.mark_dirty(states)
        states.relu_().mul_(_kept(states, threshold, generator))
        ctx.save_for_backward(states)
        return states

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        (output,) = ctx.saved_tensors
        return torch.ops.aten.threshold_backward(gradient, output, 0), None, None
