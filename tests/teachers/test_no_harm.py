"""No built-in teacher with default settings ends far worse than uniform, on a student that forgets and noisy losses."""

import numpy as np
import pytest

from rota.simulation.worlds import forgetting
from rota.teachers import TEACHERS
from rota.testing import NoHarm
from rota.testing.no_harm import LENGTHS, MARGIN, above_uniform

NEEDED = {
    "zaremoodi": {"targets": "goal"},  # the world has no low-resource languages, which are its targets by default
    "ccl-m": {"baseline": dict.fromkeys(("north", "east", "south", "west"), 1.88)},  # what uniform reaches
}
LEFT_OUT = ("fixed", "sb3", "replay-proportions", "replay-shuffled", "replay-exact", "late")
"""They do what they are given: shares, a policy, a run; there is no default to judge. ``late`` is about low-resource
languages."""

NAMES = (*(name for name in TEACHERS if name not in LEFT_OUT), "tscl rota", "dqn rota")
"""With the variant, where it is not the default."""


def config_of(name):
    name, _, variant = name.partition(" ")
    return {"name": name, **NEEDED.get(name, {}), **({"variant": variant} if variant else {})}


@pytest.mark.parametrize("name", NAMES)
def test_a_short_run_ends_near_uniform(name):
    assert above_uniform(config_of(name), 100, range(2)) < MARGIN


@pytest.mark.slow
@pytest.mark.parametrize("steps", LENGTHS)
@pytest.mark.parametrize("name", NAMES)
def test_runs_of_three_lengths_end_near_uniform_over_twenty_seeds(name, steps, record_property):
    excess = above_uniform(config_of(name), steps, range(20))
    record_property("nats_above_uniform", excess)
    assert excess < MARGIN


def test_the_margin_would_catch_a_collapse():
    steps = 1_000
    world = forgetting(steps)
    one, uniform = (world.final_losses(np.array([shares]), steps).mean() for shares in ([1.0, 0, 0, 0], [0.25] * 4))
    assert one - uniform == pytest.approx(0.737, abs=0.001)
    assert one - uniform > 2.9 * MARGIN


class TestUniformDoesNoHarm(NoHarm):
    config = "uniform"
    lengths = (100,)


def test_the_public_check_fails_for_a_teacher_that_stays_with_one_language():
    stuck = type("Stuck", (NoHarm,), {"config": {"name": "fixed", "shares": {"north": 1}}, "lengths": (100,)})
    with pytest.raises(AssertionError, match=r"it ends 0\.7\d nats above uniform after 100 updates"):
        stuck().test_it_ends_near_uniform()
