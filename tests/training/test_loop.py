"""The loop with a student that only remembers: what is asked, updated, told, recorded and saved, and when."""

import json

import numpy as np
import pytest

from rota.measures import DevLoss, JointLoss, TrainLoss
from rota.runs.checkpoints import Checkpoints
from rota.runs.records import read_record
from rota.settings import Duration
from rota.student.optimiser import NotFiniteError
from rota.training.config import TrainingConfig
from rota.training.journal import Journal
from rota.training.loop import Loop
from rota.training.probe import Probe
from rota.training.streams import Streams
from rota.training.turns import Turns
from rota.types import Batch, Decision, Examined, Mixture, SentenceLosses


class FakeStudent:
    """Its loss is 5 / (1 + updates); it remembers the arms it was trained on."""

    def __init__(self):
        self.history, self.announced = [], []

    def update(self, batches, draw_next):
        self.history.append([[batch.arm, batch.tokens] for batch in batches])
        self.announced.append([[batch.arm, batch.tokens] for batch in draw_next()])
        return 5 / len(self.history)

    def losses(self, batches, *, smoothed=False, weights="raw"):
        count = sum(batch.sentences for batch in batches)
        return SentenceLosses(np.full(count, 3.0 * len(self.history)), np.full(count, 3))

    def examine(self, batches, *, temperatures=(), weights="raw"):
        sums, tokens = self.losses(batches, weights=weights)
        return Examined(sums, tokens, tokens, np.tile(sums, (len(temperatures), 1)))

    def state_dict(self):
        return {"network": {"updates": np.array([len(self.history)])}, "history": self.history}

    def load_state_dict(self, state):
        self.history = state["history"]


class FakeTeacher:
    """Takes turns; remembers what it was told."""

    def __init__(self, arms=("az", "tr"), watches=()):
        self.arms, self.watches = arms, watches
        self.asked, self.told, self.events = [], [], []

    def ask(self, step):
        self.asked.append(step)
        self.events.append(f"ask {step}")
        return Decision(self.arms[len(self.asked) % len(self.arms)], why="turn", probability=0.5, scores={"az": 1.0})

    def tell(self, observation):
        self.told.append(observation)
        self.events.append(f"tell {observation.step}")
        return {observation.decision.arm: -1.0 * observation.step} if self.watches else None

    def state_dict(self):
        return {"asked": self.asked}

    def load_state_dict(self, state):
        self.asked = list(state["asked"])


class FakeStream:
    def __init__(self, arm):
        self.arm, self.drawn = arm, 0

    def __iter__(self):
        return self

    def __next__(self):
        self.drawn += 1
        return batch(self.arm, self.drawn)

    def state_dict(self):
        return {"drawn": self.drawn}

    def load_state_dict(self, state):
        self.drawn = state["drawn"]


def batch(arm, tokens=3):
    languages = {"az": 1, "tr": tokens} if arm == "mixed" else {arm: tokens}
    total = sum(languages.values())
    ids = np.arange(total)
    return Batch(arm, ids, np.array([total]), ids, np.array([total]), languages)


class FakeSets:
    def __init__(self):
        self.validation = {"az": batch("az"), "tr": batch("tr")}
        self.train_tokens = {"az": 40, "tr": 80}

    def by_arm(self, measure):
        return self.validation

    def joint(self, measure):
        return batch("mixed", 2)


def make_loop(folder, *, teacher=None, steps=20, decide_every=1, observe_every=None, listens=True, **settings):
    student = FakeStudent()
    config = TrainingConfig(
        steps=steps, validate_every=Duration(5), checkpoint_every=Duration(6), tensorboard=False, **settings
    )
    turns = Turns(teacher or FakeTeacher(), decide_every=decide_every, observe_every=observe_every, listens=listens)
    return Loop(
        student,
        turns,
        Streams(lambda arm, mixture: FakeStream(arm)),
        Probe(student, FakeSets()),
        Journal(folder),
        Checkpoints(folder / "checkpoints", keep=2),
        config,
    )


