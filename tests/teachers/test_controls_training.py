"""The controls in real training from the shell: a run, and a second one that replays it."""

import json
import shutil
from collections import Counter

import pytest

from rota.runs.records import read_record

CONFIG = """
data:
  corpus: synthetic
  synthetic: {families: {la: {lala: 300, lato: 60}}, dev: 12, test: 9}
  low_resource: [lato]
  subwords: {size: 400}
student: {preset: tiny, width: 32, feedforward: 64, layers: 1, lr_warmup: 5}
teacher: {name: uniform, warmup: 25%, decide_every: 2}
training: {steps: 40, tokens: 150, checkpoint_every: 10, validate_every: 20, tensorboard: false, threads: 1}
"""
SHUFFLED = "teacher={name: replay-shuffled, run: %s, window: 10, decide_every: 2}"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("controls")


@pytest.fixture
def train(rota, folder, monkeypatch):
    """Trains into a run folder, after the run that is replayed."""
    monkeypatch.chdir(folder)
    (folder / "small.yaml").write_text(CONFIG)
    assert rota("train", "small.yaml")[0] == 0
    return lambda run, *options: rota("train", "small.yaml", "--run", f"runs/{run}", *options)


def arms(folder, run):
    return [entry["arm"] for entry in read_record(folder / "runs" / run / "steps.jsonl")]


def test_a_shuffled_replay_has_the_shares_of_every_window_in_another_order(train, folder):
    assert train("shuffled", "--set", SHUFFLED % "runs/small")[0] == 0
    first, second = arms(folder, "small"), arms(folder, "shuffled")
    assert first != second
    for start in range(0, 40, 10):
        assert Counter(first[start : start + 10]) == Counter(second[start : start + 10])


def test_a_replay_goes_on_bit_for_bit_even_if_the_other_run_has_moved(train, folder):
    assert train("whole", "--set", SHUFFLED % "runs/small")[0] == 0
    assert train("parts", "--set", SHUFFLED % "runs/small", "--until", "23")[0] == 0
    shutil.copytree(folder / "runs" / "small", folder / "runs" / "moved")
    assert train("parts", "--set", SHUFFLED % "runs/moved")[0] == 0
    whole, parts = (folder / "runs" / name for name in ("whole", "parts"))
    for name in ("steps.jsonl", "validations.jsonl", "checkpoints/40/student.network.safetensors"):
        assert (whole / name).read_bytes() == (parts / name).read_bytes(), name


def test_a_replay_does_not_go_on_with_another_run(train, folder):
    assert train("started", "--set", SHUFFLED % "runs/small", "--until", "10")[0] == 0
    assert train("another", "--set", "seed=2")[0] == 0
    code, _, error = train("started", "--set", SHUFFLED % "runs/another")
    assert code == 2
    assert "teacher.run holds another run now" in error
    assert error.count("\n") == 1


def test_proportions_are_replayed_after_the_same_warmup(train, folder):
    settings = "teacher={name: replay-proportions, run: runs/small, warmup: 25%, decide_every: 2}"
    assert train("proportions", "--set", settings)[0] == 0
    whys = [entry["why"] for entry in read_record(folder / "runs" / "proportions" / "steps.jsonl")]
    assert whys == ["warmup"] * 10 + ["replayed"] * 30
    state = json.loads((folder / "runs" / "proportions" / "checkpoints" / "40" / "state.json").read_text())
    after = Counter(arms(folder, "small")[10:])
    assert state["teacher"]["teacher"]["shares"] == {arm: after[arm] / 30 for arm in ("lala", "lato")}


def test_a_run_that_is_not_there_leaves_nothing_behind(train, folder):
    code, _, error = train("nothing", "--set", "teacher={name: replay-proportions, run: runs/nowhere}")
    assert code == 2
    assert error == (
        "error: teacher.run is 'runs/nowhere', which is not a run folder (no run.json); train that run first\n"
    )
    assert not (folder / "runs" / "nothing" / "run.json").exists()


def test_simulating_a_replay_without_its_run_is_one_line(rota):
    message = "error: replay-proportions: 'teacher.run' is missing; write for example run: runs/dqn\n"
    assert rota("simulate", "replay-proportions")[2] == message
