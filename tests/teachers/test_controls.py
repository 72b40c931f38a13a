"""The controls: the mix of another run without its timing, a Q network that does not learn, a DQN without a future."""

import logging
from collections import Counter

import numpy as np
import pytest
import torch
from dqn_by_hand import NetworkByHand
from dqn_cases import ARMS, make, observation, play, prototype_at, weights_of
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError
from replay_cases import make_run

from rota.teachers import AnyTeacherConfig, Classroom, ReplayProportions, ReplayShuffled, build_teacher
from rota.teachers.dqn.agent import Transitions
from rota.types import Decision


def classroom(steps):
    return Classroom({"az": 5, "be": 4, "tr": 90, "ru": 80}, low_resource=("az", "be"), steps=steps)


def config(name, run, **options):
    return TypeAdapter(AnyTeacherConfig).validate_python({"name": name, "run": str(run), **options})


def replay(name, run, *, steps, seed=1, **options):
    return build_teacher(config(name, run, **options), classroom(steps), np.random.default_rng(seed))


def played(teacher, steps, every=1):
    """The language of each update, as the training loop would ask for it."""
    arms = []
    for step in range(0, steps, every):
        arms += [teacher.ask(step).arm] * min(every, steps - step)
    return arms


@pytest.mark.parametrize("compressed", [False, True], ids=["plain records", "gzipped records"])
def test_proportions_are_the_shares_of_the_updates_of_the_other_run(tmp_path, compressed):
    run = make_run(tmp_path / "other", ["az", "tr", "tr", "tr"], compressed=compressed)
    teacher = replay("replay-proportions", run, steps=1000)
    assert teacher.shares == {"az": 0.25, "tr": 0.75}
    decisions = [teacher.ask(step) for step in range(400)]
    assert {(found.arm, found.why, found.probability) for found in decisions} == {
        ("az", "replayed", 0.25),
        ("tr", "replayed", 0.75),
    }
    assert abs(sum(found.arm == "az" for found in decisions) - 100) < 26  # three standard deviations of 8.7


def test_the_steps_of_its_own_warmup_do_not_count_so_that_the_totals_agree_in_expectation(tmp_path):
    warmup, after = ["tr", "ru"] * 20, ["az"] * 96 + ["be"] * 32 + ["tr"] * 32
    run = make_run(tmp_path / "other", warmup + after)
    teacher = replay("replay-proportions", run, steps=200, warmup=40)
    assert teacher.teacher.shares == {"az": 0.6, "be": 0.2, "tr": 0.2}
    totals = Counter()
    for seed in range(100):
        totals.update(played(replay("replay-proportions", run, steps=200, warmup=40, seed=seed), 200))
    # tr: half of the 40 steps of the warm-up, and a fifth of the others; the other run played it 52 times too.
    for arm, expected in {"az": 96, "be": 32, "tr": 52, "ru": 20}.items():
        assert (warmup + after).count(arm) == expected
        assert totals[arm] / 100 == pytest.approx(expected, abs=2.5)


def test_a_warmup_that_ends_within_a_choice_lasts_to_the_end_of_it(tmp_path):
    run = make_run(tmp_path / "other", ["tr"] * 30 + ["az"] * 20, decide_every=10)
    teacher = replay("replay-proportions", run, steps=50, warmup=25, decide_every=10)
    assert teacher.ask(20).why == "warmup"  # and this choice is played until step 30
    assert teacher.teacher.shares == {"az": 1.0}


def test_shuffling_keeps_the_languages_of_every_window_and_only_their_order_changes(tmp_path):
    arms = ["tr", "tr", "ru", "ru", "az", "be", "az", "be", "az", "az", "az", "tr"]
    run = make_run(tmp_path / "other", arms)
    orders = [played(replay("replay-shuffled", run, steps=12, window=4, seed=seed), 12) for seed in range(20)]
    for order in orders:
        assert sorted(order[:4]) == ["ru", "ru", "tr", "tr"]
        assert sorted(order[4:8]) == ["az", "az", "be", "be"]
        assert sorted(order[8:]) == ["az", "az", "az", "tr"]
    assert len({tuple(order) for order in orders}) > 10, "6 * 6 * 4 orders are possible"


