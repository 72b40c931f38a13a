"""Worst first: mostly the language whose dev loss is highest. docs/own_teacher.md goes through it."""

from collections.abc import Sequence

import numpy as np
from pydantic import Field

from rota.measures import DevLoss
from rota.teachers import Classroom, TeacherConfig, dev_losses, epsilon_greedy
from rota.types import Decision, Observation, State


class WorstFirst:
    watches = (DevLoss(),)

    def __init__(self, arms: Sequence[str], rng: np.random.Generator, epsilon: float) -> None:
        self.arms, self.rng, self.epsilon = arms, rng, epsilon
        self.losses = dict.fromkeys(arms, 99.0)  # above any loss: every language has a turn before one has two

    def ask(self, step: int) -> Decision:  # noqa: ARG002 - this teacher does not look at the clock
        losses = np.array([self.losses[arm] for arm in self.arms])
        return epsilon_greedy(self.arms, losses, losses, self.rng, epsilon=self.epsilon)

    def tell(self, observation: Observation) -> None:
        self.losses.update(dev_losses(observation))

    def state_dict(self) -> State:
        return {"losses": dict(self.losses), "rng": self.rng.bit_generator.state}

    def load_state_dict(self, state: State) -> None:
        self.losses, self.rng.bit_generator.state = dict(state["losses"]), state["rng"]


class WorstFirstConfig(TeacherConfig):
    name: str = "own_teacher:WorstFirstConfig"
    epsilon: float = Field(0.1, ge=0, le=1, description="probability of a random choice")

    def build(self, classroom: Classroom, rng: np.random.Generator) -> WorstFirst:
        return WorstFirst(classroom.arms, rng, self.epsilon)