def finish(loop, until=None, stop=lambda: False):
    loop.run(until, stop)
    loop.journal.close()
    return loop


def steps_of(folder):
    return list(read_record(folder / "steps.jsonl"))


def test_a_decision_holds_for_as_many_updates_as_it_says(tmp_path):
    loop = finish(make_loop(tmp_path, decide_every=4))
    assert loop.turns.teacher.asked == [0, 4, 8, 12, 16]
    assert [batches[0][0] for batches in loop.student.history[:8]] == ["tr"] * 4 + ["az"] * 4


def test_the_teacher_is_told_after_the_updates_of_its_decision(tmp_path):
    loop = finish(make_loop(tmp_path, decide_every=4))
    assert [told.step for told in loop.turns.teacher.told] == [4, 8, 12, 16, 20]
    assert loop.turns.teacher.told[0].decision.arm == "tr"
    assert loop.turns.teacher.told[0].played == {"tr": 4}


def test_a_teacher_may_decide_often_and_observe_seldom(tmp_path):
    loop = finish(make_loop(tmp_path, decide_every=1, observe_every=10))
    assert [told.step for told in loop.turns.teacher.told] == [10, 20]
    assert loop.turns.teacher.told[0].played == {"tr": 5, "az": 5}


def test_observations_must_follow_whole_decisions(tmp_path):
    with pytest.raises(ValueError, match="multiple of decide_every"):
        make_loop(tmp_path, decide_every=4, observe_every=6)


def test_only_what_is_watched_is_measured(tmp_path):
    nothing = finish(make_loop(tmp_path / "a")).turns.teacher.told[0]
    assert nothing.measured == {}
    watching = FakeTeacher(watches=(TrainLoss(), TrainLoss(by="arm"), DevLoss(), JointLoss()))
    told = finish(make_loop(tmp_path / "b", teacher=watching, decide_every=2)).turns.teacher.told[0]
    assert told.measured == {
        TrainLoss(): pytest.approx((5 + 2.5) / 2),
        TrainLoss(by="arm"): {"tr": pytest.approx((5 + 2.5) / 2)},
        DevLoss(): {"tr": 2.0},  # three tokens in a sentence, 3.0 per update: one nat per token and update
        JointLoss(): 2.0,
    }


def test_losses_around_a_decision_are_measured_before_and_after_its_updates(tmp_path):
    watching = FakeTeacher(watches=(DevLoss(when="around"), DevLoss(arms="all")))
    told = finish(make_loop(tmp_path, teacher=watching, decide_every=4)).turns.teacher.told
    assert [found.measured[DevLoss(when="around")] for found in told[:2]] == [{"tr": (0.0, 4.0)}, {"az": (4.0, 8.0)}]
    assert told[0].measured[DevLoss(arms="all")] == {"az": 4.0, "tr": 4.0}


def test_an_observation_has_every_decision_since_the_last_one_and_the_tokens_so_far(tmp_path):
    told = finish(make_loop(tmp_path, decide_every=2, observe_every=4)).turns.teacher.told
    assert [(decision.arm, updates) for decision, updates in told[0].plays] == [("tr", 2), ("az", 2)]
    assert told[0].decision.arm == "az"
    # Batch n of an arm has n tokens: 1 + 2 of each arm, then 3 + 4.
    assert [found.seen for found in told[:2]] == [{"tr": 3, "az": 3}, {"tr": 10, "az": 10}]


def test_the_rewards_that_a_teacher_made_are_recorded(tmp_path):
    finish(make_loop(tmp_path, teacher=FakeTeacher(watches=(JointLoss(),)), steps=8, decide_every=4))
    found = list(read_record(tmp_path / "rewards.jsonl"))
    assert found == [{"step": 4, "rewards": {"tr": -4.0}}, {"step": 8, "rewards": {"az": -8.0}}]


def test_accumulation_draws_that_many_batches_for_one_update(tmp_path):
    loop = finish(make_loop(tmp_path, accumulate=3))
    assert len(loop.student.history) == 20
    assert all(len(batches) == 3 for batches in loop.student.history)


