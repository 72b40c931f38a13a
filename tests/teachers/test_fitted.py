"""A learned teacher by its name fits a run of any length; numbers worked out from the paper's 150,000 updates."""

import json
import logging

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota import api
from rota.config import as_begun, check_durations, parse_config, parse_recorded
from rota.runs import Run
from rota.settings import ConfigError
from rota.teachers import teacher_from
from rota.teachers.bandits.tscl import TSCL
from rota.teachers.rewards import SameArmGain


def config(teacher, steps=1_500, tokens=600):
    return parse_config(
        {"data": {"corpus": "synthetic"}, "teacher": teacher, "training": {"steps": steps, "tokens": tokens}}
    )


def fitted(teacher, **size):
    return config(teacher, **size).teacher


def test_dqn_by_its_name_fits_the_run():
    dqn = fitted("dqn")
    # 16k and 50k of 150k steps.
    assert (dqn.warmup.until.steps(1_500), dqn.epsilon_steps.steps(1_500)) == (160, 500)
    assert dqn.decide_every == 10
    # 134 choices instead of 13,400; 124 updates of the Q network instead of 12,400: each counts for a hundred.
    assert (dqn.replay_minimum, dqn.replay_capacity, dqn.replay_batch) == (10, 100, 32)
    assert dqn.gamma == pytest.approx(0.99**100)
    assert dqn.tau == pytest.approx(1 - 0.995**100)
    assert (dqn.epsilon_floor, dqn.reward_scale) == (pytest.approx(32 / 134), "z-score")
    assert (dqn.reward_tokens, dqn.groups, dqn.group_sentences) == (2_400, 3, 5)
    assert dqn.variant == "scaled"


def test_tscl_by_its_name_fits_the_run():
    tscl = fitted("tscl")
    assert (tscl.warmup.until.steps(1_500), tscl.decide_every, tscl.first_reward) == (160, 10, "untried")
    assert tscl.alpha == pytest.approx(0.3)


@pytest.mark.parametrize("name", ["tscl", "dqn"])
@pytest.mark.parametrize("steps", [150_000, 400_000])
def test_a_run_as_long_as_the_papers_has_the_papers_numbers_but_measures_less(name, steps):
    found = fitted(name, steps=steps, tokens=8_000).model_dump()
    paper = fitted({"name": name, "variant": "paper"}, steps=steps, tokens=8_000).model_dump()
    if name == "dqn":
        assert (found.pop("state_sentences"), paper.pop("state_sentences")) == ("spread", "first")
        assert (found.pop("refresh"), paper.pop("refresh")) == ("1/20", "1")
    else:
        # An update takes the time of three passes over its 8,000 tokens; 3 % of that are 720.
        assert (found.pop("reward_tokens"), paper.pop("reward_tokens")) == (720, 8_000)
    assert found | {"variant": "paper"} == paper


def test_what_is_written_about_measuring_stays_in_long_runs():
    assert fitted({"name": "tscl", "reward_tokens": 5_000}, steps=150_000, tokens=8_000).reward_tokens == 5_000
    assert fitted({"name": "dqn", "refresh": "1/2"}, steps=150_000, tokens=8_000).refresh == "1/2"
    assert fitted({"name": "tscl", "decide_every": 10}, steps=150_000, tokens=8_000).reward_tokens == 7_200


@pytest.mark.parametrize("variant", ["paper", "released"])
@pytest.mark.parametrize("name", ["tscl", "dqn"])
def test_an_exact_variant_has_its_numbers_in_a_run_of_any_length(name, variant):
    short, long = (fitted({"name": name, "variant": variant}, steps=steps) for steps in (1_500, 150_000))
    assert short == long


def test_what_is_written_stays_and_the_rest_follows_it():
    dqn = fitted({"name": "dqn", "warmup": 500, "decide_every": 5, "tau": 0.25, "replay_minimum": 40})
    assert (dqn.warmup.until.steps(1_500), dqn.decide_every, dqn.tau, dqn.replay_minimum) == (500, 5, 0.25, 40)
    # 1,000 updates are left for 200 choices; at the paper's size a third of 150k would leave 10,000.
    assert dqn.gamma == pytest.approx(0.99**50, rel=1e-3)
    assert fitted({"name": "dqn", "gamma": 0.5}).gamma == 0.5
    assert fitted({"name": "dqn", "warmup": None}).warmup is None
    assert fitted({"name": "tscl", "first_reward": "raw"}).first_reward == "raw"


def test_a_resolved_config_is_read_back_as_it_is():
    for teacher in ("dqn", "tscl", {"name": "dqn", "tau": 0.3}):
        resolved = config(teacher)
        assert parse_recorded(resolved.dump()).dump() == resolved.dump()
        assert as_begun(config(teacher), resolved.dump()).dump() == resolved.dump()


