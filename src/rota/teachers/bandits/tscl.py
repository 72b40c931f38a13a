"""TSCL, teacher-student curriculum learning: Algorithm 1 of the paper, a bandit over languages."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final, Literal, Self, Unpack

import numpy as np
from pydantic import Field, model_validator

from rota.measures import DevLoss, JointGain, JointLoss
from rota.settings import Count, Duration
from rota.teachers.bandits.base import Bandit, Policy
from rota.teachers.bandits.matiisen import Naive, Sampling, Window
from rota.teachers.base import (
    PAPER_STEPS,
    ROTA,
    Classroom,
    Inform,
    LearnedConfig,
    LossKind,
    SizeChange,
    TeacherConfig,
    Variant,
    WarmupConfig,
    WarmupField,
    fill_in,
)
from rota.teachers.card import Card
from rota.teachers.rewards import SCALES, FirstReward, MeasuredGain, Reward, SameArmGain, ScaleName
from rota.teachers.wrappers import FirstVisits
from rota.types import Arm, FloatArray, State, Teacher

FirstVisitsWhen = Literal["algorithm", "text", "after-warmup", "shuffled"]

RELEASED: dict[str, Any] = {
    "reward_batch": "first-arm-train",
    "reward_loss": "smoothed",
    "first_visits": "shuffled",
}
"""What ``variant: released`` sets; the defaults are the paper's."""

OWN_ROTA: dict[str, Any] = {
    **ROTA,
    "warmup": {"until": "10%"},
    "first_visits": "after-warmup",
    "first_reward": "skip",
    "absolute": False,
    "alpha": 0.2,
    "epsilon": 0.16,
}
"""What ``variant: rota`` sets. It is told nothing of the warm-up; of arms that make the goal worse it wants less."""


SLOPES: Final = ("naive", "window")
"""Algorithms without rewards: they fit slopes to the losses of each language."""

OF_GOAL: Final = ("joint", "rotating")
"""Reward batches of all languages that count, which give the gain of a choice."""


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
        untried_first: bool = False,
        **policy: Unpack[Policy],
    ) -> None:
        super().__init__(arms, rng, **policy)
        self.reward = SameArmGain("raw") if reward is None else reward
        self.alpha = alpha
        self.untried_first = untried_first
        self._returns = dict.fromkeys(self.arms, 0.0)  # Q in Algorithm 1
        self._tried: set[Arm] = set()  # arms with a reward

    def values(self) -> FloatArray:
        """Of an arm without a reward, if those come first: 1 more than any other has in absolute value."""
        values = np.array([self._returns[arm] for arm in self.arms])
        if self.untried_first:
            untried = [arm not in self._tried for arm in self.arms]
            values[untried] = 1 + np.abs(values).max()
        return values

    def learn(self, arm: Arm, step: int, loss: float) -> float | None:  # noqa: ARG002 - Algorithm 1 has no clock here
        gain = self.reward(arm, loss)
        if gain is not None:
            weight = 1.0 if self.untried_first and arm not in self._tried else self.alpha
            self._returns[arm] = weight * gain + (1 - weight) * self._returns[arm]
            self._tried.add(arm)
        return gain

    def state_dict(self) -> State:
        state = {**super().state_dict(), "returns": dict(self._returns), "reward": self.reward.state_dict()}
        return {**state, "tried": sorted(self._tried)} if self.untried_first else state

    def load_state_dict(self, state: State) -> None:
        super().load_state_dict(state)
        self._returns, self._tried = dict(state["returns"]), set(state.get("tried", ()))
        self.reward.load_state_dict(state["reward"])


