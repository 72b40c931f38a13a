"""The suite ``order``: the same updates of every language in every row, exactly; only their order differs."""

import math
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from replay_cases import make_run

from rota.config import parse_config
from rota.experiments.suites import SUITES
from rota.teachers import Classroom, build_teacher

SUITE = SUITES["order"]()
STEPS, TOKENS = 1_500, 750
CLASSROOM = Classroom(
    {"az": 400, "be": 300, "tr": 9_000, "ru": 8_000},
    low_resource=("az", "be"),
    steps=STEPS,
    tokens={"az": 3_000, "be": 9_000, "tr": 200_000, "ru": 150_000},
    update_tokens=TOKENS,
)


def played(row, seed, runs):
    config = parse_config(SUITE.values(row, seed, runs))
    assert (config.training.steps, config.training.tokens, config.teacher.warmup) == (STEPS, TOKENS, None)
    teacher = build_teacher(config.teacher, CLASSROOM, np.random.default_rng(seed))
    return [teacher.ask(step).arm for step in range(STEPS)]


@pytest.fixture(scope="module", params=[1, 2])
def schedules(request, tmp_path_factory):
    runs = tmp_path_factory.mktemp("order")
    late = played("late", request.param, runs)
    make_run(runs / "late" / f"seed-{request.param}", late, languages=CLASSROOM.arms)
    return {row: late if row == "late" else played(row, request.param, runs) for row in SUITE.rows}


def test_every_row_has_exactly_the_same_updates_of_every_language(schedules):
    # At most 16 epochs: 48,000 tokens of az are 64 updates, 144,000 of be 192; tr and ru share the other 1,244.
    expected = {"az": 64, "be": 192, "tr": 622, "ru": 622}
    assert {row: dict(Counter(arms)) for row, arms in schedules.items()} == dict.fromkeys(SUITE.rows, expected)


def test_the_orders_differ_where_they_should(schedules):
    middle = {row: np.mean([step for step, arm in enumerate(arms) if arm == "az"]) for row, arms in schedules.items()}
    # Early, az has all its updates in the first 4 x 64; late in the last ones; spread around the middle.
    assert max(step for step, arm in enumerate(schedules["early"]) if arm == "az") < 256
    assert min(step for step, arm in enumerate(schedules["late"]) if arm == "az") >= STEPS - 256
    assert middle["spread"] == pytest.approx(750, abs=4 * STEPS / math.sqrt(12 * 64))
    window = STEPS // 10
    for start in range(0, STEPS, window):
        late, again = (schedules[row][start : start + window] for row in ("late", "late-windows"))
        assert Counter(late) == Counter(again)
    assert schedules["late"] != schedules["late-windows"]


def test_the_suite_runs_all_four_with_five_seeds():
    assert SUITE.choose(None) == ["spread", "early", "late", "late-windows"]
    assert SUITE.seeds == (1, 2, 3, 4, 5)
    assert SUITE.values("late-windows", 3, Path("runs/order"))["teacher"]["run"] == "runs/order/late/seed-3"
