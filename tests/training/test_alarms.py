"""The mechanism of alarms: each once, written down, shown, saved; with detectors made up for the purpose."""

import io
import logging

import numpy as np
import pytest
from rich.console import Console
from test_loop import FakeSets, FakeStream, FakeStudent, FakeTeacher, finish

from rota.runs import Run
from rota.runs.checkpoints import Checkpoints
from rota.runs.records import Record, read_record
from rota.settings import Duration
from rota.teachers.wrappers import FirstVisits, Warmup
from rota.training.alarms import Alarm, Alarms, Detector
from rota.training.config import TrainingConfig
from rota.training.journal import Journal
from rota.training.listeners import Display
from rota.training.loop import Loop
from rota.training.probe import Probe
from rota.training.streams import Streams
from rota.training.turns import Turns
from rota.types import Decision


class Counting(Detector):
    """Raises an alarm about each arm at its third update, and one at the second validation."""

    name = "counting"

    def __init__(self):
        self.counts, self.validations = {}, 0

    def updated(self, step, decision, loss, seen):
        self.counts[decision.arm] = self.counts.get(decision.arm, 0) + 1
        if self.counts[decision.arm] >= 3:
            yield Alarm(step, "third", decision.arm, f"{decision.arm} was played three times; play another")

    def validated(self, step, dev_loss):
        self.validations += 1
        return [Alarm(step, "second look", None, f"a look at {sorted(dev_loss)}")] if self.validations == 2 else []

    def state_dict(self):
        return {"counts": dict(self.counts), "validations": self.validations}

    def load_state_dict(self, state):
        self.counts, self.validations = dict(state["counts"]), state["validations"]


class Complaining(FakeTeacher):
    def alarms(self, step):
        yield Alarm(step, "values", None, "my values are wrong; believe me")


class Listening:
    def __init__(self):
        self.heard = []

    def updated(self, step, decision, loss, seen): ...
    def validated(self, step, dev_loss): ...
    def saved(self, step): ...

    def alarmed(self, alarm):
        self.heard.append(alarm)


def make_loop(folder, detectors=None, teacher=None):
    student = FakeStudent()
    config = TrainingConfig(steps=20, validate_every=Duration(5), checkpoint_every=Duration(6), tensorboard=False)
    return Loop(
        student,
        Turns(teacher or FakeTeacher()),
        Streams(lambda arm, mixture: FakeStream(arm)),
        Probe(student, FakeSets()),
        Journal(folder),
        Checkpoints(folder / "checkpoints", keep=9),
        config,
        alarms=Alarms([Counting()] if detectors is None else detectors),
    )


def alarms_of(folder):
    return list(read_record(folder / "alarms.jsonl"))


EXPECTED = [  # the teacher takes turns, tr first: updates 1, 3, 5 are of tr
    {"step": 5, "kind": "third", "arm": "tr", "text": "tr was played three times; play another"},
    {"step": 6, "kind": "third", "arm": "az", "text": "az was played three times; play another"},
    {"step": 10, "kind": "second look", "arm": None, "text": "a look at ['az', 'tr']"},
]


def test_each_kind_is_raised_once_for_each_arm_and_written_down(tmp_path):
    finish(make_loop(tmp_path))
    assert alarms_of(tmp_path) == EXPECTED
    assert list(Run(tmp_path).read("alarms")) == EXPECTED


def test_listeners_hear_them_and_the_log_has_a_warning_each(tmp_path, caplog):
    loop, listener = make_loop(tmp_path), Listening()
    loop.listeners = [listener]
    with caplog.at_level(logging.WARNING):
        finish(loop)
    assert [alarm._asdict() for alarm in listener.heard] == EXPECTED
    assert [record.getMessage() for record in caplog.records] == [f"step {a['step']}: {a['text']}" for a in EXPECTED]


@pytest.mark.parametrize("cut", [1, 4, 5, 7, 10, 13])
def test_a_run_cut_in_two_raises_what_a_whole_one_does(tmp_path, cut):
    finish(make_loop(tmp_path / "whole"))
    finish(make_loop(tmp_path / "parts"), until=cut)
    resumed = make_loop(tmp_path / "parts")
    resumed.resume()
    finish(resumed)
    assert alarms_of(tmp_path / "parts") == alarms_of(tmp_path / "whole") == EXPECTED
    whole, parts = (Checkpoints(tmp_path / name / "checkpoints", keep=9).newest() for name in ("whole", "parts"))
    assert whole.load_part("alarms") == parts.load_part("alarms")


def test_alarms_after_the_checkpoint_are_raised_again_not_twice(tmp_path):
    finish(make_loop(tmp_path), until=9)
    record = Record(tmp_path / "alarms.jsonl")
    record.write({"step": 8, "kind": "lost", "arm": None, "text": ""})
    record.close()
    resumed = make_loop(tmp_path)
    resumed.checkpoints.drop([9])
    assert resumed.resume().step == 6
    finish(resumed)
    assert alarms_of(tmp_path) == EXPECTED


def test_a_checkpoint_without_alarms_is_resumed(tmp_path):
    loop = make_loop(tmp_path)
    parts = loop.parts()
    loop.parts = lambda: {name: part for name, part in parts.items() if name != "alarms"}
    finish(loop, until=6)
    resumed = make_loop(tmp_path)
    assert resumed.resume().step == 6
    finish(resumed)
    assert [alarm["step"] for alarm in alarms_of(tmp_path)] == [5, 6, 11, 12, 15]  # it has begun to count again


def test_a_checkpoint_without_another_part_is_refused(tmp_path):
    loop = make_loop(tmp_path)
    parts = loop.parts()
    loop.parts = lambda: {name: part for name, part in parts.items() if name != "teacher"}
    finish(loop, until=6)
    with pytest.raises(KeyError):
        make_loop(tmp_path).resume()


def test_a_teacher_raises_alarms_about_itself_through_every_wrapper(tmp_path):
    rng = np.random.default_rng(1)
    wrapped = FirstVisits(Warmup(Complaining(), ["az"], rng, until=2), ["az"])
    finish(make_loop(tmp_path, detectors=[], teacher=wrapped))
    assert alarms_of(tmp_path) == [
        {"step": 1, "kind": "values", "arm": None, "text": "my values are wrong; believe me"}
    ]


def test_without_detectors_there_is_no_file(tmp_path):
    finish(make_loop(tmp_path, detectors=[]))
    assert not (tmp_path / "alarms.jsonl").exists()


def test_two_detectors_of_one_name_are_a_mistake_of_ours():
    with pytest.raises(AssertionError, match="same name"):
        Alarms([Counting(), Counting()])


def test_a_detector_that_does_nothing_raises_nothing():
    quiet = Alarms([Detector()])
    assert quiet.updated(1, Decision("az", "sampled"), 1.0, {}) == []
    assert quiet.told(1, None, FakeTeacher()) == []
    assert quiet.validated(1, {"az": 1.0}) == []
    assert quiet.state_dict() == {"raised": []}


def test_a_panel_keeps_the_last_three():
    console = Console(file=io.StringIO(), width=100, force_terminal=True)
    display = Display(console, title="run", languages=("az",), steps=200)
    for number in range(5):
        display.alarmed(Alarm(1_000 * number, "kind", None, f"trouble {number}"))
    plain = Console(file=io.StringIO(), width=100)
    plain.print(display.render())
    text = plain.file.getvalue()
    assert "trouble 1" not in text
    assert "step 4,000: trouble 4" in text
    assert text.count("trouble") == 3
