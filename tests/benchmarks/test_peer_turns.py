"""The toolkits of a round take turns: one computes at a time, and waiting is nobody's time."""

import importlib
import json
import os
import sys
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

PEERS = Path(__file__).parents[2] / "benchmarks" / "peers"
DRIVER = """
import json, os, sys, time
wanted, turn = json.load(open(sys.argv[1])), int(sys.argv[2])
for number in range(wanted["updates"]):
    start = time.monotonic()
    time.sleep(0.02)
    with open(wanted["out"], "a") as file:
        file.write(json.dumps([start, time.monotonic()]) + "\\n")
    if not os.read(turn, 1):
        break
"""


@pytest.fixture
def turns(monkeypatch):
    monkeypatch.syspath_prepend(str(PEERS))
    return importlib.import_module("turns")


def make_training(turns, folder, name, updates):
    out, settings, driver = folder / f"{name}.jsonl", folder / f"{name}.json", folder / "driver.py"
    out.write_text("an old line\n")
    driver.write_text(DRIVER)
    settings.write_text(json.dumps({"updates": updates, "out": str(out)}))
    return turns.Training(SimpleNamespace(name=name), [sys.executable, str(driver)], settings, out, dict(os.environ))


def test_one_computes_at_a_time_and_who_ends_early_is_left_out(turns, tmp_path):
    trainings = [make_training(turns, tmp_path, name, updates) for name, updates in (("a", 4), ("b", 2), ("c", 4))]
    turns.take_turns(trainings, 4, timeout=60)
    assert [training.done() for training in trainings] == [4, 2, 4]
    assert trainings[1].code == 0
    spans = [(*json.loads(line), each.name) for each in trainings for line in each.out.read_text().splitlines()]
    spans.sort()
    assert [name for _, _, name in spans] == list("abcabcacac")
    assert all(before[1] <= after[0] for before, after in pairwise(spans))


def test_who_takes_too_long_is_ended(turns, tmp_path):
    training = make_training(turns, tmp_path, "a", 3)
    (tmp_path / "driver.py").write_text("import time; time.sleep(600)")
    turns.take_turns([training], 3, timeout=0.2)
    assert training.done() == 0
    assert training.code is None, "not by itself"
    assert training._process.returncode is not None


def test_waiting_is_not_in_the_time_of_a_peer(monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(str(PEERS / "drivers"))
    counting = importlib.import_module("counting")
    monkeypatch.setattr(counting, "register_optimizer_step_post_hook", lambda _: None)
    now = iter(range(1_000))
    monkeypatch.setattr(counting, "clocks", lambda: {"wall": 10.0 * next(now), "processor": 0.0})
    ours, theirs = os.pipe()
    out = tmp_path / "out.jsonl"
    wanted = {"turn": ours, "updates": 9, "threads": torch.get_num_threads(), "seed": 1, "out": out}
    counter = counting.Counter(SimpleNamespace(**wanted))
    monkeypatch.setattr(counter, "_machine", lambda: 1.0)
    os.write(theirs, b"..")
    for _ in range(2):
        counter._stepped()
    lines = [json.loads(line) for line in out.read_text().splitlines()]
    # The first update ends at 0; the turn is waited for from 10 to 20; the second update ends at 30.
    assert [line["wall"] for line in lines] == [0, 20]
    os.close(theirs)
    monkeypatch.setattr(counting.os, "_exit", sys.exit)
    with pytest.raises(SystemExit):
        counter._stepped()
    counter.file.close()
    os.close(ours)
