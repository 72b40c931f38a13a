"""Every option of the DQN teacher does what the ledger says, and bad observations are refused."""

import numpy as np
import pytest
import torch
from dqn_cases import ARMS, make, observation, play, prototype_at, weights_of

from rota.measures import DevLoss, GroupLosses, JointLoss
from rota.teachers import Classroom
from rota.teachers.dqn.agent import Replay
from rota.teachers.dqn.config import DQNConfig, exponential_epsilon, linear_epsilon
from rota.testing import observation_of
from rota.types import Decision


def test_the_network_has_the_sizes_of_the_paper():
    eight = Classroom(dict.fromkeys("abcdefgh", 10), low_resource=(), steps=150_000)
    teacher = DQNConfig().build(eight, np.random.default_rng(1))
    shapes = [tuple(layer.weight.shape) for layer in teacher.learner.online if isinstance(layer, torch.nn.Linear)]
    assert shapes == [(512, 200), (512, 512), (8, 512)]
    assert [type(layer).__name__ for layer in teacher.learner.online] == ["Linear", "Tanh", "Linear", "Tanh", "Linear"]
    assert (teacher.config.replay_minimum, teacher.replay.capacity) == (1_000, 10_000)
    optimiser = teacher.learner._optimiser.param_groups[0]
    assert (optimiser["lr"], optimiser["alpha"], optimiser["eps"]) == (2.5e-4, 0.99, 1e-8)


def test_the_target_network_starts_as_a_copy_of_the_online_one():
    learner = make(warmup=None).learner
    for online, target in zip(weights_of(learner.online), weights_of(learner.target), strict=True):
        np.testing.assert_array_equal(online, target)


@pytest.mark.parametrize(
    ("step", "epsilon"),
    [
        (0, 1.0),
        (15_999, 1.0),
        (16_000, 1.0),
        (16_001, 1 - 0.99 / 50_000),
        (41_000, 0.505),
        (65_999, 0.01 + 0.99 / 50_000),
        (66_000, 0.01),
        (66_001, 0.01),
    ],
)
def test_epsilon_falls_linearly_from_the_end_of_the_warmup(step, epsilon):
    at = DQNConfig().epsilon_at(150_000)
    assert at(step) == pytest.approx(epsilon, abs=1e-12)


@pytest.mark.parametrize(("step", "epsilon"), [(0, 1.0), (16_000, 0.7289), (50_000, 0.3742), (66_000, 0.2745)])
def test_the_released_epsilon_falls_exponentially_from_the_first_step(step, epsilon):
    at = DQNConfig(variant="released").epsilon_at(150_000)
    assert at(step) == pytest.approx(epsilon, abs=5e-5)


def test_a_decay_of_no_steps_goes_to_the_floor_at_once():
    assert linear_epsilon(9, warmup=10, decay=0, floor=0.1) == 1.0
    assert linear_epsilon(10, warmup=10, decay=0, floor=0.1) == 0.1
    assert exponential_epsilon(0, decay=0, floor=0.1) == 0.1


def test_during_the_warmup_nothing_is_watched_and_afterwards_everything():
    teacher = make()
    assert teacher.ask(20).why == "warmup"
    assert teacher.watches == ()
    assert teacher.ask(30).why == "explore"
    assert teacher.watches == (JointLoss(), GroupLosses(groups=2, spread=True))


def test_a_choice_before_any_observation_is_random():
    teacher = make(warmup=None, epsilon_steps=0, epsilon_floor=0.0)
    decisions = [teacher.ask(0) for _ in range(60)]
    assert {decision.arm for decision in decisions} == set(ARMS)
    assert {(decision.why, decision.epsilon, decision.probability) for decision in decisions} == {
        ("explore", 1.0, 1 / 3)
    }