@given(steps=st.integers(1, 300_000), tokens=st.integers(1, 20_000), name=st.sampled_from(["tscl", "dqn"]))
def test_every_length_gives_settings_that_can_work(steps, tokens, name):
    found = config(name, steps, tokens)
    teacher = found.teacher
    assert 1 <= teacher.decide_every <= 10
    assert teacher.warmup.until.steps(steps) < steps
    if name == "dqn":
        assert 1 <= teacher.replay_minimum <= teacher.replay_capacity
        assert 0 <= teacher.gamma <= 0.99
        assert 0.005 <= teacher.tau <= 1
    if steps >= 3:
        check_durations(found)


def test_a_run_begun_before_settings_followed_its_length_keeps_the_papers():
    """Its config names no variant; then that meant the paper's numbers."""
    for teacher in ({"name": "tscl", "warmup": None}, {"name": "dqn", "warmup": "10%", "replay_minimum": 20}):
        recorded = config(teacher | {"variant": "paper"}).dump()
        resumed = as_begun(config(teacher), recorded)
        assert resumed.teacher.model_dump(mode="json") == recorded["teacher"]


def test_a_config_that_names_the_variant_is_another_run_than_one_begun_before():
    recorded = config({"name": "dqn", "variant": "paper", "warmup": "10%"}).dump()
    now = config({"name": "dqn", "variant": "scaled", "warmup": "10%"})
    assert as_begun(now, recorded).teacher == now.teacher


@pytest.mark.parametrize(
    ("steps", "floor"),
    [
        (500, 0.25),  # 80 choices and more: a quarter of them, and no more
        (1_500, 32 / 134),
        (10_000, 0.01 * (13_400 / 893) ** 0.5),  # 893 choices: the root of the lost ones is more than 32 / 893
        (150_000, 0.01),
    ],
)
def test_random_choices_are_left_for_every_language(steps, floor):
    assert fitted("dqn", steps=steps).epsilon_floor == pytest.approx(floor)
    assert fitted({"name": "dqn", "variant": "rota"}, steps=steps).epsilon_floor == 0.16
    assert fitted({"name": "dqn", "epsilon_floor": 0.03}, steps=steps).epsilon_floor == 0.03


def test_runs_keep_what_their_length_gave_them_when_they_began():
    for teacher, name, before in (("dqn", "epsilon_floor", 0.1), ("exp3", "decide_every", 10)):
        recorded = config(teacher, steps=400).dump()
        recorded["teacher"][name] = before
        resumed = as_begun(config(teacher, steps=400), recorded)
        assert getattr(resumed.teacher, name) == before
        assert getattr(fitted(teacher, steps=400), name) != before


@pytest.mark.parametrize(("steps", "block"), [(50, 1), (100, 1), (400, 5), (800, 10), (100_000, 10)])
def test_bandits_choose_often_enough_in_a_short_run(steps, block):
    for name in ("exp3", "exp3-s"):
        assert fitted(name, steps=steps).decide_every == block
        assert fitted({"name": name, "decide_every": 7}, steps=steps).decide_every == 7
        assert fitted({"name": name, "variant": "source"}, steps=steps).decide_every == 1


VALUES = {
    "data": {"languages": {"lala": 60, "lato": 40}, "corpus": "synthetic", "subwords": {"size": 300}},
    "student": {"preset": "tiny", "width": 16, "heads": 2, "feedforward": 16, "layers": 1, "lr_warmup": 2},
    "training": {"steps": 12, "tokens": 60, "checkpoint_every": 6, "validate_every": 6, "threads": 1},
}


def tiny(tmp_path, teacher, **training):
    data = {"corpus": "synthetic", "subwords": {"size": 400}, "folder": str(tmp_path / "data")}
    values = {**VALUES, "data": data, "teacher": teacher}
    return parse_config({**values, "training": {**VALUES["training"], "tensorboard": False, **training}})


@pytest.mark.parametrize("name", ["tscl", "dqn"])
@pytest.mark.parametrize("steps", [1, 2, 12])
def test_by_its_name_it_trains_to_the_end_of_the_shortest_runs(tmp_path, name, steps):
    loop = api.train(tiny(tmp_path, name, steps=steps), tmp_path / "run")
    assert loop.step == steps
    assert Run(tmp_path / "run").setting("config.teacher.variant") == "scaled"


def test_a_run_begun_before_resumes_bit_for_bit_with_a_config_that_names_no_variant(tmp_path):
    teacher = {"name": "tscl", "warmup": None}
    whole, parts = Run(tmp_path / "whole"), Run(tmp_path / "parts")
    api.train(tiny(tmp_path, teacher | {"variant": "paper"}, guard=False), whole.folder)
    api.train(tiny(tmp_path, teacher | {"variant": "paper"}, guard=False), parts.folder, until=6)
    about = json.loads(parts.about_path.read_text())
    del about["config"]["training"]["guard"], about["check"]
    parts.write_about(about)
    api.train(tiny(tmp_path, teacher), parts.folder)
    assert parts.record_path("steps").read_bytes() == whole.record_path("steps").read_bytes()


