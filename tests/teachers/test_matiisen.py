import numpy as np
import pytest

from rota.measures import DevLoss
from rota.teachers import Classroom, Naive, Sampling, Window
from rota.teachers.bandits.tscl import TSCLConfig
from rota.teachers.rewards import SameArmGain
from rota.testing import observation_of

ARMS = ("az", "tr")
CLASSROOM = Classroom({"az": 5, "tr": 90}, low_resource=("az",), steps=1000)


def rng(seed=1):
    return np.random.default_rng(seed)


def tell(teacher, step, arm, loss):
    teacher.tell(observation_of(teacher.watches, step, {arm: 1}, {DevLoss: {arm: loss}}))


def test_naive_holds_its_choice_for_a_window_and_then_smooths_the_slope():
    teacher = Naive(ARMS, rng(), alpha=0.5, window=3, epsilon=0.0)
    chosen = []
    for step, loss in enumerate([3.0, 2.5, 2.0, 1.9, 1.8, 1.7]):
        chosen.append(teacher.ask(step))
        tell(teacher, step + 1, "az", loss)
        if step == 2:
            assert teacher.values() == pytest.approx([0.25, 0.0])
    # slopes 0.5 and 0.1: 0 -> 0.25 -> 0.25 + 0.5 * (0.1 - 0.25)
    assert teacher.values() == pytest.approx([0.175, 0.0])
    assert all(decision is chosen[0] for decision in chosen[:3])
    assert chosen[3] is not chosen[2]
    assert chosen[3].scores == pytest.approx({"az": 0.25, "tr": 0.0})


def test_naive_goes_on_exploring_an_arm_for_a_whole_window():
    teacher = Naive(ARMS, rng(2), window=4, epsilon=1.0)
    arms = []
    for step in range(400):
        arms.append(teacher.ask(step).arm)
        tell(teacher, step + 1, arms[-1], 1.0)
    blocks = [arms[start : start + 4] for start in range(0, 400, 4)]
    assert all(len(set(block)) == 1 for block in blocks)
    assert {block[0] for block in blocks} == set(ARMS)


def test_window_takes_the_slope_of_the_last_losses_alone():
    teacher = Window(ARMS, rng(), window=3, epsilon=0.0)
    assert teacher.values().tolist() == [1.0, 1.0]  # unseen arms are tried first
    for step, loss in [(0, 100.0), (1, 4.0), (2, 3.0), (3, 2.0)]:
        tell(teacher, step, "tr", loss)
    assert teacher.values() == pytest.approx([1.0, 1.0])
    tell(teacher, 4, "tr", 1.5)  # (2, 3) (3, 2) (4, 1.5): slope -0.75
    assert teacher.values() == pytest.approx([1.0, 0.75])
    assert teacher.ask(5).arm == "az"


def test_window_measures_time_in_steps():
    teacher = Window(ARMS, rng(), window=3)
    tell(teacher, 10, "az", 3.0)
    tell(teacher, 20, "az", 2.0)
    assert teacher.values()[0] == pytest.approx(0.1)


def test_sampling_draws_one_of_the_remembered_rewards_of_each_arm():
    teacher = Sampling(ARMS, rng(), SameArmGain("skip"), window=2, epsilon=0.0)
    for step, loss in enumerate([5.0, 1.0, 0.5, 0.25]):  # gains 4, 0.5, 0.25; the window keeps the last two
        tell(teacher, step, "az", loss)
    drawn = {float(teacher.values()[0]) for _ in range(50)}
    assert drawn == {0.5, 0.25}
    assert teacher.values()[1] == 1.0
    assert teacher.ask(5).arm == "tr"


@pytest.mark.parametrize(("algorithm", "kind"), [("naive", Naive), ("window", Window), ("sampling", Sampling)])
def test_the_config_builds_the_algorithm_it_names(algorithm, kind):
    config = TSCLConfig(algorithm=algorithm, window=7, first_visits="text")
    teacher = config.build(CLASSROOM, rng())
    assert type(teacher) is kind
    assert teacher.window == 7


@pytest.mark.parametrize("algorithm", ["naive", "window"])
@pytest.mark.parametrize(("name", "value"), [("first_reward", "skip"), ("reward_scale", "z-score")])
def test_algorithms_without_rewards_refuse_their_settings(algorithm, name, value):
    with pytest.raises(ValueError, match=f"{name} is '{value}', but algorithm '{algorithm}' .*; remove it"):
        TSCLConfig(algorithm=algorithm, **{name: value})
    assert getattr(TSCLConfig(algorithm="sampling", **{name: value}), name) == value