def test_the_first_transition_is_stored_with_the_second_observation():
    teacher = make(warmup=None)
    play(teacher, 10)
    assert len(teacher.replay) == 0
    play(teacher, 20, start=10)
    assert len(teacher.replay) == 1
    np.testing.assert_allclose(teacher.replay.states[0], prototype_at(10), rtol=1e-6)
    np.testing.assert_allclose(teacher.replay.next_states[0], prototype_at(20), rtol=1e-6)


def test_zero_state_stores_the_first_transition_with_the_first_observation():
    teacher = make(warmup=None, first_transition="zero-state")
    play(teacher, 10)
    assert len(teacher.replay) == 1
    assert not teacher.replay.states[0].any()
    assert teacher.replay.gains[0] == 0.0  # no earlier loss to compare with


def told(teacher, losses, arms=("az",) * 9):
    """Gains in the replay memory after these joint losses; the dev loss of the arm is 10 more."""
    for number, (loss, arm) in enumerate(zip(losses, arms, strict=False), start=1):
        told_of = observation(
            number, Decision(arm, "told"), teacher.watches, joint=loss, dev={arm: loss + 10}, groups=np.ones(6)
        )
        teacher.tell(told_of)
    return teacher.replay.gains[: len(teacher.replay)].tolist()


def test_the_paper_rewards_the_fall_of_the_loss_since_the_last_observation():
    assert told(make(warmup=None), [4.0, 3.0, 3.5]) == [1.0, -0.5]


def test_the_released_code_rewards_the_fall_below_the_mean_of_the_last_losses():
    assert told(make(warmup=None, reward="gain-over-mean"), [4.0, 3.0, 3.0]) == [1.0, 0.5]


def test_the_gain_on_the_same_arm_can_be_the_reward():
    gains = told(make(warmup=None, reward="same-arm-gain"), [4.0, 8.0, 3.0], arms=("az", "tr", "az"))
    assert gains == [1.0]


def test_the_reward_batch_of_the_current_language_is_its_dev_loss():
    teacher = make(warmup=None, reward_batch="current-language")
    assert teacher.watches == (DevLoss(), GroupLosses(groups=2, spread=True))
    assert teacher.tell(observation(1, Decision("az", "told"), teacher.watches, dev={"az": 4.0})) == {}
    assert teacher.tell(observation(2, Decision("tr", "told"), teacher.watches, dev={"tr": 3.0})) == {"tr": 1.0}
    assert teacher.replay.gains[0] == 1.0


def test_rewards_can_be_scaled():
    assert told(make(warmup=None, reward_scale="z-score"), [4.0, 3.0, 3.0]) == pytest.approx([0.0, -1.0])


def moved_apart(acts_with):
    """A teacher whose online network prefers tr and whose target network prefers ru."""
    teacher = make(warmup=None, acts_with=acts_with, epsilon_steps=0, epsilon_floor=0.0)
    for network, favourite in ((teacher.learner.online, 1), (teacher.learner.target, 2)):
        with torch.no_grad():
            network[-1].bias[favourite] += 100
    teacher.tell(observation(10, Decision("az", "told"), teacher.watches))
    return teacher


def test_the_target_network_acts_unless_the_online_one_is_asked_to():
    assert moved_apart("target").ask(10).arm == "ru"
    assert moved_apart("online").ask(10).arm == "tr"


def test_below_the_replay_minimum_choices_are_random_if_the_config_says_so():
    options = {"warmup": None, "epsilon_steps": 0, "epsilon_floor": 0.0, "replay_minimum": 3}
    greedy = play(make(**options), 60)
    assert [decision.why for decision in greedy] == ["explore"] + ["exploit"] * 5
    random = play(make(**options, below_replay_minimum="random"), 60)
    # observations 2, 3 and 4 store a transition each: from the fifth choice on there are three
    assert [decision.why for decision in random] == ["explore"] * 4 + ["exploit"] * 2


