"""Batches drawn ahead, with real streams: every teacher's run in parts is its run in one piece."""

import pytest

from rota import api
from rota.config import parse_config
from rota.data.store import Store
from rota.runs.records import read_record

TEACHERS = {
    "temperature": ({"name": "temperature", "warmup": 3}, range(1, 12)),
    "tscl": ({"name": "tscl", "warmup": 3}, []),
    "dqn": (
        {"name": "dqn", "warmup": 4, "decide_every": 4, "groups": 2, "replay_minimum": 2},
        [1, 2, 3, 5, 6, 7, 9, 10, 11],
    ),
}


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    api.prepare(config_of(folder, "temperature"))
    return Store.open(folder)


def config_of(folder, name):
    synthetic = {"families": {"la": {"lala": 60, "lali": 20}, "ki": {"kiki": 100}}, "dev": 8, "test": 2}
    data = {"corpus": "synthetic", "synthetic": synthetic, "subwords": {"size": 400}, "folder": str(folder)}
    student = {"preset": "tiny", "width": 16, "heads": 2, "feedforward": 16, "layers": 1, "lr_warmup": 1}
    training = {"steps": 12, "tokens": 60, "threads": 1, "tensorboard": False}
    return parse_config({"data": data, "student": student, "training": training, "teacher": TEACHERS[name][0]})


def train(store, run, name, *stops):
    """Up to each of these steps in turn, each time from what the last one saved; where batches were drawn ahead."""
    config, drawn = config_of(store.folder, name), []
    for stop in stops:
        loop = api.build_loop(config, store, run)
        draw_ahead = loop.streams.draw_ahead
        loop.streams.draw_ahead = lambda *given, loop=loop, draw=draw_ahead: drawn.append(loop.step + 1) or draw(*given)
        try:
            loop.run(stop=lambda loop=loop, stop=stop: loop.step == stop)
        finally:
            loop.journal.close()
    return drawn


@pytest.mark.parametrize("name", TEACHERS)
def test_a_run_in_parts_reads_the_same_batches(store, tmp_path, name):
    drawn = train(store, tmp_path / "whole", name, 12)
    assert drawn == list(TEACHERS[name][1])
    train(store, tmp_path / "parts", name, 1, 5, 6, 8, 12)
    whole, parts = (list(read_record(tmp_path / run / "steps.jsonl")) for run in ("whole", "parts"))
    assert len(whole) == 12
    assert parts == whole