class TSCLConfig(LearnedConfig):
    """Bandit on how fast each language's dev loss falls (Algorithm 1; Matiisen et al. 2017)."""

    card = Card(
        family="bandits",
        line="fastest change of loss",
        observes="dev loss",
        cost=("13%", "4%"),
        source="the paper",
        reference="the paper, Algorithm 1; Matiisen et al. 2017, Teacher-Student Curriculum Learning",
    )
    later: ClassVar[tuple[str, ...]] = ("reward_weights",)
    follows_run: ClassVar[tuple[str, ...]] = ("reward_batch", "absolute")
    name: Literal["tscl"] = "tscl"
    warmup: WarmupField = Field(
        WarmupConfig(until=Duration("16k"), inform="all"),
        description="steps on the high-resource languages first (paper: 16k; the teacher is told); null for none",
    )
    algorithm: Literal["online", "naive", "window", "sampling"] = Field(
        "online", description="online: the paper's; the others are those of Matiisen et al. 2017"
    )
    alpha: float = Field(0.1, gt=0, le=1, description="weight of the newest reward (online, naive; paper: 0.1)")
    window: Count = Field(10, ge=2, description="losses or rewards remembered (naive, window, sampling; Matiisen: 10)")
    epsilon: float = Field(0.1, ge=0, le=1, description="probability of a random choice (paper: 0.1)")
    absolute: bool = Field(
        True, description="rank by |Q| (both papers; Matiisen's code: false); false if reward_batch is joint"
    )
    first_reward: FirstReward = Field(
        "raw",
        description="raw: minus the first loss (Algorithm 1); skip: none; untried: none, and languages without a "
        "reward are chosen first",
    )
    first_visits: FirstVisitsWhen = Field(
        "algorithm",
        description="every language once: at the start (algorithm), only if there is no warm-up (text), after-warmup, "
        "or the first language and then all in random order (shuffled: the released code)",
    )
    reward_scale: ScaleName = Field(
        "none", description="rewards as they are, by running quantiles, as z-score, or as advantage over the expected"
    )
    reward_batch: Literal["current-language", "joint", "first-arm-train", "rotating"] = Field(
        "current-language",
        description="dev batch of the language played; joint: multilingual dev batch, as the goal weighs the languages "
        "(the default of a run with a goal); first-arm-train: one training batch of the first language (released); "
        "rotating: dev sentences of the goal, others for every choice, before and after it",
    )
    reward_tokens: Count = Field(8_000, ge=1, description="tokens of the reward batch (paper: 8k)")
    reward_loss: LossKind = Field("plain", description="cross-entropy, or label-smoothed as in the released code")

    @model_validator(mode="before")
    @classmethod
    def _fill_in(cls, values: Any) -> Any:
        inform: dict[Variant, Inform] = {"scaled": "all", "paper": "all", "released": "all", "rota": "none"}
        filled = fill_in(values, {"released": RELEASED, "rota": OWN_ROTA}, inform)
        joint = isinstance(filled, Mapping) and filled.get("reward_batch") == "joint"
        # An arm after which the goal's loss rises does harm; after which its own loss rises, it is being forgotten.
        return {"absolute": False, **filled} if joint else filled

    @model_validator(mode="after")
    def _check_rewards(self) -> Self:
        self.check_reward(self.reward_batch)
        if self.reward_batch in OF_GOAL and self.algorithm in SLOPES:
            why = f"a {self.reward_batch} reward batch gives gains"
            raise ValueError(f"algorithm {self.algorithm!r} fits slopes to losses; {why}")
        for name in ("first_reward", "reward_scale"):
            value = getattr(self, name)
            if self.algorithm in SLOPES and value != type(self).model_fields[name].default:
                why = f"algorithm {self.algorithm!r} fits slopes to losses and has no rewards"
                raise ValueError(f"{name} is {value!r}, but {why}; remove it, or use online or sampling")
        return self

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

    def scaled(self, to: SizeChange) -> dict[str, Any]:
        """Longer blocks and a faster start in a shorter run.

        - Ten updates for a choice where that leaves ``FEWEST`` choices: the effect of a single update on the dev loss
          is lost in its noise. The paper chooses at every update.
        - ``alpha`` grows with the root of the number of choices, up to three times.
        - The first reward is none, and a language without a reward is chosen first. The paper's first reward, minus the
          loss, takes a share of the choices to decay that a run of 150k steps does not notice and a short one does.
        """
        rota = self.variant == "rota"
        warmup = 0 if self.warmup is None else to.in_proportion(self.warmup.until)
        every = self.block(to, max(10, self.decide_every), warmup)
        changed: dict[str, Any] = {"reward_tokens": self.rewarded(to, every, self.reward_tokens)}
        if to.share >= 1 and not rota:
            return super().scaled(to) | changed
        decisions = max(1, (to.steps - warmup) // every)
        changed["decide_every"] = every
        if rota:
            return super().scaled(to) | changed
        if self.algorithm in ("online", "naive"):
            changed["alpha"] = min(0.9, self.alpha * min(3.0, max(1.0, math.sqrt(1_340 / decisions))))
        if self.algorithm == "online" and self.first_reward == "raw":
            changed["first_reward"] = "untried"
        return super().scaled(to) | changed

    def with_goal(self) -> TeacherConfig:
        """Rewarded by the gain of the goal's dev loss, unless the config or the variant names a reward batch.

        ``naive`` and ``window`` have no rewards, and observations after several choices none that is of one of them.
        """
        one_choice = self.observe_every in (None, self.decide_every)
        if "reward_batch" in self.model_fields_set or self.algorithm in SLOPES or not one_choice:
            return self
        dropped = {"absolute"} - self.model_fields_set
        values = {name: getattr(self, name) for name in type(self).model_fields if name not in dropped}
        changed = type(self).model_validate({**values, "reward_batch": "joint"})
        changed.__pydantic_fields_set__.intersection_update(self.model_fields_set)  # what was written is still known
        return changed

    def instead_of_goal(self) -> str | None:
        if self.reward_batch in OF_GOAL:
            return None
        if self.algorithm in SLOPES:
            return f"{self.algorithm} fits slopes to each language's own dev losses; algorithm: online follows the goal"
        own = "its own dev loss" if self.reward_batch == "current-language" else "training text of the first one"
        return f"tscl rewards every language by {own}; reward_batch: joint follows the goal"

    def economical(self, steps: int, tokens: int) -> dict[str, Any]:
        """A choice for every update leaves 3 % of the forward and backward pass of that one for its reward.

        Slopes have no first reward, which is therefore not changed in a short run.
        """
        slopes = {"first_reward": "raw"} if self.algorithm in SLOPES else {}
        if self.variant == "rota" or steps < PAPER_STEPS:
            return slopes
        most = max(1, round(0.03 * 3 * self.decide_every * tokens))
        return {**slopes, "reward_tokens": min(self.reward_tokens, most)}

    @property
    def reward_measure(self) -> DevLoss | JointLoss | JointGain:
        smoothed = self.reward_loss == "smoothed"
        if self.reward_batch == "rotating":
            return JointGain(tokens=self.reward_tokens, weights=self.reward_weights)
        if self.reward_batch == "joint":
            return JointLoss(tokens=self.reward_tokens, smoothed=smoothed)
        return DevLoss(
            tokens=self.reward_tokens,
            smoothed=smoothed,
            data="first-arm-train" if self.reward_batch == "first-arm-train" else "dev",
        )

    def _bandit(self, arms: Sequence[Arm], rng: np.random.Generator) -> Bandit:
        policy = Policy(
            measure=self.reward_measure,
            epsilon=self.epsilon,
            temperature=None if self.policy == "epsilon-greedy" else self.temperature,
            explores=self.policy == "epsilon-boltzmann",
            absolute=self.absolute,
        )
        first: FirstReward = "skip" if self.first_reward == "untried" else self.first_reward
        gain = MeasuredGain() if self.reward_batch in OF_GOAL else SameArmGain(first)
        reward = SCALES[self.reward_scale](gain)
        if self.algorithm == "naive":
            return Naive(arms, rng, alpha=self.alpha, window=self.window, **policy)
        if self.algorithm == "window":
            return Window(arms, rng, window=self.window, **policy)
        if self.algorithm == "sampling":
            return Sampling(arms, rng, reward, window=self.window, **policy)
        untried_first = self.first_reward == "untried"
        return TSCL(arms, rng, reward, alpha=self.alpha, untried_first=untried_first, **policy)
