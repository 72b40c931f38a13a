"""The align teacher: arms whose updates lead towards the goal's dev loss get more than their prior share.

Every update of the student leaves one number, the dot product of its gradient with the gradient of the goal's dev loss
(:class:`rota.measures.Alignment`). For each arm these are averaged, standardised and shrunk, and tilt a prior. A gate
closes arms from whose sources the student learns nothing. Rota's own; ``docs/teachers.md`` has the formulas.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from statistics import median
from typing import ClassVar, Literal, NamedTuple

import numpy as np
from pydantic import Field

from rota.measures import Aligned, Alignment, Estimate, Measure, SourceGain, Weights
from rota.settings import Count, Duration, DurationField
from rota.teachers.base import Classroom, TeacherConfig
from rota.teachers.card import Card
from rota.teachers.choice import named
from rota.teachers.rewards import measured
from rota.teachers.static import Temperature
from rota.types import Alarm, Arm, Decision, FloatArray, Observation, State

POOLED = 8
"""Readings of the gate that are taken together."""

DIRECTION_COST = 0.022
"""Of the run's computation, about, for the gradients of the dev loss, unless ``tokens`` says how many."""

DIRECTION_TOKENS = (50, 400)
"""The fewest and the most dev tokens of a language in a gradient, then.

With 56 the order of the arms along a direction was often chance; with 450 it was nearly that of 3,000
(``docs/results/arms/lasting.py``).
"""

ABOVE_AVERAGE = 1.5
"""A run that goes through all of its text more often than ``epochs`` says may repeat a text so much more than that."""

GATE_COST = 0.005
"""Of the run's computation, about, for the readings of the gate, unless ``gate_tokens`` says how many tokens."""

GATE_TOKENS = (60, 2_000)
"""The fewest and the most tokens of an arm in a reading, then."""

MANY_ARMS = 25
"""With more of them no floor is above half of the uniform share; with so many, that share is the default floor."""

MOST_KEPT = 0.95
"""Of all shares: floors and what languages of the goal keep may sum to more than one when nothing else helps them."""


