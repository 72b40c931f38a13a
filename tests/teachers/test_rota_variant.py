"""``variant: rota`` of TSCL and DQN: the advantage, both teachers value for value, what is measured and refused."""

import math

import numpy as np
import pytest
from dqn_cases import ARMS, CLASSROOM, SMALL, prototype_at
from hypothesis import given
from hypothesis import strategies as st

from rota import api
from rota.config import parse_config
from rota.measures import GroupLosses, JointGain, Scene
from rota.runs import Run
from rota.teachers import build_teacher, teacher_from
from rota.teachers.rewards import Advantage, MeasuredGain
from rota.testing import observation_of
from rota.training.devsets import DevSets
from rota.training.probe import Probe
from rota.training.turns import Window
from rota.types import Decision

NOTHING = Window((), {})


def advantages(gains, horizon=20):
    """The definition, with all earlier gains at hand: every mean is a sum of weighted terms, not a recursion."""
    found = []
    for n, gain in enumerate(gains, start=1):
        errors = [gains[i] - _smoothed(gains[:i], horizon) for i in range(1, n)]
        usual = math.sqrt(_smoothed([error**2 for error in errors], horizon)) if errors else 0.0
        found.append(errors[-1] / usual if usual else 0.0)
        assert n == 1 or errors[-1] == gain - _smoothed(gains[: n - 1], horizon)
    return found


def _smoothed(values, horizon):
    """Value i enters with the weight max(1 / i, 1 / horizon), and every later one takes its own share of it away."""
    weights = [max(1 / i, 1 / horizon) for i in range(1, len(values) + 1)]
    return sum(
        value * weight * math.prod(1 - later for later in weights[i + 1 :])
        for i, (value, weight) in enumerate(zip(values, weights, strict=True))
    )


def test_an_advantage_worked_out_by_hand():
    advantage = Advantage(MeasuredGain())
    # No expectation yet; then 0.1 is expected and the error 0.2 the usual one; then 0.2, with errors of 0.2 and -0.1.
    assert advantage("az", 0.1) == 0.0
    assert advantage("tr", 0.3) == pytest.approx(1.0)
    assert advantage("az", 0.1) == pytest.approx(-0.1 / math.sqrt((0.04 + 0.01) / 2))


@given(st.lists(st.integers(-1_000, 1_000), min_size=1, max_size=40, unique=True))
def test_advantages_are_errors_of_the_expectation_in_units_of_the_usual_error(thousandths):
    gains = [each / 1_000 for each in thousandths]
    advantage = Advantage(MeasuredGain(), horizon=5)
    found = [advantage("az", gain) for gain in gains]
    assert found == pytest.approx(advantages(gains, horizon=5), abs=1e-6)
    assert all(abs(each) <= math.sqrt(max(5, len(gains))) + 1e-9 for each in found)


def test_a_falling_curve_of_gains_and_its_scale_drop_out():
    fall = [1 / (1 + 0.02 * step) + (0.2 if step % 2 else -0.2) for step in range(60)]
    small, large = Advantage(MeasuredGain()), Advantage(MeasuredGain())
    ours = [small("az", gain) for gain in fall]
    assert [large("az", 100 * gain) for gain in fall] == pytest.approx(ours)
    # Every other choice is better by 0.4, and all gains are above 0 up to the end.
    assert min(fall) > 0
    assert np.mean(ours[21::2]) - np.mean(ours[20::2]) > 1


def gain_of(step, arm):
    """Any gains will do: they fall, and the arms differ."""
    return 0.5 / (1 + 0.01 * step) + 0.02 * ARMS.index(arm) + 0.05 * math.sin(step)


def play(teacher, steps, every):
    decisions, rewards = [], []
    for step in range(0, steps, every):
        decision = teacher.ask(step)
        values = {JointGain: gain_of(step + every, decision.arm), GroupLosses: prototype_at(step + every)}
        told = observation_of(teacher.watches, step + every, decision, values, every)
        rewards.append(teacher.tell(told))
        decisions.append(decision)
    return decisions, rewards


