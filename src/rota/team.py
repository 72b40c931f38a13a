"""The processes that train one student together; the base class is a process on its own, so no caller branches."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import TypeVar

from torch import nn

from rota.types import FloatArray

Result = TypeVar("Result")


class Team:
    """This process is ``rank`` of ``size``; all of them must call every method but :meth:`owns`, in step."""

    rank: int = 0
    size: int = 1

    @property
    def first(self) -> bool:
        """Whether this process asks the teacher, writes the files and reports to the user."""
        return self.rank == 0

    def owns(self, number: int) -> bool:
        """Whether the unit of work with this number is ours: they are dealt out in turn."""
        return number % self.size == self.rank

    def add_up(self, values: FloatArray) -> FloatArray:
        """The sum over all processes, the same on each."""
        return values

    def anyone(self, flag: bool) -> bool:
        """Whether the flag is set in some process."""
        return flag

    def share(self, work: Callable[[], Result]) -> Result:
        """The first process does the work and broadcasts the result to all."""
        return work()

    def after_first(self, work: Callable[[], Result]) -> Result:
        """The first process does the work, then the others, which find it done; it may take long."""
        return work()

    def replicate(self, network: nn.Module) -> nn.Module:
        """The network to call in training: its backward pass leaves the mean gradient of all processes."""
        return network

    def hold_back(self, replica: nn.Module) -> AbstractContextManager[None]:  # noqa: ARG002
        """Within this, backward passes add up gradients in this process alone; the first one after it reduces them."""
        return nullcontext()
