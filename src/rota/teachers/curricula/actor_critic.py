"""Data selection by a deterministic actor and a critic (after Zhao et al. 2020), for students that know something.

Our reading: the actor gives weights to the features of sentences, the critic predicts what they bring on dev text.
Both are small enough to be written out: a linear map and a quadratic form, without a network.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np
from pydantic import Field

from rota.measures import JointLoss, Measure, TrainSetLosses, Weights
from rota.settings import Count, Duration, DurationField
from rota.teachers.card import Card
from rota.teachers.curricula.base import Curriculum, CurriculumConfig, Found, Pace
from rota.types import Decision, FloatArray, Scoring, State, Teacher

if TYPE_CHECKING:
    from rota.teachers.base import Classroom

Feature = Literal["length", "rarity", "loss"]
STATES = 3
"""Numbers of a state: the dev loss, how far it fell in the last period, the share of the run that has passed."""

COLUMN = TrainSetLosses()


class Learner:
    """A critic that predicts the gain of weights a in a state s, and an actor that gives weights for a state.

    The critic is linear in 1, s, a, the products of s and a, and the squares of a; its coefficients are the ridge
    regression over the memory. The actor is ``tanh(matrix @ (1, s))``; it climbs the critic's mean over the states of
    the memory by one gradient step for each new gain.
    """

    def __init__(self, actions: int, *, memory: int, step_size: float, ridge: float = 1.0) -> None:
        self.actions, self._step_size, self._ridge = actions, step_size, ridge
        self.matrix: FloatArray = np.zeros((actions, 1 + STATES))
        self.memory: deque[tuple[FloatArray, FloatArray, float]] = deque(maxlen=memory)

    def act(self, state: FloatArray) -> FloatArray:
        action: FloatArray = np.tanh(self.matrix @ np.concatenate([[1.0], state]))
        return action

    def learn(self, state: FloatArray, action: FloatArray, gain: float) -> None:
        self.memory.append((state, action, gain))
        coefficients = self.critic()
        states = np.array([state for state, _, _ in self.memory])
        self.matrix = self.matrix + self._step_size * self._ascent(coefficients, states)

    def critic(self) -> FloatArray:
        """Its coefficients for gains in units of their deviation, from the memory."""
        states, actions, gains = (np.array(part) for part in zip(*self.memory, strict=True))
        scale = float(np.std(gains))
        inputs = features(states, actions)
        penalty = self._ridge * np.eye(inputs.shape[1])
        penalty[0, 0] = 0.0
        wanted = (gains / scale) if scale > 0 else np.zeros_like(gains)
        found: FloatArray = np.linalg.solve(inputs.T @ inputs + penalty, inputs.T @ wanted)
        return found

    def _ascent(self, coefficients: FloatArray, states: FloatArray) -> FloatArray:
        """The gradient of the critic's mean over the states, with the actor's own weights, by the actor's matrix."""
        known = np.concatenate([np.ones((len(states), 1)), states], axis=1)
        chosen = np.tanh(known @ self.matrix.T)
        first = 1 + STATES
        linear = coefficients[first : first + self.actions]
        crossed = coefficients[first + self.actions : first + self.actions * (1 + STATES)]
        squares = coefficients[-self.actions :]
        by_action = linear + states @ crossed.reshape(STATES, self.actions) + 2 * chosen * squares
        gradient: FloatArray = (by_action * (1 - chosen**2)).T @ known / len(states)
        return gradient

    def state_dict(self) -> State:
        memory = [[state.tolist(), action.tolist(), gain] for state, action, gain in self.memory]
        return {"matrix": self.matrix.tolist(), "memory": memory}

    def load_state_dict(self, state: State) -> None:
        self.matrix = np.array(state["matrix"])
        self.memory.clear()
        self.memory.extend((np.array(s), np.array(a), float(gain)) for s, a, gain in state["memory"])


def features(states: FloatArray, actions: FloatArray) -> FloatArray:
    """What the critic is linear in, one row for each pair: 1, s, a, s times a, a squared."""
    crossed = (states[:, :, None] * actions[:, None, :]).reshape(len(states), -1)
    return np.concatenate([np.ones((len(states), 1)), states, actions, crossed, actions**2], axis=1)


