"""TSCL against Algorithm 1, written down here a second time from the paper."""

import numpy as np
import pytest

from rota.measures import DevLoss
from rota.teachers import TSCL, Classroom, FirstVisits, Warmup, build_teacher
from rota.teachers.bandits.tscl import TSCLConfig
from rota.testing import observation_of

ARMS = ("az", "tr", "ru")
CLASSROOM = Classroom({"az": 5, "tr": 90, "ru": 80}, low_resource=("az",), steps=1000)


def loss_at(arm, step):
    """Any losses will do: they fall at different speeds, and az rises in between."""
    number = ARMS.index(arm)
    return 2 + number + 3 / (1 + 0.05 * step * (number + 1)) + 0.1 * np.sin(step + number)


def tell(teacher, step, plays, losses, updates=1):
    return teacher.tell(observation_of(teacher.watches, step, plays, {DevLoss: losses}, updates))


def play(teacher, steps, every=1, loss_at=loss_at):
    decisions = []
    for step in range(0, steps, every):
        decision = teacher.ask(step)
        after = step + every
        loss = loss_at(decision.arm, after)
        tell(teacher, after, decision, {decision.arm: loss}, every)
        decisions.append(decision)
    return decisions


def algorithm_1(ts, n, w, epsilon, alpha, rng, draw_warmup):
    """The pseudo-code, line by line, with languages numbered from 1; returns each action and Q when it was chosen."""
    k = len(ARMS)
    i = 1
    unvisited = list(range(2, k + 1))
    q = dict.fromkeys(range(1, k + 1), 0.0)
    history = dict.fromkeys(range(1, k + 1), 0.0)
    chosen = [(i, dict(q))]
    for t in range(1, ts + 1):
        if t % n == 0:
            x = -loss_at(ARMS[i - 1], t)
            reward = x - history[i]
            history[i] = x
            q[i] = alpha * reward + (1 - alpha) * q[i]
            if len(unvisited) != 0:
                i = unvisited.pop(0)
            elif t < w:
                i = draw_warmup()
            elif rng.random() < epsilon:
                i = 1 + int(rng.integers(k))
            else:
                i = max(q, key=lambda number: abs(q[number]))
            chosen.append((i, dict(q)))
    return chosen[:-1]  # the last action is never played


@pytest.mark.parametrize(("n", "warmup"), [(1, None), (1, 12), (2, 21), (10, 60)])
def test_sixty_decisions_are_those_of_algorithm_1(n, warmup):
    steps = 60 * n
    config = TSCLConfig(warmup=warmup, decide_every=n, alpha=0.1, epsilon=0.2)
    decisions = play(build_teacher(config, CLASSROOM, np.random.default_rng(5)), steps, n)

    own, warm, _ = np.random.default_rng(5).spawn(3)
    expected = algorithm_1(steps, n, warmup or 0, 0.2, 0.1, own, lambda: 2 + int(warm.integers(2)))
    assert len(expected) == 60
    assert [decision.arm for decision in decisions] == [ARMS[number - 1] for number, _ in expected]
    for decision, (_, q) in zip(decisions, expected, strict=True):
        if decision.scores:
            assert decision.scores == pytest.approx({ARMS[number - 1]: value for number, value in q.items()}, rel=1e-12)
    reasons = {decision.why for decision in decisions}
    assert reasons == {"first visit", "explore", "exploit"} | ({"warmup"} if warmup else set())


def tell_losses(teacher, losses):
    for step, (arm, loss) in enumerate(losses, start=1):
        tell(teacher, step, {arm: 1}, {arm: loss})
    return dict(zip(teacher.arms, teacher.values().tolist(), strict=True))


def test_the_first_reward_is_minus_the_loss_and_is_smoothed_from_zero():
    teacher = TSCL(ARMS, np.random.default_rng(1))
    assert tell_losses(teacher, [("az", 4.0)])["az"] == pytest.approx(-0.4)
    # the loss falls by 1: 0.1 * 1 + 0.9 * -0.4
    assert tell_losses(teacher, [("az", 3.0)])["az"] == pytest.approx(-0.26)


def test_alpha_is_the_weight_of_the_newest_reward():
    teacher = TSCL(ARMS, np.random.default_rng(1), alpha=0.3)
    assert tell_losses(teacher, [("az", 4.0), ("az", 3.0)])["az"] == pytest.approx(0.3 * 1 + 0.7 * 0.3 * -4)


def test_first_reward_skip_waits_for_the_second_loss():
    teacher = TSCLConfig(warmup=None, first_reward="skip").build(CLASSROOM, np.random.default_rng(1))
    assert tell_losses(teacher, [("az", 4.0)])["az"] == 0.0
    assert tell_losses(teacher, [("az", 3.0)])["az"] == pytest.approx(0.1)


def test_a_language_that_gets_worse_attracts_as_much_as_one_that_gets_better():
    losses = [("az", 4.0), ("tr", 4.0), ("az", 3.9), ("tr", 4.2)]
    for absolute, best in ((True, "tr"), (False, "az")):
        config = TSCLConfig(epsilon=0.0, first_reward="skip", absolute=absolute)
        teacher = config.build(CLASSROOM, np.random.default_rng(1))
        tell_losses(teacher, losses)
        assert teacher.ask(4).arm == best
        assert teacher.ask(4).scores["tr"] == pytest.approx(-0.02)