class AlignConfig(TeacherConfig):
    """Shares by how far an arm's gradients lead towards the goal's dev loss (Rota's own)."""

    card = Card(
        family="weights",
        line="gradients towards goal",
        observes="gradients",
        cost=("5%", "1%"),
        source="Rota",
        reference="Rota's own; docs/teachers.md has its formulas",
    )
    later: ClassVar[tuple[str, ...]] = ("gate_reach",)
    name: Literal["align"] = "align"
    observe_every: int | None = Field(10, ge=1, description="updates between two observations; null: at every choice")
    direction: Literal["loss", "source-gain", "both", "none"] = Field(
        "both", description="what is to improve: the dev loss, the gain from the source, both; none: the gate alone"
    )
    map: bool = Field(False, description="record who helps whom: every arm's gradients along each language's direction")
    gate: bool = Field(True, description="close arms from whose sources the student learns nothing")
    start: DurationField | None = Field(
        None, description="the first step that is measured; null: the end of the learning rate's warm-up"
    )
    refresh: Count = Field(100, ge=1, description="updates between two dev gradients")
    tokens: Count | None = Field(
        None, ge=1, description="dev tokens of each language in a gradient; null: about 2.2% of the computation"
    )
    memory: float = Field(0.6, ge=0, lt=1, description="share of earlier dev gradients in the direction")
    weights: Weights = Field("average", description="where it is taken: at averaged weights, or at the raw ones")
    decay: float = Field(0.98, gt=0, lt=1, description="of the averaged weights, unless student.average is set")
    metric: Literal["adam", "none"] = Field("adam", description="of the dot product: that of Adam's steps, or none")
    half_life: float | None = Field(
        None, gt=0, description="of an arm's mean, in its own updates; null: 60, in long runs 5% of steps / arms"
    )
    shrinkage: float = Field(20.0, ge=0, description="updates with which an arm's advantage counts half")
    rate: float = Field(3.0, gt=0, description="tilt (of the log share) for one standard deviation of an update")
    pull_back: float = Field(1.0, gt=0, le=1, description="share of the tilt that is forgotten at an observation")
    limit: float = Field(2.0, gt=0, description="the largest tilt, up and down")
    prior: float | None = Field(2.0, gt=0, description="temperature of the prior shares; null: uniform")
    prior_by: Literal["sentences", "tokens"] = Field(
        "tokens", description="what its shares are of; tokens: as if sentences were drawn, so long ones count for more"
    )
    floor: float = Field(
        0.02, ge=0, lt=1, description="the smallest share of an arm; of more than 25, at most half of the uniform share"
    )
    epochs: float | None = Field(
        8.0, gt=0, description="how often the student may see a text in the whole run, about; null: no limit"
    )
    protect: float = Field(
        0.25, ge=0, lt=1, description="of its weight in the goal that a language keeps, more if others do not help it"
    )
    gate_every: DurationField = Field(Duration("10%"), description="steps between two readings of the gate")
    gate_tokens: Count | None = Field(
        None,
        ge=1,
        description="training tokens of each arm in a reading; null: about 0.5% of the computation",
    )
    gate_at: float = Field(0.2, gt=0, le=1, description="gain, relative to the other arms', below which an arm closes")
    gate_from: float = Field(
        0.2, ge=0, description="gain of the other arms, in nats per token, from which on the gate closes any"
    )
    gate_reach: float = Field(
        1.0, ge=1, description="it compares an arm with others that had seen at most so many times as many tokens"
    )

    def build(self, classroom: Classroom, rng: np.random.Generator) -> Align:
        return Align(self, classroom, rng)

    def alignment(self, classroom: Classroom) -> Alignment | None:
        if self.direction == "none":
            return None
        return Alignment(
            refresh=self.refresh,
            tokens=self.tokens or self._affordable(classroom),
            memory=self.memory,
            direction=self.direction,
            weights=self.weights,
            decay=self.decay,
            metric=self.metric,
            languages=self.map,
        )

    def _affordable(self, classroom: Classroom) -> int:
        """Dev tokens of each language: those that mismatched sentences take count too."""
        passes = 1 if self.direction == "loss" else 2
        budget = DIRECTION_COST * self.refresh * classroom.update_tokens
        least, most = DIRECTION_TOKENS
        return min(most, max(least, round(budget / (passes * len(classroom.goal)))))


