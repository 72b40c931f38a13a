"""No built-in teacher with default settings ends far worse than uniform, on a student that forgets and noisy losses."""

import numpy as np
import pytest

from rota.config import teacher_config
from rota.simulation.simulate import simulate_config
from rota.simulation.worlds import forgetting
from rota.teachers import TEACHERS

MARGIN = 0.35
"""Nats per token that the mean over seeds may be above uniform's. One language alone ends 0.74 above it."""

LISTENING = [
    name
    for name, kind in TEACHERS.items()
    if kind.listens and not any(field.is_required() for field in kind.model_fields.values())
]


KNOWN = {"weight-change": "ends 0.6 nats above uniform after 100 updates (seeds 0 and 1)"}
"""Teachers that break the rule, with what was seen."""

NEEDED = {"zaremoodi": ["targets=goal"]}
"""The world has no low-resource languages, which are its targets by default."""

MARKED = [
    pytest.param(name, marks=pytest.mark.xfail(reason=KNOWN[name], strict=False)) if name in KNOWN else name
    for name in (*LISTENING, "tscl rota", "dqn rota")
]


def final_losses(name, steps, seeds):
    """Of the mean over languages; None if a scripted student cannot show what the teacher watches."""
    name, _, variant = name.partition(" ")
    overrides = [*NEEDED.get(name, ()), *([f"variant={variant}"] if variant else [])]
    config = teacher_config(name, overrides, steps=steps, tokens=750)
    try:
        return [simulate_config(config, forgetting(steps), steps, seed=seed).macro_loss for seed in range(seeds)]
    except ValueError as error:
        if "a scripted student cannot show" in str(error):
            return None
        raise


def check(name, steps, seeds):
    losses = final_losses(name, steps, seeds)
    if losses is None:
        pytest.skip("a scripted student cannot show what it watches")
    excess = np.mean(losses) - np.mean(final_losses("uniform", steps, seeds))
    assert excess < MARGIN, f"{name} ends {excess:.2f} nats above uniform after {steps:,} updates"


@pytest.mark.parametrize("name", MARKED)
def test_a_short_run_ends_near_uniform(name):
    check(name, steps=100, seeds=2)


@pytest.mark.slow
@pytest.mark.parametrize("steps", [100, 1_000, 10_000])
@pytest.mark.parametrize("name", MARKED)
def test_runs_of_three_lengths_end_near_uniform_over_twenty_seeds(name, steps):
    check(name, steps, seeds=20)


def test_the_margin_would_catch_a_collapse():
    steps = 1_000
    world = forgetting(steps)
    one, uniform = (world.final_losses(np.array([shares]), steps).mean() for shares in ([1.0, 0, 0, 0], [0.25] * 4))
    assert one - uniform == pytest.approx(0.737, abs=0.001)
    assert one - uniform > 2 * MARGIN
