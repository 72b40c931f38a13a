"""What every teacher starts from: the classroom it may know beforehand, and its small config."""

from __future__ import annotations

import difflib
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final, Literal

import numpy as np
from pydantic import BeforeValidator, Field, SerializerFunctionWrapHandler, model_serializer

from rota.goal import ALL, Goal, resolve
from rota.measures import Measure, RewardWeights
from rota.settings import ConfigError, Duration, DurationField, Settings, where_used
from rota.teachers.card import Card
from rota.teachers.curricula import CurriculumField
from rota.types import Arm, Mixture, Teacher

Inform = Literal["none", "rewards", "all"]
Languages = Literal["all", "high-resource", "low-resource"] | tuple[Arm, ...]
LossKind = Literal["plain", "smoothed"]
Variant = Literal["scaled", "paper", "released", "rota"]

PAPER_STEPS: Final = 150_000
"""Updates of a run in the paper."""

ROTA_COST: Final = 0.025
"""Share of a run's computation that the rewards of ``variant: rota`` take, about."""

ROTA_FEWEST: Final = 20
"""Choices that ``variant: rota`` should have in a run; for fewer, the updates of a choice become fewer."""

ROTA: Final[Mapping[str, Any]] = {
    "reward_batch": "rotating",
    "reward_weights": "recent",
    "reward_scale": "advantage",
    "policy": "epsilon-boltzmann",
    "temperature": 0.5,
}
"""What ``variant: rota`` sets for both teachers: the reward is the gain of the goal's dev loss from one choice, at
averaged weights, minus the gain that was to be expected; arms are drawn, and none has less than epsilon / K."""

EXACT: Final = ("paper", "released")
"""Variants that repeat an experiment: no guard interferes."""


@dataclass(frozen=True, slots=True)
class Classroom:
    """What a schedule may know before training starts."""

    sizes: Mapping[Arm, int]  # training sentences by arm, in the order of the corpus
    low_resource: tuple[Arm, ...]  # the arms of low-resource languages
    steps: int
    tokens: Mapping[Arm, int] = field(default_factory=dict)  # training target tokens by arm; empty: not known
    update_tokens: int = 0  # target tokens of an update; 0: not known
    lr_warmup: int = 0  # steps in which the learning rate rises
    goal: Goal = field(default_factory=dict)  # weights of the languages, which sum to 1; empty becomes: all alike
    language_of: Mapping[Arm, Arm] = field(default_factory=dict)  # the language of each arm; empty becomes: itself
    groups: Mapping[str, Sequence[Arm]] = field(default_factory=dict)  # by names that are neither arms nor dev sets

    def __post_init__(self) -> None:
        if not self.language_of:
            object.__setattr__(self, "language_of", {arm: arm for arm in self.sizes})
        if not self.goal:
            object.__setattr__(self, "goal", resolve(ALL, self.languages))

    @property
    def languages(self) -> tuple[Arm, ...]:
        """The languages (their dev sets) that the arms are measured by."""
        return tuple(dict.fromkeys(self.language_of.values()))

    @property
    def arms(self) -> tuple[Arm, ...]:
        return tuple(self.sizes)

    @property
    def high_resource(self) -> tuple[Arm, ...]:
        return tuple(arm for arm in self.sizes if arm not in self.low_resource)

    def target_tokens(self) -> Mapping[Arm, int]:
        """Training target tokens by language, for schedules that cannot do without."""
        if not self.tokens:
            raise ValueError("no target tokens are counted here; give Classroom the tokens of each language")
        return self.tokens

    def mean_lengths(self) -> dict[Arm, float]:
        """Target tokens of a training sentence, on average, for schedules that cannot do without."""
        return {arm: tokens / self.sizes[arm] for arm, tokens in self.target_tokens().items()}

    def tokens_per_update(self) -> int:
        """Target tokens of an update, for schedules that cannot do without."""
        if not self.update_tokens:
            raise ValueError("the tokens of an update are not known here; give Classroom its update_tokens")
        return self.update_tokens

    def select(self, languages: Languages) -> tuple[Arm, ...]:
        """The arms of a group of languages, or the named ones; a language stands for all its arms."""
        if languages == "all":
            return self.arms
        if languages == "low-resource":
            return _not_empty(self.low_resource, "low-resource")
        if languages == "high-resource":
            return _not_empty(self.high_resource, "high-resource")
        found = [arm for name in languages for arm in self._arms_of(name)]
        return _not_empty(tuple(dict.fromkeys(found)), "chosen")

    def spread(self, shares: Mapping[Arm, float]) -> dict[Arm, float]:
        """Shares by arm; that of a language, a direction or a source goes to its arms in proportion to their sizes."""
        found: dict[Arm, float] = {}
        for name, share in shares.items():
            arms = self._arms_of(name)
            total = sum(self.sizes[arm] for arm in arms)
            for arm in arms:
                found[arm] = found.get(arm, 0.0) + (share if len(arms) == 1 else share * self.sizes[arm] / total)
        return found

    def _arms_of(self, name: Arm) -> list[Arm]:
        """An arm, or those of a language or a source; an arm with the name of its language is that arm alone."""
        if name in self.sizes:
            return [name]
        arms = [arm for arm, language in self.language_of.items() if language == name] or self.groups.get(name)
        if not arms:
            known = list(dict.fromkeys((*self.sizes, *self.language_of.values(), *self.groups)))
            close = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
            guess = f"did you mean {close[0]!r}? " if close else ""
            raise ValueError(f"unknown language {name!r}; {guess}the corpus has {', '.join(known)}")
        return list(arms)