class Align:
    """Draws every choice from its shares, which it computes anew at every observation."""

    def __init__(self, config: AlignConfig, classroom: Classroom, rng: np.random.Generator) -> None:
        self.config, self.arms = config, classroom.arms
        # The default of 0.02 would leave nothing to decide among 50 arms.
        self.floor = min(config.floor, 0.5 / len(self.arms)) if len(self.arms) > MANY_ARMS else config.floor
        self.start = classroom.lr_warmup if config.start is None else config.start.steps(classroom.steps)
        self.measure = config.alignment(classroom)
        self.tilt = Tilt(config, classroom)
        self.gate = Gate(config, classroom) if config.gate else None
        lengths = classroom.mean_lengths() if config.prior_by == "tokens" and classroom.tokens else None
        prior = Temperature(classroom.sizes, rng, math.inf if config.prior is None else config.prior, lengths)
        self.prior = np.array([prior.shares[arm] for arm in self.arms])
        self.goal, self.language_of = classroom.goal, classroom.language_of
        self._served: dict[Arm, float] = {}
        self.supply = Supply(config.epochs, classroom)
        self._rng = rng
        self._step: int | None = None  # of the last choice
        self.shares = self._shares()
        if self._kept().sum() >= 1:
            highest = f"{1 / len(self.arms):.2g}"
            raise ValueError(f"teacher.floor is {config.floor} for {len(self.arms)} arms; it must be below {highest}")

    @property
    def watches(self) -> Sequence[Measure]:
        step = self._step
        found: list[Measure] = []
        if self.measure is not None and (step is None or step >= self.start):
            found.append(self.measure)
        if self.gate is not None and (step is None or step >= max(self.start, self.gate.due)):
            found.append(self.gate.measure)
        return found

    def ask(self, step: int) -> Decision:
        self._step = step
        index = min(int(np.searchsorted(np.cumsum(self.shares), self._rng.random(), side="right")), len(self.arms) - 1)
        return Decision(self.arms[index], "sampled", float(self.shares[index]), named(self.arms, self.shares))

    def tell(self, observation: Observation) -> Mapping[Arm, float] | None:
        """The rewards are the mean dot products of the arms played."""
        found = {measure: measured(observation, measure) for measure in self.watches}
        for measure, value in found.items():
            _check(value, self.arms, measure, observation.step)
        self.supply.learn(observation.seen, observation.step)
        aligned: Mapping[Arm, Aligned] = {} if self.measure is None else found.get(self.measure, {})
        if self.gate is not None and self.gate.measure in found:
            self.gate.learn(found[self.gate.measure], observation.seen, observation.step)
        if aligned:
            self._hear(getattr(aligned, "served", {}))
            self.tilt.learn(aligned, self.shares)
        self.shares = self._shares()
        return {arm: each.total / each.updates for arm, each in aligned.items()} or None

    def alarms(self, step: int) -> Iterable[Alarm]:
        """Arms that the gate has closed."""
        for arm, (gain, others) in self.gate.closed.items() if self.gate is not None else ():
            numbers = f"gain from the source {gain:.3f} nats per token, others {others:.2f}"
            text = (
                f"{arm}: align no longer trains on it, because the student learns nothing from its sources ({numbers})"
            )
            yield Alarm(step, "closed", arm, f"{text}; are its lines aligned?")

    def _shares(self) -> FloatArray:
        tilted = self.prior * np.exp(self.tilt.values) * self._openness()
        kept = self._kept()
        kept *= min(1.0, MOST_KEPT / max(kept.sum(), MOST_KEPT))
        shares: FloatArray = (1 - kept.sum()) * tilted / tilted.sum() + kept
        most = np.where(self._openness() > 0, np.maximum(self.supply.most, self.floor), 0.0)
        return capped(shares, most)

    def _hear(self, served: Mapping[Arm, float]) -> None:
        """How far others serve each language; what was found before counts for half."""
        for language, now in served.items():
            self._served[language] = (self._served.get(language, now) + now) / 2

    def _kept(self) -> FloatArray:
        """What every arm has in any case, unless it is closed."""
        openness = self._openness()
        opened = Counter(self.language_of[arm] for arm, is_open in zip(self.arms, openness, strict=True) if is_open)
        whole = {name: part * self.goal[name] for name, part in self.protected().items()}
        languages = [self.language_of[arm] for arm in self.arms]
        parts = [whole.get(language, 0.0) / max(1, opened[language]) for language in languages]
        kept: FloatArray = np.maximum(self.floor, parts) * openness
        return kept

    def protected(self) -> dict[Arm, float]:
        """The part of its weight in the goal that each language keeps: all of it where only its own text helps."""
        usual = median(self._served.values()) if self._served else 0.0
        if usual <= 0:
            return dict.fromkeys(self.goal, self.config.protect)
        alone = {name: 1 - min(1.0, max(0.0, self._served.get(name, usual) / usual)) for name in self.goal}
        return {name: max(self.config.protect, part) if self.config.protect else 0.0 for name, part in alone.items()}

    def _openness(self) -> FloatArray:
        return np.ones(len(self.arms)) if self.gate is None else self.gate.openness()

    def state_dict(self) -> State:
        gate = None if self.gate is None else self.gate.state_dict()
        rng = self._rng.bit_generator.state
        parts = {"tilt": self.tilt.state_dict(), "supply": self.supply.state_dict(), "gate": gate}
        return {"rng": rng, "step": self._step, "served": dict(self._served), **parts}

    def load_state_dict(self, state: State) -> None:
        self._rng.bit_generator.state, self._step = state["rng"], state["step"]
        self.tilt.load_state_dict(state["tilt"])
        self.supply.load_state_dict(state["supply"])
        self._served = dict(state["served"])
        if self.gate is not None:
            self.gate.load_state_dict(state["gate"])
        self.shares = self._shares()