def test_learning_starts_at_the_replay_minimum():
    teacher = make(warmup=None, replay_minimum=3)
    play(teacher, 30)
    assert (len(teacher.replay), teacher.learner.updates) == (2, 0)
    play(teacher, 40, start=30)
    assert (len(teacher.replay), teacher.learner.updates) == (3, 1)


def test_a_warmup_that_tells_the_rewards_fills_the_history_and_nothing_else():
    teacher = make(variant="released", first_transition="stored-at-second")
    decision = teacher.ask(0)
    assert decision.why == "warmup"
    assert teacher.watches == (JointLoss(tokens=1_000, smoothed=True),)
    teacher.tell(observation(10, decision, teacher.watches, joint=4.0))
    assert len(teacher.teacher.replay) == 0
    assert teacher.teacher.state_dict()["reward"] == {"losses": [4.0]}
    assert teacher.teacher.state_dict()["state"] is None


def test_gradients_can_be_clipped_by_value():
    plain, clipped = (make(warmup=None, gradient_clip=clip) for clip in (None, 1e-9))
    for teacher in (plain, clipped):
        before = weights_of(teacher.learner.online)[0].copy()
        play(teacher, 60)
        teacher.moved = np.abs(weights_of(teacher.learner.online)[0] - before).max()
    # RMSProp divides by the size of the gradient plus 1e-8: gradients of 1e-9 move the weights visibly less
    assert 0 < clipped.moved < plain.moved / 5


def test_the_replay_memory_overwrites_the_oldest():
    replay = Replay(3, 1)
    for number in range(5):
        replay.add(np.array([number]), number, float(number), np.array([number + 1]))
    assert len(replay) == 3
    assert sorted(replay.gains.tolist()) == [2.0, 3.0, 4.0]
    drawn = replay.sample(200, np.random.default_rng(1))
    assert set(drawn.gains_N.tolist()) == {2.0, 3.0, 4.0}
    assert (drawn.next_states_NS[:, 0] == drawn.states_NS[:, 0] + 1).all()


def test_making_a_teacher_leaves_the_global_generator_of_torch_alone():
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    make()
    assert torch.equal(torch.rand(3), expected)


BAD_OBSERVATIONS = {
    "has no GroupLosses": {"groups": None},
    "there are 5 group losses; this Q network takes 6": {"groups": np.ones(5)},
    "a group loss is not finite": {"groups": np.array([1, 1, 1, 1, 1, np.inf])},
    "has no JointLoss": {"joint": None},
    "joint loss is nan": {"joint": float("nan")},
}


@pytest.mark.parametrize("message", BAD_OBSERVATIONS)
def test_a_bad_observation_is_refused_in_one_clear_line(message):
    teacher = make(warmup=None)
    with pytest.raises(ValueError, match=message):
        teacher.tell(observation(10, Decision("az", "told"), teacher.watches, **BAD_OBSERVATIONS[message]))


@pytest.mark.parametrize(
    ("plays", "message"),
    [
        ({"xx": 10}, "unknown arm 'xx'"),
        ({"az": 5, "tr": 5}, "played az, tr; DQN needs an observation after every choice"),
    ],
)
def test_plays_that_do_not_fit_are_refused_in_one_clear_line(plays, message):
    teacher = make(warmup=None)
    values = {JointLoss: 4.0, GroupLosses: np.ones(6)}
    with pytest.raises(ValueError, match=message):
        teacher.tell(observation_of(teacher.watches, 10, plays, values))


def test_a_replay_minimum_above_the_capacity_is_refused():
    with pytest.raises(ValueError, match="replay_minimum is 20; it must not exceed replay_capacity"):
        DQNConfig(replay_minimum=20, replay_capacity=10)


def test_dqn_observes_at_every_choice():
    assert DQNConfig(decide_every=5, observe_every=5).observe_every == 5
    with pytest.raises(ValueError, match="observe_every is 20; DQN observes at every choice"):
        DQNConfig(observe_every=20)
