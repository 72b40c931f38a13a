"""The teacher ``weights``: its rules, its settings, its baselines, and where its shares go."""

import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from replay_cases import make_run

from rota.simulation.simulate import simulate_config
from rota.simulation.worlds import make_world
from rota.teachers import TEACHERS, Classroom, SizeChange, build_teacher, teacher_from
from rota.teachers.weights.config import PRESET_CONFIGS, SIGNALS
from rota.teachers.weights.presets import PRESETS
from rota.teachers.weights.rules import ODM, RULES, ActorRule, ChiSquare, Softmax, floored
from rota.testing import Rehearsal
from rota.testing.contract import CLASSROOM

RULE_SETTINGS = {
    "proportional": {},
    "softmax": {"temperature": 0.5},
    "mirror": {"eta": 1.0, "pull": 0.1},
    "exp3": {"eta": 1.0, "epsilon": 0.1, "cap": 10.0},
    "exp3-s": {"eta": 1.0, "epsilon": 0.1, "cap": None, "horizon": 0.5},
    "odm": {"memory": 0.9, "cap": None},
    "chi-square": {"rho": 0.5, "least_ratio": 0.2},
    "actor": {"actor": "closed-form", "max_step": 0.5},
}


@pytest.mark.parametrize("name", RULES)
@given(
    values=st.lists(st.lists(st.floats(-50, 50), min_size=4, max_size=4), min_size=1, max_size=8),
    played=st.integers(0, 3),
    prior=st.lists(st.floats(0.01, 1), min_size=4, max_size=4),
)
def test_whatever_the_values_shares_are_a_distribution_above_the_floor(name, values, played, prior):
    rule = RULES[name](np.array(prior) / sum(prior), changes=10, **RULE_SETTINGS[name])
    for row in values:
        shares = floored(rule.shares_K, 0.02)
        assert shares.sum() == pytest.approx(1)
        assert shares.min() >= 0.02 * (1 - 1e-9)
        rule.update(np.array(row), np.eye(4)[played] / shares[played])


@pytest.mark.parametrize("name", RULES)
def test_a_rule_starts_at_its_prior_and_a_higher_value_never_gets_less(name):
    prior = np.full(3, 1 / 3)
    rule = RULES[name](prior, changes=10, **RULE_SETTINGS[name])
    assert rule.shares_K == pytest.approx(prior)
    for _ in range(5):
        rule.update(np.array([1.0, 2.0, 3.0]), np.full(3, 1.0))
    low, middle, high = rule.shares_K
    assert low <= middle <= high
    assert low < high


def test_with_many_arms_the_floor_is_half_of_the_uniform_share():
    assert floored(np.array([1.0, *np.zeros(199)]), 0.01).min() == pytest.approx(0.5 / 200)
    assert floored(np.array([1.0, 0.0]), 0.01).tolist() == pytest.approx([0.99, 0.01])


@given(st.lists(st.integers(-30, 30), min_size=3, max_size=3, unique=True), st.floats(0.01, 0.3))
def test_the_chi_square_ball_is_filled_as_far_as_it_can_be(values, rho):
    prior = np.array([0.2, 0.3, 0.5])
    rule = ChiSquare(prior, 10, rho=rho, least_ratio=0.0)
    worst = rule._worst(np.array(values, dtype=float))
    most = 0.5 * (1 / prior[np.argmax(values)] - 1)  # everything on the worst arm
    divergence = 0.5 * float((prior * (worst / prior - 1) ** 2).sum())
    assert divergence == pytest.approx(min(rho, most), abs=1e-9)
    shifted = rule._worst(10 * np.array(values) + 4.0)
    assert shifted == pytest.approx(worst, abs=1e-9), "neither the scale nor the zero of the losses matters"


def test_an_arm_of_which_nothing_is_known_counts_as_the_mean():
    rule = Softmax(np.full(3, 1 / 3), 10, temperature=1.0)
    rule.update(np.array([1.0, np.nan, 3.0]), np.zeros(3))
    weights = [math.exp(1), math.exp(2), math.exp(3)]
    assert rule.shares_K == pytest.approx([weight / sum(weights) for weight in weights])


def test_the_actors_closed_form_is_where_adam_ends():
    values, prior = np.array([0.1, 0.3, 0.6]), np.array([0.5, 0.3, 0.2])
    closed = ActorRule(prior, 10, actor="closed-form", max_step=100.0)
    closed.update(values, np.zeros(3))
    assert closed.shares_K == pytest.approx(values)
    adam = ActorRule(prior, 10, actor="adam", max_step=100.0)
    for _ in range(150):
        adam.update(values, np.zeros(3))
    assert adam.shares_K == pytest.approx(values, abs=1e-3)


def test_adam_of_the_actor_is_torchs():
    import torch

    values = [[0.1, 0.3, -0.2], [0.4, 0.0, 0.3]]
    ours = ActorRule(np.full(3, 1 / 3), 10, actor="adam", max_step=1.0)
    logits = torch.zeros(3, dtype=torch.float64, requires_grad=True)
    optimiser = torch.optim.Adam([logits], lr=1e-4)
    for row in values:
        for _ in range(200):
            optimiser.zero_grad()
            (-(torch.tensor(row, dtype=torch.float64) * torch.log_softmax(logits, 0)).sum()).backward()
            optimiser.step()
        ours.update(np.array(row), np.zeros(3))
        assert ours.shares_K == pytest.approx(torch.softmax(logits, 0).detach().numpy(), abs=1e-9)


