"""The sampler in a plain loop: what it draws, what the teacher is told, and where it goes on."""

from collections import Counter
from dataclasses import dataclass, field
from itertools import islice

import numpy as np
import pytest
from torch.utils.data import DataLoader

from rota.hf import LessonSampler
from rota.measures import TrainLoss
from rota.settings import ConfigError
from rota.types import Decision, Mixture

SIZES = {"az": 10, "tr": 50}


def arm_of(index):
    return "az" if index < 10 else "tr"


def sampler(teacher="uniform", **settings):
    return LessonSampler(SIZES, teacher, **{"update": 6, "steps": 40, **settings})


def in_updates(indices, update=6):
    return [indices[start : start + update] for start in range(0, len(indices), update)]


def test_every_update_is_of_one_arm():
    drawn = in_updates(list(sampler()))
    assert len(drawn) == 10  # 60 examples
    assert all(len({arm_of(index) for index in indices}) == 1 for indices in drawn)
    assert {arm_of(indices[0]) for indices in drawn} == {"az", "tr"}


def test_every_example_of_an_arm_comes_once_in_each_of_its_epochs():
    drawn = list(sampler({"name": "fixed", "shares": {"az": 1}}))
    assert len(drawn) == 60
    for epoch in range(6):
        assert sorted(drawn[10 * epoch : 10 * epoch + 10]) == list(range(10))
    assert drawn[:10] != drawn[10:20]


def test_the_same_seed_draws_the_same():
    assert list(sampler(seed=5)) == list(sampler(seed=5)) != list(sampler(seed=6))


def test_mixed_batches_have_the_arms_in_proportion():
    counts = Counter(map(arm_of, sampler("mixed", update=60)))
    assert 2 <= counts["az"] <= 20


@dataclass
class Told:
    """Chooses az and tr in turn and writes down what it is told."""

    observations: list = field(default_factory=list)
    asked: int = 0
    watches = (TrainLoss(by="arm"),)

    def ask(self, step):
        self.asked += 1
        return Decision("az" if self.asked % 2 else "tr", why="in turn")

    def tell(self, observation):
        self.observations.append(observation)

    def state_dict(self):
        return {"asked": self.asked}

    def load_state_dict(self, state):
        self.asked = state["asked"]


def listening(every, **settings):
    made = sampler(measure=lambda step, measures, window: {measures[0]: dict(window.losses)}, **settings)
    made.turns.teacher = teacher = Told()
    made.turns.decide_every = made.turns.observe_every = every
    made.turns.watches, made.turns.listens = teacher.watches, True
    return made, teacher


def play(made, updates, ahead=1):
    """As a data loader does: draws so many updates before the first of them is played."""
    drawn, waiting, stream = [], 0, iter(made)
    while made.played_updates < updates:
        while waiting <= ahead:
            drawn.append(list(islice(stream, made.update)))
            waiting += 1
        made.played(loss=float(made.played_updates))
        waiting -= 1
    return drawn


def test_a_teacher_is_told_what_was_played_and_not_what_was_drawn():
    made, teacher = listening(every=4)
    play(made, 9)
    first, second = teacher.observations
    assert first.step == 3
    assert [(decision.arm, updates) for decision, updates in first.plays] == [("az", 3)]
    assert second.step == 7
    # The fourth update of the first choice was played after the teacher had been told of that choice.
    assert [(decision.arm, updates) for decision, updates in second.plays] == [("tr", 3)]
    assert second.measured[TrainLoss(by="arm")] == {"tr": (4.0 + 5.0 + 6.0, 3)}
    assert sum(second.seen.values()) == 7 * 6


def test_without_drawing_ahead_a_teacher_is_told_of_every_update():
    made, teacher = listening(every=4)
    play(made, 8, ahead=0)
    assert [(decision.arm, updates) for decision, updates in teacher.observations[0].plays] == [("az", 4)]
    assert teacher.observations[0].step == 4


def test_a_teacher_that_decides_at_every_update_is_told_of_the_one_before_the_last():
    made, teacher = listening(every=1)
    play(made, 5)
    assert [[(decision.arm, n) for decision, n in told.plays] for told in teacher.observations] == [
        [("az", 1)],
        [("tr", 1)],
        [("az", 1)],
        [("tr", 1)],
    ]


@pytest.mark.parametrize("every", [1, 3, 4])
@pytest.mark.parametrize("cut", [1, 2, 3, 4, 5, 8])
def test_a_run_cut_in_two_draws_the_same_and_tells_the_same(every, cut):
    whole, told = listening(every)
    everything = play(whole, 9)
    first, before = listening(every)
    start = play(first, cut)
    state = first.state_dict()
    second, after = listening(every)
    second.load_state_dict(state)
    rest = play(second, 9)
    assert start[:cut] + rest == everything
    plays = [[(decision.state(), n) for decision, n in each.plays] for each in told.observations]
    both = [[(decision.state(), n) for decision, n in each.plays] for each in before.observations + after.observations]
    assert both == plays