def test_seventy_decisions_of_tscl_are_those_of_the_definition():
    config = teacher_from({"name": "tscl", "variant": "rota", "warmup": 60, "decide_every": 5})
    decisions, rewards = play(build_teacher(config, CLASSROOM, np.random.default_rng(5)), 350, 5)

    own, warm, _ = np.random.default_rng(5).spawn(3)
    q, gains, expected = dict.fromkeys(ARMS, 0.0), [], []
    for step in range(0, 350, 5):
        if step < 60:
            arm, probability = ("tr", "ru")[int(warm.integers(2))], 1 / 2
        elif step < 75:
            arm, probability = ARMS[(step - 60) // 5], 1.0
        else:
            odds = [math.exp(q[arm] / 0.5) for arm in ARMS]
            shares = [each / sum(odds) for each in odds]
            if own.random() < 0.16:
                number = int(own.integers(3))
            else:
                number = int(np.searchsorted(np.cumsum(shares), own.random(), side="right"))
            arm, probability = ARMS[number], 0.16 / 3 + 0.84 * shares[number]
        expected.append((arm, pytest.approx(probability)))
        if step >= 60:
            gains.append(gain_of(step + 5, arm))
            reward = advantages(gains)[-1]
            q[arm] = 0.2 * reward + 0.8 * q[arm]
            assert rewards[step // 5] == {arm: pytest.approx(reward)}
        else:
            assert rewards[step // 5] is None
    assert [(decision.arm, decision.probability) for decision in decisions] == expected
    assert {decision.why for decision in decisions} == {"warmup", "first visit", "explore", "sampled"}


def test_dqn_stores_advantages_and_draws_by_its_values():
    options = {**SMALL, "hidden": list(SMALL["hidden"]), "variant": "rota", "name": "dqn", "refresh": 1}
    teacher = build_teacher(teacher_from(options), CLASSROOM, np.random.default_rng(3))
    decisions, rewards = play(teacher, 400, 10)
    gains = [gain_of(10 * number + 10, decision.arm) for number, decision in enumerate(decisions) if number >= 3]
    expected = advantages(gains)
    # The warm-up is not told; the first transition is stored at the second observation.
    assert rewards[:3] == [None] * 3
    assert [next(iter(each.values())) for each in rewards[3:]] == pytest.approx(expected)
    assert teacher.teacher.replay.gains.tolist() == pytest.approx(_newest(expected[1:], 9), abs=1e-6)
    for number, decision in enumerate(decisions[4:], start=4):
        epsilon = max(0.16, 1 - 0.84 * (10 * number - 30) / 200)
        odds = {arm: math.exp(score / 0.5) for arm, score in decision.scores.items()}
        share = odds[decision.arm] / sum(odds.values())
        assert decision.epsilon == pytest.approx(epsilon)
        assert decision.probability == pytest.approx(epsilon / 3 + (1 - epsilon) * share)
    assert {decision.why for decision in decisions} == {"warmup", "explore", "sampled"}


def _newest(values, capacity):
    """A ring: the newest have overwritten the oldest."""
    ring = list(values[:capacity])
    for number, value in enumerate(values[capacity:]):
        ring[number % capacity] = value
    return ring


def config(teacher, steps=1_200, tokens=750):
    size = {"steps": steps, "tokens": tokens}
    return parse_config({"data": {"corpus": "synthetic"}, "teacher": teacher, "training": size}).teacher


@pytest.mark.parametrize("name", ["tscl", "dqn"])
def test_rewards_take_a_fortieth_of_the_computation_in_runs_of_any_size(name):
    for steps, tokens in ((1_200, 750), (1_500, 750), (150_000, 8_000), (300_000, 8_000)):
        found = config({"name": name, "variant": "rota"}, steps, tokens)
        assert found.decide_every == 10
        # Ten updates take the time of thirty passes over their tokens, and the reward batch is measured twice.
        assert 2 * found.reward_tokens / (30 * tokens) == pytest.approx(0.025, rel=0.01)
        assert (found.reward_batch, found.reward_weights, found.reward_scale) == ("rotating", "recent", "advantage")
    # A short run has twenty choices: 90 updates after the warm-up in blocks of four.
    assert config({"name": name, "variant": "rota", "warmup": "10%"}, steps=100).decide_every == 4
    assert config({"name": name, "variant": "rota", "decide_every": 7}, steps=100).decide_every == 7


def test_both_begin_from_the_stem_of_a_uniform_row():
    rows = [{"name": "uniform"}, *({"name": name, "variant": "rota"} for name in ("tscl", "dqn"))]
    stems = [config(row | {"warmup": "10%", "decide_every": 10}).stem(1_200) for row in rows]
    assert stems[0] is not None
    assert stems == [stems[0]] * 3


def test_what_is_written_stands_above_the_variant():
    found = config({"name": "tscl", "variant": "rota", "alpha": 0.5, "policy": "epsilon-greedy", "warmup": None})
    assert (found.alpha, found.policy, found.warmup) == (0.5, "epsilon-greedy", None)
    assert config({"name": "dqn", "variant": "rota", "reward_tokens": 90}).reward_tokens == 90


@pytest.mark.parametrize("name", ["tscl", "dqn"])
def test_a_resolved_config_reads_back_as_itself_and_the_others_do_not_mention_it(name):
    resolved = config({"name": name, "variant": "rota"})
    assert config(resolved.model_dump(mode="json")) == resolved
    assert "reward_weights" not in config(name).model_dump(mode="json")
    assert resolved.guarded


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"name": "tscl", "reward_weights": "recent"},
            "reward_weights is 'recent', which needs reward_batch: rotating",
        ),
        ({"name": "dqn", "reward_weights": "average"}, "reward_weights is 'average', which needs"),
        ({"name": "tscl", "variant": "rota", "observe_every": 30}, "a rotating reward is of one choice: leave it out"),
        ({"name": "tscl", "variant": "rota", "algorithm": "window", "reward_scale": "none"}, "fits slopes to losses"),
        ({"name": "dqn", "variant": "rota", "reward": "gain-over-mean"}, "gives the gain itself; remove it"),
        ({"name": "dqn", "policy": "boltzmann"}, "DQN has epsilon-greedy and epsilon-boltzmann"),
    ],
)
def test_settings_that_do_not_go_together_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        config(settings)


