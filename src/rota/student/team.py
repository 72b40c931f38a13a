"""The processes that train one student together. The base class is a process on its own, so that nobody needs an if."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import TypeVar

from torch import nn

from rota.types import FloatArray

Result = TypeVar("Result")


class Team:
    """This process is ``rank`` of ``size``; every method but :meth:`owns` must be called by all of them, in step."""

    rank: int = 0
    size: int = 1

    @property
    def first(self) -> bool:
        """Whether this process asks the teacher, writes the files and speaks to people."""
        return self.rank == 0

    def owns(self, number: int) -> bool:
        """Whether the piece of work with this number is ours: they go round."""
        return number % self.size == self.rank

    def add_up(self, values: FloatArray) -> FloatArray:
        """The sum over all processes, the same on each."""
        return values

    def anyone(self, flag: bool) -> bool:
        """Whether the flag is set in some process."""
        return flag

    def share(self, work: Callable[[], Result]) -> Result:
        """The first process does the work; all have its result."""
        return work()

    def after_first(self, work: Callable[[], Result]) -> Result:
        """The first process does the work, then the others, who find it done; it may take long."""
        return work()

    def replicate(self, network: nn.Module) -> nn.Module:
        """The network to call in training: its backward pass leaves the mean gradient of all processes."""
        return network

    def hold_back(self, replica: nn.Module) -> AbstractContextManager[None]:  # noqa: ARG002
        """Within this, backward passes add up gradients in this process alone; the first one after it tells all."""
        return nullcontext()
