"""What TSCL and its relatives share: a value for each arm, estimated from the dev losses after playing it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TypedDict, Unpack

import numpy as np

from rota.measures import DevLoss, JointGain, JointLoss, Measure
from rota.teachers.choice import boltzmann, epsilon_boltzmann, epsilon_greedy
from rota.teachers.rewards import StepGain, dev_losses, joint_gain, joint_loss
from rota.types import Arm, Decision, FloatArray, Observation, State


class Policy(TypedDict, total=False):
    """What a bandit watches and how values become a choice; the same keywords for every bandit."""

    measure: DevLoss | JointLoss | JointGain
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
        self.measure: DevLoss | JointLoss | JointGain = policy.get("measure", DevLoss())
        self._step_gain, self._told = StepGain(), 0  # of a joint loss, and the step at which it was last told
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

        Of a bandit that watches the joint loss of all languages, or its gain, ``loss`` is the gain.
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
        arm = observation.decision.arm
        if isinstance(self.measure, JointGain):
            return {arm: joint_gain(observation, self.measure)}
        gain = self._gain_of_step(observation, joint_loss(observation, self.measure))
        return {} if gain is None else {arm: gain}

    def _gain_of_step(self, observation: Observation, loss: float) -> float | None:
        """Joint loss at the last observation minus that now; None for the first one.

        Also None if most updates since then are not part of this observation, such as those of a warm-up that the
        teacher is not told of: the gain would be theirs.
        """
        updates = sum(updates for _, updates in observation.plays)
        if observation.step - self._told > 2 * updates:
            self._step_gain = StepGain()
        self._told = observation.step
        return self._step_gain(observation.decision.arm, loss)

    def state_dict(self) -> State:
        state: State = {"rng": self._rng.bit_generator.state}
        joint = {"told": self._told, **self._step_gain.state_dict()}
        return {**state, "joint": joint} if isinstance(self.measure, JointLoss) else state

    def load_state_dict(self, state: State) -> None:
        self._rng.bit_generator.state = state["rng"]
        if "joint" in state:
            self._told = int(state["joint"]["told"])
            self._step_gain.load_state_dict(state["joint"])
