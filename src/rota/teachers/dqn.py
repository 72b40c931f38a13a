"""DQN: Algorithm 2 of the paper, a Q network over the losses of the prototype groups."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Literal

import numpy as np
import torch

from rota.teachers.choice import epsilon_greedy, random_choice
from rota.teachers.qnetwork import QLearner, q_network
from rota.teachers.replay import Replay
from rota.teachers.rewards import Reward, StepGain, dev_losses, joint_loss
from rota.types import Arm, Decision, FloatArray, Observation, State, Watch

ActsWith = Literal["target", "online"]
FirstTransition = Literal["stored-at-second", "zero-state"]
BelowReplayMinimum = Literal["epsilon-greedy", "random"]
JointOrCurrent = Literal["joint", "current-language"]


def linear_epsilon(step: int, *, warmup: int, decay: int, floor: float = 0.01) -> float:
    """Probability of a random choice: 1 until ``warmup``, then linear to ``floor`` over ``decay`` (Appendix A.1)."""
    if step < warmup:
        return 1.0
    return max(floor, 1 - (1 - floor) * (step - warmup) / decay) if decay else floor


def exponential_epsilon(step: int, *, decay: int, floor: float = 0.01) -> float:
    """The released code: falls towards ``floor`` from the very first step, by a factor e in ``decay`` steps."""
    return floor + (1 - floor) * math.exp(-step / decay) if decay else floor


class DQN:
    """Learns which language to train on in which state of the student.

    ``epsilon_at`` gives the probability of a random choice at a step. A state is ``groups`` losses of each arm, arms
    in order, as the probe measures them: not normalised, as in the paper. Without ``learn`` the Q network keeps
    its random weights, which makes it a control.
    """

    def __init__(
        self,
        arms: Sequence[Arm],
        rng: np.random.Generator,
        epsilon_at: Callable[[int], float],
        reward: Reward | None = None,
        *,
        groups: int = 25,
        hidden: Sequence[int] = (512, 512),
        learning_rate: float = 2.5e-4,
        gamma: float = 0.99,
        tau: float = 0.005,
        gradient_clip: float | None = None,
        replay_minimum: int = 1_000,
        replay_capacity: int = 10_000,
        replay_batch: int = 1_000,
        reward_batch: JointOrCurrent = "joint",
        acts_with: ActsWith = "target",
        below_replay_minimum: BelowReplayMinimum = "epsilon-greedy",
        first_transition: FirstTransition = "stored-at-second",
        learn: bool = True,
    ) -> None:
        _check(arms, replay_minimum, replay_capacity)
        self.arms, self.epsilon_at, self.reward = tuple(arms), epsilon_at, StepGain() if reward is None else reward
        self.replay_minimum, self.replay_batch, self.reward_batch = replay_minimum, replay_batch, reward_batch
        self.acts_with, self.below_replay_minimum = acts_with, below_replay_minimum
        self.first_transition, self.learn = first_transition, learn
        self._rng = rng
        size = groups * len(self.arms)
        generator = torch.Generator().manual_seed(int(rng.integers(2**63)))
        network = q_network(size, hidden, len(self.arms), generator)
        self.learner = QLearner(network, learning_rate=learning_rate, gamma=gamma, tau=tau, gradient_clip=gradient_clip)
        self.replay = Replay(replay_capacity, size)
        self._size = size
        self._state: FloatArray | None = None  # S at the last observation

    @property
    def watches(self) -> Watch:
        return Watch.PROTOTYPE | (Watch.JOINT_LOSS if self.reward_batch == "joint" else Watch.DEV_LOSS)

    def ask(self, step: int) -> Decision:
        if self._state is None:
            return random_choice(self.arms, self._rng)
        scores = self.q_values(self._state)
        waiting = self.below_replay_minimum == "random" and len(self.replay) < self.replay_minimum
        epsilon = 1.0 if waiting else self.epsilon_at(step)
        return epsilon_greedy(self.arms, scores, scores, self._rng, epsilon=epsilon)

    @torch.no_grad()
    def q_values(self, state: FloatArray) -> FloatArray:
        """One value for each arm. Algorithm 2 lets the target network choose, not the online one."""
        network = self.learner.target if self.acts_with == "target" else self.learner.online
        values: FloatArray = network(torch.from_numpy(state)).numpy()
        return values

    def tell(self, observation: Observation) -> None:
        arm, loss, state = self._arm(observation), self._loss(observation), self._prototype(observation)
        gain = self.reward(arm, loss)
        before, self._state = self._state, state
        if before is None and self.first_transition == "zero-state":
            before, gain = np.zeros_like(state), gain or 0.0
        if before is not None and gain is not None:
            self.replay.add(before, self.arms.index(arm), gain, state)
        if self.learn and len(self.replay) >= self.replay_minimum:
            self.learner.learn(self.replay.sample(self.replay_batch, self._rng))

    def hear_reward(self, observation: Observation) -> None:
        """Fill the reward history without learning from a choice that was not ours."""
        self.reward(self._arm(observation), self._loss(observation))

    def _arm(self, observation: Observation) -> Arm:
        arm = observation.decision.arm
        if arm not in self.arms:
            raise ValueError(f"told of unknown arm {arm!r}; the teacher has {', '.join(self.arms)}")
        if set(observation.played) != {arm}:
            played = ", ".join(observation.played) or "nothing"
            raise ValueError(f"step {observation.step}: played {played}; DQN needs an observation after every choice")
        return arm

    def _loss(self, observation: Observation) -> float:
        if self.reward_batch == "joint":
            return joint_loss(observation)
        return dev_losses(observation)[observation.decision.arm]

    def _prototype(self, observation: Observation) -> FloatArray:
        where = f"step {observation.step}"
        if observation.prototype is None:
            raise ValueError(f"{where}: the observation has no prototype; measure what the teacher watches")
        state = np.array(observation.prototype, dtype=np.float32).reshape(-1)
        if len(state) != self._size:
            raise ValueError(f"{where}: the prototype has {len(state)} losses; this Q network takes {self._size}")
        if not np.isfinite(state).all():
            raise ValueError(f"{where}: the prototype has a loss that is not finite; the student diverged")
        return state

    def state_dict(self) -> State:
        return {
            "arms": list(self.arms),
            "acts_with": self.acts_with,
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


def _check(arms: Sequence[Arm], replay_minimum: int, replay_capacity: int) -> None:
    if not arms:
        raise ValueError("the teacher has no arms; name at least one language")
    if not 1 <= replay_minimum <= replay_capacity:
        raise ValueError(f"replay_minimum is {replay_minimum}; it is from 1 to replay_capacity ({replay_capacity})")