def test_every_step_is_recorded_with_its_reason(tmp_path):
    finish(make_loop(tmp_path, decide_every=2))
    steps = steps_of(tmp_path)
    assert [entry["step"] for entry in steps] == list(range(1, 21))
    expected = {
        "step": 1,
        "arm": "tr",
        "why": "turn",
        "loss": 5.0,
        "tokens": 1,
        "probability": 0.5,
        "scores": {"az": 1.0},
    }
    assert steps[0] == expected
    assert "scores" not in steps[1], "scores belong to the decision, written once"


def test_a_mixture_is_recorded_by_language(tmp_path):
    finish(make_loop(tmp_path, teacher=FakeTeacher(arms=("mixed",)), steps=2))
    assert steps_of(tmp_path)[1]["tokens_by_language"] == {"az": 1, "tr": 2}


def test_the_shares_of_a_mixture_are_recorded_with_each_decision_unless_its_name_says_them(tmp_path):
    batches = [batch("mixed", 1)]
    record = Journal(tmp_path)
    for step, fixed in ((1, False), (2, True)):
        mixture = Mixture({"az": 1.0, "tr": 3.0}, "sentence", fixed=fixed)
        record.step(step, Decision("blend", "sampled", mixture=mixture), 4.0, batches, decided=True)
    record.close()
    plain = {"arm": "blend", "why": "sampled", "loss": 4.0, "tokens": 2, "tokens_by_language": {"az": 1, "tr": 1}}
    shares = {"shares": {"az": 1.0, "tr": 3.0}, "unit": "sentence"}
    found = steps_of(tmp_path)
    assert [found[0].pop("mixture"), *found] == [shares, {"step": 1} | plain, {"step": 2} | plain]


def test_validations_come_on_time_and_at_the_end(tmp_path):
    finish(make_loop(tmp_path, steps=12))
    found = list(read_record(tmp_path / "validations.jsonl"))
    assert [entry["step"] for entry in found] == [5, 10, 12]
    assert found[0]["dev_loss"] == {"az": 5.0, "tr": 5.0}


def test_a_validation_records_tokens_and_epochs_of_every_arm(tmp_path):
    finish(make_loop(tmp_path, steps=12))
    for entry in read_record(tmp_path / "validations.jsonl"):
        played = [step for step in steps_of(tmp_path) if step["step"] <= entry["step"]]
        tokens = {arm: sum(step["tokens"] for step in played if step["arm"] == arm) for arm in ("az", "tr")}
        assert entry["tokens"] == tokens
        assert entry["epochs"] == {"az": round(tokens["az"] / 40, 3), "tr": round(tokens["tr"] / 80, 3)}
    assert min(tokens.values()) > 0


def test_what_a_teacher_was_told_is_recorded(tmp_path):
    finish(make_loop(tmp_path, teacher=FakeTeacher(watches=(JointLoss(),)), steps=8, decide_every=4))
    found = list(read_record(tmp_path / "observations.jsonl"))
    assert found == [{"step": 4, "arm": "tr", "joint_loss": 4.0}, {"step": 8, "arm": "az", "joint_loss": 8.0}]


def test_nothing_is_recorded_of_a_teacher_that_watches_nothing(tmp_path):
    finish(make_loop(tmp_path))
    assert not (tmp_path / "observations.jsonl").exists()


def test_timings_are_in_a_file_of_their_own(tmp_path):
    finish(make_loop(tmp_path))
    entry = next(read_record(tmp_path / "timings.jsonl"))
    assert entry["step"] == 5
    assert set(entry["phases"]) == {"batches", "updates", "observations", "validations"}
    assert "seconds" not in json.dumps(steps_of(tmp_path))


def test_time_counts_for_one_phase_only(tmp_path, monkeypatch):
    now = [0.0]
    monkeypatch.setattr("rota.training.journal.time.perf_counter", lambda: now[0])
    journal = Journal(tmp_path)
    with journal.timed("updates"):
        now[0] += 2.0
        with journal.timed("batches"):
            now[0] += 4.0
        now[0] += 8.0
    journal.timing(1)
    journal.close()
    assert next(read_record(tmp_path / "timings.jsonl"))["phases"] == {"updates": 2.0 + 8.0, "batches": 4.0}


