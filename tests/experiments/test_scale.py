"""The full-size rows on a laptop: every number worked out by hand for 1,500 of the paper's 150,000 steps."""

import pytest
from pydantic import SerializeAsAny

from rota.config import parse_config
from rota.experiments.scale import Scale, merged, scaled
from rota.experiments.suites.paper import BASE, CONTROLS, DQN_ABLATION, MAIN, TSCL_ABLATION, written
from rota.settings import ConfigError, Duration, DurationField
from rota.teachers.base import TeacherConfig
from rota.teachers.dqn.config import same_fraction
from rota.teachers.scripted.two_phase import TwoPhaseConfig

SIZE = Scale(steps=1_500, tokens=1_000, peak=0.003, more_decisions=5)
ROWS = MAIN | TSCL_ABLATION | DQN_ABLATION | CONTROLS


def full(row):
    return merged(written(BASE), ROWS[row].changes())


def small(row, size=SIZE):
    return scaled(full(row), size)


def test_durations_keep_their_share_of_the_run():
    values = small("dqn")
    assert values["training"]["steps"] == 1_500
    assert values["training"]["checkpoint_every"] == 40  # 4k of 150k
    assert values["training"]["validate_every"] == 75  # 5 %
    assert values["student"]["lr_warmup"] == 160  # 16k of 150k
    assert values["teacher"]["warmup"]["until"] == 160
    assert values["teacher"]["epsilon_steps"] == 500  # 50k of 150k


class Relay(TeacherConfig):
    """A teacher of a user's, with durations of its own, in a list, and in a teacher inside it."""

    name: str = f"{__name__}:Relay"
    rest: DurationField = Duration("2k")
    stops: tuple[DurationField, ...] = ()
    inner: SerializeAsAny[TeacherConfig] = TwoPhaseConfig(switch=Duration("4k"))

    def build(self, classroom, rng):
        return self.inner.build(classroom, rng)


def a_tenth(teacher):
    """The teacher of a run of 10k steps, in one of 1k."""
    values = {"data": {"corpus": "synthetic"}, "training": {"steps": "10k"}, "teacher": teacher}
    return scaled(values, Scale(steps=1_000))["teacher"]


def test_every_duration_of_a_teacher_keeps_its_share_of_the_run():
    assert a_tenth({"name": "two-phase", "switch": "5k"})["switch"] == 500
    assert a_tenth({"name": "replay-shuffled", "run": "other", "window": 200})["window"] == 20
    assert a_tenth({"name": "replay-shuffled", "run": "other", "window": 3})["window"] == 1, "and no less"


def test_a_share_of_the_run_is_in_proportion_already():
    assert a_tenth({"name": "two-phase", "switch": "40%"}) == {"name": "two-phase", "switch": "40%"}
    assert a_tenth({"name": "replay-shuffled", "run": "other"}) == {
        "name": "replay-shuffled",
        "run": "other",
        "decide_every": 1,
    }


def test_durations_of_teachers_inside_a_teacher_follow_too():
    teacher = a_tenth({"name": f"{__name__}:Relay", "stops": ["1k", "10%"]})
    assert teacher["rest"] == 200
    assert teacher["stops"] == [100, "10%"]
    assert teacher["inner"]["switch"] == 400


def test_a_dqn_without_a_decision_to_scale_says_what_to_change():
    values = {"data": {"corpus": "synthetic"}, "training": {"steps": 100}}
    values["teacher"] = {"name": "dqn", "variant": "paper", "warmup": 95, "learn": False}
    message = r"teacher.warmup leaves 5 of 100 steps and DQN decides every 10: .*; shorten teacher.warmup, .* or lower"
    with pytest.raises(ConfigError, match=message):
        scaled(values, Scale(steps=50))
    values["teacher"]["decide_every"] = 5  # one decision, at step 95
    assert scaled(values, Scale(steps=50))["teacher"]["warmup"]["until"] == 48