def _not_empty(arms: tuple[Arm, ...], group: str) -> tuple[Arm, ...]:
    if not arms:
        raise ValueError(f"the corpus has no {group} language; set data.low_resource, or choose the languages by name")
    return arms


FEWEST: Final = 80
"""Choices that a learned teacher should have in a run; shorter runs have shorter blocks of updates for a choice."""


@dataclass(frozen=True, slots=True)
class SizeChange:
    """A run in another size than the one that its teacher was configured for."""

    steps_before: int
    steps: int
    tokens: int  # target tokens of a batch in the new size
    more_decisions: int = 1  # how many times as often DQN decides, with as small a part of its state renewed
    decide_every: int | None = None  # updates between two choices of every teacher; None: as its own rule says
    reward_tokens: int | None = None  # of a reward batch; None: as its own rule says

    @property
    def share(self) -> float:
        return self.steps / self.steps_before

    def block(self, decide_every: int, warmup: int, fewest: int = FEWEST) -> int:
        """Updates between two choices in the new size: at most ``decide_every``, and ``fewest`` choices if possible."""
        if self.decide_every is not None:
            return self.decide_every
        return max(1, min(decide_every, (self.steps - warmup) // fewest))

    def rewarded(self, tokens: int) -> int:
        """Tokens of a reward batch: at most those of four training batches, a tenth of the work of ten updates."""
        return self.reward_tokens or min(tokens, 4 * self.tokens)

    def in_proportion(self, duration: Duration) -> int:
        """The same share of the run in the new size, in steps."""
        return round(duration.steps(self.steps_before) * self.share)


class WarmupConfig(Settings):
    """The first steps on some languages only, drawn uniformly, before the teacher takes over."""

    until: DurationField = Field(description="the step at which the teacher takes over")
    languages: Languages = Field("high-resource", description="all, high-resource, low-resource, or a list")
    inform: Inform = Field("none", description="what the teacher is told about these steps: none, rewards or all")


def short_warmup(value: Any) -> Any:
    """``warmup: 16k`` is short for ``warmup: {until: 16k}``."""
    return {"until": value} if isinstance(value, str | int | float) and not isinstance(value, bool) else value


WarmupField = Annotated[WarmupConfig | None, BeforeValidator(short_warmup)]


class TeacherConfig(Settings, ABC):
    """Base of the teachers' configs; ``build`` makes the teacher without its warm-up."""

    warmup: WarmupField = Field(
        None, description="steps on the high-resource languages first, such as 16k; null for none"
    )
    decide_every: int = Field(1, ge=1, description="updates between two choices")
    observe_every: int | None = Field(None, ge=1, description="updates between two observations; null: at every choice")
    curriculum: CurriculumField = Field(
        None, description="which sentences of a language come when: {by: length, until: 30%}; null: all, always"
    )

    if TYPE_CHECKING:
        name: str  # every config has one; it stands first among its own fields

    card: ClassVar[Card | None] = None
    """What ``rota teachers`` says of it in one line; teachers of the registry have one each."""

    later: ClassVar[tuple[str, ...]] = ()
    """Settings that are younger than their teacher: they are written only where used, so fingerprints stay the same."""

    follows_run: ClassVar[tuple[str, ...]] = ()
    """Settings that :meth:`fitted` or :meth:`with_goal` changes although they once had one default: a run begun then
    keeps its own."""

    @model_serializer(mode="wrap")
    def _as_before(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return self.written(write(self))

    def written(self, dumped: dict[str, Any]) -> dict[str, Any]:
        """What is written of the config, of all that could be."""
        return where_used(self, dumped, "curriculum", *self.later)

    listens: ClassVar[bool] = True
    """Whether what the teacher is told changes what it answers; if not, it may be asked before it is told."""

    @property
    def guarded(self) -> bool:
        """Whether a run stops it from training on one arm while the goal gets worse, unless the config says."""
        return self.listens

    @abstractmethod
    def build(self, classroom: Classroom, rng: np.random.Generator) -> Teacher: ...

    def around_warmup(self, teacher: Teacher, classroom: Classroom, rng: np.random.Generator) -> Teacher:  # noqa: ARG002
        """What comes even before the warm-up, as a wrapper of it; nothing for most teachers."""
        return teacher

    def gauges(self) -> Mapping[type[Measure], Any]:
        """For a teacher's own measures: the class of the gauge (:class:`rota.training.probe.Gauge`) of each."""
        return {}

    def observes_every(self, steps: int) -> int | None:  # noqa: ARG002 - for those who measure at shares of the run
        """Updates between two observations in a run of ``steps``; None: at every choice."""
        return self.observe_every

    @classmethod
    def left_out(cls) -> Collection[str]:
        """Settings without a use as long as the others have their defaults: ``rota teachers`` leaves them out."""
        return ()

    def warmup_arms(self, classroom: Classroom, languages: Languages) -> Sequence[Arm] | Mapping[Arm, Mixture]:
        """The arms of the warm-up, or mixtures by name: the shuffled baseline has multilingual batches here too."""
        return classroom.select(languages)

    def stem(self, steps: int) -> dict[str, Any] | None:
        """The teacher, as a config writes it, that trains as this one does until the warm-up ends.

        ``steps``: of the whole run. Runs that have the same one may begin from one checkpoint. None for a teacher
        without a warm-up, and for one that is told of it or decides before it: such a run is its own from the start.
        """
        if self.warmup is None or self.warmup.inform != "none":
            return None
        if type(self).warmup_arms is not TeacherConfig.warmup_arms:  # it draws from arms of its own
            return self.model_dump(mode="json")
        shared = self.model_dump(mode="json", include={"warmup", "decide_every"})
        observe = self.observes_every(steps)
        if observe is not None and self.warmup.until.steps(steps) % observe == 0:
            observe = None  # an observation ends where the warm-up does, so it does not matter how many there were
        return {"name": "uniform", **shared, "observe_every": observe}

    def restarts_learning_rate_at(self, classroom: Classroom) -> int | None:  # noqa: ARG002 - most do not
        """The step after which the student's learning rate begins again, as in a new run; None: it does not."""
        return None

    def check(self, steps: int) -> None:
        """Raises ConfigError if these settings cannot work in a run of ``steps`` steps, before anything is prepared."""
        if self.warmup is not None and self.warmup.until.steps(steps) >= steps:
            lasts = f"teacher.warmup lasts {self.warmup.until.steps(steps):,} steps and the run {steps:,}"
            raise ConfigError(f"{lasts}: the teacher would never decide; write for example teacher.warmup: 10%")
        if self.curriculum is not None:
            self.curriculum.check(steps)

    @property
    def for_one_process(self) -> str | None:
        """Why several processes cannot train a run with it, and what to do; None if they can."""
        return None if self.curriculum is None else self.curriculum.for_one_process

    def with_goal(self) -> TeacherConfig:
        """The config for a run with a goal: of what is not written, what makes the teacher follow the goal."""
        return self

    def instead_of_goal(self) -> str | None:
        """What the teacher follows in a run with a goal, and the remedy, if that is not the goal."""
        return None

    def reads(self) -> Sequence[Path]:
        """Folders of other runs whose records the teacher needs: a suite trains those first."""
        return ()

    def fitted(self, steps: int, tokens: int) -> TeacherConfig:  # noqa: ARG002
        """The config for a run of ``steps`` updates of ``tokens`` tokens: what was not written follows from these."""
        return self

    def scaled(self, to: SizeChange) -> dict[str, Any]:
        """The settings that change with the size of the run, as a config writes them.

        By default every number of steps keeps its share of the run, also in teachers inside this one.
        """
        before, now = self.model_dump(mode="json"), _resized(self, to).model_dump(mode="json")
        changed = {name: value for name, value in now.items() if value != before[name]}
        if self.warmup is not None:
            changed["warmup"] = self.warmup.model_dump(mode="json") | {"until": to.in_proportion(self.warmup.until)}
        if to.decide_every is not None:
            changed["decide_every"] = to.decide_every
        return changed


def with_enough_choices(config: TeacherConfig, steps: int) -> TeacherConfig:
    """The config with fewer updates of a choice in a run so short that there would be fewer than ``FEWEST`` of them.

    What a config writes itself is kept.
    """
    every = max(1, min(config.decide_every, steps // FEWEST))
    if "decide_every" in config.model_fields_set or every == config.decide_every:
        return config
    written = {name: getattr(config, name) for name in config.model_fields_set}
    fitted = type(config).model_validate({**written, "decide_every": every})
    fitted.__pydantic_fields_set__.intersection_update(config.model_fields_set)
    return fitted


def _resized(value: Any, to: SizeChange) -> Any:
    """The value with every number of steps in it in proportion; a share of the run is in proportion already."""
    if isinstance(value, Duration):
        fixed = value.is_share or value.amount == 0
        return value if fixed else Duration(max(1, to.in_proportion(value)))
    if isinstance(value, Settings):
        return value.model_copy(update={name: _resized(inner, to) for name, inner in value})
    if isinstance(value, dict):
        return {key: _resized(inner, to) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return type(value)([_resized(inner, to) for inner in value])
    return value


def fit(config: LearnedConfig, steps: int, tokens: int) -> dict[str, Any]:
    """Settings of a learned teacher of the paper for a run of another length, except those that are written.

    They are those that a suite gives it when it scales the paper's run to this one (the method ``scaled``). What is
    written stays, and the rest follows it: a warm-up of 150 steps in a run of 1,500 leaves 1,350 for decisions.
    """
    written = config.model_fields_set - {"name", "variant"}
    shares = {name: _as_share(getattr(config, name), steps) for name in written}
    durations = {name: value for name, value in shares.items() if value is not None or name == "warmup"}
    plain = type(config).model_validate({"variant": config.variant, **durations})
    every = config.decide_every if "decide_every" in written else None
    scaled = plain.scaled(SizeChange(PAPER_STEPS, steps, tokens, decide_every=every))
    return {name: value for name, value in scaled.items() if name not in written}


def _as_share(value: Any, steps: int) -> Any:
    """A duration as a share of the run; None for anything else."""
    if isinstance(value, Duration):
        return value if value.is_share else Duration(f"{min(100.0, 100 * value.amount / steps)}%")
    return (
        value.model_copy(update={"until": _as_share(value.until, steps)}) if isinstance(value, WarmupConfig) else None
    )


class LearnedConfig(TeacherConfig, ABC):
    """Base of the paper's two teachers: settings follow the length of the run unless ``variant`` says otherwise."""

    variant: Variant = Field(
        "scaled",
        description="scaled: as the paper, in proportion to the run; paper: its numbers; released: the authors' code; "
        "rota: scaled, with rewards that say more about the choice",
    )

    policy: Literal["epsilon-greedy", "boltzmann", "epsilon-boltzmann"] = Field(
        "epsilon-greedy",
        description="how values become a choice: the best, or drawn by exp(value / temperature); epsilon: or any",
    )
    temperature: float = Field(4e-4, gt=0, description="of a boltzmann policy, in the unit of the values (Matiisen)")
    reward_weights: RewardWeights = Field(
        "raw", description="of which the loss of a rotating reward batch is: raw, average, or recent (the last ten)"
    )

    @property
    def guarded(self) -> bool:
        return self.variant not in EXACT

    def economical(self, steps: int, tokens: int) -> dict[str, Any]:  # noqa: ARG002 - for those who can save something
        """Settings with which ``variant: scaled`` measures less than the paper in runs of its size, in rotation or of
        fewer sentences: at most 6 % of a run."""
        return {}

    def check_reward(self, reward_batch: str) -> None:
        """Refuses settings of rewards that do not go together."""
        if reward_batch != "rotating" and self.reward_weights != "raw":
            raise ValueError(f"reward_weights is {self.reward_weights!r}, which needs reward_batch: rotating")
        if reward_batch in ("joint", "rotating") and self.observe_every not in (None, self.decide_every):
            kind = f"a {reward_batch} reward is of one choice"
            raise ValueError(f"observe_every is {self.observe_every}; {kind}: leave it out")

    def block(self, to: SizeChange, decide_every: int, warmup: int) -> int:
        """Updates of a choice in another size; those of ``variant: rota`` stay long, though they are then fewer."""
        return to.block(decide_every, warmup, FEWEST if self.variant != "rota" else ROTA_FEWEST)

    def rewarded(self, to: SizeChange, every: int, tokens: int) -> int:
        """Tokens of a reward batch in another size.

        That of ``variant: rota`` is measured twice, before and after the ``every`` updates of a choice, each of which
        takes the time of three measurements.
        """
        if self.variant != "rota":
            return to.rewarded(tokens)
        return to.reward_tokens or max(1, round(ROTA_COST * 3 * every * to.tokens / 2))

    def fitted(self, steps: int, tokens: int) -> TeacherConfig:
        """In proportion, unless the run is as long as the paper's or an exact variant is asked for.

        Long runs have the paper's numbers, except that they measure less.
        """
        if self.variant in EXACT:
            return self
        written = {name: getattr(self, name) for name in self.model_fields_set}
        in_proportion = fit(self, steps, tokens) if steps < PAPER_STEPS or self.variant == "rota" else {}
        fitted = type(self).model_validate({**in_proportion, **self.economical(steps, tokens), **written})
        fitted.__pydantic_fields_set__.intersection_update(self.model_fields_set)  # what was written is still known
        return fitted


class OpenLoopConfig(TeacherConfig, ABC):
    """Base of schedules without feedback: static ones, scripted ones and replays."""

    listens: ClassVar[bool] = False


def fill_in(values: Any, presets: Mapping[Variant, Mapping[str, Any]], inform: Mapping[Variant, Inform]) -> Any:
    """What the user wrote, completed by what the variant says; the paper's reading is the defaults.

    ``inform`` is what a warm-up tells the teacher unless the config says otherwise.
    """
    if not isinstance(values, Mapping) or values.get("variant", "scaled") not in inform:
        return values  # the field's own check explains it better
    variant: Variant = values.get("variant", "scaled")
    filled = {**presets.get(variant, {}), **values}
    if "warmup" in filled:
        warmup = short_warmup(filled["warmup"])
        filled["warmup"] = {"inform": inform[variant], **warmup} if isinstance(warmup, Mapping) else warmup
    return filled