def test_of_equal_arms_the_first_is_taken():
    teacher = TSCL(ARMS, np.random.default_rng(1), epsilon=0.0)
    assert teacher.ask(0).arm == "az"


def test_epsilon_is_shared_by_all_arms_and_the_rest_goes_to_the_best():
    teacher = TSCL(ARMS, np.random.default_rng(1), epsilon=0.3)
    tell_losses(teacher, [("ru", 4.0)])
    decisions = [teacher.ask(step) for step in range(3000)]
    assert {decision.arm: decision.probability for decision in decisions} == pytest.approx(
        {"az": 0.1, "tr": 0.1, "ru": 0.8}
    )
    assert np.mean([decision.arm == "ru" for decision in decisions]) == pytest.approx(0.8, abs=0.03)
    assert np.mean([decision.why == "explore" for decision in decisions]) == pytest.approx(0.3, abs=0.03)
    assert {decision.epsilon for decision in decisions} == {0.3}


def test_a_boltzmann_choice_follows_the_softmax():
    config = TSCLConfig(policy="boltzmann", temperature=0.5, first_visits="text")
    teacher = config.build(CLASSROOM, np.random.default_rng(1))
    tell_losses(teacher, [("ru", 5.0)])  # |Q| = 0.5
    probabilities = {decision.arm: decision.probability for decision in (teacher.ask(0) for _ in range(200))}
    assert probabilities == pytest.approx({"az": 1 / (2 + np.e), "tr": 1 / (2 + np.e), "ru": np.e / (2 + np.e)})


def reasons(count, **options):
    config = TSCLConfig(epsilon=0.0, **options)
    decisions = play(build_teacher(config, CLASSROOM, np.random.default_rng(3)), count)
    return [decision.why for decision in decisions], [decision.arm for decision in decisions]


def test_first_visits_as_in_the_algorithm_come_before_the_warmup():
    why, arms = reasons(7, warmup=5)
    assert why == ["first visit"] * 3 + ["warmup"] * 2 + ["exploit"] * 2
    assert arms[:3] == list(ARMS)


def test_first_visits_as_in_the_text_are_only_made_without_a_warmup():
    assert reasons(7, warmup=5, first_visits="text")[0] == ["warmup"] * 5 + ["exploit"] * 2
    assert reasons(5, warmup=None, first_visits="text")[0] == ["first visit"] * 3 + ["exploit"] * 2


def test_first_visits_can_wait_until_the_warmup_is_over():
    why, arms = reasons(9, warmup=5, first_visits="after-warmup")
    assert why == ["warmup"] * 5 + ["first visit"] * 3 + ["exploit"]
    assert arms[5:8] == list(ARMS)


def test_shuffled_first_visits_play_the_first_language_twice():
    why, arms = reasons(7, warmup=5, first_visits="shuffled")
    assert why == ["first visit"] * 4 + ["warmup"] + ["exploit"] * 2
    assert arms[0] == "az"
    assert sorted(arms[1:4]) == sorted(ARMS)


def test_the_warmup_is_on_the_high_resource_languages_unless_all_are_asked_for():
    assert set(reasons(60, warmup=60, first_visits="text")[1]) == {"tr", "ru"}
    assert set(reasons(60, warmup={"until": 60, "languages": "all"}, first_visits="text")[1]) == set(ARMS)


def test_the_teacher_hears_of_the_warmup_and_of_the_first_visits():
    teacher = build_teacher(TSCLConfig(warmup=10), CLASSROOM, np.random.default_rng(1))
    assert isinstance(teacher, FirstVisits)
    assert isinstance(teacher.teacher, Warmup)
    bandit = teacher.teacher.teacher
    play(teacher, 3)
    assert (bandit.values() < 0).all()
    before = bandit.values().copy()
    play_on = teacher.ask(3)
    assert play_on.why == "warmup"
    assert teacher.watches == (DevLoss(),)
    tell(teacher, 4, play_on, {play_on.arm: 1.0})
    assert (bandit.values() != before).sum() == 1


def test_every_arm_played_since_the_last_observation_counts():
    teacher = TSCL(ARMS, np.random.default_rng(1))
    assert tell(teacher, 10, {"ru": 7, "az": 3}, {"az": 2.0, "ru": 3.0}) == {"ru": -3.0, "az": -2.0}
    assert teacher.values() == pytest.approx([-0.2, 0.0, -0.3])


def test_an_unknown_arm_is_named():
    teacher = TSCL(ARMS, np.random.default_rng(1))
    with pytest.raises(ValueError, match="unknown arm 'xx'; the teacher has az, tr, ru"):
        tell(teacher, 1, {"xx": 1}, {"xx": 2.0})


def test_a_teacher_without_arms_is_refused():
    with pytest.raises(ValueError, match="no arms"):
        TSCL((), np.random.default_rng(1))
