"""What TSCL and its relatives share: a value for each arm, estimated from the dev losses after playing it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TypedDict, Unpack

import numpy as np

from rota.measures import DevLoss, JointGain, Measure
from rota.teachers.choice import boltzmann, epsilon_boltzmann, epsilon_greedy
from rota.teachers.rewards import dev_losses, joint_gain
from rota.types import Arm, Decision, FloatArray, Observation, State


class Policy(TypedDict, total=False):
    """What a bandit watches and how values become a choice; the same keywords for every bandit."""

    measure: DevLoss | JointGain
    epsilon: float  # probability of a random choice; 0.1 by default, as in the paper
    temperature: float | None  # of a Boltzmann choice, which then takes the place of epsilon-greedy
    explores: bool  # whether there are random choices beside Boltzmann's as well; by default not
    absolute: bool  # rank by |value|, the default: a language that is being forgotten attracts as well


class Bandit(ABC):
    """Chooses by the values of the arms; a subclass says how losses become values."""

    def __init__(self, arms: Sequence[Arm], rng: np.random.Generator, **policy: Unpack[Policy]) -> None:
        if not arms:
            raise ValueError("the teacher has no arms; name at least one language")
        self.arms = tuple(arms)
        self.epsilon, self.temperature = policy.get("epsilon", 0.1), policy.get("temperature")
        self.absolute, self.explores = policy.get("absolute", True), policy.get("explores", False)
        self.measure: DevLoss | JointGain = policy.get("measure", DevLoss())
        self._rng = rng

    @property
    def watches(self) -> Sequence[Measure]:
        return (self.measure,)

    @abstractmethod
    def values(self) -> FloatArray:
        """The value of each arm, in their order: how much its loss falls."""

    @abstractmethod
    def learn(self, arm: Arm, step: int, loss: float) -> float | None:
        """Learn from the dev loss of an arm (nats per token) after it was played up to ``step``; returns the reward.

        Of a bandit that watches a gain, ``loss`` is the gain.
        """

    def ask(self, step: int) -> Decision:  # noqa: ARG002 - the protocol's; a bandit does not look at the clock
        values = self.values()
        ranking = np.abs(values) if self.absolute else values
        if self.temperature is not None and self.explores:
            temper = {"epsilon": self.epsilon, "temperature": self.temperature}
            return epsilon_boltzmann(self.arms, ranking, values, self._rng, **temper)
        if self.temperature is not None:
            return boltzmann(self.arms, ranking, values, self._rng, temperature=self.temperature)
        return epsilon_greedy(self.arms, ranking, values, self._rng, epsilon=self.epsilon)

    def tell(self, observation: Observation) -> dict[Arm, float]:
        losses = self._measured(observation)
        for arm in losses:
            if arm not in self.arms:
                raise ValueError(f"told of unknown arm {arm!r}; the teacher has {', '.join(self.arms)}")
        rewards = {arm: self.learn(arm, observation.step, loss) for arm, loss in losses.items()}
        return {arm: reward for arm, reward in rewards.items() if reward is not None}

    def _measured(self, observation: Observation) -> dict[Arm, float]:
        """Of the arms played; a gain is that of the one choice since the last observation."""
        if isinstance(self.measure, DevLoss):
            return dev_losses(observation, self.measure)
        return {observation.decision.arm: joint_gain(observation, self.measure)}

    def state_dict(self) -> State:
        return {"rng": self._rng.bit_generator.state}

    def load_state_dict(self, state: State) -> None:
        self._rng.bit_generator.state = state["rng"]
