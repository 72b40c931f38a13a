import numpy as np
import pytest
from pydantic import TypeAdapter

from rota.measures import DevLoss
from rota.teachers import AnyTeacherConfig, Classroom, Warmup, build_teacher
from rota.types import Decision, Mixture, Observation

HIGH_RESOURCE = ("tr", "ru")
CLASSROOM = Classroom({"az": 5, "tr": 90, "ru": 80}, low_resource=("az",), steps=1000)


class Listening:
    """Always chooses az, and remembers what it is told."""

    watches = (DevLoss(),)

    def __init__(self):
        self.told, self.heard = [], []

    def ask(self, step):
        return Decision("az", why="own choice")

    def tell(self, observation):
        self.told.append(observation.step)

    def state_dict(self):
        return {}

    def load_state_dict(self, state):
        self.told.clear()


class WithRewards(Listening):
    reward_watches = (DevLoss(),)

    def hear_reward(self, observation):
        self.heard.append(observation.step)


def rng(seed=1):
    return np.random.default_rng(seed)


def play(teacher, steps):
    """Decide and observe at every step, as the paper's teachers do."""
    decisions = []
    for step in range(steps):
        decisions.append(teacher.ask(step))
        teacher.tell(Observation(step + 1, ((decisions[-1], 1),)))
    return decisions


def test_warmup_is_over_at_the_step_it_says():
    teacher = Warmup(Listening(), HIGH_RESOURCE, rng(), until=20)
    assert teacher.ask(19).why == "warmup"
    assert teacher.ask(20).why == "own choice"
    assert teacher.ask(21).why == "own choice"


def test_warmup_draws_uniformly_from_its_arms_alone():
    decisions = play(Warmup(Listening(), HIGH_RESOURCE, rng(), until=2000), 2000)
    chosen = [decision.arm for decision in decisions]
    assert set(chosen) == {"tr", "ru"}
    assert chosen.count("tr") == pytest.approx(1000, abs=90)  # four deviations of a fair coin
    assert decisions[0].probability == 0.5


def test_a_teacher_is_not_told_of_choices_it_did_not_make():
    inner = Listening()
    play(Warmup(inner, HIGH_RESOURCE, rng(), until=3, inform="none"), 5)
    assert inner.told == [4, 5]


def test_inform_all_tells_everything():
    inner = Listening()
    play(Warmup(inner, HIGH_RESOURCE, rng(), until=3, inform="all"), 5)
    assert inner.told == [1, 2, 3, 4, 5]


def test_inform_rewards_fills_the_history_without_teaching():
    inner = WithRewards()
    play(Warmup(inner, HIGH_RESOURCE, rng(), until=3, inform="rewards"), 5)
    assert (inner.heard, inner.told) == ([1, 2, 3], [4, 5])


def test_nothing_is_measured_while_the_teacher_is_not_told():
    teacher = Warmup(Listening(), HIGH_RESOURCE, rng(), until=3, inform="none")
    teacher.ask(2)
    assert teacher.watches == ()
    teacher.ask(3)
    assert teacher.watches == (DevLoss(),)
    informed = Warmup(Listening(), HIGH_RESOURCE, rng(), until=3, inform="all")
    informed.ask(0)
    assert informed.watches == (DevLoss(),)


def test_a_teacher_without_reward_history_cannot_hear_rewards():
    with pytest.raises(ValueError, match="Listening keeps no reward history"):
        Warmup(Listening(), HIGH_RESOURCE, rng(), until=3, inform="rewards")


@pytest.mark.parametrize(
    ("arms", "inform", "message"), [((), "none", "no arms"), (("tr",), "some", "inform is 'some'")]
)
def test_mistakes_are_named(arms, inform, message):
    with pytest.raises(ValueError, match=message):
        Warmup(Listening(), arms, rng(), until=3, inform=inform)


def test_the_state_holds_the_generator_and_the_decision_in_progress():
    teacher = Warmup(Listening(), HIGH_RESOURCE, rng(), until=50)
    play(teacher, 10)
    other = Warmup(Listening(), HIGH_RESOURCE, rng(7), until=50)
    other.load_state_dict(teacher.state_dict())
    assert other.watches == ()
    assert [other.ask(step).arm for step in range(10, 40)] == [teacher.ask(step).arm for step in range(10, 40)]


def config(values):
    return TypeAdapter(AnyTeacherConfig).validate_python(values)


def test_sixteen_thousand_steps_are_short_for_a_warmup_on_the_high_resource_languages():
    teacher = build_teacher(config({"name": "uniform", "warmup": 100}), CLASSROOM, rng())
    assert {teacher.ask(step).arm for step in range(100)} == {"tr", "ru"}
    assert {teacher.ask(step).arm for step in range(100, 300)} == {"az", "tr", "ru"}


def test_the_shuffled_baseline_warms_up_on_mixed_high_resource_batches():
    teacher = build_teacher(config({"name": "mixed", "warmup": "10%"}), CLASSROOM, rng())
    high_resource = {arm: size for arm, size in CLASSROOM.sizes.items() if arm in CLASSROOM.high_resource}
    assert high_resource != CLASSROOM.sizes
    for step in range(100):
        mixture = Mixture(high_resource, "sentence", fixed=True)
        assert teacher.ask(step) == Decision("mixed-high-resource", why="warmup", probability=1.0, mixture=mixture)
    assert (teacher.ask(100).arm, teacher.ask(100).mixture.shares) == ("mixed", CLASSROOM.sizes)


def test_the_shuffled_baseline_may_warm_up_on_everything():
    spec = {"name": "mixed", "warmup": {"until": "10%", "languages": "all"}}
    decision = build_teacher(config(spec), CLASSROOM, rng()).ask(0)
    assert (decision.arm, decision.why, decision.mixture.shares) == ("mixed", "warmup", CLASSROOM.sizes)


def test_the_shuffled_baseline_cannot_warm_up_on_chosen_languages():
    with pytest.raises(ValueError, match="mixed warms up on all or high-resource"):
        build_teacher(config({"name": "mixed", "warmup": {"until": 5, "languages": ["az"]}}), CLASSROOM, rng())
