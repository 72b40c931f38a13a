"""The settings of the teacher ``weights``, and a config for every preset: the same with other defaults."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from copy import copy
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self

import numpy as np
from pydantic import (
    BeforeValidator,
    Field,
    create_model,
    model_validator,
)

from rota.measures import UncertaintyKind, Weights
from rota.settings import ConfigError, Count, Duration, DurationField
from rota.teachers.base import Classroom, Languages, SizeChange, TeacherConfig, with_enough_choices
from rota.teachers.card import Card
from rota.teachers.scripted.temperature import TemperatureConfig
from rota.teachers.scripted.two_phase import named
from rota.teachers.static import FixedConfig, ProportionalConfig, Static, UniformConfig
from rota.teachers.weights.baselines import read_baseline
from rota.teachers.weights.gradients import AlignmentSignal, GradientSignal, Pike, UncertaintySignal, VirtualGain
from rota.teachers.weights.presets import PRESETS, Preset
from rota.teachers.weights.rules import RULES, Actor, Rule, RuleName
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
from rota.teachers.weights.teacher import Scale, WeightedTeacher
from rota.types import Arm, FloatArray

SignalName = Literal[
    "train-loss",
    "dev-loss",
    "excess",
    "shortfall",
    "related-loss",
    "gain",
    "gradient",
    "pike",
    "virtual-gain",
    "uncertainty",
    "alignment",
]

SIGNALS: dict[SignalName, type[Signal]] = {
    "train-loss": TrainLosses,
    "dev-loss": DevLosses,
    "excess": Excess,
    "shortfall": Shortfall,
    "related-loss": RelatedLosses,
    "gain": Gain,
    "gradient": GradientSignal,
    "pike": Pike,
    "virtual-gain": VirtualGain,
    "uncertainty": UncertaintySignal,
    "alignment": AlignmentSignal,
}

Prior = Annotated[UniformConfig | ProportionalConfig | TemperatureConfig | FixedConfig, Field(discriminator="name")]


class WeightsConfig(TeacherConfig):
    """Draws languages by weights that follow a signal: one teacher for many published schedules."""

    card = Card(
        family="weights",
        line="any signal and rule",
        observes="by signal",
        cost=("4%", "0"),
        source="-",
        reference="a signal (what to measure) and an update rule, both to be chosen; the rows below are published ones",
    )
    follows_run: ClassVar[tuple[str, ...]] = ("decide_every",)
    published: ClassVar[Mapping[str, Any]] = {}
    """What ``variant: source`` sets."""

    name: Literal["weights"] = "weights"
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
    divided_by: Literal["norms", "mean-norm", "nothing"] = Field(
        "norms", description="of gradients: their norms (cosine), the mean norm of the languages', or nothing"
    )
    targets: Languages | Literal["goal"] = Field(
        "goal", description="dev languages of the signal gradient: goal, all, high-resource, low-resource, or a list"
    )
    between: tuple[float, float] | None = Field(None, description="bounds of the signal gradient, such as [0, 5]")
    map: bool = Field(False, description="record the products with every dev language (signal gradient)")
    norm_weight: float = Field(1.0, ge=0, description="of the squared norm of a gradient (signal pike)")
    variance_weight: float = Field(1.0, ge=0, description="of the variance of a gradient (signal pike)")
    sentences: Count = Field(32, ge=1, description="sentences of an update, which reduce the variance (signal pike)")
    uncertainty: UncertaintyKind = Field(
        "entropy",
        description="entropy, end-entropy, probability, mean-probability, variance, combined or cross-entropy",
    )
    samples: Count = Field(4, ge=1, description="passes with dropout (signal uncertainty)")
    # Of rules.
    temperature: float = Field(1.0, gt=0, description="of the rule softmax")
    eta: float | None = Field(None, gt=0, description="step size; null: so that a run can move a log-weight by about 5")
    pull: float = Field(0.0, ge=0, lt=1, description="how far each change returns to the prior, 0 to 1 (rule mirror)")
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
    def _as_published(cls, values: Any) -> Any:
        if isinstance(values, Mapping) and values.get("variant") == "source":
            return {**cls.published, **values}
        return values

    @model_validator(mode="after")
    def _check_use(self) -> Self:
        """A setting that this signal and this rule do not use would be taken for one that works."""
        if self.observe_every is not None:
            raise ValueError("observe_every is set, but this teacher is told when its weights change: reweight_every")
        for name, field in TeacherConfig.model_fields.items():
            if getattr(self.prior, name) != field.default:
                raise ValueError(f"prior has {name!r}, which a prior does not use; set {name!r} on the teacher itself")
        for name in _unused(self.signal, self.rule):
            if getattr(self, name) != type(self).model_fields[name].default:
                used = ", ".join(sorted({*SIGNALS[self.signal].settings, *RULES[self.rule].settings}))
                raise ValueError(
                    f"{name} is set, but signal {self.signal} with rule {self.rule} uses {used}; remove it"
                )
        return self

    def written(self, dumped: dict[str, Any]) -> dict[str, Any]:
        """Only what this signal and this rule use is written down."""
        unused = _unused(self.signal, self.rule)
        return {name: value for name, value in super().written(dumped).items() if name not in unused}

    @property
    def guarded(self) -> bool:
        return self.variant != "source"

    @classmethod
    def left_out(cls) -> Collection[str]:
        fields = cls.model_fields
        return () if cls is WeightsConfig else _unused(fields["signal"].default, fields["rule"].default)

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
        built = self.prior.build(classroom, rng)
        if not isinstance(built, Static):
            raise ValueError("teacher.prior changes on the way; give it one temperature instead of a schedule")
        return {arm: built.shares[arm] for arm in classroom.arms if built.shares.get(arm, 0) > 0}

    def _signal(self, arms: Sequence[Arm], classroom: Classroom) -> Signal:
        kind = SIGNALS[self.signal]
        given = {name: getattr(self, name) for name in kind.settings}
        if "baseline" in given:
            dev = self.signal == "shortfall" or self.loss == "dev"
            given["baseline"] = read_baseline(
                self.baseline, {arm: classroom.language_of[arm] for arm in arms}, of="dev" if dev else "train"
            )
        if "targets" in given:
            chosen = () if self.targets == "goal" else classroom.select(self.targets)
            given["targets"] = tuple(dict.fromkeys(classroom.language_of[arm] for arm in chosen))
        if "related" in given:
            given["related"] = [classroom.select(group) for group in self.related]
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

    def fitted(self, steps: int, tokens: int) -> TeacherConfig:  # noqa: ARG002 - a matter of updates
        """Presets that stay with a choice for ten updates do so for fewer in runs of fewer than 800."""
        return with_enough_choices(self, steps)

    def scaled(self, to: SizeChange) -> dict[str, Any]:
        """No more tokens are measured at a choice than an update has."""
        return super().scaled(to) | {"tokens": min(self.tokens, to.tokens)}


_OF_ONE = {
    *(name for signal in SIGNALS.values() for name in signal.settings),
    *(name for rule in RULES.values() for name in rule.settings),
}
"""Settings that only some signals or rules use."""


def _unused(signal: SignalName, rule: RuleName) -> set[str]:
    return _OF_ONE - {*SIGNALS[signal].settings, *RULES[rule].settings}


def _config_of(name: str, preset: Preset) -> type[WeightsConfig]:
    """A config with the settings of the preset as its defaults."""
    filled = WeightsConfig.model_validate(preset.settings)
    fields: dict[str, Any] = {"name": (Literal[name], name)}
    for key in preset.settings:
        field = copy(WeightsConfig.model_fields[key])
        field.default = getattr(filled, key)
        fields[key] = (field.annotation, field)
    kind = create_model(f"Preset {name}", __base__=WeightsConfig, __module__=__name__, __doc__=preset.about, **fields)
    kind.card, kind.published = preset.card, preset.published
    return kind


PRESET_CONFIGS: dict[str, type[WeightsConfig]] = {name: _config_of(name, preset) for name, preset in PRESETS.items()}
