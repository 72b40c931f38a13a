"""A scripted student: dev losses that follow closed-form curves. For understanding and for tests, not for results.

The loss of a language is a power law in what was learned for it, from its own updates and, by a transfer matrix, from
those of others, plus a penalty for repeating a small language too often. Nothing here was fitted to a real student.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TypeVar

import numpy as np

from rota.measures import Scene
from rota.teachers.base import Classroom
from rota.training.turns import Window
from rota.types import Arm, Decision, FloatArray, State

# K languages, N schedules compared at once

Value = TypeVar("Value")

GUESSING = 5.0
"""Nats per token: the loss on pairs that do not match, whose targets can only be guessed."""


@dataclass(frozen=True)
class World:
    """What can be learned, and how fast. Arrays have one entry for each language; losses are nats per token."""

    sizes: Mapping[Arm, int]  # updates in an epoch, by language
    low_resource: tuple[Arm, ...]
    floor: FloatArray  # the loss that no amount of training goes below
    scale: FloatArray  # how far above it the loss starts
    half: FloatArray  # exposure at which the fall slows down
    power: FloatArray  # of the fall
    transfer: FloatArray  # (K, K): what an update on the row's language teaches the column's
    epochs: float = 50.0  # own epochs that do no harm
    overfit: float = 0.0  # added loss for each factor of e in epochs beyond those
    noise: float = 0.0  # standard deviation of each measured loss, and of each measured effect of an update
    forget: float = 0.0  # share of what was learned that each update takes away, of every language
    switch: int | None = None  # the step from which ``transfer_after`` holds
    transfer_after: FloatArray | None = None
    sources: Mapping[Arm, Arm] = field(default_factory=dict)  # arms that have the dev set of another language
    copies: tuple[Arm, ...] = ()  # those of them that hold the same text as that language
    aligned: Mapping[Arm, float] = field(default_factory=dict)  # share of an arm's pairs that match, where not all do

    @property
    def arms(self) -> tuple[Arm, ...]:
        return tuple(self.sizes)

    @property
    def languages(self) -> tuple[Arm, ...]:
        """The arms that have a dev set; the goal is the mean of their losses."""
        return tuple(arm for arm in self.sizes if arm not in self.sources)

    def macro(self, losses: FloatArray) -> FloatArray:
        """The mean over the languages of losses (..., K)."""
        mean: FloatArray = losses[..., self._of_languages].mean(axis=-1)
        return mean

    @cached_property
    def _of_languages(self) -> list[int]:
        return self._places(self.languages)

    @cached_property
    def _own(self) -> list[int]:
        """For each arm the place of the language whose dev set it has."""
        return self._places(self.sources.get(arm, arm) for arm in self.arms)

    @cached_property
    def _copied(self) -> list[list[int]]:
        return [self._places((copy, self.sources[copy])) for copy in self.copies]

    @cached_property
    def _harmless(self) -> FloatArray:
        return self.epochs * np.array(list(self.sizes.values()), dtype=float)

    def _places(self, arms: Iterable[Arm]) -> list[int]:
        place = {arm: number for number, arm in enumerate(self.sizes)}
        return [place[arm] for arm in arms]

    def classroom(self, steps: int) -> Classroom:
        """An update is counted as one token, so sizes are tokens too."""
        goal = dict.fromkeys(self.languages, 1 / len(self.languages))
        return Classroom(self.sizes, self.low_resource, steps, self.sizes, update_tokens=1, goal=goal)

    def transfer_at(self, step: int) -> FloatArray:
        """The matrix of the update after ``step`` completed ones."""
        if self.switch is None or self.transfer_after is None or step < self.switch:
            return self.transfer
        return self.transfer_after

    def losses(self, exposure: FloatArray, updates: FloatArray) -> FloatArray:
        """Dev losses without noise, (..., K), from what was learned for each language and its own updates."""
        return self._learned(exposure) + self.overfit * self._repeated(updates)

    def sampled_losses(self, exposure: FloatArray, updates: FloatArray) -> FloatArray:
        """Losses (..., K) on training sentences: what repetition takes from dev sentences, it gives to these."""
        return self._learned(exposure) - self.overfit * self._repeated(updates)

    def _learned(self, exposure: FloatArray) -> FloatArray:
        learned: FloatArray = self.floor + self.scale * (1 + exposure / self.half) ** -self.power
        return learned[..., self._own]

    def _repeated(self, updates: FloatArray) -> FloatArray:
        """Logarithm of the epochs beyond those that do no harm; copies count for the text that they are copies of."""
        together = np.array(updates, dtype=float)
        for mine, theirs in self._copied:
            together[..., theirs] += updates[..., mine]
        beyond: FloatArray = np.log(np.maximum(together / self._harmless, 1.0))
        return beyond[..., self._own]

    def final_losses(self, shares_NK: FloatArray, steps: int) -> FloatArray:
        """Dev losses (N, K) after ``steps`` updates in fixed shares, which sum to one in each row."""
        if self.forget:
            lasting = (1 - (1 - self.forget) ** steps) / self.forget  # sum of what is left of each update
            return self.losses(lasting * (shares_NK @ self.transfer), shares_NK * steps)
        before = steps if self.switch is None else min(self.switch, steps)
        after = self.transfer_at(steps)
        exposure_NK = shares_NK @ (before * self.transfer + (steps - before) * after)
        return self.losses(exposure_NK, shares_NK * steps)


class Later(Mapping[Arm, Value]):
    """Values of arms that are made when the first of them is looked up."""

    def __init__(self, arms: Sequence[Arm], make: Callable[[], Mapping[Arm, Value]]) -> None:
        self._arms, self._make = arms, make
        self._made: Mapping[Arm, Value] | None = None

    def __getitem__(self, arm: Arm) -> Value:
        self._made = self._make() if self._made is None else self._made
        return self._made[arm]

    def __iter__(self) -> Iterator[Arm]:
        return iter(self._arms)

    def __len__(self) -> int:
        return len(self._arms)


class ScriptedStudent:
    """Learns by the book of its world; also its own probe."""

    def __init__(self, world: World, rng: np.random.Generator) -> None:
        self.world, self.step = world, 0
        # What is measured of effects must not change the noise of the losses.
        self._rng, (self._effects_rng,) = rng, rng.spawn(1)
        self._index = {arm: index for index, arm in enumerate(world.arms)}
        self._updates = np.zeros(len(world.arms))
        self._exposure = np.zeros(len(world.arms))
        self._shown: dict[Arm, float] = {}  # the losses that were seen last

    def update(self, arm: Arm) -> float:
        """One update; returns the training loss before it: of pairs that do not match, that of guessing the target."""
        if arm not in self._index:
            raise ValueError(f"unknown arm {arm!r}; this world has {', '.join(self._index)}")
        index = self._index[arm]
        matching = self.world.aligned.get(arm, 1.0)
        loss = matching * float(self.losses()[index]) + (1 - matching) * GUESSING
        kept = 1 - self.world.forget
        self._exposure = kept * self._exposure + self.world.transfer_at(self.step)[index]
        self._updates[index] += 1
        self.step += 1
        return loss

    def losses(self) -> FloatArray:
        """The dev loss of every language now, without noise."""
        return self.world.losses(self._exposure, self._updates)

    def effects(self) -> FloatArray:
        """(K, K): how far one more update on the row's language would lower the column's dev loss, without noise."""
        exposure_KK = self._exposure + self.world.transfer_at(self.step)
        return self.losses() - self.world.losses(exposure_KK, self._updates + np.eye(len(self._updates)))

    def _effects_later(self) -> Callable[[], dict[Arm, dict[Arm, float]]]:
        """Makes the effects as they are seen now, with their noise; few teachers ask for them."""
        now, noise, count = copy(self), self.world.noise, len(self._updates)
        now._updates = self._updates.copy()
        noise_KK = noise * self._effects_rng.standard_normal((count, count)) if noise else 0.0
        return lambda: self._by_arm([self._by_arm(row) for row in (now.effects() + noise_KK).tolist()])

    def scene(self, window: Window) -> Scene:
        """What can be seen of the student now, with noise."""
        losses, effects = self.losses(), Later(self.world.arms, self._effects_later())
        if self.world.noise:
            losses = losses + self.world.noise * self._rng.standard_normal(len(losses))
        named = self._by_arm(losses.tolist())
        sampled = self._by_arm(self.world.sampled_losses(self._exposure, self._updates).tolist())
        scene = Scene(named, self._shown or named, window.losses, effects, sampled, self.world.aligned)
        self._shown = named
        return scene

    def _by_arm(self, values: Sequence[Value]) -> dict[Arm, Value]:
        return dict(zip(self.world.arms, values, strict=True))

    def state_dict(self) -> State:
        rng, effects_rng = self._rng.bit_generator.state, self._effects_rng.bit_generator.state
        arrays = {"updates": self._updates.copy(), "exposure": self._exposure.copy()}
        return {"step": self.step, **arrays, "shown": dict(self._shown), "rng": rng, "effects_rng": effects_rng}

    def load_state_dict(self, state: State) -> None:
        self.step, self._rng.bit_generator.state = state["step"], state["rng"]
        self._effects_rng.bit_generator.state = state["effects_rng"]
        self._updates, self._exposure = np.array(state["updates"]), np.array(state["exposure"])
        self._shown = dict(state["shown"])


def played_arm(decision: Decision, rng: np.random.Generator) -> Arm:
    """The arm of one update: that of the decision, or one drawn from its mixture."""
    if decision.mixture is None:
        return decision.arm
    shares = np.array(list(decision.mixture.shares.values()), dtype=float)
    return list(decision.mixture.shares)[int(rng.choice(len(shares), p=shares / shares.sum()))]


def varied(world: World, rng: np.random.Generator, spread: float) -> World:
    """The world with other learning speeds and transfer: each times e to the power of ``spread`` times a deviate."""

    def times(values: FloatArray) -> FloatArray:
        changed: FloatArray = values * np.exp(spread * rng.standard_normal(values.shape))
        return changed

    after = None if world.transfer_after is None else times(world.transfer_after)
    return replace(world, half=times(world.half), transfer=times(world.transfer), transfer_after=after)


def stationary(steps: int) -> World:
    """Two languages: one is learned by its own updates, the other has nothing to give."""
    return _pair(steps, np.diag([1.0, 0.0]))


def switch(steps: int) -> World:
    """Two languages: halfway, the one that had something to give runs dry and the other begins to give."""
    return _pair(steps, np.diag([1.0, 0.0]), at=steps // 2, after=np.diag([0.0, 1.0]))


def _pair(steps: int, transfer: FloatArray, at: int | None = None, after: FloatArray | None = None) -> World:
    both = np.ones(2)
    return World(
        {"left": steps, "right": steps},
        low_resource=(),
        floor=both,
        scale=4 * both,
        half=steps / 2 * both,
        power=both,
        transfer=transfer,
        switch=at,
        transfer_after=after,
    )


def transfer(steps: int) -> World:
    """Eight languages in four pairs of a small and a large relative, in the proportions of the paper's corpus."""
    thousands = {"az": 5.9, "be": 4.5, "gl": 10.0, "sk": 61.5, "tr": 182.0, "ru": 208.0, "pt": 51.8, "cs": 103.0}
    updates = np.array(list(thousands.values())) * steps / 150_000 * 2.5  # about 20 tokens a sentence, 8k a batch
    kin = np.kron(np.array([[1.0, 0.2], [0.3, 1.0]]), np.eye(4))  # a small language and its relative are 4 apart
    kin[1, 7] = kin[7, 1] = kin[3, 5] = kin[5, 3] = kin[1, 3] = kin[3, 1] = 0.2  # Slavic across the pairs
    kin[5, 7] = kin[7, 5] = 0.3
    return World(
        {arm: max(1, round(count)) for arm, count in zip(thousands, updates, strict=True)},
        low_resource=("az", "be", "gl", "sk"),
        floor=np.array([2.2, 2.0, 1.5, 1.5, 1.7, 1.8, 1.2, 1.5]),
        scale=np.full(8, 6.5),
        half=np.full(8, steps / 300),
        power=np.full(8, 0.5),
        transfer=kin + 0.05,
        epochs=100.0,
        overfit=0.1,
    )