@given(
    choices=st.lists(st.sampled_from(["az", "be", "tr"]), min_size=1, max_size=30),
    window=st.integers(1, 12),
    every=st.integers(1, 4),
    rest=st.integers(0, 3),
    seed=st.integers(0, 99),
)
def test_whatever_the_window_and_the_choices_the_shares_are_the_same(choices, window, every, rest, seed):
    arms = [arm for arm in choices for _ in range(every)] + ["ru"] * min(rest, every - 1)
    teacher = ReplayShuffled(arms, np.random.default_rng(seed), window=window, decide_every=every)
    order = played(teacher, len(arms), every)
    whole = len(choices) * every
    for start in range(0, whole, window * every):
        part = slice(start, min(start + window * every, whole))
        assert Counter(order[part]) == Counter(arms[part])
    assert order[whole:] == arms[whole:], "what is left of a choice at the end stays there"


def test_a_window_of_one_repeats_the_very_order_and_one_of_the_whole_run_only_the_totals(tmp_path):
    arms = ["az", "tr", "ru", "be"] * 25
    run = make_run(tmp_path / "other", arms)
    assert played(replay("replay-shuffled", run, steps=100, window=1), 100) == arms
    shuffled = played(replay("replay-shuffled", run, steps=100, window="100%"), 100)
    assert Counter(shuffled) == Counter(arms)
    assert Counter(shuffled[:50]) != Counter(arms[:50])


def test_the_window_is_one_per_cent_of_the_run_by_default(tmp_path):
    run = make_run(tmp_path / "other", ["az", "tr"] * 150)
    assert replay("replay-shuffled", run, steps=300).window == 3


def test_choices_of_several_updates_stay_together(tmp_path):
    run = make_run(tmp_path / "other", ["az"] * 4 + ["tr"] * 4 + ["az"] * 2, decide_every=4)
    halves = replay("replay-shuffled", run, steps=10, window="100%", decide_every=2)
    order = played(halves, 10, every=2)
    assert order[::2] == order[1::2]
    assert Counter(order) == {"az": 6, "tr": 4}


def test_the_probability_is_the_share_of_what_is_left_in_the_window():
    teacher = ReplayShuffled(["az", "az", "tr"], np.random.default_rng(4), window=3)
    left = {"az": 2, "tr": 1}
    for step in range(3):
        decision = teacher.ask(step)
        assert decision == Decision(decision.arm, "replayed", left[decision.arm] / (3 - step))
        left[decision.arm] -= 1
    assert left == {"az": 0, "tr": 0}


REPLAYS = ("replay-proportions", "replay-shuffled", "replay-exact")


def warmed_up(folder, every=1):
    """Ten updates of a warm-up on tr and ru, then forty on others, most of them az."""
    arms = ["tr", "tr", "ru", "ru", "tr"] * 2 + ["az", "az", "be", "az", "az"] * 8
    return make_run(folder, arms, warmup=10, decide_every=every), arms


@pytest.mark.parametrize("window", [4, 7, 10, 20, "100%"])
def test_no_window_mixes_the_warmup_with_what_follows(tmp_path, window):
    run, arms = warmed_up(tmp_path / "other")
    for seed in range(10):
        order = played(replay("replay-shuffled", run, steps=50, window=window, seed=seed), 50)
        assert Counter(order[:10]) == {"tr": 6, "ru": 4}
        assert Counter(order[10:]) == Counter(arms[10:])


def test_after_the_warmup_windows_are_counted_from_its_end(tmp_path):
    run, arms = warmed_up(tmp_path / "other")
    order = played(replay("replay-shuffled", run, steps=50, window=15), 50)
    for start, stop in ((10, 25), (25, 40), (40, 50)):
        assert Counter(order[start:stop]) == Counter(arms[start:stop])


def test_a_run_that_was_begun_before_goes_on_with_windows_across_the_warmup(tmp_path):
    run, arms = warmed_up(tmp_path / "other")
    order = played(replay("replay-shuffled", run, steps=50, window=20, split_at_warmup=False), 50)
    assert Counter(order[:20]) == Counter(arms[:20])
    assert Counter(order[:10]) != Counter(arms[:10])


def test_exact_totals_in_a_random_order_after_the_warmup(tmp_path):
    run, arms = warmed_up(tmp_path / "other", every=5)
    orders = [played(replay("replay-exact", run, steps=50, seed=seed), 50) for seed in range(20)]
    for order in orders:
        assert Counter(order[:10]) == {"tr": 6, "ru": 4}
        assert Counter(order) == Counter(arms) == {"tr": 6, "ru": 4, "az": 32, "be": 8}
    # The eight updates on be are anywhere among the forty: half of them in the first half, on average (sd 0.28).
    assert np.mean([order[10:30].count("be") for order in orders]) == pytest.approx(4, abs=1.0)


