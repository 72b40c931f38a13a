"""CCL-M and the change of weights, traced by hand from the formulas in docs/teachers.md."""

import math
from collections import Counter

import numpy as np
import pytest
from pydantic import TypeAdapter, ValidationError

from rota.measures import DevLoss, WeightChange
from rota.teachers import AnyTeacherConfig, Classroom, build_teacher, teacher_from
from rota.teachers.paced.weight_change import WeightPaced
from rota.testing.contract import CLASSROOM, observation_of
from rota.training.gauges.weights import symmetric_divergence

TARGETS = {"az": 3.0, "be": 3.2, "tr": 2.0, "ru": 2.5}


def config(**values):
    return TypeAdapter(AnyTeacherConfig).validate_python(values)


def build(**values):
    return build_teacher(config(**values), CLASSROOM, np.random.default_rng(1))


def ccl_m(**values):
    return build(name="ccl-m", baseline=TARGETS, every=5, floor=0, **values)


def told(teacher, step, losses):
    return teacher.tell(observation_of(teacher.watches, step, {"tr": 1}, {DevLoss: losses}))


# CCL-M


def test_only_the_high_resource_languages_begin():
    teacher = ccl_m()
    assert {teacher.ask(step).arm for step in range(4)} == {"tr", "ru"}
    assert teacher.ask(0).scores == {"az": 0.0, "be": 0.0, "tr": 0.5, "ru": 0.5}


def test_shares_are_inverse_to_the_competences():
    teacher = ccl_m()
    teacher.ask(4)
    # exp(2 - 3) and exp(2.5 - 3): az and be are not admitted, because the mean of both is 0.49.
    rewards = told(teacher, 5, {"az": 9.0, "be": 9.0, "tr": 3.0, "ru": 3.0})
    assert rewards == pytest.approx(
        {"az": math.exp(-6), "be": math.exp(-5.8), "tr": math.exp(-1), "ru": math.exp(-0.5)}
    )
    weights = math.exp(1), math.exp(0.5)
    shares = teacher.ask(5).scores
    assert shares == pytest.approx({"az": 0, "be": 0, "tr": weights[0] / sum(weights), "ru": weights[1] / sum(weights)})


def test_low_resource_languages_join_when_the_others_are_learned_and_stay():
    teacher = ccl_m(threshold=0.8)
    teacher.ask(4)
    # tr is better than its target: 1. ru: exp(-0.5) = 0.607; the mean is 0.803.
    told(teacher, 5, {"az": 4.0, "be": 4.2, "tr": 1.5, "ru": 3.0})
    inverse = {"az": math.e, "be": math.e, "tr": 1.0, "ru": math.exp(0.5)}
    assert teacher.ask(9).scores == pytest.approx({arm: w / sum(inverse.values()) for arm, w in inverse.items()})
    told(teacher, 10, {"az": 4.0, "be": 4.2, "tr": 5.0, "ru": 6.0})
    assert teacher.ask(10).scores["az"] > 0


def test_relatives_alone_admit_their_language():
    teacher = ccl_m(threshold=0.9, relatives={"be": ["ru"]})
    teacher.ask(4)
    told(teacher, 5, {"az": 9.0, "be": 9.0, "tr": 9.0, "ru": 2.5})
    assert [arm for arm, share in teacher.ask(5).scores.items() if share] == ["be", "tr", "ru"]


def test_dev_losses_are_measured_every_so_often():
    teacher = ccl_m()
    watched = []
    for step in range(12):
        teacher.ask(step)
        watched.append(bool(teacher.watches))
        told(teacher, step + 1, dict.fromkeys(TARGETS, 4.0))
    assert [step + 1 for step, is_due in enumerate(watched) if is_due] == [5, 10]


def test_an_admitted_language_has_a_floor():
    teacher = build(name="ccl-m", baseline=TARGETS, every=5, floor=0.05)
    teacher.ask(4)
    told(teacher, 5, {"az": 9.0, "be": 9.0, "tr": 2.0, "ru": 12.0})
    # 1 and 1 / 0.001: 0.001 of the rest, and 0.05.
    assert teacher.ask(5).scores["tr"] == pytest.approx(0.9 * 1 / 1001 + 0.05)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"baseline": {"az": 1.0}}, "teacher.baseline has no loss of be, tr, ru"),
        ({"baseline": TARGETS, "relatives": {"tr": ["ru"]}}, "'tr' is not a low-resource language"),
        ({"baseline": TARGETS, "relatives": {"az": ["be"]}}, r"'az' has be; name high-resource languages \(tr, ru\)"),
        ({"baseline": TARGETS, "relatives": {"az": []}}, "'az' has none; name high-resource languages"),
    ],
)
def test_a_mistake_about_the_languages_is_named(values, message):
    with pytest.raises(ValueError, match=message):
        build(name="ccl-m", **values)


