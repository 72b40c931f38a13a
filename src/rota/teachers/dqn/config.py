"""The settings of the DQN teacher, with the paper's values as defaults and the released code's as a variant."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Annotated, Any, ClassVar, Final, Literal, Self

import numpy as np
from pydantic import BeforeValidator, Field, model_validator

from rota.measures import DevLoss, GroupLosses, JointGain, JointLoss
from rota.settings import ConfigError, Count, Duration, DurationField
from rota.teachers.base import (
    EXACT,
    ROTA,
    Classroom,
    Inform,
    LearnedConfig,
    LossKind,
    SizeChange,
    Variant,
    WarmupConfig,
    WarmupField,
    fill_in,
)
from rota.teachers.card import Card
from rota.teachers.rewards import REWARDS, SCALES, MeasuredGain, Reward, RewardName, ScaleName
from rota.types import Teacher

logger = logging.getLogger(__name__)

PAPER_TOKENS: Final = 8_000
"""Target tokens of a batch in the paper."""

RANDOM: Final = 32
"""Decisions of a short run that should be random: four for each of eight languages."""

HALF_WAY: Final = 0.5
MOSTLY_RANDOM: Final = 0.5

RELEASED: dict[str, Any] = {
    "warmup": {"until": "16k"},
    "reward": "gain-over-mean",
    "reward_tokens": 1_000,
    "reward_loss": "smoothed",
    "state_data": "train",
    "state_loss": "summed",
    "groups": 22,
    "acts_with": "online",
    "epsilon_decay": "exponential",
    "below_replay_minimum": "random",
    "first_transition": "zero-state",
    "gradient_clip": 100.0,
}
"""What ``variant: released`` sets; the defaults are the paper's. The released warm-up tells the rewards."""

OWN_ROTA: dict[str, Any] = {**ROTA, "epsilon_floor": 0.16, "refresh": "1/16"}
"""What ``variant: rota`` sets; a sixteenth of the state is measured again at each choice, to keep it cheap."""