def test_exact_totals_keep_choices_of_several_updates_together(tmp_path):
    arms = ["tr"] * 10 + ["az"] * 30 + ["be"] * 10 + ["az"] * 3
    run = make_run(tmp_path / "other", arms, warmup=10, decide_every=10)
    order = played(replay("replay-exact", run, steps=53, decide_every=10), 53, every=10)
    assert Counter(order) == Counter(arms)
    assert all(len(set(order[start : start + 10])) == 1 for start in range(0, 53, 10))


def test_a_run_that_stopped_early_is_finished_and_can_be_replayed(tmp_path):
    run = make_run(tmp_path / "other", ["az", "tr", "az", "az"] * 2, steps=20)
    (run / "stops.jsonl").write_text('{"step": 8, "why": "early-stopping"}\n')
    assert replay("replay-proportions", run, steps=20).shares["az"] == pytest.approx(6 / 8)
    assert Counter(played(replay("replay-exact", run, steps=8), 8)) == {"az": 6, "tr": 2}
    with pytest.raises(ValueError, match="has 8 steps and this run 20; write training.steps: 8, or use replay-prop"):
        replay("replay-exact", run, steps=20)


def without_records(run):
    (run / "steps.jsonl").unlink()


def damaged(run):
    (run / "steps.jsonl.gz").write_bytes((run / "steps.jsonl.gz").read_bytes()[:-9])


FOLDERS = {
    "was trained on az, tr and this corpus has az, be, tr, ru; replay a run with the same languages": {
        "languages": ("az", "tr")
    },
    "is at step 8 of 1,000; finish it first with rota train": {"steps": 1000},
    "has batches of arm 'mixed'; replay a run that trains on one language at a time": {"arms": ["az", "mixed"] * 4},
    r"has no step records \(steps.jsonl or steps.jsonl.xz\)": {"then": without_records},
    "run.json is damaged": {"then": lambda run: (run / "run.json").write_text("{}")},
    "steps.jsonl.gz is damaged": {"compressed": True, "then": damaged},
}


@pytest.mark.parametrize("name", REPLAYS)
@pytest.mark.parametrize("message", FOLDERS)
def test_a_run_that_cannot_be_replayed_is_refused_in_one_line(tmp_path, name, message):
    case = {"arms": ["az", "tr"] * 4, "then": lambda run: None, **FOLDERS[message]}
    options = {key: value for key, value in case.items() if key not in ("arms", "then")}
    case["then"](make_run(tmp_path / "other", case["arms"], **options))
    with pytest.raises(ValueError, match=message) as error:
        replay(name, tmp_path / "other", steps=8)
    assert str(tmp_path / "other") in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("name", REPLAYS)
def test_a_folder_that_is_no_run_is_refused(tmp_path, name):
    with pytest.raises(ValueError, match=r"teacher\.run is '.*', which is not a run folder .*; train that run first"):
        replay(name, tmp_path, steps=8)


def test_a_last_line_that_was_never_finished_does_not_count(tmp_path):
    run = make_run(tmp_path / "other", ["az", "tr"] * 4)
    (run / "steps.jsonl").write_bytes((run / "steps.jsonl").read_bytes()[:-3])
    with pytest.raises(ValueError, match="is at step 7 of 8"):
        replay("replay-proportions", run, steps=8)


def test_a_run_that_ended_within_the_warmup_has_no_shares(tmp_path):
    run = make_run(tmp_path / "other", ["az", "tr"] * 4)
    with pytest.raises(ValueError, match=r"has no step after teacher\.warmup \(10\)"):
        replay("replay-proportions", run, steps=100, warmup=10)


def test_shuffling_refuses_a_run_of_another_length(tmp_path):
    run = make_run(tmp_path / "other", ["az", "tr"] * 4)
    with pytest.raises(ValueError, match=r"has 8 steps and this run 9; write training\.steps: 8, or use replay-prop"):
        replay("replay-shuffled", run, steps=9)


def test_shuffling_refuses_choices_that_the_other_run_did_not_make(tmp_path):
    run = make_run(tmp_path / "other", ["az"] * 10 + ["tr"] * 10, decide_every=10)
    with pytest.raises(ValueError, match=r"teacher\.decide_every is 4, but .* every 10 updates; write 10 or a divisor"):
        replay("replay-shuffled", run, steps=20, decide_every=4)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"warmup": "10%"}, "the warm-up of the other run is replayed too; leave it out"),
        ({"window": 0}, "window is 0; write at least 1"),
        ({"window": "0%"}, "window is 0; write at least 1"),
    ],
)
def test_shuffling_refuses_settings_that_make_no_sense(options, message):
    with pytest.raises(ValidationError, match=message):
        config("replay-shuffled", "other", **options)


