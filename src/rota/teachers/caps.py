"""UniMax with caps that follow the student: an arm that is learned by heart is only kept alive. Rota's own.

Twenty times in a run the teacher looks at the calibrated dev loss of every arm and at the loss on training sentences of
the arm. While the first falls, the arm is ``learning`` and has its share of UniMax. When it has stopped falling and the
second has not, the arm is learned by heart: it goes into ``maintenance``, and the others get what it had. If its dev
loss rises, it is learning again, with half its share. The last part of the run has the shares of the beginning.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
from pydantic import Field

from rota.measures import DevLoss, Measure, TrainSampleLoss, Weights
from rota.settings import ConfigError, Count, Duration, DurationField
from rota.teachers.base import Classroom, SizeChange, TeacherConfig
from rota.teachers.card import Card
from rota.teachers.rewards import measured
from rota.teachers.scripted.unimax import unimax
from rota.types import Alarm, Arm, Decision, Observation, State

MANY_ARMS = 50
"""With more of them no floor is above half of the uniform share; with so many, that share is the default floor."""

UPKEEP = 0.1
"""Of the run, in which an arm in maintenance passes once through its text."""


class CapsConfig(TeacherConfig):
    """UniMax, whose caps follow memorisation: what is learned by heart is only kept alive (Rota's own)."""

    card = Card(
        family="policies",
        line="cap what is memorised",
        observes="dev, train",
        cost=("7%", "0"),
        source="Rota",
        reference="Rota's own; starts from UniMax (Chung et al. 2023)",
    )
    name: Literal["caps"] = "caps"
    epochs: float = Field(16.0, gt=0, description="how often an arm may repeat its text by UniMax's shares")
    look_every: DurationField = Field(Duration("5%"), description="steps between two looks at the losses")
    patience: int = Field(3, ge=1, description="looks without a better dev loss after which an arm has stopped")
    better: float = Field(0.005, gt=0, description="nats per token by which a dev loss must fall to be better")
    finish: DurationField = Field(Duration("15%"), description="the last steps, with the shares of the beginning")
    tokens: Count = Field(1_000, ge=1, description="dev and training tokens of each arm in a look")
    weights: Weights = Field("average", description="of which the losses are: averaged, or the raw ones")
    floor: float = Field(
        0.01, ge=0, lt=1, description="the smallest share of an arm; of more than 50, at most half of the uniform share"
    )

    def build(self, classroom: Classroom, rng: np.random.Generator) -> Caps:
        if self.least(len(classroom.arms)) * len(classroom.arms) >= 1:
            remedy = f"write less than {1 / len(classroom.arms):.3f}"
            raise ValueError(f"teacher.floor is {self.floor} for each of {len(classroom.arms)} arms; {remedy}")
        return Caps(self, classroom, rng)

    def least(self, arms: int) -> float:
        """The share that each of so many arms keeps: the default of 0.01 would leave nothing to decide among 100."""
        return min(self.floor, 0.5 / arms) if arms > MANY_ARMS else self.floor

    def check(self, steps: int) -> None:
        super().check(steps)
        looks = (steps - self.finish.steps(steps)) // max(1, self.look_every.steps(steps))
        if looks <= self.patience:
            said = f"teacher.look_every gives {looks} looks before the last part, and patience is {self.patience}"
            raise ConfigError(f"{said}: no arm could ever be found learned; look more often, for example 5%")

    def scaled(self, to: SizeChange) -> dict[str, Any]:
        return super().scaled(to) | {"tokens": max(100, min(self.tokens, to.tokens))}


class Look(NamedTuple):
    """An arm at one moment, nats per token."""

    dev: float
    train: float


class Change(NamedTuple):
    """Of the state of an arm, at a look."""

    learned: bool  # whether it goes into maintenance; if not, it is learning again
    looks: int  # since which its dev loss has not improved; 0 if it is learning again
    nats: float  # its dev loss minus its training loss; if it is learning again, by how much its dev loss rose


class Progress:
    """Where one arm stands."""

    def __init__(self) -> None:
        self.learning = True
        self.factor = 1.0  # of its share, halved whenever it begins to learn again
        self.looks: list[Look] = []  # since it last changed
        self.entered = math.inf  # its dev loss when it went into maintenance

    def look(self, now: Look, *, seen_once: bool, patience: int, better: float) -> Change | None:
        """``seen_once``: the arm has been through its text, so that its training sentences are ones it has seen."""
        self.looks.append(now)
        change = None
        if self.learning and seen_once and _stopped(self.looks, patience, better):
            devs = [look.dev for look in self.looks[:-patience]]
            change = Change(True, len(self.looks) - 1 - devs.index(min(devs)), now.dev - now.train)
            self.learning, self.entered, self.looks = False, now.dev, []
        elif not self.learning and now.dev > self.entered + 2 * better:
            change = Change(False, 0, now.dev - self.entered)
            self.learning, self.factor, self.looks = True, self.factor / 2, []
        return change

    def state(self) -> State:
        looks = [list(look) for look in self.looks]
        entered = None if math.isinf(self.entered) else self.entered
        return {"learning": self.learning, "factor": self.factor, "looks": looks, "entered": entered}

    @classmethod
    def of(cls, state: State) -> Progress:
        progress = cls()
        progress.learning, progress.factor = state["learning"], state["factor"]
        progress.looks = [Look(*look) for look in state["looks"]]
        progress.entered = math.inf if state["entered"] is None else state["entered"]
        return progress


def _stopped(looks: Sequence[Look], patience: int, better: float) -> bool:
    """Whether the last looks had no better dev loss than those before, while the training loss fell."""
    before, recent = looks[:-patience], looks[-patience:]
    if not before:
        return False
    improved = min(look.dev for look in recent) < min(look.dev for look in before) - better
    return not improved and recent[-1].train < before[-1].train


class Caps:
    """Draws every choice from its shares, which it computes anew at every look."""

    def __init__(self, config: CapsConfig, classroom: Classroom, rng: np.random.Generator) -> None:
        self.config, self.arms, self.steps = config, classroom.arms, classroom.steps
        self.tokens, self.budget = classroom.target_tokens(), classroom.steps * classroom.tokens_per_update()
        given = unimax(self.tokens, self.budget, config.epochs)
        self.prior = {arm: tokens / sum(given.values()) for arm, tokens in given.items()}
        self.every = max(1, config.look_every.steps(classroom.steps))
        self.last = classroom.steps - config.finish.steps(classroom.steps)
        self._observed_every = config.observe_every or config.decide_every
        self.dev = DevLoss(arms="all", tokens=config.tokens, weights=config.weights, calibrated=True)
        self.train = TrainSampleLoss(tokens=config.tokens, weights=config.weights)
        self.progress = {arm: Progress() for arm in self.arms}
        self._looking = True  # whether the next observation is a look
        self._changes: list[Alarm] = []  # of the last look; they are asked for at once, and not saved
        self._rng = rng

    @property
    def watches(self) -> Sequence[Measure]:
        return (self.dev, self.train) if self._looking else ()

    def shares(self, step: int) -> dict[Arm, float]:
        """Of the choice after ``step`` completed updates."""
        finishing = self._finishing(step)
        learning = [arm for arm in self.arms if finishing or self.progress[arm].learning]
        factors = {arm: 1.0 if finishing else self.progress[arm].factor for arm in learning}
        kept = {arm: self._upkeep(arm) for arm in self.arms if arm not in factors}
        left = 1.0 - sum(kept.values())
        given = unimax({arm: self.tokens[arm] for arm in learning}, left * self.budget, self.config.epochs)
        weighted = {arm: tokens * factors[arm] for arm, tokens in given.items()}
        taken = {arm: left * value / sum(weighted.values()) for arm, value in weighted.items()}
        floor = self.config.least(len(self.arms))
        return {arm: (1 - floor * len(self.arms)) * {**kept, **taken}[arm] + floor for arm in self.arms}

    def _finishing(self, step: int) -> bool:
        """Whether all arms have the shares of the beginning: in the last part, or if nothing is left to learn."""
        return step >= self.last or not any(progress.learning for progress in self.progress.values())

    def _upkeep(self, arm: Arm) -> float:
        """The share of an arm in maintenance: a pass in every tenth of the run, but no more than it had at first."""
        return min(self.prior[arm], max(self.config.least(len(self.arms)), self.tokens[arm] / (UPKEEP * self.budget)))

    def ask(self, step: int) -> Decision:
        told = (step // self._observed_every + 1) * self._observed_every
        self._looking = told // self.every > (told - self._observed_every) // self.every
        shares = self.shares(step)
        ends = np.cumsum(list(shares.values()))
        ends[-1] = 1.0
        arm = self.arms[int(np.searchsorted(ends, self._rng.random(), side="right"))]
        state = "learning" if self.progress[arm].learning else "maintenance"
        return Decision(arm, why="prior" if step >= self.last else state, probability=shares[arm], scores=shares)

    def tell(self, observation: Observation) -> None:
        if not self._looking:
            return
        dev, train = measured(observation, self.dev), measured(observation, self.train)
        for name, losses in (("dev loss", dev), ("training loss", train)):
            for arm in self.arms:
                if not math.isfinite(losses.get(arm, math.nan)):
                    said = f"step {observation.step}: the {name} of {arm} is {losses.get(arm)}"
                    raise ValueError(f"{said}; was it measured, or did the student diverge?")
        changes: dict[Arm, Change] = {}
        for arm, progress in self.progress.items():
            change = progress.look(
                Look(float(dev[arm]), float(train[arm])),
                seen_once=observation.seen.get(arm, 0) >= self.tokens[arm],
                patience=self.config.patience,
                better=self.config.better,
            )
            if change is not None:
                changes[arm] = change
        told = {arm: change for arm, change in changes.items() if change.learned or observation.step < self.last}
        self._changes = [self._said(arm, change, observation) for arm, change in told.items()]

    def alarms(self, step: int) -> Iterable[Alarm]:
        """What changed at the last look, if it was at this step: arms learned by heart, and arms that learn again."""
        return [change for change in self._changes if change.step == step]

    def _said(self, arm: Arm, change: Change, observation: Observation) -> Alarm:
        step, share = observation.step, f"{100 * self.shares(observation.step)[arm]:.1f} % of the updates"
        if not change.learned:
            said = f"{arm}: its dev loss has risen by {change.nats:.2f} nats in maintenance"
            return Alarm(step, "learning-again", arm, f"{said}; it is learning again, with {share}")
        now = f"now in maintenance, with {share}"
        if step >= self.last:
            now = "it keeps its share, because this is the last part of the run"
        elif self._finishing(step):
            now = "now in maintenance like all others, so all have the shares of the beginning again"
        since, epochs = self._looked(step, change.looks), observation.seen.get(arm, 0) / self.tokens[arm]
        said = f"{arm}: learned by heart since step {since:,} (gap {change.nats:.1f} nats), {epochs:.0f} epochs"
        return Alarm(step, "maintenance", arm, f"{said}; {now}")

    def _looked(self, step: int, looks: int) -> int:
        """The step of the look so many looks before the one at ``step``: the first observation when one was due."""
        due = (step // self.every - looks) * self.every
        return -(-due // self._observed_every) * self._observed_every

    def state_dict(self) -> State:
        progress = {arm: progress.state() for arm, progress in self.progress.items()}
        return {"rng": self._rng.bit_generator.state, "looking": self._looking, "progress": progress}

    def load_state_dict(self, state: State) -> None:
        self._rng.bit_generator.state = state["rng"]
        self._looking = state["looking"]
        self.progress = {arm: Progress.of(each) for arm, each in state["progress"].items()}
