"""The guard: when it takes over, from what it draws, when it lets go; and that it changes nothing else."""

import numpy as np
import pytest
from test_loop import FakeSets, FakeStream, FakeStudent, finish

from rota.measures import DevLoss
from rota.runs.checkpoints import Checkpoints
from rota.runs.records import read_record
from rota.settings import Duration
from rota.teachers import Classroom
from rota.testing import same_state
from rota.training.alarms.guard import Guard, Guarded, prior, watch_over
from rota.training.alarms.losses import RisingLoss
from rota.training.alarms.shares import NoUpdates, OneArm
from rota.training.config import TrainingConfig
from rota.training.journal import Journal
from rota.training.loop import Loop
from rota.training.probe import Probe
from rota.training.streams import Streams
from rota.training.turns import Turns
from rota.types import Decision, SentenceLosses

CLASSROOM = Classroom({"az": 1, "tr": 32}, low_resource=("az",), steps=400)


class Stubborn:
    """Plays both arms by turns until a step, then only tr; remembers what it is told and draws a number each time."""

    watches = (DevLoss(),)

    def __init__(self, until=100, seed=5):
        self.until, self.told, self._rng = until, [], np.random.default_rng(seed)

    def ask(self, step):
        arm = "tr" if step >= self.until or self._rng.random() < 0.5 else "az"
        return Decision(arm, why="exploit", scores={"az": 0.0, "tr": float(step)})

    def tell(self, observation):
        self.told.append([observation.step, observation.decision.why])
        return {observation.decision.arm: 0.1}

    def state_dict(self):
        return {"told": list(self.told), "rng": self._rng.bit_generator.state}

    def load_state_dict(self, state):
        self.told, self._rng.bit_generator.state = list(state["told"]), state["rng"]


class Forgetful(FakeStudent):
    """Its dev loss falls by 0.01 at an update of az and rises by a quarter of that at one of tr after step 100."""

    def losses(self, batches, *, smoothed=False, weights="raw"):
        arms = [update[0][0] for update in self.history]
        loss = 5 - 0.01 * arms[:100].count("az") - 0.01 * arms[100:].count("az") + 0.01 * arms[100:].count("tr") / 4
        count = sum(batch.sentences for batch in batches)
        return SentenceLosses(np.full(count, 3.0 * loss), np.full(count, 3))


def make_loop(folder, *, guard=True, decide_every=2, observe_every=None, seed=5):
    student, sets = Forgetful(), FakeSets()
    config = TrainingConfig(steps=400, validate_every=Duration(10), checkpoint_every=Duration(400), tensorboard=False)
    rng = np.random.default_rng(1)
    teacher, alarms = watch_over(
        Stubborn(seed=seed), CLASSROOM, listens=True, guard=guard, decide_every=decide_every, rng=rng
    )
    turns = Turns(teacher, decide_every=decide_every, observe_every=observe_every)
    parts = (Streams(lambda arm, mixture: FakeStream(arm)), Probe(student, sets), Journal(folder))
    return Loop(student, turns, *parts, Checkpoints(folder / "checkpoints", keep=2), config, alarms=alarms)


def steps_of(folder):
    return list(read_record(folder / "steps.jsonl"))


def kinds_of(folder):
    return [entry["kind"] for entry in read_record(folder / "alarms.jsonl")]


def test_it_takes_over_when_one_arm_has_all_updates_and_the_loss_rises(tmp_path):
    finish(make_loop(tmp_path))
    steps = steps_of(tmp_path)
    guarded = [entry["step"] for entry in steps if entry["why"] == "guard"]
    began = next(entry["step"] for entry in read_record(tmp_path / "alarms.jsonl") if entry["kind"] == "guard")
    assert kinds_of(tmp_path)[:2] == ["guard", "rising-loss"], "it does not wait for the alarm of one arm"
    assert began % 10 == 0
    assert guarded[0] == began + 3, "the choice at the step of the validation is still the teacher's"
    assert {entry["arm"] for entry in steps if entry["why"] == "guard"} == {"az", "tr"}
    assert all(entry["why"] == "exploit" for entry in steps[:began])


def test_it_lets_go_when_the_loss_is_back(tmp_path):
    finish(make_loop(tmp_path))
    whys = [entry["why"] for entry in steps_of(tmp_path)]
    first = whys.index("guard")
    assert "exploit" in whys[first:], "the teacher had no second chance"


def test_without_it_the_run_goes_on_but_is_not_silent(tmp_path):
    finish(make_loop(tmp_path, guard=False))
    assert {entry["why"] for entry in steps_of(tmp_path)} == {"exploit"}
    assert kinds_of(tmp_path) == ["rising-loss", "one-arm", "no-updates"]


def test_the_teacher_is_told_of_the_guards_choices(tmp_path):
    loop = finish(make_loop(tmp_path))
    assert {why for _, why in loop.turns.teacher.teacher.told} == {"exploit", "guard"}