def test_the_learning_rate_keeps_its_peak_and_not_the_noam_factor():
    assert small("uniform")["student"]["learning_rate"] == {"peak": 0.003, "decay": "inverse-sqrt"}
    kept = small("uniform", Scale(steps=1_500))["student"]["learning_rate"]["peak"]
    assert kept == pytest.approx(10 / (512 * 16_000) ** 0.5)  # 0.0035, as in the full run; the factor would give 0.035


def test_dqn_decides_five_times_as_often_on_a_fifth_of_its_state():
    teacher = small("dqn")["teacher"]
    assert (teacher["decide_every"], teacher["refresh"]) == (2, "1/5")
    as_before = small("dqn", Scale(steps=1_500))["teacher"]
    assert (as_before["decide_every"], as_before["refresh"]) == (10, "1")


def test_the_replay_memory_is_a_share_of_the_decisions_after_the_warm_up():
    # Paper: (150k - 16k) / 10 = 13,400 decisions; here (1,500 - 160) / 2 = 670, a twentieth.
    teacher = small("dqn")["teacher"]
    assert teacher["replay_minimum"] == 50
    assert teacher["replay_capacity"] == 500
    assert teacher["replay_batch"] == 50, "no more than the minimum"


def test_tau_moves_the_target_as_far_in_the_same_share_of_a_run():
    # 13,400 - 1,000 = 12,400 updates of the Q network in the paper, 670 - 50 = 620 here: each counts for 20.
    assert small("dqn")["teacher"]["tau"] == pytest.approx(1 - 0.995**20)  # 0.095
    assert small("dqn-tau-0.5")["teacher"]["tau"] == pytest.approx(1 - 2**-20)
    assert small("dqn-tau-0.995")["teacher"]["tau"] == 1.0, "saturated"
    assert same_fraction(0.5, 30, 10) == pytest.approx(0.875)


def test_gamma_discounts_as_much_over_the_same_share_of_a_run():
    # 670 decisions instead of 13,400: one counts for 20.
    assert small("dqn")["teacher"]["gamma"] == pytest.approx(0.99**20)  # 0.818
    assert small("dqn", Scale(steps=1_500))["teacher"]["gamma"] == pytest.approx(0.99**100)  # 134 decisions: 0.366
    assert small("dqn-gamma-0.5")["teacher"]["gamma"] == pytest.approx(0.5**20)
    assert small("dqn-gamma-0")["teacher"]["gamma"] == 0


def test_epsilon_keeps_a_larger_floor_and_rewards_are_scaled_in_a_short_run():
    teacher = small("dqn", Scale(steps=1_500))["teacher"]
    assert teacher["epsilon_floor"] == pytest.approx(0.01 * 100**0.5)
    assert teacher["reward_scale"] == "z-score"
    assert small("dqn", Scale(steps=600))["teacher"]["epsilon_floor"] == 0.1, "and no more"
    assert small("dqn", Scale(steps=150_000))["teacher"]["epsilon_floor"] == 0.01
    assert small("dqn", Scale(steps=150_000))["teacher"]["reward_scale"] == "none"


def test_tscl_chooses_every_ten_updates_in_a_short_run():
    assert small("tscl")["teacher"]["decide_every"] == 10
    assert small("tscl-n-10")["teacher"]["decide_every"] == 10
    assert small("tscl", Scale(steps=150_000))["teacher"]["decide_every"] == 1


def test_tscl_smooths_less_where_it_chooses_less_often_and_has_no_optimistic_start():
    # (1,500 - 160) / 10 = 134 choices: more than 9 times fewer than 1,340, so three times the alpha.
    teacher = small("tscl")["teacher"]
    assert teacher["alpha"] == pytest.approx(0.3)
    assert teacher["first_reward"] == "untried"
    assert small("tscl-alpha-0.3")["teacher"]["alpha"] == pytest.approx(0.9)
    # (7,500 - 800) / 10 = 670 choices, half of 1,340.
    assert small("tscl", Scale(steps=7_500))["teacher"]["alpha"] == pytest.approx(0.1 * 2**0.5)
    assert small("tscl", Scale(steps=37_500))["teacher"]["alpha"] == 0.1