def test_odm_explores_less_and_less():
    rule = ODM(np.full(2, 0.5), 10, memory=0.9, cap=None)
    for _ in range(1000):
        rule.update(np.array([5.0, 1.0]), np.array([1.0, 1.0]))
    assert rule.shares_K[1] == pytest.approx(1 - rule.shares_K[0])
    least = math.sqrt(math.log(2) / 2000)
    assert rule.shares_K[1] > least


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_is_a_teacher_by_its_name_alone(name):
    config = teacher_from(name)
    assert type(config) is PRESET_CONFIGS[name] is TEACHERS[name]
    assert config == teacher_from({"name": name, **PRESETS[name].settings}), "its settings are its defaults"
    for each in (config, teacher_from({"name": name, "variant": "source"})):
        assert teacher_from(each.model_dump(mode="json")) == each, "what run.json holds makes the same teacher"


def test_a_preset_differs_from_weights_in_its_defaults_alone():
    written = teacher_from("chi-ibr").model_dump(mode="json")
    same = teacher_from({**written, "name": "weights"}).model_dump(mode="json")
    assert same == {**written, "name": "weights"}


def test_a_preset_can_be_changed_and_taken_as_published():
    assert teacher_from({"name": "chi-ibr", "rho": 0.1}).rho == 0.1
    assert teacher_from({"name": "chi-ibr"}).rho == 0.05
    assert teacher_from({"name": "exp3-s", "variant": "source"}).eta == 1e-3
    assert teacher_from({"name": "exp3-s", "variant": "source", "eta": 0.01}).eta == 0.01
    assert teacher_from("exp3-s").eta is None


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"name": "chi-ibr", "temperature": 2}, "temperature is set, but signal excess with rule chi-square uses"),
        ({"name": "weights", "rho": 0.1}, "rho is set, but signal dev-loss with rule softmax uses temperature, tokens"),
        ({"name": "exp3", "observe_every": 10}, "observe_every is set, but this teacher is told when its weights"),
        ({"name": "weights", "signal": "dev-los"}, "Input should be 'train-loss', 'dev-loss'"),
        ({"name": "weights", "floor": 1.0}, "Input should be less than 1"),
        ({"name": "weights", "prior": {"name": "uniform", "warmup": 5}}, "prior has 'warmup', which a prior does not"),
    ],
)
def test_a_setting_that_does_nothing_is_refused(values, message):
    with pytest.raises(ValueError, match=message.replace("(", r"\(")):
        teacher_from(values)


def test_a_start_after_the_end_is_refused_before_anything_is_prepared():
    with pytest.raises(ValueError, match=r"teacher.start is step 2,000 and the run has 300: the weights would never"):
        teacher_from({"name": "odm", "start": 2000}).check(300)


def test_weights_change_at_whole_choices_and_are_measured_only_then():
    config = teacher_from({"name": "loss-softmax", "decide_every": 8, "reweight_every": 20})
    assert (config.changes_every(1000), config.observes_every(1000)) == (16, 16)
    assert teacher_from("loss-softmax").observes_every(3000) == 60
    assert teacher_from("loss-softmax").observes_every(10) == 1
    assert teacher_from("chi-ibr").observes_every(3000) is None, "training losses are told at every choice"
    assert teacher_from("exp3").observes_every(3000) == 10


def test_nothing_is_measured_before_the_start():
    room = Rehearsal({"name": "loss-softmax", "start": 100, "reweight_every": 10})
    assert len(room.teacher.watches) == 1
    watched, prior = [], room.teacher.shares_K
    for _ in range(150):
        room.run(1)
        assert np.array_equal(room.teacher.shares_K, prior) == (room.step < 100)
        watched.append((room.step, bool(room.teacher.watches)))
    assert watched == [(step, step > 90) for step in range(1, 151)]


def test_a_run_of_another_size_keeps_its_shares_and_measures_no_more_than_a_batch():
    scaled = teacher_from({"name": "odm", "variant": "source"}).scaled(
        SizeChange(steps_before=100_000, steps=5_000, tokens=300)
    )
    assert scaled == {"start": 100, "tokens": 300}


