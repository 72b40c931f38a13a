"""The align teacher against its formulas, written a second time from docs/teachers.md with plain dictionaries."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.measures import Aligned, Alignment, Alignments, Estimate, SourceGain
from rota.simulation.simulate import simulate_config
from rota.simulation.worlds import make_world
from rota.teachers import Classroom, build_teacher, teacher_from
from rota.teachers.align import capped
from rota.testing import observation_of

ARMS = ("az", "be", "tr", "ru")
CLASSROOM = Classroom({"az": 5, "be": 4, "tr": 90, "ru": 80}, low_resource=("az", "be"), steps=200)


def make(**settings):
    values = {"name": "align", "protect": 0.0, "gate": False, "direction": "loss", "prior": None, "rate": 4, **settings}
    return build_teacher(teacher_from(values), CLASSROOM, np.random.default_rng(1))


def told(teacher, step, aligned):
    plays = {arm: each.updates for arm, each in aligned.items()}
    return observation_of(teacher.watches, step, plays, {Alignment: aligned})


def shares(teacher, step):
    """What its next decision says of all arms."""
    return dict(teacher.ask(step).scores)


class ByHand:
    """Mean and variance of each arm by explicit weights of every window, and the tilt, in dictionaries."""

    def __init__(self, half_life=60, kappa=20, rate=4, limit=2, forgotten=1, floor=0.02, directions=("loss",)):
        self.directions = directions
        self.half_life, self.kappa, self.rate = half_life, kappa, rate
        self.limit, self.forgotten, self.floor = limit, forgotten, floor
        self.windows = {arm: [] for arm in ARMS}
        self.tilt = dict.fromkeys(ARMS, 0.0)
        self.shares = dict.fromkeys(ARMS, 1 / len(ARMS))

    def _statistics(self, arm, direction):
        count = total = squares = 0.0
        later = 0
        for window in reversed(self.windows[arm]):
            weight = 0.5 ** (later / self.half_life)
            sums = (window.total, window.squares) if direction == "loss" else window.source
            count += weight * window.updates
            total += weight * sums[0]
            squares += weight * sums[1]
            later += window.updates
        return count, total / count, squares / count - (total / count) ** 2

    def _advantages(self, direction):
        known = {arm: self._statistics(arm, direction) for arm in ARMS if self.windows[arm]}
        together = sum(self.shares[arm] for arm in known)
        baseline = sum(self.shares[arm] * mean for arm, (_, mean, _) in known.items()) / together
        deviation = math.sqrt(sum(variance for _, _, variance in known.values()) / len(known))
        return {
            arm: (mean - baseline) / deviation * count / (count + self.kappa) for arm, (count, mean, _) in known.items()
        }

    def tell(self, aligned):
        for arm, window in aligned.items():
            self.windows[arm].append(window)
        advantages = [self._advantages(direction) for direction in self.directions]
        for arm in ARMS:
            advantage = sum(each.get(arm, 0.0) for each in advantages)
            moved = (1 - self.forgotten) * self.tilt[arm] + self.rate * advantage
            self.tilt[arm] = min(self.limit, max(-self.limit, moved))
        weights = {arm: math.exp(tilt) for arm, tilt in self.tilt.items()}
        total = sum(weights.values())
        left = 1 - self.floor * len(ARMS)
        self.shares = {arm: left * weight / total + self.floor for arm, weight in weights.items()}


def windows(rng, count):
    """Windows of ten updates on two or three of the arms; az is best, ru worst."""
    means = dict(zip(ARMS, (1.5, 1.0, 0.9, 0.2), strict=True))
    for _ in range(count):
        played = rng.choice(len(ARMS), size=10, p=(0.5, 0.2, 0.2, 0.1))
        products = {arm: rng.normal(means[arm], 1.0, int((played == i).sum())) for i, arm in enumerate(ARMS)}
        others = {arm: rng.normal(-means[arm] / 3, 2.0, len(u)) for arm, u in products.items()}
        yield {
            arm: Aligned(u.sum(), (u**2).sum(), len(u), source=(others[arm].sum(), (others[arm] ** 2).sum()))
            for arm, u in products.items()
            if len(u)
        }


@pytest.mark.parametrize(
    ("settings", "by_hand"),
    [
        ({}, {}),
        ({"direction": "both"}, {"directions": ("loss", "source-gain")}),
        ({"half_life": 7, "shrinkage": 3}, {"half_life": 7, "kappa": 3}),
        ({"rate": 0.2, "pull_back": 0.02, "floor": 0.05}, {"rate": 0.2, "forgotten": 0.02, "floor": 0.05}),
        ({"rate": 9, "limit": 0.5}, {"rate": 9, "limit": 0.5}),
    ],
)
def test_its_shares_are_those_of_the_formulas(settings, by_hand):
    teacher, expected = make(**settings), ByHand(**by_hand)
    assert shares(teacher, 0) == pytest.approx(expected.shares)
    for number, aligned in enumerate(windows(np.random.default_rng(2), 25)):
        teacher.tell(told(teacher, 10 * (number + 1), aligned))
        expected.tell(aligned)
        assert shares(teacher, 10 * (number + 1)) == pytest.approx(expected.shares)
    assert expected.shares["az"] > 1 / 4 > expected.shares["ru"], "a trace in which nothing happens would be equal too"


def test_the_half_life_grows_with_the_run():
    longer = Classroom(CLASSROOM.sizes, CLASSROOM.low_resource, steps=40_000)
    short, long = (teacher_from("align").build(room, np.random.default_rng(1)) for room in (CLASSROOM, longer))
    assert short.tilt.kept**60 == pytest.approx(0.5)
    assert long.tilt.kept**500 == pytest.approx(0.5)  # 5 % of 40,000 updates, divided among four arms


@pytest.mark.parametrize(("arms", "floor"), [(25, 0.02), (63, 0.5 / 63), (130, 0.5 / 130)])
def test_many_arms_keep_half_of_the_uniform_share_and_can_still_be_told_apart(arms, floor):
    sizes = {f"arm{number}": 100 for number in range(arms)}
    settings = {"name": "align", "protect": 0.0, "gate": False, "direction": "loss", "rate": 100, "prior": None}
    room = Classroom(sizes, low_resource=(), steps=200)
    teacher = build_teacher(teacher_from(settings), room, np.random.default_rng(1))
    halves = {arm: Aligned(50.0 if number % 2 else -50.0, 100.0, 100) for number, arm in enumerate(sizes)}
    teacher.tell(told(teacher, 100, halves))
    found = shares(teacher, 100)
    odds = (found["arm1"] - floor) / (found["arm0"] - floor)
    assert sum(found.values()) == pytest.approx(1)
    assert odds == pytest.approx(math.exp(4), rel=1e-6)  # the largest tilt up against the largest down


def test_a_prior_is_tilted_like_the_uniform_one():
    teacher = make(prior=1.0, floor=0.0)
    assert shares(teacher, 0) == pytest.approx({"az": 5 / 179, "be": 4 / 179, "tr": 90 / 179, "ru": 80 / 179})


def with_tokens(epochs, **settings):
    """Texts of 500, 400, 9,000 and 8,000 tokens in a run of 200 updates of 100 tokens."""
    tokens = {"az": 500, "be": 400, "tr": 9_000, "ru": 8_000}
    room = replace(CLASSROOM, tokens=tokens, update_tokens=100)
    values = {"name": "align", "protect": 0.0, "gate": False, "prior": None, "floor": 0.01, **settings}
    return build_teacher(teacher_from({**values, "epochs": epochs}), room, np.random.default_rng(1))


def test_no_text_is_seen_more_often_than_it_may_be():
    teacher = with_tokens(epochs=4)
    # 4 times 500 and 400 of 20,000 tokens are 10 and 8 %; the others share what is left alike
    assert shares(teacher, 0) == pytest.approx({"az": 0.10, "be": 0.08, "tr": 0.41, "ru": 0.41})
    half_way = replace(told(teacher, 100, {}), seen={"az": 1_900, "be": 0, "tr": 4_000, "ru": 4_100})
    teacher.tell(half_way)
    # 100 tokens of az are left for 10,000, and 1,600 of be
    assert shares(teacher, 100) == pytest.approx({"az": 0.01, "be": 0.16, "tr": 0.415, "ru": 0.415})
    teacher.tell(replace(half_way, seen={"az": 2_100, "be": 2_000}))
    assert shares(teacher, 100)["az"] == pytest.approx(0.01), "the floor stays"


def test_the_limit_is_remembered_when_a_run_goes_on():
    before, after = with_tokens(epochs=4), with_tokens(epochs=4)
    before.tell(replace(told(before, 100, {}), seen={"az": 1_900, "be": 0, "tr": 4_000, "ru": 4_100}))
    after.load_state_dict(before.state_dict())
    assert shares(after, 100) == shares(before, 100)


@pytest.mark.parametrize("epochs", [None, 1_000])
def test_no_limit_and_one_that_is_far_away_change_nothing(epochs):
    assert shares(with_tokens(epochs), 0) == pytest.approx(dict.fromkeys(ARMS, 0.25))


def test_in_a_long_run_a_text_may_be_seen_half_as_often_again_as_the_average():
    teacher = with_tokens(epochs=0.5, floor=0.0)  # 20,000 tokens are 1.12 times all texts: at most 1.68 times each
    each = 1.5 * 20_000 / 17_900 / 20_000
    small = {"az": 500 * each, "be": 400 * each}
    left = (1 - sum(small.values())) / 2
    assert shares(teacher, 0) == pytest.approx({**small, "tr": left, "ru": left})


def test_if_no_text_may_be_seen_as_often_as_the_run_is_long_they_share_it_by_what_is_left():
    assert capped(np.array([0.5, 0.5]), np.array([0.2, 0.6])) == pytest.approx([0.25, 0.75])


@given(st.lists(st.tuples(st.floats(0.01, 1), st.floats(0.001, 1)), min_size=1, max_size=6))
def test_capped_shares_keep_their_proportions_below_the_cap(pairs):
    before, most = np.array(pairs).T
    before = before / before.sum()
    after = capped(before, most)
    assert after.sum() == pytest.approx(1)
    if most.sum() > 1:
        assert (after <= most * (1 + 1e-9)).all()
        below = after < most * (1 - 1e-9)
        ratios = (after / before)[below]
        assert ratios == pytest.approx(ratios[:1].repeat(len(ratios)))
        assert (after[below] >= before[below] * (1 - 1e-9)).all()


def test_choices_are_drawn_from_the_shares():
    teacher = make(prior=1.0)
    expected, drawn = shares(teacher, 0), [teacher.ask(step).arm for step in range(4000)]
    for arm in ARMS:
        assert drawn.count(arm) / 4000 == pytest.approx(expected[arm], abs=0.03)


def test_nothing_is_measured_before_the_start():
    for teacher in (make(start=50), make(start="25%")):
        assert [type(measure) for measure in teacher.watches] == [Alignment]
        teacher.ask(49)
        assert not teacher.watches
        teacher.ask(50)
        assert [type(measure) for measure in teacher.watches] == [Alignment]


def test_it_starts_when_the_learning_rate_has_risen():
    room = Classroom(CLASSROOM.sizes, CLASSROOM.low_resource, steps=200, lr_warmup=16)
    assert teacher_from("align").build(room, np.random.default_rng(1)).start == 16


def test_a_language_that_the_goal_does_not_name_has_the_floor_alone():
    room = replace(CLASSROOM, goal={"az": 0.75, "tr": 0.25})
    config = teacher_from({"name": "align", "protect": 0.4, "gate": False, "prior": 1.0, "floor": 0.02})
    teacher = build_teacher(config, room, np.random.default_rng(1))
    kept = {"az": 0.3, "be": 0.02, "tr": 0.1, "ru": 0.02}
    sizes = {"az": 5, "be": 4, "tr": 90, "ru": 80}
    assert shares(teacher, 0) == pytest.approx({arm: 0.56 * sizes[arm] / 179 + kept[arm] for arm in ARMS})


def test_the_arms_of_a_language_share_what_it_keeps_and_an_open_one_has_it_all():
    arms = {"gl": 50, "gl-web": 70, "pt": 90}
    room = Classroom(arms, ("gl",), steps=200, language_of={"gl": "gl", "gl-web": "gl", "pt": "pt"})
    settings = {"protect": 0.6, "direction": "none", "gate_every": 20, "gate_tokens": 200, "gate_from": 0.05}
    config = teacher_from({"name": "align", "prior": None, **settings})
    teacher = build_teacher(config, room, np.random.default_rng(1))
    # Each language keeps 0.6 * 0.5; what is left, 0.4, is divided evenly.
    assert shares(teacher, 0) == pytest.approx({"gl": 0.15 + 0.4 / 3, "gl-web": 0.15 + 0.4 / 3, "pt": 0.3 + 0.4 / 3})
    reading(teacher, 30, {"gl": 0.2, "gl-web": 0.0, "pt": 0.2}, dict.fromkeys(arms, 1000), played="gl")
    assert shares(teacher, 30) == pytest.approx({"gl": 0.3 + 0.2, "gl-web": 0.0, "pt": 0.3 + 0.2})


def test_a_language_of_the_goal_keeps_a_part_of_its_weight():
    teacher = make(protect=0.6, rate=50, limit=10)
    for number, aligned in enumerate(windows(np.random.default_rng(2), 25)):
        teacher.tell(told(teacher, 10 * (number + 1), aligned))
    found = shares(teacher, 250)
    assert found["ru"] == pytest.approx(0.6 / 4, abs=1e-3)
    assert found["az"] == pytest.approx(1 - 3 * 0.6 / 4, abs=1e-2)


def serve(teacher, step, **served):
    aligned = Alignments({"az": Aligned(1.0, 1.0, 1)}, served)
    teacher.tell(told(teacher, step, aligned))


def test_a_language_that_only_its_own_text_helps_keeps_its_whole_weight():
    teacher = make(protect=0.2)
    assert teacher.protected() == dict.fromkeys(ARMS, 0.2)
    serve(teacher, 10, az=1.0, be=0.9, tr=1.1, ru=-0.3)
    # The middle is 0.95: be has 0.95 of it, which leaves 0.05, less than 0.2; ru has nothing.
    assert teacher.protected() == {"az": 0.2, "be": 0.2, "tr": 0.2, "ru": 1.0}
    assert shares(teacher, 10)["ru"] > 0.25
    serve(teacher, 20, az=1.0, be=0.9, tr=1.1, ru=0.7)
    # On average ru has 0.2 now, and 0.75 / 0.95 of the middle is missing.
    assert teacher.protected()["ru"] == pytest.approx(1 - 0.2 / 0.95)


def test_what_all_arms_keep_leaves_a_twentieth_to_decide_about():
    room = replace(CLASSROOM, goal={"az": 0.9, "tr": 0.1})
    settings = {"name": "align", "gate": False, "direction": "loss", "prior": 1.0, "floor": 0.05, "rate": 1e-9}
    teacher = build_teacher(teacher_from(settings), room, np.random.default_rng(1))
    serve(teacher, 10, az=0.0, tr=1.0)
    # az keeps all of its 0.9 and each of the others the floor: 1.05 in all, of which 0.95 / 1.05 is granted.
    kept = {"az": 0.9, "be": 0.05, "tr": 0.05, "ru": 0.05}
    prior = {"az": 5 / 179, "be": 4 / 179, "tr": 90 / 179, "ru": 80 / 179}
    assert shares(teacher, 10) == pytest.approx({arm: 0.05 * prior[arm] + kept[arm] * 0.95 / 1.05 for arm in ARMS})


def test_no_language_is_protected_where_that_is_not_wanted_or_nothing_is_known():
    teacher = make(protect=0.0)
    serve(teacher, 10, az=1.0, be=1.0, tr=1.0, ru=-1.0)
    assert teacher.protected() == dict.fromkeys(ARMS, 0.0)
    teacher = make(protect=0.2)
    serve(teacher, 10, az=-1.0, be=-1.0, tr=1.0, ru=-1.0)
    assert teacher.protected() == dict.fromkeys(ARMS, 0.2), "where others hurt most languages, none stands out"


def gated(**settings):
    return make(
        gate=True,
        direction="none",
        floor=0.04,
        gate_every=20,
        gate_tokens=200,
        gate_at=0.25,
        gate_from=0.05,
        **settings,
    )


GAINS = {"az": 0.002, "be": 0.04, "tr": 0.2, "ru": 0.12}
EQUALLY = dict.fromkeys(ARMS, 1000)  # tokens seen


def reading(teacher, step, gains=GAINS, seen=EQUALLY, error=0.005, played="tr"):
    teacher.ask(step - 10)
    assert teacher.watches == [SourceGain(tokens=200)]
    values = {SourceGain: {arm: Estimate(gain, error) for arm, gain in gains.items()}}
    observation = observation_of(teacher.watches, step, {played: 10}, values)
    teacher.tell(replace(observation, seen={arm: step * tokens for arm, tokens in seen.items()}))


def test_the_gate_closes_an_arm_whose_gain_is_far_below_that_of_the_others():
    teacher = gated()
    reading(teacher, 30)
    # The others have 0.12 in the middle, a quarter is 0.03; 0.002 + 2 * 0.005 is below it, 0.04 is not.
    assert shares(teacher, 30) == pytest.approx({"az": 0.0, "be": 1 / 3, "tr": 1 / 3, "ru": 1 / 3})
    assert "az" not in {teacher.ask(30).arm for _ in range(300)}


def test_a_closed_arm_is_reported_with_the_numbers():
    teacher = gated()
    assert not list(teacher.alarms(20))
    reading(teacher, 30)
    (alarm,) = teacher.alarms(30)
    assert (alarm.step, alarm.kind, alarm.arm) == (30, "closed", "az")
    assert "az: align no longer trains on it" in alarm.text
    assert "0.002 nats per token, others 0.12" in alarm.text


def test_an_uncertain_gain_closes_nothing():
    teacher = gated()
    reading(teacher, 30, error=0.02)  # 0.002 + 2 * 0.02 is above 0.03
    assert shares(teacher, 30)["az"] == 0.25
    # Four readings have half the error of one: 0.002 + 0.02 is below it.
    for step in (50, 70, 90):
        reading(teacher, step, error=0.02)
    assert shares(teacher, 90)["az"] == 0.0


def test_only_the_last_eight_readings_count_and_an_arm_can_open_again():
    teacher = gated(protect=0.5)
    for step in range(30, 190, 20):
        reading(teacher, step)
    assert shares(teacher, 180)["az"] == 0.0
    opened = []
    for step in (190, 210, 230):
        reading(teacher, step, GAINS | {"az": 0.1})
        opened.append(shares(teacher, step)["az"] > 0)
    # (7 * 0.002 + 0.1) / 8 = 0.014, then 0.027, then 0.039; the error is 0.005 / sqrt(8); an arm closes below 0.03.
    assert opened == [False, True, True]


def test_an_arm_is_compared_with_what_others_had_after_as_many_tokens():
    teacher = gated()
    early = dict.fromkeys(ARMS, 0.06) | {"az": 0.002}
    seen = EQUALLY | {"az": 300}
    reading(teacher, 30, early, seen)
    assert shares(teacher, 30)["az"] == 0.25, "none of the others had as few"
    reading(teacher, 110, early | {"tr": 0.9, "ru": 0.9, "be": 0.9}, seen)
    # az has seen 33,000; the others had 30,000 at the first reading, and 0.06, a quarter of which is 0.015.
    assert shares(teacher, 110)["az"] == 0.0
    assert teacher.gate.closed["az"] == (pytest.approx(0.002), pytest.approx(0.06))


@pytest.mark.parametrize(("reach", "share"), [(1, 0.25), (3, 0.25), (4, 0.0)])
def test_with_more_reach_an_arm_is_compared_with_what_others_had_after_more_tokens(reach, share):
    teacher = gated(gate_reach=reach)
    seen = EQUALLY | {"az": 300}
    reading(teacher, 30, dict.fromkeys(ARMS, 0.06) | {"az": 0.02}, seen)
    assert shares(teacher, 30)["az"] == 0.25, "0.02 + 2 * 0.005 is above a quarter of 0.06"
    reading(teacher, 110, dict.fromkeys(ARMS, 0.9) | {"az": 0.02}, seen)
    # az has seen 33,000. The others had 110,000 at the second reading, 3.3 times as many: (0.06 + 0.9) / 2 = 0.48.
    assert shares(teacher, 110)["az"] == share


def test_the_gate_stays_open_while_the_student_does_not_translate_yet():
    teacher = gated()
    reading(teacher, 30, dict.fromkeys(ARMS, 0.049) | {"az": -0.05})
    assert shares(teacher, 30) == pytest.approx(dict.fromkeys(ARMS, 0.25))


def test_a_direction_has_as_many_tokens_as_some_percent_of_the_computation_allow():
    def tokens(update_tokens, **settings):
        room = replace(CLASSROOM, update_tokens=update_tokens)
        return teacher_from({"name": "align", "refresh": 60, **settings}).alignment(room).tokens

    # 2.2 % of 60 updates of 300 tokens are 396, for four languages, each with right and with mismatched sources
    assert tokens(300) == 50, "49.5"
    assert tokens(300, direction="loss") == 99
    assert tokens(100) == 50, "at least"
    assert tokens(8_000) == 400, "at most: 60 updates of 8,000 tokens pay for eight languages with about 1 %"
    assert tokens(8_000, tokens=700) == 700


def test_the_prior_is_drawn_by_sentences_so_that_long_ones_count_for_more():
    room = Classroom({"az": 400, "tr": 100}, ("az",), steps=100, tokens={"az": 4_000, "tr": 3_000}, update_tokens=100)

    def prior(room, **settings):
        return list(teacher_from({"name": "align", **settings}).build(room, np.random.default_rng(1)).prior)

    # Roots of the sizes: 20 and 10; mean lengths: 10 and 30 tokens.
    assert prior(room) == pytest.approx([2 / 5, 3 / 5])
    assert prior(room, prior_by="sentences") == pytest.approx([2 / 3, 1 / 3])
    assert prior(room, prior=None) == pytest.approx([1 / 4, 3 / 4])
    assert prior(replace(room, tokens={})) == pytest.approx([2 / 3, 1 / 3]), "a loop of one's own may not count tokens"


def test_a_reading_has_as_many_tokens_as_half_a_percent_of_the_computation_allows():
    def tokens(update_tokens, steps=4000, **settings):
        room = Classroom(CLASSROOM.sizes, CLASSROOM.low_resource, steps=steps, update_tokens=update_tokens)
        config = teacher_from({"name": "align", "gate_every": "5%", **settings})
        return config.build(room, np.random.default_rng(1)).gate.measure.tokens

    # 200 updates of 800 tokens, 0.5 % of which, three passes each, is 2,400: two passes of four arms with 300 each.
    assert tokens(800) == 300
    assert tokens(100) == 60, "the fewest"
    assert tokens(8_000) == 2_000, "the most"
    assert tokens(400, gate_tokens=70) == 70


def test_the_gate_is_read_at_its_own_pace():
    teacher = gated(start=0)
    read = []
    for step in range(0, 100, 10):
        teacher.ask(step)
        if teacher.watches:
            read.append(step + 10)
            reading(teacher, step + 10)
    assert read == [30, 50, 70, 90]


def test_an_arm_without_a_reading_stays_open():
    teacher = gated()
    reading(teacher, 30, {arm: GAINS[arm] for arm in ("az", "tr", "ru")})
    assert teacher.gate.openness().tolist() == [0.0, 1.0, 1.0, 1.0]


def test_what_it_cannot_use_is_refused():
    teacher = make()
    with pytest.raises(ValueError, match="step 10: told of unknown arm 'xx'; the teacher has az, be, tr, ru"):
        teacher.tell(told(teacher, 10, {"xx": Aligned(1.0, 1.0, 1)}))
    with pytest.raises(ValueError, match="step 10: the alignment of az is nan"):
        teacher.tell(told(teacher, 10, {"az": Aligned(math.nan, 1.0, 1)}))
    with pytest.raises(ValueError, match=r"floor is 0\.25 for 4 arms; it must be below 0\.25"):
        make(floor=0.25)


@given(
    st.lists(
        st.dictionaries(
            st.sampled_from(ARMS),
            st.lists(st.floats(-1e3, 1e3), min_size=1, max_size=5),
            min_size=1,
        ),
        min_size=1,
        max_size=10,
    ),
    st.sampled_from([0.0, 0.02, 0.2]),
)
def test_whatever_it_is_told_its_shares_are_a_distribution_with_a_floor(history, floor):
    teacher = make(floor=floor)
    for number, products in enumerate(history):
        aligned = {arm: Aligned(sum(u), sum(x * x for x in u), len(u)) for arm, u in products.items()}
        teacher.tell(told(teacher, number + 1, aligned))
        found = shares(teacher, number + 1)
        assert sum(found.values()) == pytest.approx(1)
        assert min(found.values()) >= floor


def test_in_a_scripted_world_it_finds_the_arm_that_teaches_and_the_one_that_comes_after_it():
    config = teacher_from("align")
    steps = 3000
    alone = simulate_config(config, make_world("stationary", steps), steps)
    assert alone.shares["left"] > 0.8
    changed = simulate_config(config, make_world("switch", steps), steps)
    assert sum(changed.played["left"][10:45]) > 4 * sum(changed.played["right"][10:45])
    assert sum(changed.played["right"][-30:]) > 4 * sum(changed.played["left"][-30:])
