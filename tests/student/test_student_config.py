"""Settings of the student, the learning rate that follows from them, and settings of earlier versions."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest
from pydantic import ValidationError

from rota.config import parse_recorded
from rota.settings import ConfigError, Duration
from rota.student.config import LearningRate, Schedule, StudentConfig
from rota.student.nmt import build_student

RUN_OF_VERSION_0_1 = Path(__file__).parents[2] / "docs/results/laptop/ted8-small-3k/uniform/seed-2/run.json"


def test_a_config_of_version_0_1_keeps_its_values_and_its_fingerprint():
    about = json.loads(RUN_OF_VERSION_0_1.read_text(encoding="utf-8"))
    assert about["config"]["student"]["compile"] is False
    config = parse_recorded(about["config"])
    assert config.dump()["student"] == about["config"]["student"]
    assert config.fingerprint == about["config_fingerprint"]


@pytest.mark.parametrize("written", [{}, {"compile": None}, {"compile": False}, {"compile": True}])
def test_the_setting_compile_of_version_0_1_is_read_and_does_nothing(written, caplog):
    with caplog.at_level(logging.WARNING):
        config = StudentConfig.model_validate(written)
    assert config == StudentConfig()
    assert config.model_dump()["compile"] is False
    assert ("student.compile no longer exists and is ignored" in caplog.text) == (written.get("compile") is True)


def test_the_schedule_is_noams():
    # OpenNMT-py: scale * width ** -0.5 * min(step ** -0.5, step * warmup ** -1.5)
    schedule = Schedule(Schedule.peak_from_scale(10, width=256, warmup=100), warmup=100)
    assert schedule(1) == pytest.approx(10 / 16 * 1 / 1000)
    assert schedule(100) == pytest.approx(10 / 16 / 10)
    assert schedule(400) == pytest.approx(10 / 16 / 20)


def test_the_peak_is_reached_at_the_end_of_the_warmup():
    schedule = Schedule(peak=0.001, warmup=50)
    assert [schedule(25), schedule(50), schedule(200)] == pytest.approx([0.0005, 0.001, 0.0005])


def test_without_warmup_the_first_step_has_the_highest_rate():
    schedule = Schedule(peak=0.001, warmup=0)
    assert [schedule(1), schedule(4)] == pytest.approx([0.001, 0.0005])


def test_the_warmup_may_be_a_share_of_the_run():
    config = StudentConfig(preset="tiny", lr_warmup="10%", learning_rate={"peak": 0.002})
    student = build_student(config, vocabulary=50, steps=1000, seed=1)
    assert student.schedule(100) == pytest.approx(0.002)
    assert student.schedule(50) == pytest.approx(0.001)


def test_presets_have_the_sizes_they_promise():
    sizes = {
        name: (shape.encoder_layers, shape.decoder_layers, shape.width, shape.heads, shape.feedforward)
        for name in ("tiny", "small", "base")
        for shape in [StudentConfig(preset=name).shape(vocabulary=100)]
    }
    assert sizes == {"tiny": (2, 2, 128, 4, 512), "small": (3, 3, 256, 4, 1024), "base": (6, 6, 512, 8, 2048)}
    changed = StudentConfig(preset="base", layers=4, decoder_layers=1, heads=4).shape(vocabulary=100)
    assert (changed.encoder_layers, changed.decoder_layers, changed.heads) == (4, 1, 4)


@pytest.mark.parametrize(
    ("mistake", "message"),
    [
        ({"width": 30}, "width 30 with 4 heads"),
        ({"dropout": 1.0}, "less than 1"),
        ({"learning_rate": {"scale": 10, "peak": 0.1}}, "either scale"),
        ({"learning_rate": {}}, "either scale"),
        ({"betas": (0.9, 1.0)}, "between 0 and 1"),
        ({"preset": "huge"}, "'tiny', 'small' or 'base'"),
    ],
)
def test_settings_that_cannot_work_are_refused(mistake, message):
    with pytest.raises(ValidationError, match=message):
        StudentConfig(**mistake)


def test_a_linear_rate_falls_to_nothing_just_after_the_end():
    # Ten steps of warm-up, then ninety steps down: step 55 is half way from 10 to 100, bar the one step after the end.
    schedule = Schedule(peak=0.9, warmup=10, end=99, decay="linear")
    assert [schedule(step) for step in (1, 10, 55, 99, 100)] == pytest.approx([0.09, 0.9, 0.45, 0.01, 0.0])
    student = build_student(
        StudentConfig(learning_rate=LearningRate(peak=0.9, decay="linear"), lr_warmup=Duration("10")),
        vocabulary=10,
        steps=99,
        seed=1,
    )
    assert student.schedule == schedule


def rates(decay, steps=99, warmup=10, **options):
    """The learning rate by update, with a peak of 0.8."""
    rate = LearningRate(peak=0.8, decay=decay, **options)
    return StudentConfig(learning_rate=rate, lr_warmup=Duration(warmup)).schedule(steps)


def test_a_rate_that_is_held_starts_at_its_maximum_and_then_is_noams():
    schedule = rates("hold-then-inverse-sqrt")
    assert [schedule(step) for step in (1, 2, 10, 40, 90)] == pytest.approx([0.8, 0.8, 0.8, 0.4, 0.8 / 3])
    assert [schedule(step) for step in range(10, 200)] == [rates("inverse-sqrt")(step) for step in range(10, 200)]


def test_without_warmup_the_paper_starts_at_its_usual_maximum_not_at_a_hundred_times_that():
    # 10 / sqrt(512 * 16,000) = 0.0035; with a warm-up of 0 the factor alone gives 10 / sqrt(512) = 0.44.
    held = StudentConfig(preset="base", learning_rate=LearningRate(scale=10, decay="hold-then-inverse-sqrt"))
    assert [held.schedule(150_000)(step) for step in (1, 16_000, 64_000)] == pytest.approx(
        [0.0034939, 0.0034939, 0.0017469], rel=1e-4
    )
    none = StudentConfig(preset="base", lr_warmup=Duration(0))
    assert [none.schedule(150_000)(step) for step in (1, 2, 4)] == pytest.approx([0.441942, 0.3125, 0.220971], rel=1e-4)


def test_a_cosine_falls_slowly_then_fast_then_slowly_to_nothing_just_after_the_end():
    # Thirds of the way from step 10 to step 100: half a wave has fallen by 1/4, 1/2 and 3/4 at 1/3, 1/2 and 2/3.
    schedule = rates("cosine")
    found = [schedule(step) for step in (5, 10, 40, 55, 70, 100, 120)]
    assert found == pytest.approx([0.4, 0.8, 0.6, 0.4, 0.2, 0.0, 0.0])


def test_a_stable_rate_falls_in_the_last_steps_alone():
    # The last 20 of 99 steps: from step 80 on along a line that is 0 at step 100.
    schedule = rates("warmup-stable-decay", cooldown=Duration(20))
    assert [schedule(step) for step in (5, 10, 50, 80, 90, 99)] == pytest.approx([0.4, 0.8, 0.8, 0.8, 0.4, 0.04])
    fifth = rates("warmup-stable-decay", steps=999)  # 20 % of 999 are 200 steps: from step 800 on
    assert [fifth(step) for step in (800, 900, 1000)] == pytest.approx([0.8, 0.4, 0.0])


def test_a_cooldown_that_meets_the_warmup_leaves_no_stable_part():
    schedule = rates("warmup-stable-decay", cooldown=Duration("100%"))
    assert [schedule(step) for step in range(1, 100)] == [rates("linear")(step) for step in range(1, 100)]


@pytest.mark.parametrize(
    ("mistake", "message"),
    [
        ({"decay": "linear", "cooldown": "10%"}, "cooldown is 10%, but decay linear has none; use warmup-stable-decay"),
        ({"decay": "warmup-stable-decay", "cooldown": 0}, "cooldown is 0; write for example 20% of the run"),
        ({"decay": "step"}, "'linear', 'cosine' or 'warmup-stable-decay'"),
    ],
)
def test_shapes_that_cannot_be_meant_are_refused(mistake, message):
    with pytest.raises(ValidationError, match=message):
        LearningRate(peak=0.1, **mistake)


def test_what_is_written_of_a_rate_is_what_was_written_before_there_were_cooldowns():
    assert LearningRate(peak=0.1).model_dump(mode="json") == {"scale": None, "peak": 0.1, "decay": "inverse-sqrt"}
    stable = LearningRate(peak=0.1, decay="warmup-stable-decay", cooldown="10%")
    assert stable.model_dump(mode="json")["cooldown"] == "10%"
    assert LearningRate.model_validate(stable.model_dump(mode="json")) == stable


@pytest.mark.parametrize("decay", ["inverse-sqrt", "linear", "cosine", "hold-then-inverse-sqrt"])
def test_a_rate_that_restarts_is_that_of_two_runs_one_after_the_other(decay):
    whole = Schedule(0.8, 10, 100, decay, restart=60)
    first, second = Schedule(0.8, 10, 60, decay), Schedule(0.8, 10, 40, decay)
    assert [whole(step) for step in range(1, 61)] == [first(step) for step in range(1, 61)]
    assert [whole(step) for step in range(61, 101)] == [second(step) for step in range(1, 41)]


def test_the_rate_restarts_where_the_config_or_the_teacher_says_but_not_at_both():
    own = StudentConfig(lr_warmup=Duration(10), learning_rate=LearningRate(peak=0.1, restart=Duration("50%")))
    assert own.schedule(200)(101) == pytest.approx(0.01)
    plain = StudentConfig(lr_warmup=Duration(10), learning_rate=LearningRate(peak=0.1))
    assert plain.schedule(200, restart=50)(51) == pytest.approx(0.01)
    with pytest.raises(ConfigError, match="restart is 50% and teacher.restart_learning_rate is true; keep one"):
        own.schedule(200, restart=50)


def test_only_a_rate_that_restarts_says_so():
    assert "restart" not in LearningRate(peak=0.1).model_dump()
    written = LearningRate(peak=0.1, restart=Duration("50%")).model_dump(mode="json")
    assert written["restart"] == "50%"
    assert LearningRate.model_validate(written).restart == Duration("50%")
