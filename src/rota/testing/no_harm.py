"""Whether a teacher does harm: how it ends beside uniform, with a student that forgets and losses that are noisy.

The student is scripted (:func:`rota.simulation.worlds.forgetting`): four languages that help each other little, and
what is not trained on is forgotten. Training on one of them alone ends 0.74 nats per token above uniform. A teacher
cannot gain much there, so this says whether it can be left alone with a run, not whether it is good.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any, ClassVar, Final

import numpy as np

from rota.simulation.simulate import simulate_config
from rota.simulation.worlds import World, forgetting
from rota.teachers import TeacherConfig, teacher_from

MARGIN: Final = 0.25
"""Nats per token by which the mean over seeds may be above uniform's: a third of what a collapse costs."""

LENGTHS: Final = (100, 1_000, 10_000)
"""Updates of the runs that the built-in teachers are held to."""

TOKENS: Final = 750
"""Target tokens of an update, for settings that follow them."""

Spec = TeacherConfig | Mapping[str, Any] | str


def final_losses(
    config: Spec, steps: int, seeds: Sequence[int], world: Callable[[int], World] = forgetting
) -> list[float]:
    """The mean dev loss at the end of a run with each seed, nats per token; the guard acts as in a real run.

    A ValueError says so if a scripted student cannot show what the teacher watches.
    """
    fitted = teacher_from(config).fitted(steps, TOKENS)
    return [simulate_config(fitted, world(steps), steps, seed=seed).macro_loss for seed in seeds]


def above_uniform(config: Spec, steps: int, seeds: Sequence[int], world: Callable[[int], World] = forgetting) -> float:
    """How far the teacher ends above uniform, as a mean over seeds; negative is good."""
    return float(np.mean(final_losses(config, steps, seeds, world))) - _uniform(steps, tuple(seeds), world)


@cache
def _uniform(steps: int, seeds: tuple[int, ...], world: Callable[[int], World]) -> float:
    return float(np.mean(final_losses("uniform", steps, seeds, world)))


class NoHarm:
    """Subclass it, name a config, and let pytest collect the subclass: runs of three lengths must end near uniform.

    >>> class TestMineDoesNoHarm(NoHarm):
    ...     config = {"name": "my_module:MyConfig"}
    """

    config: ClassVar[Spec]
    lengths: ClassVar[Sequence[int]] = LENGTHS
    seeds: ClassVar[Sequence[int]] = range(5)
    margin: ClassVar[float] = MARGIN

    def test_it_ends_near_uniform(self) -> None:
        for steps in self.lengths:
            excess = above_uniform(self.config, steps, self.seeds)
            assert excess < self.margin, f"it ends {excess:.2f} nats above uniform after {steps:,} updates"
