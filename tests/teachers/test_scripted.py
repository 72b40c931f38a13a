"""Schedules that change on the way: temperatures, UniMax, two phases. Numbers are worked out from the formulas."""

import logging
import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from rota.settings import ConfigError
from rota.teachers import AnyTeacherConfig, Classroom, Temperature, build_teacher
from rota.teachers.scripted.unimax import CountedPhases, staircase, unimax, whole_counts

SIZES = {"az": 100, "be": 400, "tr": 1600}
TOKENS = {"az": 1_000, "be": 4_000, "tr": 32_000}
CLASSROOM = Classroom(SIZES, low_resource=("az", "be"), steps=1_000, tokens=TOKENS, update_tokens=50)


def rng(seed=1):
    return np.random.default_rng(seed)


def config(values):
    return TypeAdapter(AnyTeacherConfig).validate_python(values)


def build(classroom=CLASSROOM, seed=1, **values):
    return build_teacher(config(values), classroom, rng(seed))


def played(teacher, steps):
    return [teacher.ask(step).arm for step in steps]


def shares_at(temperature):
    powers = {arm: size ** (1 / temperature) for arm, size in SIZES.items()}
    return {arm: power / sum(powers.values()) for arm, power in powers.items()}


# Temperature with a schedule


@pytest.mark.parametrize(
    ("shape", "at", "expected"),
    [
        # From 5 to 1 at step 500 of 1,000.
        ("step", "50%", {0: 5, 499: 5, 500: 1, 999: 1}),
        ("linear", "50%", {0: 5, 125: 4, 250: 3, 500: 1, 999: 1}),
        ("cosine", 500, {0: 5, 250: 3, 125: 5 - 4 * (1 - math.sqrt(0.5)) / 2, 500: 1, 999: 1}),
        ("linear", "100%", {0: 5, 500: 3, 750: 2, 999: 5 - 4 * 0.999}),
    ],
)
def test_the_temperature_follows_its_schedule(shape, at, expected):
    teacher = build(name="temperature", schedule={"from": 5, "to": 1, "shape": shape, "at": at})
    for step, temperature in expected.items():
        assert teacher.shares(step) == pytest.approx(shares_at(temperature))


def test_a_temperature_may_rise():
    teacher = build(name="temperature", schedule={"from": 1, "to": 5, "shape": "linear", "at": "50%"})
    assert teacher.shares(0) == pytest.approx(shares_at(1))
    assert teacher.shares(250) == pytest.approx(shares_at(3))


def test_choices_are_drawn_with_the_shares_of_their_step():
    teacher = build(name="temperature", schedule={"from": 1e6, "to": 0.5, "shape": "step", "at": 9_000})
    early = Counter(played(teacher, range(9_000)))
    late = Counter(played(teacher, range(9_000, 18_000)))
    for counted, shares in ((early, dict.fromkeys(SIZES, 1 / 3)), (late, shares_at(0.5))):
        for arm, share in shares.items():
            assert counted[arm] / 9_000 == pytest.approx(share, abs=4 * math.sqrt(share * (1 - share) / 9_000))


def test_a_decision_says_the_probability_of_its_step():
    teacher = build(name="temperature", schedule={"from": 5, "to": 1})
    for step in (0, 499, 500):
        decision = teacher.ask(step)
        assert decision.probability == pytest.approx(shares_at(5 if step < 500 else 1)[decision.arm])


def test_a_constant_temperature_draws_as_it_always_did():
    own, _, _ = rng().spawn(3)
    assert played(build(name="temperature"), range(200)) == played(Temperature(SIZES, own, 5.0), range(200))


def test_cooldown_is_temperature_five_and_then_one_at_half_time():
    schedule = {"from": 5, "to": 1, "shape": "step", "at": "50%"}
    assert played(build(name="cooldown"), range(1_000)) == played(
        build(name="temperature", schedule=schedule), range(1_000)
    )


