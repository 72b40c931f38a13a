"""The replay memory of the DQN teacher: the last transitions, the oldest overwritten first."""

from __future__ import annotations

import numpy as np
import torch

from rota.teachers.qnetwork import Transitions
from rota.types import FloatArray, State

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
