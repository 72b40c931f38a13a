"""The teacher ``weights``: draws arms from a distribution that a signal and an update rule change in the course."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import numpy as np
from pydantic import BeforeValidator, Field, field_validator, model_validator

from rota.measures import Measure, Weights
from rota.settings import ConfigError, Count, Duration, DurationField
from rota.teachers.base import Classroom, SizeChange, TeacherConfig
from rota.teachers.rewards import SCALES, Reward
from rota.teachers.static import FixedConfig, ProportionalConfig, TemperatureConfig, UniformConfig, named
from rota.teachers.weights.baselines import read_baseline
from rota.teachers.weights.presets import PRESETS, with_preset
from rota.teachers.weights.rules import RULES, Actor, Rule, RuleName, floored
from rota.teachers.weights.signals import (
    DevLosses,
    Excess,
    Gain,
    GainOf,
    RelatedLosses,
    Shortfall,
    Signal,
    TrainLosses,
)
from rota.types import Arm, Decision, FloatArray, Observation, State

SignalName = Literal["train-loss", "dev-loss", "excess", "shortfall", "related-loss", "gain"]

SIGNALS: dict[SignalName, type[Signal]] = {
    "train-loss": TrainLosses,
    "dev-loss": DevLosses,
    "excess": Excess,
    "shortfall": Shortfall,
    "related-loss": RelatedLosses,
    "gain": Gain,
}

Scale = Literal["none", "across-arms", "min-max", "quantiles", "z-score"]
Prior = Annotated[UniformConfig | ProportionalConfig | TemperatureConfig | FixedConfig, Field(discriminator="name")]


class WeightsConfig(TeacherConfig):
    """Draws languages by weights that follow a signal: one teacher for many published schedules."""

    name: str = "weights"  # or that of a preset
    variant: Literal["rota", "source"] = Field(
        "rota", description="source: the published constants, without floors, scaling and averaged weights"
    )
    signal: SignalName = Field("dev-loss", description=f"what the weights follow: {', '.join(SIGNALS)}")
    rule: RuleName = Field("softmax", description=f"how they follow it: {', '.join(RULES)}")
    prior: Annotated[Prior, BeforeValidator(named)] = Field(
        UniformConfig(), description="shares to start from: uniform, proportional, temperature or fixed"
    )
    reweight_every: DurationField | None = Field(
        Duration("2%"), description="updates between two changes of the weights; null: at every choice"
    )
    start: DurationField = Field(Duration(0), description="until this step the prior holds")
    floor: float = Field(0.01, ge=0, lt=1, description="least share of a language, at most half of the uniform share")
    scale: Scale = Field(
        "none",
        description="of the values: none, across-arms (mean 0, deviation 1), min-max, or over time: quantiles, z-score",
    )
    smoothing: float = Field(1.0, gt=0, le=1, description="weight of the newest value of a signal; 1: no smoothing")
    apply: Literal["sampling", "loss"] = Field(
        "sampling", description="sampling: draw by the weights; loss: draw by the prior and weigh the loss instead"
    )
    bound: float = Field(5.0, gt=1, description="largest weight of a loss, and one over the smallest (apply: loss)")
    # Of signals.
    weights: Weights = Field("average", description="of the student that is measured: average or raw")
    tokens: Count = Field(500, ge=1, description="measured for each language; of a joint dev batch altogether")
    loss: Literal["train", "dev"] = Field("train", description="the loss of the signal excess")
    baseline: dict[Arm, float] | Path | None = Field(
        None, description="loss of each language that counts as learned, or the folder of a finished run"
    )
    restart: bool = Field(False, description="forget the training losses when the weights change")
    alpha: float = Field(3.0, gt=0, description="exponent of the signal shortfall")
    softening: float = Field(0.05, gt=0, description="added to the denominator of the signal shortfall")
    of: GainOf = Field("own", description="whose gain: of the language played (own), joint, or of every language")
    relative: bool = Field(False, description="gains as shares of the loss before")
    window: Count = Field(3, ge=1, description="losses that the signal related-loss adds up")
    related: tuple[tuple[Arm, ...], ...] = Field((), description="groups of related languages (signal related-loss)")
    kinship: float = Field(0.5, ge=0, description="how much the loss of a relative counts (signal related-loss)")
    others: float = Field(0.1, ge=0, description="how much the loss of any other language counts")
    # Of rules.
    temperature: float = Field(1.0, gt=0, description="of the rule softmax")
    eta: float | None = Field(None, gt=0, description="step size; null: so that a run can move a log-weight by about 5")
    pull: float = Field(0.0, ge=0, lt=1, description="share of the way back to the prior at each change (rule mirror)")
    epsilon: float = Field(0.1, ge=0, le=1, description="share of the choices that are uniform (rules exp3, exp3-s)")
    cap: float | None = Field(10.0, gt=0, description="largest reward / probability (rules exp3, exp3-s, odm)")
    horizon: DurationField = Field(Duration("50%"), description="time after which the rule exp3-s forgets")
    memory: float = Field(0.9, ge=0, lt=1, description="weight of the old rewards (rule odm)")
    rho: float = Field(0.05, gt=0, description="size of the ball of the rule chi-square")
    least_ratio: float = Field(0.2, ge=0, lt=1, description="least share in units of the prior (rule chi-square)")
    actor: Actor = Field("closed-form", description="closed-form, or adam as in the code of MultiDDS (rule actor)")
    max_step: float = Field(0.02, gt=0, description="largest change of a logit at once (rule actor, closed form)")

    @model_validator(mode="before")
    @classmethod
    def _fill_in(cls, values: Any) -> Any:
        return with_preset(values)

    @field_validator("name")
    @classmethod
    def _known(cls, name: str) -> str:
        if name != "weights" and name not in PRESETS:
            raise ValueError(f"{name!r} is not a preset; there are {', '.join(PRESETS)}")
        return name

    @model_validator(mode="after")
    def _check_use(self) -> Self:
        """A setting that this signal and this rule do not use would be taken for one that works."""
        if self.observe_every is not None:
            raise ValueError("observe_every is set, but this teacher is told when its weights change: reweight_every")
        used = {*SIGNALS[self.signal].settings, *RULES[self.rule].settings}
        for name in _OF_ONE - used:
            if getattr(self, name) != type(self).model_fields[name].default:
                known = f"signal {self.signal} with rule {self.rule} uses {', '.join(sorted(used)) or 'none of these'}"
                raise ValueError(f"{name} is set, but {known}; remove it")
        return self

    def build(self, classroom: Classroom, rng: np.random.Generator) -> WeightedTeacher:
        prior = self._prior(classroom, rng)
        arms = tuple(prior)
        changes = max(1, (classroom.steps - self.start.steps(classroom.steps)) // self.changes_every(classroom.steps))
        return WeightedTeacher(
            arms,
            rng,
            self._signal(arms, classroom),
            self._rule(np.array(list(prior.values())), changes, classroom),
            scale=self.scale,
            floor=self.floor,
            bound=self.bound if self.apply == "loss" else None,
            start=self.start.steps(classroom.steps),
            reweight_every=self.changes_every(classroom.steps),
            observe_every=self.observes_every(classroom.steps) or self.decide_every,
            corpus=classroom.arms,
        )

    def _prior(self, classroom: Classroom, rng: np.random.Generator) -> dict[Arm, float]:
        shares: dict[Arm, float] = self.prior.build(classroom, rng).shares
        return {arm: shares[arm] for arm in classroom.arms if shares.get(arm, 0) > 0}

    def _signal(self, arms: Sequence[Arm], classroom: Classroom) -> Signal:
        kind = SIGNALS[self.signal]
        given = {name: getattr(self, name) for name in kind.settings}
        if "baseline" in given:
            dev = self.signal == "shortfall" or self.loss == "dev"
            given["baseline"] = read_baseline(self.baseline, arms, of="dev" if dev else "train")
        if "related" in given:
            classroom.select(tuple(arm for group in self.related for arm in group) or "all")
        return kind(arms, smoothing=self.smoothing, **given)

    def _rule(self, prior_K: FloatArray, changes: int, classroom: Classroom) -> Rule:
        kind = RULES[self.rule]
        given = {name: getattr(self, name) for name in kind.settings}
        if "horizon" in given:
            given["horizon"] = self.horizon.steps(classroom.steps) / classroom.steps
        return kind(prior_K, changes, **given)

    def changes_every(self, steps: int) -> int:
        """Updates between two changes of the weights: a whole number of choices."""
        wanted = self.decide_every if self.reweight_every is None else self.reweight_every.steps(steps)
        return max(1, round(wanted / self.decide_every)) * self.decide_every

    def observes_every(self, steps: int) -> int | None:
        """Training losses cost nothing and are told at every choice; all else is measured when the weights change."""
        free = self.signal == "train-loss" or (self.signal == "excess" and self.loss == "train")
        return None if free else self.changes_every(steps)

    def check(self, steps: int) -> None:
        super().check(steps)
        if self.start.steps(steps) >= steps:
            comes = f"teacher.start is step {self.start.steps(steps):,} and the run has {steps:,}"
            raise ConfigError(f"{comes}: the weights would never change; write for example teacher.start: 5%")

    def reads(self) -> Sequence[Path]:
        return (self.baseline,) if isinstance(self.baseline, Path) else ()

    def scaled(self, to: SizeChange) -> dict[str, Any]:
        """No more tokens are measured at a choice than an update has."""
        return super().scaled(to) | {"tokens": min(self.tokens, to.tokens)}


_OF_ONE = {name for table in (SIGNALS, RULES) for kind in table.values() for name in kind.settings}


class WeightedTeacher:
    """Draws arms from a distribution; ``signal`` and ``rule`` change it every ``reweight_every`` updates.

    ``bound``: draw from the prior instead, and weigh the loss of each arm by share / prior within this bound.
    """

    def __init__(
        self,
        arms: Sequence[Arm],
        rng: np.random.Generator,
        signal: Signal,
        rule: Rule,
        *,
        scale: Scale = "none",
        floor: float = 0.01,
        bound: float | None = None,
        start: int = 0,
        reweight_every: int = 1,
        observe_every: int = 1,
        corpus: Sequence[Arm] = (),
    ) -> None:
        self.arms, self.signal, self.rule = tuple(arms), signal, rule
        self.scale, self.floor, self.bound = scale, floor, bound
        self.start, self.reweight_every, self.observe_every = start, reweight_every, observe_every
        self._rng = rng
        self._nothing = dict.fromkeys(corpus, 0.0)  # the share of arms that are never played
        self._over_time: Reward | None = SCALES[scale](_AsItIs()) if scale in ("quantiles", "z-score") else None
        self._inverse = dict.fromkeys(self.arms, 0.0)  # sums of 1 / probability, by arm played since the last change
        self._choices = 0
        self._new: dict[Arm, None] = {}  # arms with a new value since then, in order
        self._measuring = True  # whether the choice in progress will be measured

    @property
    def shares_K(self) -> FloatArray:
        """The distribution that the signal and the rule ask for."""
        return floored(self.rule.shares_K, self.floor)

    @property
    def watches(self) -> Sequence[Measure]:
        return self.signal.measures if self._measuring else ()

    def ask(self, step: int) -> Decision:
        self._measuring = (step // self.observe_every + 1) * self.observe_every >= self.start
        shares_K = self.shares_K
        drawn_K = shares_K if self.bound is None else self.rule.prior_K
        index = min(int(np.searchsorted(np.cumsum(drawn_K), self._rng.random(), side="right")), len(self.arms) - 1)
        scores = self._nothing | dict(zip(self.arms, shares_K.tolist(), strict=True))
        weights = None if self.bound is None else self._loss_weights(shares_K, self.bound)
        return Decision(self.arms[index], "sampled", float(drawn_K[index]), scores, weights=weights)

    def _loss_weights(self, shares_K: FloatArray, bound: float) -> dict[Arm, float]:
        weights_K = np.clip(shares_K / self.rule.prior_K, 1 / bound, bound)
        return dict(zip(self.arms, weights_K.tolist(), strict=True))

    def tell(self, observation: Observation) -> dict[Arm, float] | None:
        """Every observation is heard; the weights change when it is time. Returns the values that changed them."""
        if not self._measuring:
            return None
        self._new |= dict.fromkeys(self.signal.hear(observation))
        for decision, _ in observation.plays:
            self._choices += 1
            if decision.arm in self._inverse and decision.probability is not None:
                self._inverse[decision.arm] += 1 / decision.probability
        if observation.step < self.start or observation.step % self.reweight_every:
            return None
        values = self._scaled(self.signal.values())
        if values:
            values_K = np.array([values.get(arm, np.nan) for arm in self.arms])
            self.rule.update(values_K, np.array([self._inverse[arm] for arm in self.arms]) / self._choices)
        self.signal.weights_changed()
        self._inverse, self._choices, self._new = dict.fromkeys(self.arms, 0.0), 0, {}
        return values

    def _scaled(self, values: Mapping[Arm, float]) -> dict[Arm, float]:
        if self._over_time is not None:
            scaled = {arm: self._over_time(arm, values[arm]) for arm in self._new}
            return {arm: value for arm, value in scaled.items() if value is not None}
        if not values or self.scale == "none":
            return dict(values)
        array = np.array(list(values.values()))
        if self.scale == "across-arms":
            array = (array - array.mean()) / (array.std() or 1.0)
        else:
            array = (array - array.min()) / (np.ptp(array) or 1.0)
        return dict(zip(values, array.tolist(), strict=True))

    def state_dict(self) -> State:
        return {
            "rng": self._rng.bit_generator.state,
            "signal": self.signal.state_dict(),
            "rule": self.rule.state_dict(),
            "scale": {} if self._over_time is None else self._over_time.state_dict(),
            "inverse": dict(self._inverse),
            "choices": self._choices,
            "new": list(self._new),
            "measuring": self._measuring,
        }

    def load_state_dict(self, state: State) -> None:
        self._rng.bit_generator.state = state["rng"]
        self.signal.load_state_dict(state["signal"])
        self.rule.load_state_dict(state["rule"])
        if self._over_time is not None:
            self._over_time.load_state_dict(state["scale"])
        self._inverse, self._choices = dict(state["inverse"]), state["choices"]
        self._new, self._measuring = dict.fromkeys(state["new"]), state["measuring"]


class _AsItIs:
    """A value that is a reward already."""

    def __call__(self, arm: Arm, loss: float) -> float:  # noqa: ARG002
        return loss

    def state_dict(self) -> State:
        return {}

    def load_state_dict(self, state: State) -> None:
        """It remembers nothing."""