@pytest.mark.parametrize("observe_every", [None, 8], ids=["told at once", "asked ahead"])
@pytest.mark.parametrize("cut", [99, 180, 190, 200, 250, 333])
def test_a_guarded_run_cut_in_two_equals_a_run_in_one_piece(tmp_path, cut, observe_every):
    whole = finish(make_loop(tmp_path / "whole", observe_every=observe_every))
    finish(make_loop(tmp_path / "parts", observe_every=observe_every), until=cut)
    resumed = make_loop(tmp_path / "parts", observe_every=observe_every, seed=77)
    resumed.resume()
    finish(resumed)
    assert "guard" in kinds_of(tmp_path / "whole")
    for name in ("steps.jsonl", "alarms.jsonl", "validations.jsonl", "rewards.jsonl"):
        assert (tmp_path / "parts" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
    for part in ("teacher", "alarms"):
        assert same_state(resumed.parts()[part].state_dict(), whole.parts()[part].state_dict())


def test_a_run_that_needs_no_guard_has_the_same_choices_with_it(tmp_path):
    for guard in (True, False):
        teacher, _ = watch_over(
            Stubborn(), CLASSROOM, listens=True, guard=guard, decide_every=1, rng=np.random.default_rng(1)
        )
        decisions = [teacher.ask(step) for step in range(100)]
        if guard:
            expected = decisions
    assert decisions == expected


def test_a_checkpoint_from_before_there_was_a_guard_is_read():
    teacher, _ = watch_over(
        Stubborn(), CLASSROOM, listens=True, guard=True, decide_every=1, rng=np.random.default_rng(1)
    )
    teacher.load_state_dict(Stubborn(seed=9).state_dict())
    assert teacher.teacher.state_dict() == Stubborn(seed=9).state_dict()


def test_the_state_of_the_teacher_lies_where_it_would_without_a_guard():
    guard = Guard(OneArm(("az", "tr"), 50), NoUpdates(("az", "tr"), 50), RisingLoss())
    guarded = Guarded(Stubborn(), guard, CLASSROOM.sizes, np.random.default_rng())
    assert set(guarded.state_dict()) == {*Stubborn().state_dict(), "guard"}


def test_open_loop_schedules_have_no_guard():
    inner = Stubborn()
    teacher, _ = watch_over(inner, CLASSROOM, listens=False, guard=True, decide_every=1, rng=np.random.default_rng(1))
    assert teacher is inner


def test_a_rising_loss_alone_is_the_teachers_affair():
    one_arm, never, rising = OneArm(("az", "tr"), 50), NoUpdates(("az", "tr"), 50), RisingLoss()
    guard = Guard(one_arm, never, rising)
    rising.rising, rising.stalled = True, 5
    assert list(guard.validated(10, {})) == []
    rising.rising, rising.stalled, one_arm.arm = False, 2, "tr"
    assert list(guard.validated(20, {})) == []
    assert not guard.on


def test_it_stays_until_the_loss_is_back_even_if_more_than_one_arm_is_played():
    one_arm, never, rising = OneArm(("az", "tr"), 50), NoUpdates(("az", "tr"), 50), RisingLoss()
    guard = Guard(one_arm, never, rising)
    rising.stalled, one_arm.arm = 3, "tr"
    assert [alarm.kind for alarm in guard.validated(10, {})] == ["guard"]
    assert [guard.holds(step) for step in (9, 10, 11)] == [False, False, True]
    one_arm.arm = None
    assert list(guard.validated(20, {})) == []
    assert guard.holds(25)
    rising.stalled = 0
    assert list(guard.validated(30, {})) == []
    assert [guard.holds(step) for step in (30, 31)] == [True, False]
    rising.stalled, one_arm.arm = 1, "tr"
    assert [alarm.kind for alarm in guard.validated(40, {})] == ["guard"], "the second time it waits no longer"


def test_the_prior_is_temperature_5_with_half_the_uniform_share_for_everybody():
    # 32 ** (1 / 5) = 2: two thirds and one third; 0.25 for each, the rest by what is above that.
    assert prior({"az": 1, "tr": 32}) == pytest.approx({"az": 1 / 3, "tr": 2 / 3})
    # 100 ** 5 to 1: shares of 100/101 and 1/101; the small one has its floor, the large one all the rest.
    assert prior({"az": 1, "tr": 100**5}) == pytest.approx({"az": 0.25, "tr": 0.75})
    assert prior({"az": 7}) == {"az": 1.0}


def test_an_arm_without_any_update_is_a_collapse_too():
    one_arm, never, rising = OneArm(("az", "tr"), 50), NoUpdates(("az", "tr"), 50), RisingLoss()
    guard = Guard(one_arm, never, rising)
    rising.stalled, never.arms_without = 3, ["az"]
    [alarm] = guard.validated(10, {})
    assert "the teacher trains not at all on az and the dev loss no longer falls" in alarm.text