class Supply:
    """The largest share of each arm for the rest of the run, if no text is to be seen more than so many times."""

    def __init__(self, epochs: float | None, classroom: Classroom) -> None:
        self.arms, self.steps, self.update_tokens = classroom.arms, classroom.steps, classroom.update_tokens
        known = epochs is not None and classroom.tokens and self.update_tokens
        passes = self.steps * self.update_tokens / sum(classroom.tokens.values()) if known else 0.0
        most = max(epochs or 0.0, ABOVE_AVERAGE * passes)
        tokens = [most * classroom.tokens[arm] if known else math.inf for arm in self.arms]
        self.tokens = np.array(tokens, dtype=float)  # that the student may see of each
        self.learn({}, 0)

    def learn(self, seen: Mapping[Arm, int], step: int) -> None:
        left = self.tokens - np.array([seen.get(arm, 0) for arm in self.arms])
        self.most: FloatArray = np.maximum(left, 0.0) / max(1, (self.steps - step) * self.update_tokens)

    def state_dict(self) -> State:
        return {"most": self.most.copy()}

    def load_state_dict(self, state: State) -> None:
        self.most = np.array(state["most"], dtype=float)


def capped(shares: FloatArray, most: FloatArray) -> FloatArray:
    """Shares of at most ``most``; what is cut off goes to the others in proportion to theirs."""
    full = np.zeros(len(shares), dtype=bool)
    found: FloatArray = shares if most.sum() > 1 else most / most.sum()
    if most.sum() <= 1:
        return found
    while (found > most).any():
        full |= found > most
        others = np.where(full, 0.0, shares)
        found = np.where(full, most, (1 - most[full].sum()) * others / others.sum())
    return found


class Tilt:
    """What is known of the arms' dot products, and the log-tilt of their shares that follows from it."""

    def __init__(self, config: AlignConfig, classroom: Classroom) -> None:
        self.config, self.arms = config, classroom.arms
        plays = max(60.0, 0.05 * classroom.steps / len(self.arms)) if config.half_life is None else config.half_life
        self.kept = 0.5 ** (1 / plays)
        self.counts, self.values = np.zeros(len(self.arms)), np.zeros(len(self.arms))
        directions = 2 if config.direction == "both" else 1
        self.totals, self.squares = (np.zeros((directions, len(self.arms))) for _ in range(2))

    def learn(self, found: Mapping[Arm, Aligned], shares: FloatArray) -> None:
        for arm, aligned in found.items():
            index = self.arms.index(arm)
            kept = self.kept**aligned.updates
            self.counts[index] = kept * self.counts[index] + aligned.updates
            sums = np.array([(aligned.total, aligned.squares), aligned.source])[: len(self.totals)]
            self.totals[:, index] = kept * self.totals[:, index] + sums[:, 0]
            self.squares[:, index] = kept * self.squares[:, index] + sums[:, 1]
        moved = (1 - self.config.pull_back) * self.values + self.config.rate * self.advantages(shares)
        self.values = np.clip(moved, -self.config.limit, self.config.limit)

    def advantages(self, shares: FloatArray) -> FloatArray:
        """How far each arm's mean is above that of the shares, in standard deviations of one update, shrunk.

        With two directions, the sum of both.
        """
        return sum((self._along(row, shares) for row in range(len(self.totals))), np.zeros(len(self.arms)))

    def _along(self, row: int, shares: FloatArray) -> FloatArray:
        known = self.counts > 0
        counts = np.where(known, self.counts, 1.0)
        means = self.totals[row] / counts
        variances = np.maximum(self.squares[row] / counts - means**2, 0.0)  # rounding may leave less than 0
        deviation = math.sqrt(float(variances[known].mean()))
        played = float(shares[known].sum())
        if not (deviation > 0 and played > 0):
            return np.zeros(len(self.arms))
        baseline = float((shares * means)[known].sum()) / played
        shrunk: FloatArray = (means - baseline) / deviation * self.counts / (self.counts + self.config.shrinkage)
        return np.where(known, shrunk, 0.0)

    def state_dict(self) -> State:
        return {name: getattr(self, name).copy() for name in ("counts", "totals", "squares", "values")}

    def load_state_dict(self, state: State) -> None:
        for name, values in state.items():
            setattr(self, name, np.array(values, dtype=float))


