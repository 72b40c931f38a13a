import numpy as np
import pytest

from rota.measures import DevLoss, JointLoss
from rota.teachers.rewards import (
    GainOverMean,
    QuantileScaled,
    SameArmGain,
    StepGain,
    ZScored,
    dev_losses,
    gain_per_step,
    joint_loss,
)
from rota.testing import observation_of


class Given:
    """A reward whose gains are the losses it is given."""

    def __call__(self, arm, loss):
        return loss

    def state_dict(self):
        return {}

    def load_state_dict(self, state):
        """It remembers nothing."""


def test_a_falling_loss_is_a_positive_gain():
    assert SameArmGain("skip")("az", 3.0) is None
    for reward in (SameArmGain("skip"), StepGain(), GainOverMean()):
        reward("az", 3.0)
        assert reward("az", 2.75) == 0.25


def test_the_same_arm_gain_compares_with_the_last_loss_of_that_arm():
    reward = SameArmGain("skip")
    assert [reward(arm, loss) for arm, loss in [("az", 3.0), ("tr", 5.0), ("az", 2.5), ("tr", 5.5)]] == [
        None,
        None,
        0.5,
        -0.5,
    ]


def test_the_first_raw_reward_is_minus_the_loss():
    reward = SameArmGain("raw")
    assert reward("az", 3.0) == -3.0
    assert reward("tr", 5.0) == -5.0
    assert reward("az", 2.0) == 1.0


def test_the_step_gain_compares_with_the_last_loss_whatever_was_played():
    reward = StepGain()
    assert [reward(arm, loss) for arm, loss in [("az", 3.0), ("tr", 5.0), ("az", 2.5)]] == [None, -2.0, 2.5]


def test_the_gain_over_the_mean_forgets_losses_beyond_its_window():
    reward = GainOverMean(window=2)
    assert [reward("az", loss) for loss in (8.0, 4.0, 5.0, 1.5)] == [None, 4.0, 1.0, 3.0]


def test_the_gain_over_the_mean_remembers_a_hundred_losses():
    reward = GainOverMean()
    for loss in [1000.0] + [1.0] * 100:
        reward("az", loss)
    assert reward("az", 0.5) == 0.5


def test_quantile_scaling_maps_the_20_and_80_percent_quantiles_to_minus_one_and_one():
    scaled = QuantileScaled(Given())
    for gain in (0.0, 10.0, 2.0, 8.0, 4.0):  # with 6 more: quantiles of 0 2 4 6 8 10 are 2 and 8
        scaled("az", gain)
    assert scaled("az", 6.0) == pytest.approx(2 * (6 - 2) / 6 - 1)
    assert scaled("az", 100.0) == 1.0
    assert scaled("az", -100.0) == -1.0


def test_equal_gains_are_scaled_to_zero():
    for scaled in (QuantileScaled(Given()), ZScored(Given())):
        assert [scaled("az", 5.0) for _ in range(3)] == [0.0, 0.0, 0.0]


def test_a_z_score_counts_standard_deviations_from_the_mean():
    scaled = ZScored(Given())
    scaled("az", 1.0)
    scaled("az", 1.0)
    # 1, 1, 4: mean 2, variance (1 + 1 + 4) / 3 = 2
    assert scaled("az", 4.0) == pytest.approx(2 / np.sqrt(2))


def test_a_scaled_reward_is_silent_where_there_is_nothing_to_compare_with():
    for scaled in (QuantileScaled(StepGain()), ZScored(StepGain())):
        assert scaled("az", 3.0) is None


@pytest.mark.parametrize(
    "make", [SameArmGain, StepGain, lambda: GainOverMean(2), lambda: ZScored(QuantileScaled(StepGain()))]
)
def test_a_restored_reward_goes_on_as_if_nothing_had_happened(make):
    losses = [("az", 3.0), ("tr", 5.0), ("az", 2.5), ("tr", 4.0), ("az", 2.0), ("tr", 4.5)]
    whole, first, second = make(), make(), make()
    expected = [whole(*loss) for loss in losses]
    got = [first(*loss) for loss in losses[:3]]
    second.load_state_dict(first.state_dict())
    assert got + [second(*loss) for loss in losses[3:]] == expected


def test_the_slope_is_that_of_the_least_squares_line():
    assert gain_per_step(np.array([1.0, 2.0, 3.0]), np.array([3.0, 2.5, 2.0])) == pytest.approx(0.5)
    # points (0, 0), (1, 0), (2, 3): slope (-1 * -1 + 0 + 1 * 2) / 2 = 1.5, a loss that rises
    assert gain_per_step(np.array([0.0, 1.0, 2.0]), np.array([0.0, 0.0, 3.0])) == pytest.approx(-1.5)


def test_what_was_not_measured_is_named():
    nothing = observation_of([], 7, {"az": 1}, {})
    with pytest.raises(ValueError, match=r"step 7: the observation has no DevLoss\(\)"):
        dev_losses(nothing)
    with pytest.raises(ValueError, match=r"step 7: the observation has no JointLoss\(tokens=9\)"):
        joint_loss(nothing, JointLoss(tokens=9))
    with pytest.raises(ValueError, match="step 7: the observation has no dev loss of az"):
        dev_losses(observation_of([DevLoss()], 7, {"az": 1}, {DevLoss: {"tr": 1.0}}))


def test_a_loss_that_is_not_finite_is_named():
    diverged = observation_of([DevLoss()], 7, {"az": 1}, {DevLoss: {"az": float("nan")}})
    with pytest.raises(ValueError, match="step 7: the dev loss of az is nan"):
        dev_losses(diverged)