def test_a_baseline_is_read_from_the_end_of_a_run(tmp_path):
    run = make_run(tmp_path / "other", list(CLASSROOM.arms) * 25)
    lines = [json.loads(line) for line in (run / "steps.jsonl").read_text().splitlines()]
    for entry in lines:
        entry["loss"] = 9.0 if entry["step"] <= 90 else {"az": 1.0, "be": 2.0, "tr": 3.0, "ru": 4.0}[entry["arm"]]
    (run / "steps.jsonl").write_text("".join(json.dumps(entry) + "\n" for entry in lines))
    config = teacher_from({"name": "chi-ibr", "baseline": str(run)})
    assert list(config.reads()) == [run]
    teacher = config.build(CLASSROOM, np.random.default_rng(1))
    assert teacher.signal.baseline == {"az": 1.0, "be": 2.0, "tr": 3.0, "ru": 4.0}
    validations = [{"step": 50, "dev_loss": {"az": 2.0, "be": 2.5, "tr": 3.0, "ru": 4.0}}]
    validations.append({"step": 100, "dev_loss": {"az": 2.2, "be": 2.4, "tr": 2.9, "ru": 3.9}})
    (run / "validations.jsonl").write_text("".join(json.dumps(entry) + "\n" for entry in validations))
    jean = teacher_from({"name": "jean-explicit", "baseline": run}).build(CLASSROOM, np.random.default_rng(1))
    assert jean.signal.baseline == {"az": 2.0, "be": 2.4, "tr": 2.9, "ru": 3.9}


@pytest.mark.parametrize(
    ("baseline", "message"),
    [
        ({"az": 1.0, "tr": 2.0}, "teacher.baseline has no loss of be, ru; give one for every language"),
        ("nowhere", "teacher.baseline is 'nowhere', which is not a run folder"),
        ("begun", "teacher.baseline: begun has no loss of az, be, tr, ru near its end; finish that run"),
    ],
)
def test_a_baseline_that_cannot_serve_is_refused(baseline, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    make_run(tmp_path / "begun", list(CLASSROOM.arms), steps=100)
    config = teacher_from({"name": "chi-ibr", "baseline": baseline})
    with pytest.raises(ValueError, match=message):
        config.build(CLASSROOM, np.random.default_rng(1))


def test_a_resumed_run_keeps_the_baseline_that_it_began_with():
    before = Rehearsal({"name": "chi-ibr", "baseline": dict.fromkeys(CLASSROOM.arms, 1.0)})
    after = Rehearsal({"name": "chi-ibr", "baseline": dict.fromkeys(CLASSROOM.arms, 2.0)})
    after.teacher.load_state_dict(before.teacher.state_dict())
    assert after.teacher.signal.baseline == dict.fromkeys(CLASSROOM.arms, 1.0)


SOURCES = Classroom(
    {"gl": 5, "gl-web": 50, "pt": 90},
    low_resource=("gl", "gl-web"),
    steps=200,
    language_of={"gl": "gl", "gl-web": "gl", "pt": "pt"},
)


def built(classroom, **settings):
    return teacher_from(settings).build(classroom, np.random.default_rng(1))


def test_several_sources_of_a_language_are_arms_that_share_its_dev_set_and_its_baseline():
    assert built(SOURCES, name="zaremoodi").signal.measures[0].targets == ("gl",)
    assert built(SOURCES, name="multidds-s").signal.measures[0].targets == ()
    jean = built(SOURCES, name="jean-explicit", baseline={"gl": 2.0, "pt": 1.0})
    assert jean.signal.baseline == {"gl": 2.0, "gl-web": 2.0, "pt": 1.0}
    related = built(SOURCES, name="skill-it", related=[["gl-web", "pt"]]).signal.matrix
    assert related.tolist() == [[1.0, 0.1, 0.1], [0.1, 1.0, 0.5], [0.1, 0.5, 1.0]]


def test_a_prior_that_changes_is_refused():
    prior = {"name": "temperature", "schedule": {"from": 1, "to": 5}}
    with pytest.raises(ValueError, match="teacher.prior changes on the way; give it one temperature"):
        build_teacher(teacher_from({"name": "weights", "prior": prior}), CLASSROOM, np.random.default_rng(1))


def test_relatives_must_be_in_the_corpus():
    with pytest.raises(ValueError, match="unknown language 'xx'; the corpus has az, be, tr, ru"):
        build_teacher(
            teacher_from({"name": "skill-it", "related": [["az", "xx"]]}), CLASSROOM, np.random.default_rng(1)
        )


def test_one_language_alone_is_always_chosen():
    alone = Classroom({"az": 10}, low_resource=("az",), steps=200)
    for name in PRESETS:
        decisions = Rehearsal(name, alone).run(30)
        assert {decision.probability for decision in decisions} == {1.0}


@pytest.mark.parametrize("name", ["exp3", "exp3-s", "relative-decrease", "doge", "pike", "multidds-s"])
def test_those_that_follow_gains_find_what_can_be_learned(name):
    shares = [
        simulate_config(teacher_from(name), make_world("stationary", 3000), 3000, seed=seed).shares for seed in (1, 2)
    ]
    assert all(each["left"] > 0.65 for each in shares)


@pytest.mark.parametrize("name", ["loss-softmax", "skill-it"])
def test_those_that_follow_losses_go_where_nothing_can_be_learned(name):
    shares = simulate_config(teacher_from(name), make_world("stationary", 3000), 3000).shares
    assert shares["right"] > 0.65


def test_every_signal_and_rule_can_be_combined():
    for signal in SIGNALS:
        for rule in RULES:
            decisions = Rehearsal({"name": "weights", "signal": signal, "rule": rule}).run(20)
            assert len(decisions) == 20