def test_what_was_drawn_and_never_played_is_drawn_again():
    made = sampler()
    first = in_updates(list(made))  # nothing is played
    assert in_updates(list(made)) == first


def test_an_epoch_that_was_begun_is_finished_and_the_next_is_whole():
    made = sampler()
    play(made, 4)
    assert len(list(made)) == 6 * 6
    made = sampler()
    play(made, 10, ahead=0)
    assert len(list(made)) == 60


def test_a_plain_loop_with_a_data_loader():
    made = sampler(update=6)
    loader = DataLoader(list(range(60)), batch_size=3, sampler=made)
    for number, batch in enumerate(loader):
        assert len({arm_of(int(index)) for index in batch}) == 1
        if number % 2:
            made.played(loss=1.0)
    assert made.played_updates == 10
    assert sum(made.examples.values()) == 60


def test_a_mixture_of_batches_gives_every_update_one_arm():
    made, teacher = listening(every=1)
    teacher.ask = lambda step: Decision("both", "mixed", mixture=Mixture({"az": 1, "tr": 1}, "batch"))
    drawn = in_updates(list(made))
    assert {frozenset(map(arm_of, indices)) for indices in drawn} == {frozenset({"az"}), frozenset({"tr"})}


def test_a_checkpoint_that_gives_a_mixture_by_its_name_alone_goes_on():
    """As before decisions carried their mixture."""
    whole, cut, resumed = (sampler("mixed", update=6) for _ in range(3))
    expected = in_updates(list(whole))
    first = iter(cut)
    drawn = [next(first) for _ in range(12)]  # two updates, of which one is played
    cut.played(1.0)
    state = cut.state_dict()
    for decision in (*state["ahead"], state["turns"]["decision"]):
        del decision["mixture"]
    resumed.load_state_dict(state)
    assert in_updates(drawn[:6] + list(resumed)) == expected


def test_a_sampler_shows_the_goal_and_the_low_resource_arms_to_its_teacher():
    made = sampler(goal={"az": 3, "tr": 1}, tokens={"az": 4.0, "tr": 2.0})
    assert made.classroom.low_resource == ()  # a fifth of 50 is 10
    assert made.classroom.goal == {"az": 0.75, "tr": 0.25}
    assert made.classroom.tokens == {"az": 40, "tr": 100}
    assert made.classroom.update_tokens == 18
    assert sampler(goal=["tr"]).classroom.goal == {"tr": 1.0}


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"sizes": {}}, "there are no data sets"),
        ({"sizes": {"az": 0}}, "the data set of 'az' has 0 examples"),
        ({"update": 0}, "update is 0"),
        ({"teacher": {"name": "temperature", "curriculum": {"by": "length"}}}, "selects or weights sentences"),
        ({"teacher": {"name": "fixed", "shares": {"gl": 1}}}, "unknown language 'gl'"),
    ],
)
def test_what_cannot_work_is_refused(change, why):
    with pytest.raises(ValueError, match=why):
        list(LessonSampler(**{"sizes": SIZES, "update": 6, "steps": 40, **change}))


def test_a_teacher_that_watches_needs_a_function_that_measures():
    made = sampler({"name": "tscl", "warmup": None})
    with pytest.raises(ValueError, match="give LessonSampler a function that measures it"):
        play(made, 30, ahead=0)


def test_playing_more_than_was_drawn_is_refused():
    with pytest.raises(ValueError, match="before its examples were drawn"):
        sampler().played()


def test_a_warm_up_as_long_as_the_run_is_refused():
    with pytest.raises(ConfigError, match="would never decide"):
        sampler({"name": "uniform", "warmup": 40})


def test_orders_do_not_depend_on_when_the_other_arm_is_played():
    first = [index for index in sampler({"name": "fixed", "shares": {"az": 1, "tr": 3}}) if index < 10]
    second = [index for index in sampler({"name": "fixed", "shares": {"az": 3, "tr": 1}}) if index < 10]
    shorter = min(len(first), len(second))
    assert first[:shorter] == second[:shorter]
    assert shorter >= 6
    assert np.unique(first[:10]).size == len(first[:10])


def test_a_teacher_by_its_name_fits_the_length_of_the_run():
    made = sampler("dqn", steps=400)
    assert made.config.replay_minimum < 40  # it decides 40 times at most; the paper's number is 1,000