def test_checkpoints_come_on_time_and_at_the_end(tmp_path):
    loop = finish(make_loop(tmp_path))
    assert [found.step for found in loop.checkpoints.list()] == [6, 12, 18, 20]


@pytest.mark.parametrize("cut", [1, 6, 7, 10, 13, 19])
@pytest.mark.parametrize("how", ["until", "stop"])
@pytest.mark.parametrize(
    "manner",
    [{"decide_every": 4}, {"decide_every": 4, "listens": False}, {"listens": False}, {"observe_every": 5}],
    ids=["listens", "open loop", "open loop at every step", "observes seldom"],
)
def test_a_run_cut_in_two_equals_a_run_in_one_piece(tmp_path, cut, how, manner):
    whole = finish(make_loop(tmp_path / "whole", **manner))
    first = make_loop(tmp_path / "parts", **manner)
    finish(first, until=cut) if how == "until" else finish(first, stop=lambda: first.step == cut)
    second = make_loop(tmp_path / "parts", **manner)
    second.resume()
    assert second.step == cut
    finish(second)
    assert second.student.history == whole.student.history
    assert second.turns.teacher.asked == whole.turns.teacher.asked
    for name in ("steps.jsonl", "validations.jsonl"):
        assert (tmp_path / "parts" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
    assert [found.step for found in second.checkpoints.list()] == [found.step for found in whole.checkpoints.list()]


def test_what_comes_next_is_drawn_ahead_while_a_decision_stands(tmp_path):
    student = finish(make_loop(tmp_path, decide_every=4)).student
    last = {3, 7, 11, 15, 19}
    expected = [[] if number in last else student.history[number + 1] for number in range(20)]
    assert student.announced == expected


def test_a_teacher_that_does_not_listen_is_asked_ahead(tmp_path):
    loop = finish(make_loop(tmp_path, listens=False))
    assert loop.student.announced == [*loop.student.history[1:], []]
    assert loop.turns.teacher.asked == list(range(20))
    assert loop.turns.teacher.events[:4] == ["ask 0", "ask 1", "tell 1", "ask 2"]


def test_one_that_watches_is_told_first_even_if_its_config_says_that_it_does_not_listen(tmp_path):
    teacher = FakeTeacher(watches=(DevLoss(),))
    loop = finish(make_loop(tmp_path, teacher=teacher, listens=False))
    assert loop.turns.teacher.events[:4] == ["ask 0", "tell 1", "ask 1", "tell 2"]


@pytest.mark.parametrize("observe_every", [1, 4])
def test_one_that_listens_is_told_before_it_is_asked(tmp_path, observe_every):
    teacher = finish(make_loop(tmp_path, observe_every=observe_every)).turns.teacher
    expected = [
        event
        for step in range(20)
        for event in ([f"tell {step}"] if step and step % observe_every == 0 else []) + [f"ask {step}"]
    ]
    assert teacher.events == [*expected, "tell 20"]


@pytest.mark.parametrize("accumulate", [1, 3])
def test_batches_drawn_ahead_are_none_that_a_checkpoint_has_seen(tmp_path, accumulate):
    loop = make_loop(tmp_path, teacher=FakeTeacher(arms=("az",)), listens=False, accumulate=accumulate)
    loop.run(stop=lambda: loop.step == 8)
    assert loop.streams["az"].drawn == 9 * accumulate, "those of the ninth update lie ready"
    assert loop.streams.state_dict() == {"az": {"drawn": 8 * accumulate}}
    finish(loop, until=9)  # the same loop goes on with what it has
    assert loop.student.history[8] == [["az", 8 * accumulate + number] for number in range(1, accumulate + 1)]


def test_a_loop_that_goes_back_to_its_checkpoint_forgets_what_lies_ready(tmp_path):
    loop = make_loop(tmp_path, teacher=FakeTeacher(arms=("az",)), listens=False)
    loop.run(stop=lambda: loop.step == 9)
    loop.journal.flush()
    loop.checkpoints.drop([9])
    loop.resume()
    finish(loop, until=8)
    assert loop.student.history == [[["az", number]] for number in range(1, 9)]


def test_a_checkpoint_from_before_there_was_a_next_decision_is_read(tmp_path):
    loop = make_loop(tmp_path)
    loop.run(7)
    state = loop.state_dict()
    del state["next"]
    loop.load_state_dict(state)
    finish(loop, until=9)
    assert loop.step == 9


def test_a_checkpoint_of_version_0_1_is_read(tmp_path):
    """It knew the updates by arm since the last observation, the sum of their losses, and the last decision."""
    loop = make_loop(tmp_path, observe_every=10)
    decision = {"arm": "az", "why": "turn", "probability": 0.5, "scores": {"az": 1.0}, "epsilon": None}
    counts = {"seen": {"az": 7, "tr": 9}, "played": {"tr": 2, "az": 1}}
    loop.load_state_dict({"step": 3, "decision": decision, "next": None, "train_loss": 6.0, **counts})
    window = loop.turns.window()
    assert window.losses == {"tr": (4.0, 2), "az": (2.0, 1)}
    assert loop.turns.decision == Decision("az", "turn", 0.5, {"az": 1.0})
    finish(loop, until=10)
    told = loop.turns.teacher.told[0]
    assert (told.played, told.decision.arm) == ({"tr": 6, "az": 4}, "tr")


def test_records_after_the_checkpoint_are_written_again_not_twice(tmp_path):
    loop = make_loop(tmp_path)
    with pytest.raises(RuntimeError):  # killed at step 9: records went on, the last checkpoint is of step 6
        finish(loop, stop=lambda: crash() if loop.step == 9 else False)
    loop.journal.close()
    assert steps_of(tmp_path)[-1]["step"] == 9
    second = make_loop(tmp_path)
    second.resume()
    assert second.step == 6
    finish(second)
    assert [entry["step"] for entry in steps_of(tmp_path)] == list(range(1, 21))


def crash():
    raise RuntimeError("killed")


def test_stopping_saves_where_it_stands(tmp_path):
    loop = make_loop(tmp_path)
    finish(loop, stop=lambda: loop.step == 8)
    assert loop.step == 8
    assert loop.checkpoints.newest().step == 8


def test_a_damaged_newest_checkpoint_does_not_take_a_place_of_the_good_ones(tmp_path):
    finish(make_loop(tmp_path), until=12)
    (tmp_path / "checkpoints" / "12" / "state.json").unlink()
    second = make_loop(tmp_path)
    second.resume()
    assert second.step == 6
    finish(second, until=8)
    assert [(found.step, found.complete) for found in second.checkpoints.list()] == [(6, True), (8, True)]


def test_a_dev_loss_that_is_not_finite_is_neither_recorded_nor_saved(tmp_path):
    loop = make_loop(tmp_path)
    loop.student.losses = lambda batches, smoothed=False, weights="raw": SentenceLosses(
        np.full(2, np.nan), np.full(2, 3)
    )
    with pytest.raises(NotFiniteError, match="a dev loss at step 5 is not a finite number"):
        finish(loop)
    loop.journal.close()
    assert list(read_record(tmp_path / "validations.jsonl")) == []
    assert loop.checkpoints.list() == []


@pytest.mark.parametrize("name", ["validate_every", "checkpoint_every"])
def test_never_is_no_interval(name):
    with pytest.raises(ValueError, match=f"{name} is 0; write at least 1"):
        TrainingConfig.model_validate({name: 0})


def test_a_run_that_never_saved_starts_again_with_clean_records(tmp_path):
    loop = make_loop(tmp_path)
    with pytest.raises(RuntimeError):
        finish(loop, stop=lambda: crash() if loop.step == 3 else False)
    loop.journal.close()
    second = make_loop(tmp_path)
    assert second.resume() is None
    assert steps_of(tmp_path) == []