@pytest.mark.parametrize("name", REPLAYS)
def test_breaking_up_the_choices_of_the_other_run_gives_a_warning(tmp_path, name, caplog):
    run = make_run(tmp_path / "other", ["az"] * 10 + ["tr"] * 10, decide_every=10)
    with caplog.at_level(logging.WARNING):
        replay(name, run, steps=20, decide_every=10)
        assert not caplog.records
        replay(name, run, steps=20)
    assert "chose every 10 updates and this teacher every 1; decide_every: 10 keeps them together" in caplog.text


@pytest.mark.parametrize("name", REPLAYS)
def test_a_checkpoint_refuses_to_go_on_with_another_run(tmp_path, name):
    first = make_run(tmp_path / "first", ["az", "tr", "tr", "tr"])
    moved = make_run(tmp_path / "moved", ["az", "tr", "tr", "tr"])
    second = make_run(tmp_path / "second", ["tr", "az", "az", "az"])
    state = replay(name, first, steps=4).state_dict()
    replay(name, moved, steps=4).load_state_dict(state)
    with pytest.raises(ValueError, match=r"teacher\.run holds another run now: give the folder of the run that"):
        replay(name, second, steps=4).load_state_dict(state)


def test_a_resolved_config_reads_back_as_itself():
    for found in (config("replay-proportions", "runs/dqn", warmup="10%"), config("replay-shuffled", "runs/dqn")):
        dumped = found.model_dump(mode="json")
        assert dumped["run"] == "runs/dqn"
        assert TypeAdapter(AnyTeacherConfig).validate_python(dumped) == found


def test_shares_may_be_given_in_python():
    teacher = ReplayProportions({"az": 1, "tr": 1}, np.random.default_rng(1))
    assert teacher.ask(0).why == "replayed"


GREEDY = {"warmup": None, "epsilon_steps": 0, "epsilon_floor": 0.0}


def test_a_random_q_network_keeps_its_weights_whatever_happens():
    for learn in (False, True):
        teacher = make(**GREEDY, learn=learn)
        before = [weights.copy() for weights in weights_of(teacher.learner.online)]
        play(teacher, 200)
        assert len(teacher.replay) == 9, "the memory is full"
        assert teacher.learner.updates == (16 if learn else 0)  # observations 5 to 20 find four transitions
        for network in (teacher.learner.online, teacher.learner.target):
            same = [np.array_equal(*pair) for pair in zip(weights_of(network), before, strict=True)]
            assert all(same) is not learn


@pytest.mark.parametrize("seed", range(4))
def test_a_random_q_network_plays_the_largest_of_its_values_worked_out_by_hand(seed):
    teacher = make(seed=seed, **GREEDY, learn=False)
    weights = weights_of(teacher.learner.online)
    by_hand = NetworkByHand(weights[:3], weights[3:])
    decisions = play(teacher, 100)
    for number, decision in enumerate(decisions[1:], start=1):
        values = by_hand(prototype_at(10 * number))[0]
        assert decision.arm == ARMS[int(np.argmax(values))]
        assert list(decision.scores.values()) == pytest.approx(values, abs=1e-5)


def test_a_random_q_network_explores_as_much_as_one_that_learns():
    random, learning = (make(warmup=None, learn=learn) for learn in (False, True))
    pairs = zip(play(random, 400), play(learning, 400), strict=True)
    assert all(one.epsilon == other.epsilon for one, other in pairs)


def test_without_a_future_the_target_is_the_gain():
    teacher = make(warmup=None, gamma=0)
    states = torch.ones(2, 6)
    gains = torch.tensor([1.0, -0.5])
    transitions = Transitions(states, torch.tensor([0, 2]), gains, 5 * states)
    assert teacher.learner.targets(transitions).tolist() == [1.0, -0.5]
    teacher.learner.gamma = 0.5
    best = NetworkByHand(weights_of(teacher.learner.target)[:3], weights_of(teacher.learner.target)[3:])
    expected = np.array([1.0, -0.5]) + 0.5 * best(5 * np.ones(6)).max()
    assert teacher.learner.targets(transitions).tolist() == pytest.approx(expected.tolist(), abs=1e-5)


def test_without_a_future_the_value_of_a_choice_goes_to_its_gain():
    teacher = make(**GREEDY, gamma=0, replay_minimum=1, tau=1.0)
    for step, loss in ((10, 4.0), (20, 3.75)):
        teacher.tell(observation(step, Decision("tr", "told"), teacher.watches, joint=loss))
    for _ in range(300):
        teacher.learner.learn(teacher.replay.sample(4, np.random.default_rng(1)))
    assert teacher.q_values(prototype_at(10).astype(np.float32))[1] == pytest.approx(0.25, abs=0.01)