DATA = {
    "corpus": "synthetic",
    "synthetic": {"families": {"la": {"lala": 300, "lato": 60}}, "dev": 20, "test": 4},
    "low_resource": ["lato"],
    "subwords": {"size": 300},
}
STUDENT = {"preset": "tiny", "width": 16, "heads": 2, "feedforward": 16, "layers": 1, "lr_warmup": 4}
TRAINING = {"steps": 24, "tokens": 60, "checkpoint_every": 6, "validate_every": 12, "threads": 1, "tensorboard": False}
DQN = {"hidden": [8], "groups": 2, "group_sentences": 2, "replay_minimum": 2, "replay_batch": 2}


@pytest.fixture(autouse=True, scope="module")
def data_folder(tmp_path_factory):
    DATA["folder"] = str(tmp_path_factory.mktemp("data") / "data")


def run_config(name, **training):
    teacher = {"name": name, "variant": "rota", "warmup": 5, "decide_every": 4, **(DQN if name == "dqn" else {})}
    return parse_config({"data": DATA, "student": STUDENT, "training": {**TRAINING, **training}, "teacher": teacher})


@pytest.mark.parametrize("name", ["tscl", "dqn"])
def test_a_run_cut_in_the_middle_of_a_choice_equals_the_whole(tmp_path, name):
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    api.train(run_config(name), whole)
    for until in (3, 6, 10, 17, None):
        api.train(run_config(name), parts, until=until)
    for record in ("steps", "observations", "rewards", "validations"):
        assert (parts / f"{record}.jsonl").read_bytes() == (whole / f"{record}.jsonl").read_bytes()
    last = [sorted((folder / "checkpoints" / "24").glob("*.safetensors")) for folder in (whole, parts)]
    assert [path.read_bytes() for path in last[0]] == [path.read_bytes() for path in last[1]]
    gains = [entry["joint_gain"] for entry in Run(whole).read("observations")]
    assert len(gains) >= 4
    assert len(set(gains)) == len(gains)


def test_the_gain_is_of_the_same_sentences_before_and_after_and_of_others_the_next_time(tmp_path):
    loop = api.train(run_config("tscl", steps=8), tmp_path / "run")
    student, sets = loop.student, loop.probe.sets
    assert isinstance(sets, DevSets)
    probe, measure = Probe(student, sets), JointGain(tokens=30, weights="raw")

    def loss(turn):
        """Each language counts the same, whatever its sentences have in tokens."""
        found = []
        for language in sets.languages:
            losses = student.losses([sets.sample("teacher", language, 15, turn).batch()])
            found.append(losses.sums.sum() / losses.tokens.sum())
        return np.mean(found)

    batch = sets.sample("train", "lala", 60).batch()
    probe.begin([measure], Decision("lala", "told"))
    for turn in range(3):
        before = loss(turn)
        student.update([batch])
        assert probe.read(turn, [measure], NOTHING)[measure] == pytest.approx(before - loss(turn), abs=1e-5)
        probe.begin([measure], Decision("lala", "told"))
    first, second = (sets.sample("teacher", "lala", 15, turn).indices.tolist() for turn in (0, 1))
    assert set(first).isdisjoint(second)


def test_a_scripted_student_shows_the_mean_fall_of_its_losses():
    scene = Scene({"az": 3.0, "tr": 2.0}, {"az": 3.5, "tr": 2.1}, {})
    assert JointGain().imagine(scene) == pytest.approx(0.3)
