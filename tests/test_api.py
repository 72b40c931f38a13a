"""``api.train`` from Python: who is told what, in which order, and how it ends."""

import pytest

from rota import api
from rota.config import parse_config
from rota.runs import Run

VALUES = {
    "data": {
        "corpus": "synthetic",
        "synthetic": {"families": {"la": {"lala": 200, "lato": 60}}, "dev": 8, "test": 4},
        "subwords": {"size": 300},
    },
    "student": {"preset": "tiny", "width": 16, "heads": 2, "feedforward": 16, "layers": 1, "lr_warmup": 2},
    "training": {"steps": 6, "tokens": 60, "checkpoint_every": 3, "validate_every": 3, "threads": 1},
}


class Heard:
    """A listener, a progress and a stop in one that writes down what it is told, and when it is entered."""

    def __init__(self, log, name, stop_at=None):
        self.log, self.name, self.stop_at, self.step = log, name, stop_at, 0

    def __enter__(self):
        self.log.append(f"{self.name} begins")
        return self

    def __exit__(self, *_):
        self.log.append(f"{self.name} ends")

    def updated(self, step, decision, loss, seen):
        self.step = step
        self.log.append(f"step {step}")

    def validated(self, step, dev_loss):
        self.log.append(f"validated at {step}")

    def saved(self, step):
        self.log.append(f"saved at {step}")

    def alarmed(self, alarm):
        self.log.append(f"alarm at {alarm.step}")


class Progress(Heard):
    def __call__(self, stage, done, total):
        if self.log[-1] != "preparing":
            self.log.append("preparing")


class Stop(Heard):
    def __call__(self):
        return self.log.count("step 2") > 0


@pytest.fixture
def config(tmp_path):
    return parse_config({**VALUES, "data": {**VALUES["data"], "folder": str(tmp_path / "data")}})


def test_each_is_entered_for_as_long_as_it_is_used(config, tmp_path):
    log = []
    progress, stop = Progress(log, "progress"), Stop(log, "stop")
    loop = api.train(config, tmp_path / "run", listeners=[Heard(log, "listener")], progress=progress, stop=stop)
    assert loop.step == 2
    assert log == [
        "progress begins",
        "preparing",
        "progress ends",
        "stop begins",
        "listener begins",
        "step 1",
        "step 2",
        "saved at 2",
        "listener ends",
        "stop ends",
    ]


def test_a_function_makes_a_listener_of_the_loop_as_it_stands(config, tmp_path):
    log = []

    def listener(loop):
        log.append(f"from step {loop.step} of {loop.steps}")
        return Heard(log, "listener")

    api.train(config, tmp_path / "run", until=4, listeners=[listener])
    assert log[0] == "from step 0 of 6"
    assert log[-1] == "listener ends"
    log.clear()
    api.train(config, tmp_path / "run", listeners=[listener])
    assert log[:3] == ["from step 4 of 6", "listener begins", "step 5"]


def test_a_trained_run_has_no_listeners(config, tmp_path):
    api.train(config, tmp_path / "run")
    log = []
    loop = api.train(config, tmp_path / "run", listeners=[Heard(log, "listener")], stop=Stop(log, "stop"))
    assert (loop.step, log) == (6, [])


def test_the_run_is_locked_while_data_are_prepared_and_trained_on(config, tmp_path):
    run, seen = Run(tmp_path / "run"), []

    class Looks(Heard):
        def __call__(self, *_):
            seen.append(run.is_locked)

        def updated(self, *_):
            seen.append(run.is_locked)

    looks = Looks([], "looks")
    api.train(config, run.folder, until=1, progress=looks, listeners=[lambda _: looks])
    assert len(seen) > 1
    assert all(seen)
    assert not run.is_locked
