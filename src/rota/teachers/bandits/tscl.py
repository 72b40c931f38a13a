"""TSCL, teacher-student curriculum learning: Algorithm 1 of the paper, a bandit over languages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, Self, Unpack

import numpy as np
from pydantic import Field, model_validator

from rota.measures import DevLoss
from rota.settings import Count, Duration
from rota.teachers.bandits.base import Bandit, Policy
from rota.teachers.bandits.matiisen import Naive, Sampling, Window
from rota.teachers.base import (
    EXACT,
    Classroom,
    LossKind,
    SizeChange,
    TeacherConfig,
    Variant,
    WarmupConfig,
    WarmupField,
    fill_in,
)
from rota.teachers.card import Card
from rota.teachers.rewards import SCALES, FirstReward, Reward, SameArmGain, ScaleName
from rota.teachers.wrappers import FirstVisits
from rota.types import Arm, FloatArray, State, Teacher

FirstVisitsWhen = Literal["algorithm", "text", "after-warmup", "shuffled"]

RELEASED: dict[str, Any] = {
    "reward_batch": "first-arm-train",
    "reward_loss": "smoothed",
    "first_visits": "shuffled",
}
"""What ``variant: released`` sets; the defaults are the paper's."""


class TSCL(Bandit):
    """The expected return of an arm is its exponentially smoothed gain; the arm of the largest |Q| is chosen.

    Of equal arms the first in the list is taken: Algorithm 1 does not say.
    """

    def __init__(
        self,
        arms: Sequence[Arm],
        rng: np.random.Generator,
        reward: Reward | None = None,
        *,
        alpha: float = 0.1,
        **policy: Unpack[Policy],
    ) -> None:
        super().__init__(arms, rng, **policy)
        self.reward = SameArmGain("raw") if reward is None else reward
        self.alpha = alpha
        self._returns = dict.fromkeys(self.arms, 0.0)  # Q in Algorithm 1

    def values(self) -> FloatArray:
        return np.array([self._returns[arm] for arm in self.arms])

    def learn(self, arm: Arm, step: int, loss: float) -> float | None:  # noqa: ARG002 - Algorithm 1 has no clock here
        gain = self.reward(arm, loss)
        if gain is not None:
            self._returns[arm] = self.alpha * gain + (1 - self.alpha) * self._returns[arm]
        return gain

    def state_dict(self) -> State:
        return {**super().state_dict(), "returns": dict(self._returns), "reward": self.reward.state_dict()}

    def load_state_dict(self, state: State) -> None:
        super().load_state_dict(state)
        self._returns = dict(state["returns"])
        self.reward.load_state_dict(state["reward"])