def test_what_is_written_of_a_temperature_names_the_schedule_or_the_constant():
    constant = config({"name": "temperature", "temperature": 2}).model_dump(mode="json")
    assert constant["temperature"] == 2
    assert "schedule" not in constant
    annealed = config({"name": "temperature", "schedule": {"from": 5, "to": 1}})
    written = annealed.model_dump(mode="json")
    assert written["schedule"] == {"from": 5, "to": 1, "shape": "step", "at": "50%"}
    assert "temperature" not in written
    assert config(written) == annealed
    cooldown = config("cooldown")
    assert config(cooldown.model_dump(mode="json")) == cooldown


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"temperature": 3, "schedule": {"from": 5, "to": 1}}, "temperature and schedule are both given"),
        ({"schedule": {"from": 5, "to": 1, "at": 0}}, "at is 0, .*write for example at: 50%"),
        ({"schedule": {"from": 0, "to": 1}}, "greater than 0"),
        ({"schedule": {"from": 5, "to": 1, "shape": "steps"}}, "'step', 'linear' or 'cosine'"),
        ({"schedule": {"form": 5, "to": 1}}, r"unknown key 'schedule\.form'; did you mean 'from'"),
        ({"schedule": {"to": 1}}, r"'schedule\.from' is missing"),
    ],
)
def test_a_schedule_that_cannot_be_meant_is_refused(values, message):
    with pytest.raises(ValidationError, match=message):
        config({"name": "temperature", **values})


@pytest.mark.parametrize("name", ["temperature", "cooldown"])
def test_a_step_after_the_end_of_the_run_is_refused(name):
    late = config({"name": name, "schedule": {"from": 5, "to": 1, "at": 1_000}})
    with pytest.raises(ConfigError, match=r"teacher\.schedule\.at is step 1,000 and the run has 1,000: .* at: 50%"):
        late.check(1_000)
    late.check(1_001)
    config({"name": "temperature", "schedule": {"from": 5, "to": 1, "at": "100%", "shape": "linear"}}).check(1_000)


# UniMax


def test_unimax_caps_the_small_arms_and_gives_the_rest_to_the_large_ones():
    # Of 30,000 tokens az and be may have 2 x 1,000 and 2 x 4,000; tr has the other 20,000.
    assert unimax(TOKENS, 30_000, 2) == {"az": 2_000, "be": 8_000, "tr": 20_000}
    # With a cap of 4, az has 4,000, and the others half of 26,000 each.
    assert unimax(TOKENS, 30_000, 4) == {"az": 4_000, "be": 13_000, "tr": 13_000}
    # No cap that matters: thirds.
    assert unimax(TOKENS, 30_000, 100) == {"az": 10_000, "be": 10_000, "tr": 10_000}
    # Every arm is capped.
    assert unimax(TOKENS, 1e6, 1) == TOKENS


counts = st.dictionaries(st.sampled_from("abcdefgh"), st.integers(0, 40), min_size=1).filter(lambda c: sum(c.values()))


@given(st.dictionaries(st.sampled_from("abcdefgh"), st.floats(0.01, 1e6), min_size=1), st.integers(0, 10_000))
def test_whole_counts_sum_to_the_total_and_are_off_by_less_than_one(shares, total):
    found = whole_counts(shares, total)
    assert sum(found.values()) == total
    for arm, share in shares.items():
        assert abs(found[arm] - share / sum(shares.values()) * total) < 1 + 1e-6


@given(counts, st.integers(0, 5))
def test_a_staircase_has_the_same_totals_and_equal_steps(counted, seed):
    phases = staircase(counted)
    assert sum((Counter(phase) for phase in phases), Counter()) == Counter(counted)
    assert all(len(set(phase.values())) == 1 for phase in phases)
    total = sum(counted.values())
    orders = {"early": phases, "late": phases[::-1], "spread": [counted]}
    for order in orders.values():
        drawn = Counter(played(CountedPhases(order, rng(seed)), range(total)))
        assert drawn == +Counter(counted)


