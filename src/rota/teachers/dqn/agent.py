"""DQN: Algorithm 2 of the paper, a Q network over the losses of groups of sentences, and its replay memory."""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from rota.measures import JointGain, JointLoss, Measure
from rota.teachers.base import Classroom
from rota.teachers.choice import epsilon_boltzmann, epsilon_greedy, random_choice
from rota.teachers.dqn.config import DQNConfig
from rota.teachers.rewards import dev_losses, joint_gain, joint_loss, measured
from rota.types import Arm, Decision, FloatArray, Observation, State


class DQN:
    """Learns which arm to train on in which state of the student.

    A state is ``groups`` losses of each language, in order, as they are measured: not normalised, as in the paper.
    """

    def __init__(self, config: DQNConfig, classroom: Classroom, rng: np.random.Generator) -> None:
        if not classroom.arms:
            raise ValueError("the teacher has no arms; name at least one language")
        self.config, self.arms, self._rng = config, classroom.arms, rng
        self.epsilon_at, self.reward = config.epsilon_at(classroom.steps), config.make_reward()
        measured = classroom.languages if config.state_measure.data == "dev" else classroom.arms
        self._languages, self._size = measured, config.groups * len(measured)
        generator = torch.Generator().manual_seed(int(rng.integers(2**63)))
        self.learner = QLearner(q_network(self._size, config.hidden, len(self.arms), generator), config)
        self.replay = Replay(config.replay_capacity, self._size)
        self._state: FloatArray | None = None  # S at the last observation

    @property
    def watches(self) -> Sequence[Measure]:
        return (*self.reward_watches, self.config.state_measure)

    @property
    def reward_watches(self) -> Sequence[Measure]:
        return (self.config.reward_measure,)

    def ask(self, step: int) -> Decision:
        if self._state is None:
            return random_choice(self.arms, self._rng)
        scores = self.q_values(self._state)
        waiting = self.config.below_replay_minimum == "random" and len(self.replay) < self.config.replay_minimum
        epsilon = 1.0 if waiting else self.epsilon_at(step)
        if self.config.policy == "epsilon-boltzmann":
            temper = {"epsilon": epsilon, "temperature": self.config.temperature}
            return epsilon_boltzmann(self.arms, scores, scores, self._rng, **temper)
        return epsilon_greedy(self.arms, scores, scores, self._rng, epsilon=epsilon)

    @torch.no_grad()
    def q_values(self, state: FloatArray) -> FloatArray:
        """One value for each arm. Algorithm 2 lets the target network choose, not the online one."""
        network = self.learner.target if self.config.acts_with == "target" else self.learner.online
        values: FloatArray = network(torch.from_numpy(state)).numpy()
        return values

    def tell(self, observation: Observation) -> Mapping[Arm, float]:
        arm, loss, state = self._arm(observation), self._loss(observation), self._group_losses(observation)
        gain = self.reward(arm, loss)
        before, self._state = self._state, state
        if before is None and self.config.first_transition == "zero-state":
            before, gain = np.zeros_like(state), gain or 0.0
        if before is not None and gain is not None:
            self.replay.add(before, self.arms.index(arm), gain, state)
        if self.config.learn and len(self.replay) >= self.config.replay_minimum:
            self.learner.learn(self.replay.sample(self.config.replay_batch, self._rng))
        return {} if gain is None else {arm: gain}

    def hear_reward(self, observation: Observation) -> Mapping[Arm, float]:
        """Fill the reward history without learning from a choice that was not ours."""
        arm = self._arm(observation)
        gain = self.reward(arm, self._loss(observation))
        return {} if gain is None else {arm: gain}

    def _arm(self, observation: Observation) -> Arm:
        arm = observation.decision.arm
        if arm not in self.arms:
            raise ValueError(f"told of unknown arm {arm!r}; the teacher has {', '.join(self.arms)}")
        if set(observation.played) != {arm}:
            played = ", ".join(observation.played) or "nothing"
            raise ValueError(f"step {observation.step}: played {played}; DQN needs an observation after every choice")
        return arm

    def _loss(self, observation: Observation) -> float:
        measure = self.config.reward_measure
        if isinstance(measure, JointLoss):
            return joint_loss(observation, measure)
        if isinstance(measure, JointGain):
            return joint_gain(observation, measure)
        return dev_losses(observation, measure)[observation.decision.arm]

    def _group_losses(self, observation: Observation) -> FloatArray:
        where = f"step {observation.step}"
        state = np.array(measured(observation, self.config.state_measure), dtype=np.float32).reshape(-1)
        if len(state) != self._size:
            raise ValueError(f"{where}: there are {len(state)} group losses; this Q network takes {self._size}")
        if not np.isfinite(state).all():
            raise ValueError(f"{where}: a group loss is not finite; the student diverged")
        return state

    def state_dict(self) -> State:
        return {
            "arms": list(self.arms),
            **({} if self._languages == self.arms else {"languages": list(self._languages)}),
            "acts_with": self.config.acts_with,
            "rng": self._rng.bit_generator.state,
            "learner": self.learner.state_dict(),
            "replay": self.replay.state_dict(),
            "reward": self.reward.state_dict(),
            "state": None if self._state is None else self._state.copy(),
        }

    def load_state_dict(self, state: State) -> None:
        self._rng.bit_generator.state = state["rng"]
        self.learner.load_state_dict(state["learner"])
        self.replay.load_state_dict(state["replay"])
        self.reward.load_state_dict(state["reward"])
        self._state = None if state["state"] is None else np.array(state["state"])


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

    def __init__(self, network: nn.Sequential, config: DQNConfig) -> None:
        self.online, self.target = network, copy.deepcopy(network)
        self.gamma, self.tau, self.gradient_clip = config.gamma, config.tau, config.gradient_clip
        self._optimiser = torch.optim.RMSprop(network.parameters(), lr=config.learning_rate)
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


ARRAYS = ("states", "arms", "gains", "next_states")


class Replay:
    """Up to ``capacity`` transitions between states of ``size`` losses."""

    def __init__(self, capacity: int, size: int) -> None:
        self.capacity = capacity
        self.stored = 0  # transitions ever stored
        self.states = np.zeros((capacity, size), dtype=np.float32)
        self.arms = np.zeros(capacity, dtype=np.int64)
        self.gains = np.zeros(capacity, dtype=np.float32)
        self.next_states = np.zeros((capacity, size), dtype=np.float32)

    def __len__(self) -> int:
        return min(self.stored, self.capacity)

    def add(self, state: FloatArray, arm: int, gain: float, next_state: FloatArray) -> None:
        slot = self.stored % self.capacity
        self.states[slot], self.arms[slot], self.gains[slot], self.next_states[slot] = state, arm, gain, next_state
        self.stored += 1

    def sample(self, size: int, rng: np.random.Generator) -> Transitions:
        """Drawn with replacement, as stable-baselines3 does; the paper does not say."""
        drawn = rng.integers(len(self), size=size)
        return Transitions(*(torch.from_numpy(getattr(self, name)[drawn]) for name in ARRAYS))

    def state_dict(self) -> State:
        return {"stored": self.stored, **{name: getattr(self, name)[: len(self)].copy() for name in ARRAYS}}

    def load_state_dict(self, state: State) -> None:
        self.stored = int(state["stored"])
        for name in ARRAYS:
            getattr(self, name)[: len(self)] = state[name]