class TSCLConfig(TeacherConfig):
    """Bandit on how fast each language's dev loss falls (Algorithm 1; Matiisen et al. 2017)."""

    card = Card(
        family="bandits",
        line="fastest change of loss",
        observes="dev loss",
        cost=("+53%", "+17%"),
        source="the paper",
        reference="the paper, Algorithm 1; Matiisen et al. 2017, Teacher-Student Curriculum Learning",
    )
    name: Literal["tscl"] = "tscl"
    variant: Variant = Field("paper", description="released: all options as in the authors' code")
    warmup: WarmupField = Field(
        WarmupConfig(until=Duration("16k"), inform="all"),
        description="steps on the high-resource languages first (paper: 16k; the teacher is told); null for none",
    )
    algorithm: Literal["online", "naive", "window", "sampling"] = Field(
        "online", description="online: the paper's; the others are those of Matiisen et al. 2017"
    )
    alpha: float = Field(0.1, gt=0, le=1, description="weight of the newest reward (online, naive; paper: 0.1)")
    window: Count = Field(10, ge=2, description="losses or rewards remembered (naive, window, sampling; Matiisen: 10)")
    policy: Literal["epsilon-greedy", "boltzmann"] = Field("epsilon-greedy", description="how values become a choice")
    epsilon: float = Field(0.1, ge=0, le=1, description="probability of a random choice (paper: 0.1)")
    temperature: float = Field(4e-4, gt=0, description="of the boltzmann policy, in the unit of the values (Matiisen)")
    absolute: bool = Field(True, description="rank by |Q| (both papers; Matiisen's code: false)")
    first_reward: FirstReward = Field("raw", description="raw: minus the first loss (Algorithm 1); skip: none")
    first_visits: FirstVisitsWhen = Field(
        "algorithm",
        description="every language once: at the start (algorithm), only if there is no warm-up (text), after-warmup, "
        "or the first language and then all in random order (shuffled: the released code)",
    )
    reward_scale: ScaleName = Field("none", description="rewards as they are, by running quantiles, or as z-score")
    reward_batch: Literal["current-language", "first-arm-train"] = Field(
        "current-language", description="dev batch of the language played, or one training batch of the first language"
    )
    reward_tokens: Count = Field(8_000, ge=1, description="tokens of the reward batch (paper: 8k)")
    reward_loss: LossKind = Field("plain", description="cross-entropy, or label-smoothed as in the released code")

    @model_validator(mode="before")
    @classmethod
    def _fill_in(cls, values: Any) -> Any:
        return fill_in(values, RELEASED, inform={"paper": "all", "released": "all"})

    @model_validator(mode="after")
    def _check_rewards(self) -> Self:
        for name in ("first_reward", "reward_scale"):
            value = getattr(self, name)
            if self.algorithm in ("naive", "window") and value != type(self).model_fields[name].default:
                why = f"algorithm {self.algorithm!r} fits slopes to losses and has no rewards"
                raise ValueError(f"{name} is {value!r}, but {why}; remove it, or use online or sampling")
        return self

    @property
    def guarded(self) -> bool:
        return self.variant not in EXACT

    def build(self, classroom: Classroom, rng: np.random.Generator) -> Teacher:
        teacher = self._bandit(classroom.arms, rng)
        inside = self.first_visits == "after-warmup" or (self.first_visits == "text" and self.warmup is None)
        return FirstVisits(teacher, classroom.arms) if inside else teacher

    def around_warmup(self, teacher: Teacher, classroom: Classroom, rng: np.random.Generator) -> Teacher:
        if self.first_visits == "algorithm":
            return FirstVisits(teacher, classroom.arms)
        if self.first_visits == "shuffled":
            shuffled = [classroom.arms[index] for index in rng.permutation(len(classroom.arms))]
            return FirstVisits(teacher, [classroom.arms[0], *shuffled])
        return teacher

    def stem(self, steps: int) -> dict[str, Any] | None:
        """Visits before the warm-up are its own."""
        return super().stem(steps) if self.first_visits in ("text", "after-warmup") else None

    @classmethod
    def short_run(cls) -> dict[str, Any]:
        return {"warmup": "10.7%"}  # the paper's 16k of 150k steps

    def scaled(self, to: SizeChange) -> dict[str, Any]:
        """It decides as often as before, counted in updates; a reward batch has as many tokens as a training batch."""
        return super().scaled(to) | {"reward_tokens": to.tokens}

    def _bandit(self, arms: Sequence[Arm], rng: np.random.Generator) -> Bandit:
        policy = Policy(
            measure=DevLoss(
                tokens=self.reward_tokens,
                smoothed=self.reward_loss == "smoothed",
                data="first-arm-train" if self.reward_batch == "first-arm-train" else "dev",
            ),
            epsilon=self.epsilon,
            temperature=self.temperature if self.policy == "boltzmann" else None,
            absolute=self.absolute,
        )
        reward = SCALES[self.reward_scale](SameArmGain(self.first_reward))
        if self.algorithm == "naive":
            return Naive(arms, rng, alpha=self.alpha, window=self.window, **policy)
        if self.algorithm == "window":
            return Window(arms, rng, window=self.window, **policy)
        if self.algorithm == "sampling":
            return Sampling(arms, rng, reward, window=self.window, **policy)
        return TSCL(arms, rng, reward, alpha=self.alpha, **policy)
