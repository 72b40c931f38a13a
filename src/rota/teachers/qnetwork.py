"""The Q network of the DQN teacher, and how it learns from a minibatch of transitions."""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from rota.types import State

# N transitions, S losses in a state (groups times languages), K arms


class Transitions(NamedTuple):
    """What was seen, what was played, what it gained, what was seen then."""

    states_NS: Tensor
    arms_N: Tensor  # indices
    gains_N: Tensor
    next_states_NS: Tensor


def q_network(inputs: int, hidden: Sequence[int], arms: int, generator: torch.Generator | None = None) -> nn.Sequential:
    """Losses of the prototype groups in, one Q value for each arm out; tanh between the layers (Section 3.2)."""
    layers: list[nn.Module] = []
    for size_in, size_out in pairwise([inputs, *hidden, arms]):
        layers += [_linear(size_in, size_out, generator), nn.Tanh()]
    return nn.Sequential(*layers[:-1])


def _linear(size_in: int, size_out: int, generator: torch.Generator | None) -> nn.Linear:
    """A layer as torch initialises it by default, but from a generator of our own."""
    linear = nn.Linear(size_in, size_out, device="meta").to_empty(device="cpu")
    nn.init.kaiming_uniform_(linear.weight, a=math.sqrt(5), generator=generator)
    nn.init.uniform_(linear.bias, -1 / math.sqrt(size_in), 1 / math.sqrt(size_in), generator=generator)
    return linear


class QLearner:
    """The online network, the target network that follows it, and the optimiser: RMSProp on the Huber loss."""

    def __init__(
        self,
        network: nn.Sequential,
        *,
        learning_rate: float = 2.5e-4,
        gamma: float = 0.99,
        tau: float = 0.005,
        gradient_clip: float | None = None,
    ) -> None:
        self.online, self.target = network, copy.deepcopy(network)
        self.gamma, self.tau, self.gradient_clip = gamma, tau, gradient_clip
        self._optimiser = torch.optim.RMSprop(network.parameters(), lr=learning_rate)
        self.updates = 0

    @torch.no_grad()
    def targets(self, transitions: Transitions) -> Tensor:
        """Gain plus the discounted Q value of the best next choice; training has no last step that would end it."""
        best_N: Tensor = self.target(transitions.next_states_NS).max(dim=1).values
        return transitions.gains_N + self.gamma * best_N

    def learn(self, transitions: Transitions) -> float:
        """One step of the online network and a soft one of the target network; returns the Huber loss before."""
        values_NK = self.online(transitions.states_NS)
        values_N = values_NK.gather(1, transitions.arms_N[:, None])[:, 0]
        loss = functional.smooth_l1_loss(values_N, self.targets(transitions))
        self._optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        if self.gradient_clip is not None:
            nn.utils.clip_grad_value_(self.online.parameters(), self.gradient_clip)
        self._optimiser.step()
        self._follow()
        self.updates += 1
        return float(loss.detach())

    @torch.no_grad()
    def _follow(self) -> None:
        for followed, follower in zip(self.online.parameters(), self.target.parameters(), strict=True):
            follower.mul_(1 - self.tau).add_(followed, alpha=self.tau)

    def state_dict(self) -> State:
        names = [name for name, _ in self.online.named_parameters()]
        moments = self._optimiser.state_dict()["state"]  # by position; empty before the first update
        squares = {name: moments[index]["square_avg"].clone() for index, name in enumerate(names) if index in moments}
        return {
            "online": {name: tensor.clone() for name, tensor in self.online.state_dict().items()},
            "target": {name: tensor.clone() for name, tensor in self.target.state_dict().items()},
            "square_averages": squares,
            "updates": self.updates,
        }

    def load_state_dict(self, state: State) -> None:
        self.online.load_state_dict(state["online"])
        self.target.load_state_dict(state["target"])
        self.updates = int(state["updates"])
        for name, parameter in self.online.named_parameters():
            self._optimiser.state.pop(parameter, None)
            if name in state["square_averages"]:
                step = torch.tensor(float(self.updates))
                square = state["square_averages"][name].clone()
                self._optimiser.state[parameter] = {"step": step, "square_avg": square}
