"""``variant: paper | released`` sets every row of the ledger in docs/paper.md at once."""

import numpy as np
import pytest
from pydantic import TypeAdapter

from rota.config import teacher_config
from rota.measures import DevLoss, GroupLosses, JointLoss
from rota.teachers import AnyTeacherConfig, Classroom, build_teacher

CLASSROOM = Classroom({"az": 5, "tr": 90}, low_resource=("az",), steps=150_000)
CONFIG = TypeAdapter(AnyTeacherConfig)


def config(**values):
    return CONFIG.validate_python(values)


def watches(config):
    """What its teacher watches once it decides by itself."""
    return tuple(build_teacher(config, CLASSROOM, np.random.default_rng(1)).watches)


def test_tscl_follows_the_paper_by_default():
    paper = config(name="tscl")
    assert (paper.alpha, paper.epsilon, paper.decide_every) == (0.1, 0.1, 1)
    assert (paper.first_reward, paper.first_visits, paper.absolute) == ("raw", "algorithm", True)
    assert (paper.warmup.until.steps(150_000), paper.warmup.languages, paper.warmup.inform) == (
        16_000,
        "high-resource",
        "all",
    )
    assert watches(paper) == (DevLoss(tokens=8_000),)


def test_the_released_tscl_is_rewarded_on_a_training_batch_of_the_first_language():
    released = config(name="tscl", variant="released")
    assert released.first_visits == "shuffled"
    assert watches(released) == (DevLoss(tokens=8_000, smoothed=True, data="first-arm-train"),)
    assert (released.alpha, released.epsilon, released.first_reward) == (0.1, 0.1, "raw")


def test_dqn_follows_the_paper_by_default():
    paper = config(name="dqn")
    assert (paper.hidden, paper.learning_rate, paper.gamma, paper.tau) == ((512, 512), 2.5e-4, 0.99, 0.005)
    assert (paper.replay_minimum, paper.replay_capacity, paper.replay_batch) == (1_000, 10_000, 1_000)
    assert (paper.reward, paper.acts_with, paper.epsilon_decay) == ("step-gain", "target", "linear")
    assert (paper.below_replay_minimum, paper.first_transition) == ("epsilon-greedy", "stored-at-second")
    assert (paper.decide_every, paper.gradient_clip, paper.warmup.inform) == (10, None, "none")
    assert watches(paper) == (JointLoss(tokens=8_000), GroupLosses(groups=25, sentences=10, spread=True))


def test_the_released_dqn_differs_in_every_row_of_the_ledger():
    released = config(name="dqn", variant="released")
    assert (released.reward, released.acts_with, released.epsilon_decay) == ("gain-over-mean", "online", "exponential")
    assert (released.below_replay_minimum, released.first_transition) == ("random", "zero-state")
    assert (released.gradient_clip, released.warmup.inform) == (100.0, "rewards")
    state = GroupLosses(groups=22, sentences=10, data="train", summed=True)
    assert watches(released) == (JointLoss(tokens=1_000, smoothed=True), state)


@pytest.mark.parametrize("name", ["tscl", "dqn"])
def test_what_the_user_sets_stands_above_the_variant(name):
    mine = config(name=name, variant="released", reward_loss="plain", warmup={"until": "1k", "inform": "none"})
    assert mine.reward_loss == "plain"
    assert mine.warmup.inform == "none"
    assert config(name=name, variant="released", warmup=None).warmup is None


@pytest.mark.parametrize(
    ("name", "variant", "inform"),
    [("tscl", "paper", "all"), ("tscl", "released", "all"), ("dqn", "paper", "none"), ("dqn", "released", "rewards")],
)
def test_a_short_warmup_tells_the_teacher_what_the_variant_says(name, variant, inform):
    assert config(name=name, variant=variant, warmup="2k").warmup.inform == inform


@pytest.mark.parametrize("name", ["tscl", "dqn"])
@pytest.mark.parametrize("variant", ["paper", "released"])
def test_a_resolved_config_reads_back_as_itself(name, variant):
    resolved = config(name=name, variant=variant)
    assert CONFIG.validate_python(resolved.model_dump(mode="json")) == resolved


@pytest.mark.parametrize("name", ["tscl", "dqn"])
def test_an_unknown_variant_is_refused(name):
    with pytest.raises(ValueError, match="'released' or 'rota'"):
        config(name=name, variant="publsihed")


@pytest.mark.parametrize(("refresh", "every"), [(1, 1), ("1", 1), ("1/5", 5), ("1/25", 25)])
def test_refresh_says_which_share_of_the_groups_is_measured_again(refresh, every):
    assert config(name="dqn", refresh=refresh).state_measure.refresh_every == every


@pytest.mark.parametrize("refresh", ["2", "1/0", "0.5", "1/"])
def test_a_refresh_that_is_no_share_is_refused(refresh):
    with pytest.raises(ValueError, match="refresh"):
        config(name="dqn", refresh=refresh)


@pytest.mark.parametrize("name", ["tscl", "dqn"])
def test_every_setting_has_a_description(name):
    fields = type(config(name=name)).model_fields
    assert [key for key, field in fields.items() if key != "name" and not field.description] == []


def test_prototypes_are_spread_over_the_dev_set_unless_a_variant_repeats_an_experiment():
    assert config(name="dqn").state_measure.spread is True
    for variant in ("paper", "released"):
        assert config(name="dqn", variant=variant).state_measure.spread is False
        assert config(name="dqn", variant=variant, state_sentences="spread").state_measure.spread is True
    first = config(name="dqn", state_sentences="first")
    assert first.state_measure.spread is False
    assert config(**first.model_dump(mode="json")) == first


@pytest.mark.parametrize("steps", [600, 150_000])
def test_a_fitted_dqn_spreads_its_prototypes(steps):
    assert teacher_config("dqn", steps=steps).state_measure.spread is True
