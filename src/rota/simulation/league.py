"""All teachers in several scripted worlds with several seeds: who copes with what. For understanding, not for results.

A cell is how far a teacher's final mean loss is below that of equal shares in the same world (positive is good), as a
mean over seeds with its standard error. The best fixed mixture, which is not known beforehand, stands beside them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np

from rota.measures import Estimate
from rota.simulation.simulate import best_mixture, fixed_mixture, simulate_config
from rota.simulation.worlds import World, make_world
from rota.teachers import TEACHERS, TeacherConfig, build_teacher

LEAGUE: Final = ("switch", "transfer", "noisy", "useless", "repeated")
"""The worlds: a language that runs dry, relatives, bad pairs and noise, useless arms, too little text."""

BEST: Final = "best fixed mixture"

VARIANTS: Final[Mapping[str, tuple[str, tuple[str, ...]]]] = {
    "tscl rota": ("tscl", ("variant=rota",)),
    "dqn rota": ("dqn", ("variant=rota",)),
}
"""Rows beside those of the registry, by name: a teacher and settings."""

Player = TeacherConfig | Callable[[World, int], TeacherConfig]
"""A teacher of the league: the same in every world, or one that is told something of the world."""


class Make(Protocol):
    """Makes a teacher of its name and settings such as ``variant=rota``, with what follows from the length of a run."""

    def __call__(self, name: str, overrides: Sequence[str] = (), /) -> TeacherConfig: ...


Progress = Callable[[str, int, int | None], None]


@dataclass(frozen=True)
class League:
    """Gains over equal shares, nats per token, by teacher and world."""

    gains: Mapping[str, Mapping[str, Estimate]]
    left_out: Mapping[str, str]  # teachers that cannot be simulated, and why
    seeds: int
    steps: int

    @property
    def ranked(self) -> list[str]:
        """By the mean of their places in the worlds in which they play."""
        places: dict[str, list[int]] = {name: [] for name in self.gains}
        for world in self.gains[BEST]:
            values = {name: gains[world].value for name, gains in self.gains.items() if world in gains}
            for name, value in values.items():
                places[name].append(sum(other > value for other in values.values()))
        return sorted(places, key=lambda name: float(np.mean(places[name])))

    def markdown(self) -> str:
        """The table of the documentation; in bold where a gain, or a loss, is larger than twice its error."""
        worlds = list(self.gains[BEST])
        rows = ["| teacher | " + " | ".join(worlds) + " |", "|---|" + "---:|" * len(worlds)]
        for name in self.ranked:
            cells = [written(self.gains[name].get(world)) for world in worlds]
            rows.append(f"| `{name}` | " + " | ".join(cells) + " |")
        return "\n".join(rows)


def written(gain: Estimate | None) -> str:
    """Thousandths of a nat, such as ``+12 ± 3``; in bold where it is beyond twice its error."""
    if gain is None:
        return "-"
    value, error = round(1000 * gain.value), round(1000 * gain.error)
    text = f"{value:+d} ± {error}".replace("-", "−")
    return f"**{text}**" if abs(gain.value) > 2 * gain.error and value else text


def player(name: str, make: Make, overrides: Sequence[str] = ()) -> Player:
    """A teacher, or one of :data:`VARIANTS`, by its name.

    One that needs the losses of a finished run, as ``ccl-m`` does, is given in each world those with equal shares.
    """
    base, settings = VARIANTS.get(name, (name, ()))
    chosen = [*settings, *overrides]
    if "baseline" not in _needed(base) or any(setting.startswith("baseline=") for setting in chosen):
        return make(base, chosen)

    def told(world: World, steps: int) -> TeacherConfig:
        losses = fixed_mixture(world, dict.fromkeys(world.arms, 1.0), steps).final_losses
        return make(base, [*chosen, f"baseline={json.dumps(losses)}"])

    return told


def _needed(name: str) -> list[str]:
    """The settings without which there is no such teacher; of one that is not in the registry none are known."""
    kind = TEACHERS.get(name)
    return [] if kind is None else [field for field, info in kind.model_fields.items() if info.is_required()]


def entrants(make: Make) -> tuple[dict[str, Player], dict[str, str]]:
    """Every teacher of the registry and the variants, and those that cannot play here, with why."""
    playing: dict[str, Player] = {}
    left_out: dict[str, str] = {}
    for name in (*TEACHERS, *VARIANTS):
        needed = [field for field in _needed(VARIANTS.get(name, (name,))[0]) if field != "baseline"]
        if needed:
            left_out[name] = f"needs {', '.join(needed)}"
            continue
        try:
            found = player(name, make)
            world = make_world("useless", 200)
            simulate_config(_config(found, world, 200), world, 200)
        except ValueError as error:
            left_out[name] = str(error)
        else:
            playing[name] = found
    return playing, left_out


def _config(found: Player, world: World, steps: int) -> TeacherConfig:
    return found if isinstance(found, TeacherConfig) else found(world, steps)


def play(
    players: Mapping[str, Player],
    *,
    worlds: Sequence[str] = LEAGUE,
    seeds: int = 20,
    steps: int = 3_000,
    left_out: Mapping[str, str] | None = None,
    progress: Progress = lambda *_: None,
) -> League:
    """Every teacher in every world with the seeds 1, 2, ..., where it can play: some need low-resource languages."""
    gains: dict[str, dict[str, Estimate]] = {name: {} for name in (*players, BEST)}
    total = len(players) * len(worlds) * seeds
    done = 0
    for world_name in worlds:
        world = make_world(world_name, steps)
        equal = fixed_mixture(world, dict.fromkeys(world.arms, 1.0), steps).macro_loss
        best = fixed_mixture(world, best_mixture(world, steps), steps).macro_loss
        gains[BEST][world_name] = Estimate(equal - best, 0.0)
        for name, each in players.items():
            found = []
            for loss in _losses(_config(each, world, steps), world, steps, seeds):
                found.append(equal - loss)
                progress(f"{world_name}: {name}", done + len(found), total)
            done += seeds
            if not found:
                continue
            spread = float(np.std(found, ddof=1)) / len(found) ** 0.5 if len(found) > 1 else 0.0
            gains[name][world_name] = Estimate(float(np.mean(found)), spread)
    return League(gains, left_out or {}, seeds, steps)


def _losses(config: TeacherConfig, world: World, steps: int, seeds: int) -> Iterator[float]:
    """Final mean losses, one for each seed; none if the teacher needs low-resource languages and there are none."""
    try:
        build_teacher(config, world.classroom(steps), np.random.default_rng(0))
    except ValueError:
        if world.low_resource:
            raise
        return
    for seed in range(1, seeds + 1):
        yield simulate_config(config, world, steps, seed=seed).macro_loss