def noisy(steps: int) -> World:
    """The same eight languages; half of the pairs of ru and pt do not match, and what is measured is noisy."""
    clean, matching = transfer(steps), {"ru": 0.5, "pt": 0.5}
    factors = np.array([matching.get(arm, 1.0) for arm in clean.arms])
    return replace(clean, transfer=clean.transfer * factors[:, None], noise=0.05, aligned=matching)


def useless(steps: int) -> World:
    """The same eight languages, and two more arms: text for gl that is not a translation, and a copy of pt's."""
    clean = transfer(steps)
    gl, pt = clean.arms.index("gl"), clean.arms.index("pt")
    rows = np.vstack([clean.transfer, np.full(8, 0.01), clean.transfer[pt]])
    both = {"gl-web": clean.sizes["tr"], "pt-copy": clean.sizes["pt"]}
    extended = {name: getattr(clean, name)[[*range(8), gl, pt]] for name in ("floor", "scale", "half", "power")}
    return replace(
        clean,
        sizes={**clean.sizes, **both},
        transfer=np.hstack([rows, rows[:, [gl, pt]]]),
        sources={"gl-web": "gl", "pt-copy": "pt"},
        copies=("pt-copy",),
        aligned={"gl-web": 0.0},
        noise=0.02,
        **extended,
    )


