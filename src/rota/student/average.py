"""An exponential moving average of the weights, kept beside them: a steadier point at which to measure."""

from __future__ import annotations

import copy

import torch
from torch import Tensor

from rota.student.transformer import Transformer
from rota.types import State


class MovingAverage:
    """Starts as a copy of the network's weights and moves towards them after every update.

    The n-th update keeps min(decay, (1 + n) / (10 + n)) of the average. With ``decay`` from the beginning, the weights
    at the start, which change fastest, would dominate it for about 1 / (1 - decay) updates. ``settled``: ``decay`` from
    the beginning nevertheless, for one that begins in the middle of a run.
    """

    def __init__(self, network: Transformer, decay: float, *, settled: bool = False) -> None:
        if not 0 < decay < 1:
            raise ValueError(f"the decay of averaged weights is {decay}; it must lie between 0 and 1, for example 0.99")
        self.decay, self.updates, self._settled = decay, 0, settled
        self.network = copy.deepcopy(network)
        self._ours: tuple[Tensor, ...] = tuple(self.network.parameters())
        self._theirs: tuple[Tensor, ...] = tuple(network.parameters())

    @torch.no_grad()
    def update(self) -> None:
        """Moves towards the weights of the network, which have just been updated."""
        self.updates += 1
        kept = self.decay if self._settled else min(self.decay, (1 + self.updates) / (10 + self.updates))
        torch._foreach_lerp_(self._ours, self._theirs, 1 - kept)

    def state_dict(self) -> State:
        """Entries for the student's state; ``average`` has the form of its ``network``, so that it can be evaluated."""
        return {"average": dict(self.network.state_dict()), "averaged": self.updates}

    def load_state_dict(self, state: State) -> None:
        """From the student's state; one without an average, saved before it was kept, starts a new one."""
        self.network.load_state_dict(state["average"] if "average" in state else state["network"])
        self.updates = int(state.get("averaged", 0))