def test_a_short_run_has_shorter_blocks_so_that_eighty_choices_are_left():
    # 600 - 64 = 536 updates after the warm-up: six for each of eighty choices, and some more.
    assert small("dqn", Scale(steps=600))["teacher"]["decide_every"] == 6
    assert small("tscl", Scale(steps=600))["teacher"]["decide_every"] == 6
    assert small("dqn", Scale(steps=60))["teacher"]["decide_every"] == 1


def test_a_suite_can_have_all_rows_choose_equally_often():
    size = Scale(steps=600, decide_every=10)
    for row in ("uniform", "proportional-warmup", "shuffled", "tscl", "dqn", "replay-exact"):
        assert small(row, size)["teacher"]["decide_every"] == 10


def test_a_reward_batch_has_four_training_batches_at_most_or_what_the_suite_says():
    for row in ("tscl", "dqn"):
        assert small(row)["teacher"]["reward_tokens"] == 4_000
        assert small(row, Scale(steps=1_500, tokens=5_000))["teacher"]["reward_tokens"] == 8_000, "no more than before"
        assert small(row, Scale(steps=1_500, tokens=500, reward_tokens=8_000))["teacher"]["reward_tokens"] == 8_000


def test_the_state_of_dqn_shrinks_with_the_batch():
    # 250 sentences of a language for 8,000 tokens, so 31 for 1,000: in groups of 5 instead of 10, 6 groups.
    teacher = small("dqn")["teacher"]
    assert (teacher["groups"], teacher["group_sentences"]) == (6, 5)
    few = small("dqn", Scale(steps=1_500, tokens=100))["teacher"]
    assert (few["groups"], few["group_sentences"]) == (3, 5)
    assert small("dqn", Scale(steps=1_500))["teacher"]["groups"] == 25


def test_what_a_warm_up_is_besides_its_length_stays():
    assert small("tscl-warmup-all")["teacher"]["warmup"]["languages"] == "all"
    assert small("tscl")["teacher"]["warmup"]["inform"] == "all", "TSCL is told about it"
    assert small("dqn")["teacher"]["warmup"]["inform"] == "none"
    assert small("tscl-no-warmup")["teacher"]["warmup"] is None
    assert "warmup" not in small("uniform")["teacher"]


def test_replay_controls_choose_as_often_as_the_run_that_they_read():
    for row in ("replay-proportions", "replay-shuffled"):
        assert ROWS[row].changes()["teacher"]["decide_every"] == 10
        assert small(row)["teacher"]["decide_every"] == small("dqn")["teacher"]["decide_every"]


@pytest.mark.parametrize("row", ROWS)
def test_every_row_is_a_valid_config_in_both_sizes(row):
    parse_config(full(row))
    config = parse_config(small(row))
    assert config.training.steps == 1_500
    again = scaled(full(row), Scale(steps=150_000, tokens=8_000))
    assert parse_config(again).teacher == parse_config(full(row)).teacher, "the full size is a size like any other"


def test_the_shape_of_the_learning_rate_and_its_cooldown_keep_their_share():
    stable = {"scale": 10, "decay": "warmup-stable-decay", "cooldown": "15k"}
    values = {"data": {"corpus": "synthetic"}, "student": {"preset": "base", "learning_rate": stable}}
    found = scaled(values, Scale(steps=1_500))["student"]
    assert found["lr_warmup"] == 160
    # The peak of the full-size run: 10 / sqrt(512 * 16,000).
    assert found["learning_rate"].pop("peak") == pytest.approx(0.0034939, rel=1e-4)
    assert found["learning_rate"] == {"decay": "warmup-stable-decay", "cooldown": 150}


def test_the_learning_rate_restarts_after_the_same_share_of_the_run():
    values = {"data": {"corpus": "synthetic"}, "student": {"learning_rate": {"peak": 0.1, "restart": "75k"}}}
    assert scaled(values, Scale(steps=1_500))["student"]["learning_rate"]["restart"] == 750
