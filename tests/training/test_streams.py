"""Batches drawn ahead, with real streams: every teacher's run in parts is its run in one piece."""

from collections import Counter
from pathlib import Path

import pytest

from rota import api
from rota.config import parse_config
from rota.data.store import Store
from rota.runs.records import read_record
from rota.types import Decision, Mixture, Selection

TEACHERS = {
    "temperature": ({"name": "temperature", "warmup": 3}, range(1, 12)),
    "tscl": ({"name": "tscl", "warmup": 3}, []),
    "dqn": (
        {"name": "dqn", "warmup": 4, "decide_every": 4, "groups": 2, "replay_minimum": 2},
        [1, 2, 3, 5, 6, 7, 9, 10, 11],
    ),
    "everything": ({"name": "mixing:MixingConfig"}, range(1, 12)),
    "sentences": ({"name": "mixing:MixingConfig", "kinds": ["sentences"]}, range(1, 12)),
    "batches": ({"name": "mixing:MixingConfig", "kinds": ["batches"]}, range(1, 12)),
}


@pytest.fixture(autouse=True)
def own_teachers(monkeypatch):
    monkeypatch.syspath_prepend(Path(__file__).parent)


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    api.prepare(config_of(folder, "temperature"))
    return Store.open(folder)


def config_of(folder, name, accumulate=1):
    synthetic = {"families": {"la": {"lala": 60, "lali": 20}, "ki": {"kiki": 100}}, "dev": 8, "test": 2}
    data = {"corpus": "synthetic", "synthetic": synthetic, "subwords": {"size": 400}, "folder": str(folder)}
    student = {"preset": "tiny", "width": 16, "heads": 2, "feedforward": 16, "layers": 1, "lr_warmup": 1}
    training = {"steps": 12, "tokens": 60, "threads": 1, "tensorboard": False, "accumulate": accumulate}
    return parse_config({"data": data, "student": student, "training": training, "teacher": TEACHERS[name][0]})


def train(store, run, name, *stops, accumulate=1):
    """Up to each of these steps in turn, each time from what the last one saved; where batches were drawn ahead."""
    config, drawn = config_of(store.folder, name, accumulate), []
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
    weights = [tmp_path / run / "checkpoints" / "12" / "student.network.safetensors" for run in ("whole", "parts")]
    assert weights[0].read_bytes() == weights[1].read_bytes()
    whole, parts = (list(read_record(tmp_path / run / "steps.jsonl")) for run in ("whole", "parts"))
    assert len(whole) == 12
    assert parts == whole


def test_a_mixture_of_sentences_has_its_shares_in_every_update_and_is_recorded(store, tmp_path):
    train(store, tmp_path, "sentences", 12)
    steps = list(read_record(tmp_path / "steps.jsonl"))
    assert steps[0]["arm"] == "blend"
    assert steps[0]["mixture"] == {"shares": {"lala": 1.0, "lali": 2.0, "kiki": 3.0}, "unit": "sentence"}
    loop = api.build_loop(config_of(store.folder, "sentences"), store, tmp_path / "other")
    seen = Counter()
    for step in range(300):
        seen.update(loop.streams.draw(loop.turns.decide(step), [True])[0].tokens_by_language)
        loop.turns.played(1.0, {})
    # Over every three updates all have the same share of the sentences, which are about equally long.
    assert min(seen.values()) > 0.8 * max(seen.values())


def test_a_mixture_of_batches_draws_an_arm_for_each_batch_and_weighs_its_loss(store, tmp_path):
    config = config_of(store.folder, "batches", accumulate=4)
    loop = api.build_loop(config, store, tmp_path)
    decision = loop.turns.decide(0)
    batches = [batch for _ in range(30) for batch in loop.streams.draw(decision, [True] * 4)]
    drawn = Counter(batch.arm for batch in batches)
    assert drawn["lala"] / 120 == pytest.approx(1 / 6, abs=0.12)  # shares 1, 2, 3
    assert drawn["kiki"] / 120 == pytest.approx(3 / 6, abs=0.15)
    for batch in batches:
        expected = [0.5] * batch.sentences if batch.arm == "lala" else None
        assert expected == (None if batch.weights is None else batch.weights.tolist())


def test_a_selection_ends_with_the_decision_that_named_it(store, tmp_path):
    loop = api.build_loop(config_of(store.folder, "everything"), store, tmp_path)
    easy = Decision("lala", "easy", selection=Selection("length", 0.2))
    shortest = max(loop.streams.draw(easy, [True])[0].target_lengths)
    plain = [
        length for _ in range(6) for length in loop.streams.draw(Decision("lala", "plain"), [True])[0].target_lengths
    ]
    assert max(plain) > shortest


def test_weights_of_the_loss_need_batches_of_one_arm(store, tmp_path):
    loop = api.build_loop(config_of(store.folder, "everything"), store, tmp_path)
    both = Decision("blend", "mixed", mixture=Mixture({"lala": 1.0}, "sentence"), weights={"lala": 2.0})
    with pytest.raises(ValueError, match="weights of the loss need batches of one arm each"):
        loop.streams.draw(both, [True])