def warned(caplog, teacher, steps=1_500):
    caplog.clear()
    with caplog.at_level(logging.WARNING):
        check_durations(config(teacher, steps))
    return [record.getMessage() for record in caplog.records if "teacher" in record.getMessage()]


def test_a_target_network_that_hardly_moves_is_named_before_the_start(caplog):
    # (1,500 - 150) / 10 = 135 choices, 115 updates: 1 - 0.995 ** 115 = 44 %; half way takes 1 - 2 ** (-1 / 115).
    settings = {"name": "dqn", "variant": "paper", "warmup": "10%", "epsilon_steps": "30%", "replay_minimum": 20}
    assert warned(caplog, settings) == [
        "teacher.tau is 0.005: the network that chooses moves 44% of the way from its random start in 115 updates; "
        "leave it out, or write at least 0.006"
    ]
    assert warned(caplog, settings | {"acts_with": "online"}) == []
    assert warned(caplog, settings | {"learn": False}) == []


def test_an_epsilon_that_never_falls_is_named_before_the_start(caplog):
    [message] = warned(caplog, {"name": "dqn", "epsilon_steps": 50_000})
    assert "teacher.epsilon_steps is 50000: 98% of the choices are random even at the end" in message
    assert warned(caplog, "dqn") == warned(caplog, "tscl") == []


def test_a_learning_rate_that_never_reaches_its_peak_is_named_with_what_to_write(caplog):
    short = parse_config({"data": {"corpus": "synthetic"}, "training": {"steps": 200}})
    said = "student.lr_warmup lasts 16,000 steps and the run 200: the rate never reaches its peak"
    for begun, remedy in ((False, "; write for example --set student.lr_warmup=10%"), (True, "")):
        caplog.clear()
        check_durations(short, begun=begun)  # a run that has begun keeps its learning rate
        assert [record.message for record in caplog.records] == [said + remedy]


@pytest.mark.parametrize(("student", "count"), [({}, 0), ({"lr_warmup": 300}, 1)])
def test_a_student_that_starts_from_a_model_is_not_judged_by_the_default_of_others(caplog, student, count):
    student = {"start": "runs/first", "learning_rate": {"peak": 0.001}, **student}
    check_durations(parse_config({"data": {"corpus": "synthetic"}, "student": student, "training": {"steps": 200}}))
    assert caplog.text.count("the rate never reaches its peak") == count


def test_a_q_network_that_would_never_learn_is_refused():
    message = "teacher.replay_minimum is 1,000 and there are 135 choices: .* never learn; leave it out, or write 13"
    with pytest.raises(ConfigError, match=message):
        check_durations(config({"name": "dqn", "replay_minimum": 1_000, "replay_capacity": 1_000, "warmup": "10%"}))


def test_a_run_that_has_begun_with_it_goes_on_with_a_warning(caplog):
    never = config({"name": "dqn", "replay_minimum": 1_000, "replay_capacity": 1_000})
    with caplog.at_level(logging.WARNING):
        check_durations(never, begun=True)
    assert "never learn" in caplog.text


def test_untried_languages_come_first_and_their_first_reward_counts_in_full():
    teacher = TSCL(("az", "be"), np.random.default_rng(1), SameArmGain("skip"), untried_first=True)
    teacher.epsilon = 0.0
    assert teacher.values().tolist() == [1.0, 1.0]
    teacher.learn("az", 1, 5.0)  # no reward yet: nothing to compare with
    assert teacher.values().tolist() == [1.0, 1.0]
    teacher.learn("az", 2, 4.5)
    assert teacher.values().tolist() == [0.5, 1.5]
    assert teacher.ask(3).arm == "be"
    teacher.learn("az", 3, 4.4)
    assert teacher.values()[0] == pytest.approx(0.9 * 0.5 + 0.1 * 0.1)
    again = TSCL(("az", "be"), np.random.default_rng(1), SameArmGain("skip"), untried_first=True)
    again.load_state_dict(json.loads(json.dumps(teacher.state_dict())))
    assert again.values().tolist() == teacher.values().tolist()


@pytest.mark.parametrize("algorithm", ["naive", "window"])
def test_slopes_have_no_first_reward_that_a_short_run_could_leave_out(algorithm):
    fitted = teacher_from({"name": "tscl", "algorithm": algorithm}).fitted(1_500, 750)
    assert (fitted.first_reward, fitted.decide_every) == ("raw", 10)
