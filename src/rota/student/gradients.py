"""Gradients with respect to all weights of a network, as vectors of which only products and norms are read."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Final

import torch
from torch import Tensor

from rota.types import Gradient, Projection

CHUNK: Final = 2**16
"""So many products are added up in float32, their sums in float64: as fast as one sum, and rounding does not grow."""


class NetworkGradient:
    """Implements :class:`rota.types.Gradient`: one tensor for each parameter, in the order of the network.

    ``denominators`` gives those of Adam's steps as they are when it is called, or None before the first update.
    """

    def __init__(self, tensors: Sequence[Tensor], denominators: Callable[[], list[Tensor] | None]) -> None:
        self.tensors, self._denominators = list(tensors), denominators

    def dot(self, other: NetworkGradient) -> float:
        return float(self._dot(other.chunks))

    def _dot(self, chunks: Sequence[Tensor]) -> Tensor:
        products = [torch.dot(ours, theirs) for ours, theirs in zip(self.chunks, chunks, strict=True)]
        return torch.stack(products).double().sum()

    def norm(self) -> float:
        return math.sqrt(self.dot(self))

    def cosine(self, other: NetworkGradient) -> float:
        norms = self.norm() * other.norm()
        return self.dot(other) / norms if norms else 0.0

    def plus(self, other: NetworkGradient) -> NetworkGradient:
        return self._like(torch._foreach_add(self.tensors, other.tensors))

    def minus(self, other: NetworkGradient) -> NetworkGradient:
        return self._like(torch._foreach_sub(self.tensors, other.tensors))

    def scaled(self, factor: float) -> NetworkGradient:
        return self._like(torch._foreach_mul(self.tensors, factor))

    def in_adams_metric(self) -> NetworkGradient:
        denominators = self._denominators()
        return self if denominators is None else self._like(torch._foreach_div(self.tensors, denominators))

    def remembering(self, before: NetworkGradient, memory: float) -> NetworkGradient:
        """Averaged with an earlier one, which counts ``memory``; of the length that this one has."""
        mean = before.scaled(memory).plus(self.scaled(1 - memory))
        length = mean.norm()
        return mean.scaled(self.norm() / length) if length else self

    def _like(self, tensors: Sequence[Tensor]) -> NetworkGradient:
        return NetworkGradient(tensors, self._denominators)

    @cached_property
    def chunks(self) -> list[Tensor]:
        return _chunks(self.tensors)


def dots(directions: Sequence[NetworkGradient], tensors: Sequence[Tensor]) -> list[Tensor]:
    """The dot product of each direction with a gradient, still on the device, because reading it would wait."""
    chunks = _chunks(tensors) if directions else []
    return [direction._dot(chunks) for direction in directions]


def directions_after(
    before: Sequence[NetworkGradient], direction: Gradient | None, others: Sequence[Gradient], memory: float
) -> tuple[NetworkGradient, ...]:
    """What a student follows from now on: each new direction, averaged with the earlier one in its place."""
    given = () if direction is None else (direction, *others)
    found = tuple(each for each in given if isinstance(each, NetworkGradient))
    assert len(found) == len(given)
    if not memory or len(before) != len(found):
        return found
    return tuple(new.remembering(old, memory) for new, old in zip(found, before, strict=True))


def _chunks(tensors: Sequence[Tensor]) -> list[Tensor]:
    """Views of the tensors. Most are small, and splitting those would take longer than their products."""
    flat = [tensor.reshape(-1) for tensor in tensors]
    return [chunk for tensor in flat for chunk in (torch.split(tensor, CHUNK) if len(tensor) > CHUNK else (tensor,))]


def projection(along: Sequence[Tensor], norm: float) -> Projection | None:
    """The dot products of an update's gradient, of this norm, with the directions that are followed, if any are."""
    if not along:
        return None
    dot, *others = torch.stack(list(along)).tolist()
    return Projection(dot, norm, tuple(others))