class DQNConfig(LearnedConfig):
    """Q network over the dev losses of all languages (Algorithm 2 and Section 4; values from Kumar et al. 2019)."""

    card = Card(
        family="policies",
        line="a Q network over losses",
        observes="dev losses",
        cost=("24%", "4%"),
        source="the paper",
        reference="the paper, Algorithm 2; Mnih et al. 2013; Kumar et al. 2019",
    )
    later: ClassVar[tuple[str, ...]] = ("policy", "temperature", "reward_weights")
    follows_run: ClassVar[tuple[str, ...]] = ("epsilon_floor",)
    name: Literal["dqn"] = "dqn"
    warmup: WarmupField = Field(
        WarmupConfig(until=Duration("16k")),
        description="steps on the high-resource languages first (paper: 16k; the teacher is not told); null for none",
    )
    decide_every: int = Field(10, ge=1, description="updates between two choices (paper: 10)")
    hidden: tuple[Annotated[int, Field(ge=1)], ...] = Field((512, 512), description="hidden layers of the Q network")
    learn: bool = Field(True, description="false: the Q network keeps its random weights, as a control")
    learning_rate: float = Field(2.5e-4, gt=0, description="of RMSProp (paper: 2.5e-4)")
    gamma: float = Field(0.99, ge=0, le=1, description="discount of later rewards (paper: 0.99)")
    tau: float = Field(0.005, ge=0, le=1, description="how far the target network moves at an update (paper: 0.005)")
    gradient_clip: float | None = Field(None, gt=0, description="largest gradient by value; null: none (released: 100)")
    replay_minimum: Count = Field(1_000, ge=1, description="transitions before the first update (paper: 1k)")
    replay_capacity: Count = Field(10_000, ge=1, description="transitions remembered (paper: 10k)")
    replay_batch: Count = Field(1_000, ge=1, description="transitions in an update (released: 1,000; paper: not given)")
    epsilon_decay: Literal["linear", "exponential"] = Field(
        "linear", description="of random choices, from the end of the warm-up; exponential: from step 0 (released)"
    )
    epsilon_steps: DurationField = Field(Duration("50k"), description="length of the decay (paper: 50k)")
    epsilon_floor: float = Field(0.01, ge=0, le=1, description="share of random choices that stays (paper: 0.01)")
    acts_with: Literal["target", "online"] = Field(
        "target", description="the network that chooses (Algorithm 2: target)"
    )
    below_replay_minimum: Literal["epsilon-greedy", "random"] = Field(
        "epsilon-greedy", description="how to choose before the first update (Algorithm 2; released: random)"
    )
    first_transition: Literal["stored-at-second", "zero-state"] = Field(
        "stored-at-second", description="with the second observation, or zero-state: with the first (released)"
    )
    reward: RewardName = Field(
        "step-gain", description="loss before minus loss now (paper), or gain-over-mean (released)"
    )
    reward_scale: ScaleName = Field(
        "none", description="rewards as they are, by running quantiles, as z-score, or as advantage over the expected"
    )
    reward_batch: Literal["joint", "current-language", "rotating"] = Field(
        "joint",
        description="multilingual dev batch, or that of the language played; rotating: dev sentences of the goal, "
        "others for every choice, before and after it",
    )
    reward_tokens: Count = Field(8_000, ge=1, description="tokens of the reward batch (paper: 8k; released: 1,000)")
    reward_loss: LossKind = Field("plain", description="cross-entropy, or label-smoothed as in the released code")
    state_data: Literal["dev", "train"] = Field(
        "dev", description="where the prototype sentences come from (released: train)"
    )
    state_sentences: Literal["first", "spread"] = Field(
        "spread", description="which dev sentences: spread over the teacher's part of the set, or its first (paper)"
    )
    state_loss: Literal["mean", "summed"] = Field(
        "mean", description="per token, or summed and label-smoothed as in the released code"
    )
    groups: int = Field(25, ge=1, description="prototype groups of each language (paper: 25; released: 22)")
    group_sentences: int = Field(10, ge=1, description="sentences in a group, at most (paper: 10)")
    refresh: Annotated[str, BeforeValidator(str)] = Field(
        "1", pattern=r"^1(/[1-9]\d*)?$", description="share of the groups measured again at an observation: 1, 1/5, ..."
    )

    @model_validator(mode="before")
    @classmethod
    def _fill_in(cls, values: Any) -> Any:
        inform: dict[Variant, Inform] = {"scaled": "none", "paper": "none", "released": "rewards", "rota": "none"}
        filled = fill_in(values, {"released": RELEASED, "rota": OWN_ROTA}, inform)
        exact = isinstance(filled, Mapping) and filled.get("variant") in EXACT
        return {"state_sentences": "first", **filled} if exact else filled

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if self.observe_every not in (None, self.decide_every):
            raise ValueError(f"observe_every is {self.observe_every}; DQN observes at every choice: leave it out")
        self.check_reward(self.reward_batch)
        if self.reward_batch == "rotating" and self.reward != type(self).model_fields["reward"].default:
            raise ValueError(f"reward is {self.reward!r}, but a rotating reward batch gives the gain itself; remove it")
        if self.policy == "boltzmann":
            raise ValueError("policy is 'boltzmann'; DQN has epsilon-greedy and epsilon-boltzmann")
        if self.replay_minimum > self.replay_capacity:
            raise ValueError(
                f"replay_minimum is {self.replay_minimum}; it must not exceed replay_capacity ({self.replay_capacity})"
            )
        return self

    def build(self, classroom: Classroom, rng: np.random.Generator) -> Teacher:
        from rota.teachers.dqn.agent import DQN  # needs torch, which reading a config does not

        return DQN(self, classroom, rng)

    def check(self, steps: int) -> None:
        """Refuses a Q network that never learns; warns of one that hardly reaches the network that chooses."""
        super().check(steps)
        warmup = 0 if self.warmup is None else self.warmup.until.steps(steps)
        choices = (steps - warmup) // self.decide_every
        updates = choices - self.replay_minimum  # the first transition is stored at the second observation
        if not self.learn or (updates <= 0 and self.replay_minimum == 1):  # a run of a few updates, to try something
            return
        if updates <= 0:
            never = f"teacher.replay_minimum is {self.replay_minimum:,} and there are {choices:,} choices"
            raise ConfigError(
                f"{never}: the Q network would never learn; leave it out, or write {max(1, choices // 10)}"
            )
        moved = 1 - math.pow(1 - self.tau, updates)
        if self.acts_with == "target" and moved < HALF_WAY:
            moves = (
                f"the network that chooses moves {moved:.0%} of the way from its random start in {updates:,} updates"
            )
            needed = 1 - math.pow(0.5, 1 / updates)
            logger.warning("teacher.tau is %g: %s; leave it out, or write at least %.2g", self.tau, moves, needed)
        last = self.epsilon_at(steps)(steps - 1)
        if last > MOSTLY_RANDOM:
            random = (
                f"teacher.epsilon_steps is {self.epsilon_steps}: {last:.0%} of the choices are random even at the end"
            )
            logger.warning("%s; leave it out, or write for example 33%%", random)

    def economical(self, steps: int, tokens: int) -> dict[str, Any]:  # noqa: ARG002 - the size of an update decides
        """A twentieth of the state at each choice, where the state is as large as the paper's."""
        return {} if self.variant == "rota" or tokens < PAPER_TOKENS else {"refresh": "1/20"}

    def make_reward(self) -> Reward:
        gain = MeasuredGain() if self.reward_batch == "rotating" else REWARDS[self.reward]()
        return SCALES[self.reward_scale](gain)

    def epsilon_at(self, steps: int) -> Callable[[int], float]:
        """The probability of a random choice by step, in a run of ``steps`` steps."""
        decay = self.epsilon_steps.steps(steps)
        if self.epsilon_decay == "exponential":
            return partial(exponential_epsilon, decay=decay, floor=self.epsilon_floor)
        warmup = 0 if self.warmup is None else self.warmup.until.steps(steps)
        return partial(linear_epsilon, warmup=warmup, decay=decay, floor=self.epsilon_floor)

    @property
    def reward_measure(self) -> JointLoss | JointGain | DevLoss:
        if self.reward_batch == "rotating":
            return JointGain(tokens=self.reward_tokens, weights=self.reward_weights)
        kind = JointLoss if self.reward_batch == "joint" else DevLoss
        return kind(tokens=self.reward_tokens, smoothed=self.reward_loss == "smoothed")

    @property
    def state_measure(self) -> GroupLosses:
        return GroupLosses(
            groups=self.groups,
            sentences=self.group_sentences,
            refresh_every=int(self.refresh.partition("/")[2] or 1),
            data=self.state_data,
            summed=self.state_loss == "summed",
            spread=self.state_sentences == "spread",
        )

    def scaled(self, to: SizeChange) -> dict[str, Any]:
        """Decisions, memory, target network, horizon and state in proportion; the learning rate stays.

        - It decides every 10 updates where that leaves ``FEWEST`` choices. ``to.more_decisions`` times as often, if
          asked, with as small a part of its state renewed each time: the whole is as old as before, at about the same
          cost.
        - Replay minimum and capacity keep their share of the decisions after the warm-up (the paper's 1k and 10k of
          13,400: 7.5 % and 75 %); a minibatch is as large as the minimum, and at least 32.
        - ``tau`` moves the target network as far in the same share of a run. A large ``tau`` saturates: the paper's 0.5
          and 0.995 become 1 within a millionth at 1,500 steps.
        - ``gamma``: a reward counts as much the same share of a run later: 0.99 after one of 13,400 decisions is 0.366
          after one of 134. With the old horizon Q values would be sums over most of the run.
        - Epsilon falls to a floor that grows with the root of the lost decisions: 0.01 of 134 is one choice. It leaves
          ``RANDOM`` random decisions in a run, up to a quarter of them: with fewer, languages went without any.
        - Rewards are z-scored. A choice gains hundredths of a nat and the outputs of an untrained network differ by
          tenths, which the paper's run has 12,400 updates to unlearn.
        - The state has as many sentences for each token of a batch as the paper's, 250 for 8,000, in groups half as
          large if they are fewer than 25 groups. A reward batch has the tokens of four training batches at most.
        """
        warmup = 0 if self.warmup is None else self.warmup.until.steps(to.steps_before)
        before, warmup_now = self._decisions(to.steps_before, warmup), round(warmup * to.share)
        every = max(1, self.block(to, self.decide_every, warmup_now) // to.more_decisions)
        parts = self.state_measure.refresh_every * max(1, self.decide_every // every if to.more_decisions > 1 else 1)
        now = max(1, (to.steps - warmup_now) // every)
        minimum = min(max(1, round(self.replay_minimum * now / before)), max(1, now // 2))
        return super().scaled(to) | {
            "reward_tokens": self.rewarded(to, every, self.reward_tokens),
            "decide_every": every,
            "refresh": "1" if parts == 1 else f"1/{parts}",
            "epsilon_steps": to.in_proportion(self.epsilon_steps),
            "replay_minimum": minimum,
            "replay_capacity": max(minimum, round(self.replay_capacity * now / before)),
            "replay_batch": min(self.replay_batch, max(minimum, 32)),
            # The first decision after the warm-up has no state yet, and an update needs the minimum of transitions.
            "tau": same_fraction(self.tau, before - self.replay_minimum, now - minimum),
            "gamma": math.pow(self.gamma, before / now),
            "epsilon_floor": self._floor(before, now),
            "reward_scale": "z-score" if to.share < 1 and self.reward_scale == "none" else self.reward_scale,
            **self._smaller_state(to),
        }

    def _floor(self, before: int, now: int) -> float:
        grown = min(0.1, self.epsilon_floor * math.sqrt(before / now))
        least = min(0.25, RANDOM / now) if self.variant == "scaled" and now < before else 0.0
        return max(self.epsilon_floor, grown, least)

    def _smaller_state(self, to: SizeChange) -> dict[str, int]:
        sentences = round(self.groups * self.group_sentences * to.tokens / PAPER_TOKENS)
        if sentences >= self.groups * self.group_sentences:
            return {}
        size = max(1, self.group_sentences // 2)
        return {"groups": min(self.groups, max(3, sentences // size)), "group_sentences": size}

    def _decisions(self, steps: int, warmup: int) -> int:
        """How many follow the warm-up; if there is none, the replay memory has nothing to keep a share of."""
        decisions = (steps - warmup) // self.decide_every
        if not decisions:
            left = f"teacher.warmup leaves {steps - warmup:,} of {steps:,} steps"
            remedy = "shorten teacher.warmup, for example to 10%, or lower teacher.decide_every"
            raise ConfigError(f"{left} and DQN decides every {self.decide_every}: too few for another size; {remedy}")
        return decisions


def same_fraction(tau: float, updates_before: int, updates_now: int) -> float:
    """The ``tau`` with which ``updates_now`` soft updates move a network as far as ``updates_before`` did."""
    if updates_before == updates_now or updates_before <= 0 or updates_now <= 0:
        return tau
    return 1.0 - math.pow(1.0 - tau, updates_before / updates_now)


def linear_epsilon(step: int, *, warmup: int, decay: int, floor: float = 0.01) -> float:
    """Probability of a random choice: 1 until ``warmup``, then linear to ``floor`` over ``decay`` (Appendix A.1)."""
    if step < warmup:
        return 1.0
    return max(floor, 1 - (1 - floor) * (step - warmup) / decay) if decay else floor


def exponential_epsilon(step: int, *, decay: int, floor: float = 0.01) -> float:
    """The released code: falls towards ``floor`` from the very first step, by a factor e in ``decay`` steps."""
    return floor + (1 - floor) * math.exp(-step / decay) if decay else floor


class KumarConfig(DQNConfig):
    """DQN over bins of a text: its losses on training sentences of every bin are the state (Kumar et al. 2019)."""

    card = Card(
        family="policies",
        line="a Q network over bins",
        observes="train text",
        cost=("21%", "4%"),
        source="Kumar '19",
        reference="Kumar et al. 2019, Reinforcement Learning based Curriculum Optimization for NMT; our reading of "
        "the abstract and of what the paper quotes",
    )
    name: Literal["kumar"] = "kumar"  # type: ignore[assignment]
    warmup: WarmupField = Field(None, description="steps on the high-resource languages first; null for none")
    reward: RewardName = Field("gain-over-mean", description="mean of previous dev losses minus loss now, or step-gain")
    state_data: Literal["dev", "train"] = Field("train", description="where the prototype sentences come from")