def test_early_all_languages_play_alike_until_one_has_had_its_share():
    # 1,000 updates of 50 tokens, at most 4 epochs: 80 updates of az, 320 of be, the other 600 of tr.
    early = played(build(name="unimax", epochs=4, when="early"), range(1_000))
    late = played(build(name="unimax", epochs=4, when="late"), range(1_000))
    spread = played(build(name="unimax", epochs=4), range(1_000))
    assert Counter(early) == Counter(late) == Counter(spread) == {"az": 80, "be": 320, "tr": 600}
    assert Counter(early[:240]) == {"az": 80, "be": 80, "tr": 80}
    assert Counter(early[240:720]) == {"be": 240, "tr": 240}
    assert Counter(early[720:]) == {"tr": 280}
    assert Counter(late[:280]) == {"tr": 280}
    assert Counter(late[760:]) == {"az": 80, "be": 80, "tr": 80}
    # Spread: half of the updates have about half of each; 80 draws without replacement have a deviation of 4.3.
    assert Counter(spread[:500])["az"] == pytest.approx(40, abs=18)


def test_a_choice_without_replacement_says_how_probable_it_was():
    teacher = CountedPhases([{"az": 1, "tr": 3}], rng())
    left = {"az": 1, "tr": 3}
    for step in range(4):
        decision = teacher.ask(step)
        assert decision.probability == left[decision.arm] / (4 - step)
        left[decision.arm] -= 1


def test_a_plan_that_is_used_up_says_so():
    teacher = CountedPhases([{"az": 2}], rng())
    played(teacher, range(2))
    with pytest.raises(ValueError, match="all 2 choices that were planned are made at step 2"):
        teacher.ask(2)


def test_choices_of_several_updates_and_a_warmup_leave_fewer_choices():
    # 1,000 updates, ten a choice, the first 205 of them warm-up, whose last choice ends at 210: 79 choices. Tokens:
    # 79 x 10 x 50 = 39,500. At most 2 epochs: 2,000 of az, 8,000 of be and 29,500 of tr, in choices of 500.
    teacher = build(name="unimax", epochs=2, decide_every=10, warmup=205)
    arms = played(teacher, range(0, 1_000, 10))
    assert set(arms[:21]) == {"tr"}
    assert Counter(arms[21:]) == {"az": 4, "be": 16, "tr": 59}


def test_if_every_language_is_capped_the_real_epochs_are_named(caplog):
    # 50,000 tokens, and one epoch of all is 37,000: everything is seen 50 / 37 = 1.35 times.
    with caplog.at_level(logging.WARNING):
        counted = Counter(played(build(name="unimax", epochs=1), range(1_000)))
    assert "longer than 1 epochs of all languages" in caplog.text
    assert "az 1.4, be 1.4, tr 1.4 epochs" in caplog.text
    assert counted == {"az": 27, "be": 108, "tr": 865}
    caplog.clear()
    build(name="unimax", epochs=2)
    assert not caplog.text


def test_unimax_needs_to_know_the_tokens():
    sizes_only = Classroom(SIZES, low_resource=("az",), steps=10)
    with pytest.raises(ValueError, match="no target tokens are counted here; give Classroom the tokens"):
        build(sizes_only, name="unimax")
    with pytest.raises(ValueError, match="tokens of an update are not known here; give Classroom its update_tokens"):
        build(Classroom(SIZES, low_resource=("az",), steps=10, tokens=TOKENS), name="unimax")


# Two phases, and late


def test_an_automatic_switch_leaves_time_for_the_epochs_of_the_low_resource_languages():
    # Second phase uniform: two thirds for az and be, 5,000 tokens together. Three epochs: 15,000 / (2/3 x 50) = 450.
    teacher = build(name="two-phase", switch="auto", epochs=3, second="uniform")
    assert teacher.switch == 1_000 - 450
    assert set(played(teacher, range(550))) == {"tr"}
    assert set(played(teacher, range(550, 1_000))) == {"az", "be", "tr"}


def test_an_automatic_switch_comes_at_30_percent_of_the_run_at_the_earliest():
    assert build(name="two-phase", switch="auto", epochs=100, second="uniform").switch == 300