class ActorCritic(Curriculum):
    """Every ``every`` updates the actor names new weights of the features, with noise.

    What the critic learns from is how far the joint dev loss fell over these updates.
    """

    def __init__(
        self,
        teacher: Teacher,
        pace: Pace,
        learner: Learner,
        rng: np.random.Generator,
        measure: JointLoss,
        *,
        columns: Sequence[str],
        share: float,
        noise: float,
        every: int,
        refresh_every: int,
    ) -> None:
        super().__init__(teacher)
        self._pace, self._learner, self._rng, self._measure = pace, learner, rng, measure
        self.columns, self.share, self.noise = tuple(columns), share, noise
        self._every, self._refresh_every = every, refresh_every
        self._state: FloatArray = np.zeros(STATES)
        self._action: FloatArray | None = None  # none before the first dev loss
        self._loss: float | None = None
        self._knows_losses = False
        self._next, self._next_refresh = 0, 0
        self._due: tuple[Measure, ...] = (measure, COLUMN) if "loss" in self.columns else (measure,)

    @property
    def due(self) -> Sequence[Measure]:
        return self._due

    def added(self, step: int, decision: Decision) -> Decision:
        told = self._pace.next_tell(step)
        wanted: list[Measure] = [self._measure] if told >= self._next else []
        if "loss" in self.columns and told >= self._next_refresh:
            wanted.append(COLUMN)
        self._due = tuple(wanted)
        if self._action is None:
            return decision
        weights = dict(zip(self.columns, self._action.tolist(), strict=True))
        known = {column: weight for column, weight in weights.items() if column != "loss" or self._knows_losses}
        return replace(decision, scoring=Scoring(known, self.share))

    def learn(self, step: int, found: Found) -> None:
        if COLUMN in found:
            self._knows_losses, self._next_refresh = True, step + self._refresh_every
        if self._measure not in found:
            return
        loss = found[self._measure]
        assert not isinstance(loss, Mapping)
        gain = 0.0 if self._loss is None else self._loss - loss
        if self._action is not None:
            self._learner.learn(self._state, self._action, gain)
        self._loss, self._next = loss, step + self._every
        self._state = np.array([loss, gain, step / self._pace.steps])
        drawn = self._learner.act(self._state) + self.noise * self._rng.standard_normal(len(self.columns))
        self._action = np.clip(drawn, -1, 1)

    def state_dict(self) -> State:
        return super().state_dict() | {
            "rng": self._rng.bit_generator.state,
            "learner": self._learner.state_dict(),
            "state": self._state.tolist(),
            "action": None if self._action is None else self._action.tolist(),
            "loss": self._loss,
            "knows_losses": self._knows_losses,
            "next": [self._next, self._next_refresh],
            "due": [str(measure) for measure in self._due],
        }

    def load_state_dict(self, state: State) -> None:
        super().load_state_dict(state)
        self._rng.bit_generator.state = state["rng"]
        self._learner.load_state_dict(state["learner"])
        self._state, self._loss = np.array(state["state"]), state["loss"]
        self._action = None if state["action"] is None else np.array(state["action"])
        self._knows_losses = state["knows_losses"]
        self._next, self._next_refresh = state["next"]
        self._due = tuple(measure for measure in (self._measure, COLUMN) if str(measure) in state["due"])


class ActorCriticConfig(CurriculumConfig):
    """Weights of the features of sentences by an actor and a critic (after Zhao et al. 2020; for trained students)."""

    card: ClassVar[Card | None] = Card(
        family="curricula",
        line="actor and critic",
        observes="joint loss",
        cost=("76%", "0.6%"),
        source="Zhao '20",
        reference="Zhao et al. 2020, Reinforced Curriculum Learning on Pre-trained Neural Machine Translation Models; "
        "our reading of the abstract, and simpler",
    )
    name: Literal["actor-critic"] = "actor-critic"
    features: tuple[Feature, ...] = Field(
        ("length", "rarity", "loss"), min_length=1, description="of sentences: length, rarity, the student's loss"
    )
    share: float = Field(0.5, gt=0, lt=1, description="of the candidates that are trained on")
    every: DurationField = Field(Duration(10), description="updates with the same weights")
    tokens: Count = Field(2_000, ge=1, description="of the joint dev batch")
    weights: Weights = Field("average", description="of the student that is measured: average or raw")
    refresh_every: DurationField = Field(
        Duration("20%"), description="steps after which the losses of all training sentences are measured again"
    )
    memory: int = Field(200, ge=2, description="gains that the critic remembers")
    step_size: float = Field(0.05, gt=0, description="of the actor")
    noise: float = Field(0.2, ge=0, description="standard deviation of what is added to the actor's weights")

    def wrap(self, teacher: Teacher, classroom: Classroom, pace: Pace) -> ActorCritic:  # noqa: ARG002
        columns = tuple(dict.fromkeys(self.features))
        return ActorCritic(
            teacher,
            pace,
            Learner(len(columns), memory=self.memory, step_size=self.step_size),
            pace.rng,
            JointLoss(tokens=self.tokens, weights=self.weights),
            columns=columns,
            share=self.share,
            noise=self.noise,
            every=max(1, self.every.steps(pace.steps)),
            refresh_every=max(1, self.refresh_every.steps(pace.steps)),
        )