def test_arms_of_a_language_have_its_target_and_its_relatives():
    room = Classroom(
        {"az": 5, "az-web": 9, "tr": 90, "ru": 80},
        low_resource=("az", "az-web"),
        steps=100,
        language_of={"az": "az", "az-web": "az", "tr": "tr", "ru": "ru"},
    )
    chosen = config(name="ccl-m", baseline={"az": 3.0, "tr": 2.0, "ru": 2.5}, relatives={"az": ["tr"]})
    teacher = build_teacher(chosen, room, np.random.default_rng(1))
    assert teacher.targets == {"az": 3.0, "az-web": 3.0, "tr": 2.0, "ru": 2.5}
    assert teacher.teachers_of == {"az": ("tr",), "az-web": ("tr",)}


def test_ccl_m_needs_a_baseline():
    with pytest.raises(ValidationError, match="'baseline' is missing; write for example baseline: runs/uniform"):
        config(name="ccl-m")


# The change of weights


def observe(teacher, step, change):
    decision = teacher.ask(step)
    teacher.tell(observation_of(teacher.watches, step + 1, decision, {WeightChange: change}))
    return decision


def test_every_language_comes_once_then_the_one_in_progress_stays_until_it_is_below_the_median():
    teacher = WeightPaced(("az", "be", "tr"), smoothing=0.5, longest=9)
    assert [observe(teacher, step, change).arm for step, change in enumerate((3.0, 2.0, 4.0))] == ["az", "be", "tr"]
    # tr stays: 4 is above the median, 3. Then 0.5 * 7 + 0.5 * 4 = 5.5, and 2.75, which is the median itself.
    first = observe(teacher, 3, 7.0)
    assert (first.arm, first.why, first.scores) == ("tr", "stay", {"az": 3.0, "be": 2.0, "tr": 4.0})
    assert observe(teacher, 4, 0.0).arm == "tr"
    assert teacher.changes == {"az": 3.0, "be": 2.0, "tr": 2.75}
    assert observe(teacher, 5, 1.0).arm == "tr"  # 1.875 is below the median, 2
    last = teacher.ask(6)
    assert (last.arm, last.why) == ("az", "next")


def test_nobody_stays_for_ever():
    teacher = WeightPaced(("az", "be"), smoothing=0.0, longest=3)
    observe(teacher, 0, 1.0)
    observe(teacher, 1, 1.0)
    arms = [observe(teacher, step, 100.0 + step).arm for step in range(2, 10)]
    assert arms == ["be"] * 2 + ["az"] * 3 + ["be"] * 3


def test_a_language_of_a_warmup_that_is_not_its_own_teaches_it_nothing():
    teacher = build(name="weight-change", languages=["az", "be"], warmup={"until": 50, "inform": "all"})
    assert observe(teacher, 0, 5.0).arm in ("tr", "ru")
    assert teacher.ask(50).arm == "az"


def test_the_divergence_is_that_of_normal_distributions():
    # By the definition, with numbers: KL(p, q) = log(s_q / s_p) + (s_p^2 + (m_p - m_q)^2) / (2 s_q^2) - 1/2.
    def divergence(p, q):
        return math.log(q[1] / p[1]) + (p[1] ** 2 + (p[0] - q[0]) ** 2) / (2 * q[1] ** 2) - 0.5

    before, now = np.array([[0.1, 1.0], [0.0, 2.0]]), np.array([[0.3, 1.5], [0.0, 2.0]])
    expected = divergence(before[0], now[0]) + divergence(now[0], before[0])
    assert symmetric_divergence(before, now) == pytest.approx(expected / 2)  # the second matrix has not moved
    assert symmetric_divergence(now, before) == pytest.approx(expected / 2)


def test_every_language_gets_its_turn_in_a_whole_run():
    teacher = build(name="weight-change", decide_every=1)
    changes = np.random.default_rng(3).exponential(size=200)
    counted = Counter(observe(teacher, step, float(change)).arm for step, change in enumerate(changes))
    assert set(counted) == set(CLASSROOM.arms)
    assert min(counted.values()) >= 5


@pytest.mark.parametrize(("steps", "block"), [(50, 1), (100, 1), (1_000, 12), (4_000, 50), (150_000, 50)])
def test_a_short_run_has_eighty_choices_by_the_change_of_weights(steps, block):
    """80 blocks of 12 fit into 1,000 updates, of 13 do not."""
    assert teacher_from("weight-change").fitted(steps, 750).decide_every == block
    written = teacher_from({"name": "weight-change", "decide_every": 7})
    assert written.fitted(steps, 750).decide_every == 7