def test_an_automatic_switch_to_mixed_batches_counts_the_proportions_of_the_corpus():
    # az and be are 5,000 of 37,000 tokens: one epoch of them is an epoch of everything, 37,000 / 50 = 740, at most 700.
    assert build(name="two-phase", switch="auto", epochs=1, second="mixed").switch == 300
    assert build(name="two-phase", switch="auto", epochs=0.5, second="mixed").switch == 1_000 - 370


def test_an_automatic_switch_knows_the_last_temperature():
    rising = {"name": "temperature", "schedule": {"from": 1, "to": 1e9, "shape": "linear", "at": "100%"}}
    assert build(name="two-phase", switch="auto", epochs=3, second=rising).switch == 550


def test_a_phase_without_low_resource_languages_has_no_length():
    with pytest.raises(ValueError, match="the last phase has no low-resource language"):
        build(name="two-phase", switch="auto", second={"name": "uniform", "languages": "high-resource"})


def test_epochs_belong_to_an_automatic_switch():
    with pytest.raises(ValidationError, match="epochs is 3, but switch is 50%; epochs needs switch: auto"):
        config({"name": "two-phase", "epochs": 3})


def test_what_is_written_of_two_phases_is_what_it_was_without_the_later_settings():
    written = config("two-phase").model_dump(mode="json")
    assert {"epochs", "restart_learning_rate"}.isdisjoint(written)
    later = config({"name": "two-phase", "switch": "auto", "restart_learning_rate": True})
    written = later.model_dump(mode="json")
    assert (written["switch"], written["epochs"], written["restart_learning_rate"]) == ("auto", 16, True)
    assert config(written) == later


def test_the_learning_rate_restarts_at_the_switch_if_asked():
    plain, restarting = config("two-phase"), config({"name": "two-phase", "restart_learning_rate": True})
    assert plain.restarts_learning_rate_at(CLASSROOM) is None
    assert restarting.restarts_learning_rate_at(CLASSROOM) == 500


def test_late_keeps_the_low_resource_languages_for_the_end():
    # Two epochs of az and be are 10,000 tokens; at half of the updates of 50 tokens: 400 updates.
    teacher = build(name="late", epochs=2)
    assert teacher.switch == 600
    assert teacher.first.shares == {"tr": 1.0, "az": 0.0, "be": 0.0}
    # In the last phase az has 2,000 of the 10,000 low-resource tokens.
    assert teacher.second.shares == pytest.approx({"tr": 0.5, "az": 0.1, "be": 0.4})


def test_late_that_has_too_little_time_divides_it_by_unimax():
    # 100 epochs would be 500,000 tokens; 70 % of the run at half of the updates are 17,500: az has 8,750, be too.
    teacher = build(name="late", epochs=100)
    assert teacher.switch == 300
    assert teacher.second.shares == pytest.approx({"tr": 0.5, "az": 0.25, "be": 0.25})
    # With 5 epochs: 25,000 tokens do not fit either; az has its 5,000 and be the other 12,500.
    assert build(name="late", epochs=5).second.shares == pytest.approx(
        {"tr": 0.5, "az": 5 / 17.5 / 2, "be": 12.5 / 17.5 / 2}
    )


def test_late_with_a_floor_shows_a_little_of_every_language_from_the_start():
    classroom = Classroom(
        {"az": 10, "tr": 100, "ru": 400}, low_resource=("az",), steps=100, tokens={"az": 1_000}, update_tokens=50
    )
    teacher = build(classroom, name="late", epochs=1, floor=0.05)
    # Temperature 2: tr and ru as 10 to 20.
    assert teacher.first.shares == pytest.approx({"tr": 0.95 / 3, "ru": 0.95 * 2 / 3, "az": 0.05})
    assert teacher.second.shares == pytest.approx({"tr": 0.5 / 3, "ru": 0.5 * 2 / 3, "az": 0.5})


def test_late_needs_both_kinds_of_languages():
    with pytest.raises(ValueError, match="no low-resource language"):
        build(Classroom(SIZES, low_resource=(), steps=10, tokens=TOKENS, update_tokens=5), name="late")
