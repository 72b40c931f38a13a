"""The league of teachers in scripted worlds: who plays, and the arithmetic of its table."""

from functools import partial

import numpy as np
import pytest

from rota.config import teacher_config
from rota.measures import Estimate
from rota.simulation.league import BEST, LEAGUE, VARIANTS, League, entrants, play, player, written
from rota.simulation.simulate import fixed_mixture, simulate_config
from rota.simulation.worlds import make_world
from rota.teachers import TEACHERS
from rota.teachers.scripted.late import LateConfig
from rota.teachers.static import UniformConfig


@pytest.mark.slow
def test_every_teacher_plays_or_says_why_not():
    playing, left_out = entrants(partial(teacher_config, steps=3_000))
    assert {*playing, *left_out} == {*TEACHERS, *VARIANTS}
    assert {"uniform", "temperature", "tscl", "caps", "tscl rota", "dqn rota", "ccl-m"} <= set(playing)
    assert left_out["fixed"] == "needs shares"
    assert "mixed" in playing  # its mixture is drawn update by update
    assert left_out["sb3"] == "needs model"


@pytest.mark.parametrize("name", VARIANTS)
def test_a_variant_plays_under_a_name_of_its_own(name):
    base, variant = name.split(" ")
    made = player(name, partial(teacher_config, steps=2_000))
    assert (made.name, made.variant) == (base, variant)
    assert player(base, partial(teacher_config, steps=2_000)).variant == "scaled"


def test_a_teacher_that_needs_a_finished_run_is_told_the_losses_of_equal_shares_in_each_world():
    made = player("ccl-m", partial(teacher_config, steps=60), ["floor=0.02"])
    for name in ("switch", "useless"):
        world = make_world(name, 60)
        config = made(world, 60)
        assert config.baseline == fixed_mixture(world, dict.fromkeys(world.arms, 1), 60).final_losses
        assert config.floor == 0.02
    league = play({"ccl-m": made}, worlds=["switch", "useless"], seeds=2, steps=60)
    assert list(league.gains["ccl-m"]) == ["switch", "useless"]


def test_a_baseline_that_is_given_is_the_one_that_is_used():
    make = partial(teacher_config, steps=60)
    assert player("ccl-m", make, ["baseline={left: 1.0, right: 2.0}"]).baseline == {"left": 1.0, "right": 2.0}


def test_a_cell_is_the_mean_gain_over_equal_shares_with_its_error():
    told = []
    league = play(
        {"uniform": UniformConfig()}, worlds=["switch"], seeds=3, steps=60, progress=lambda *a: told.append(a)
    )
    world = make_world("switch", 60)
    equal = fixed_mixture(world, {"left": 1, "right": 1}, 60).macro_loss
    gains = [equal - simulate_config(UniformConfig(), world, 60, seed=seed).macro_loss for seed in (1, 2, 3)]
    found = league.gains["uniform"]["switch"]
    assert found.value == pytest.approx(np.mean(gains))
    assert found.error == pytest.approx(np.std(gains, ddof=1) / np.sqrt(3))
    assert told[-1] == ("switch: uniform", 3, 3)
    assert league.gains[BEST]["switch"].value == pytest.approx(0.0, abs=1e-3), "there equal shares are the best"


def test_a_teacher_that_needs_low_resource_languages_does_not_play_where_there_are_none():
    league = play({"late": LateConfig()}, worlds=["switch", "transfer"], seeds=1, steps=60)
    assert list(league.gains["late"]) == ["transfer"]
    assert "| `late` | - |" in league.markdown()


def test_the_table_is_ranked_by_the_mean_of_places():
    gains = {
        "bold": {"a": Estimate(0.05, 0.01), "b": Estimate(-0.001, 0.001)},
        "mild": {"a": Estimate(0.0, 0.01), "b": Estimate(0.002, 0.0004)},
        BEST: {"a": Estimate(0.2, 0.0), "b": Estimate(0.002, 0.0)},
    }
    league = League(gains, {}, seeds=2, steps=10)
    # In a: best, bold, mild; in b: best and mild, bold.
    assert league.ranked == [BEST, "mild", "bold"]
    assert league.markdown().splitlines() == [
        "| teacher | a | b |",
        "|---|---:|---:|",
        f"| `{BEST}` | **+200 ± 0** | **+2 ± 0** |",
        "| `mild` | +0 ± 10 | **+2 ± 0** |",
        "| `bold` | **+50 ± 10** | −1 ± 1 |",
    ]


def test_what_is_not_there_and_what_rounds_to_nothing():
    assert written(None) == "-"
    assert written(Estimate(0.0003, 0.0001)) == "+0 ± 0"


def test_the_command_knows_the_variants_by_name(rota):
    code, output, _ = rota("simulate", "tscl rota", "ccl-m", "--all", "--seeds", "1", "--steps", "20")
    assert code == 0
    assert "| `tscl rota` | " in output
    assert "| `ccl-m` | " in output


def test_the_command_prints_the_league(rota):
    code, output, _ = rota("simulate", "uniform", "--all", "--seeds", "1", "--steps", "40")
    assert code == 0
    assert "40 updates, 1 seeds" in output
    assert "| teacher | " + " | ".join(LEAGUE) + " |" in output