class Look(NamedTuple):
    """One arm at one reading of the gate."""

    seen: int  # target tokens of the arm since step 0
    gain: float  # from the source, nats per token
    error: float


class Gate:
    """Closes arms whose gain from the source is far below what others had after as many tokens of their own.

    Otherwise a language that is hardly sampled would look like one whose lines are mixed up.
    """

    def __init__(self, config: AlignConfig, classroom: Classroom) -> None:
        self.arms, self.at, self.least = classroom.arms, config.gate_at, config.gate_from
        self.reach = config.gate_reach
        self.every = max(1, config.gate_every.steps(classroom.steps))
        self.measure = SourceGain(tokens=config.gate_tokens or _gate_tokens(classroom, self.every))
        self.due = self.every  # the step of the next reading
        self.looks: dict[Arm, list[Look]] = {arm: [] for arm in self.arms}
        self.closed: dict[Arm, tuple[float, float]] = {}  # its gain, and that of others

    def learn(self, found: Mapping[Arm, Estimate], seen: Mapping[Arm, int], step: int) -> None:
        while self.due < step:
            self.due += self.every
        for arm, (gain, error) in found.items():
            self.looks[arm].append(Look(seen.get(arm, 0), gain, error))
        self.closed = {}
        for arm in found:
            gain, error = _pooled(self.looks[arm])
            others = self._others(arm)
            if others is not None and others >= self.least and gain + 2 * error < self.at * others:
                self.closed[arm] = gain, others
        if len(self.closed) == len(self.arms):
            self.closed = {}

    def _others(self, arm: Arm) -> float | None:
        """The median gain of the other arms when they had seen as many tokens of their own; None if none had.

        ``gate_reach`` times as many: with more than 1, arms that are played seldom are judged earlier.
        """
        seen = self.reach * self.looks[arm][-1].seen
        earlier = [[look for look in self.looks[other] if look.seen <= seen] for other in self.arms if other != arm]
        gains = [_pooled(looks)[0] for looks in earlier if looks]
        return median(gains) if gains else None

    def openness(self) -> FloatArray:
        """1 for an open arm, 0 for a closed one."""
        return np.array([float(arm not in self.closed) for arm in self.arms])

    def state_dict(self) -> State:
        looks = {arm: [list(look) for look in looks] for arm, looks in self.looks.items()}
        return {"due": self.due, "looks": looks, "closed": {arm: list(gains) for arm, gains in self.closed.items()}}

    def load_state_dict(self, state: State) -> None:
        self.due = state["due"]
        self.looks = {arm: [Look(*look) for look in looks] for arm, looks in state["looks"].items()}
        self.closed = {arm: (own, others) for arm, (own, others) in state["closed"].items()}


def _pooled(looks: Sequence[Look]) -> tuple[float, float]:
    """The mean gain of the last readings, and its error."""
    last = looks[-POOLED:]
    return sum(look.gain for look in last) / len(last), math.hypot(*(look.error for look in last)) / len(last)


def _gate_tokens(classroom: Classroom, every: int) -> int:
    """Of each arm in a reading: two forward passes, where an update takes the time of three."""
    least, most = GATE_TOKENS
    affordable = GATE_COST * 3 * every * classroom.update_tokens / (2 * len(classroom.arms))
    return min(most, max(least, int(affordable)))


def _check(found: Mapping[Arm, Aligned | Estimate], arms: Sequence[Arm], measure: Measure, step: int) -> None:
    for arm, values in found.items():
        if arm not in arms:
            raise ValueError(f"step {step}: told of unknown arm {arm!r}; the teacher has {', '.join(arms)}")
        if not all(math.isfinite(value) for value in values[:2]):
            what = type(measure).__name__.lower()
            raise ValueError(f"step {step}: the {what} of {arm} is {values[0]}: the student diverged; lower its rate")