def repeated(steps: int) -> World:
    """The same eight languages, but repeating text more than 60 times does harm, and equal shares do that to five."""
    return replace(transfer(steps), epochs=60.0, overfit=0.6, noise=0.02)


def forgetting(steps: int) -> World:
    """Four languages that help each other little; what is not trained on is forgotten, and losses are noisy.

    Everything that was learned halves in a tenth of the run. A teacher that stays with one language loses the others.
    """
    return World(
        dict.fromkeys(("north", "east", "south", "west"), steps),
        low_resource=(),
        floor=np.full(4, 1.0),
        scale=np.full(4, 5.0),
        half=np.full(4, steps / 100),
        power=np.ones(4),
        transfer=np.eye(4) * 0.9 + 0.1,
        noise=0.02,
        forget=1 - 0.5 ** (10 / steps),
    )


WORLDS: dict[str, Callable[[int], World]] = {
    "stationary": stationary,
    "switch": switch,
    "transfer": transfer,
    "noisy": noisy,
    "useless": useless,
    "repeated": repeated,
    "forgetting": forgetting,
}
"""The worlds of ``rota simulate``, each made for a number of steps."""


def make_world(name: str, steps: int) -> World:
    if name not in WORLDS:
        raise ValueError(f"unknown world {name!r}; there are {', '.join(WORLDS)}")
    if steps < 1:
        raise ValueError(f"steps is {steps}; simulate at least 1")
    return WORLDS[name](steps)
