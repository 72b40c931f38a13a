"""The teacher ``weights`` in real training: a run cut in two equals the whole, whatever is measured."""

import json
from types import SimpleNamespace

import pytest

from rota import api
from rota.config import parse_config
from rota.runs.records import read_record
from rota.teachers.weights.presets import PRESETS

VALUES = {
    "data": {
        "corpus": "synthetic",
        "synthetic": {"families": {"la": {"lala": 200, "lato": 60}, "ki": {"kiki": 40}}, "dev": 30, "test": 5},
        "low_resource": ["lato", "kiki"],
        "subwords": {"size": 400},
    },
    "student": {"preset": "tiny", "width": 32, "heads": 2, "feedforward": 32, "layers": 1, "lr_warmup": 5},
    "training": {
        **{"steps": 16, "tokens": 100, "checkpoint_every": 50, "validate_every": 50, "tensorboard": False},
        "threads": 1,
    },
}
TEACHERS = {
    "exp3": {"decide_every": 2, "tokens": 100},
    "exp3-s": {"decide_every": 2, "tokens": 100},
    "odm": {},
    "chi-ibr": {"reweight_every": 4, "baseline": {"lala": 1.0, "lato": 2.0, "kiki": 3.0}},
    "jean-explicit": {"reweight_every": 3, "tokens": 100},
    "jean-implicit": {"reweight_every": 3, "tokens": 100},
    "loss-softmax": {"reweight_every": 3, "tokens": 100},
    "relative-decrease": {"reweight_every": 3, "tokens": 100},
    "multidds-s": {"reweight_every": 3, "tokens": 40, "map": True},
    "multiuat": {"reweight_every": 3, "tokens": 40, "samples": 2, "prior": "uniform"},
    "zaremoodi": {"reweight_every": 3, "tokens": 40},
    "pike": {"reweight_every": 3, "tokens": 40},
    "doge": {"reweight_every": 3, "tokens": 40},
    "dynamix-sft": {"reweight_every": 3, "tokens": 40},
    "weights": {"signal": "alignment", "rule": "mirror", "reweight_every": 4, "tokens": 40, "scale": "across-arms"},
    "skill-it": {"reweight_every": 2, "tokens": 100, "related": [["lala", "lato"]]},
}
RECORDS = ("steps", "observations", "rewards", "validations")


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Prepared once; a function that trains with a teacher."""
    folder = tmp_path_factory.mktemp("weights")
    values = {**VALUES, "data": {**VALUES["data"], "folder": str(folder / "data")}}
    api.prepare(parse_config({**values, "teacher": "uniform"}))

    def train(run, teacher, *stops):
        config = parse_config({**values, "teacher": teacher})
        for until in (*stops, None):
            api.train(config, folder / run, until=until)
        return folder / run

    return SimpleNamespace(train=train)


def test_every_preset_is_cut_and_resumed():
    assert set(TEACHERS) == {*PRESETS, "weights"}


@pytest.mark.parametrize("name", TEACHERS)
def test_a_run_cut_in_two_equals_the_whole(name, data):
    teacher = {"name": name, **TEACHERS[name]}
    whole = data.train(f"{name}-whole", teacher)
    parts = data.train(f"{name}-parts", teacher, 5, 9)
    for path in (*(f"{record}.jsonl" for record in RECORDS), "checkpoints/16/student.network.safetensors"):
        assert (whole / path).is_file() == (parts / path).is_file()
        assert not (whole / path).is_file() or (whole / path).read_bytes() == (parts / path).read_bytes(), path
    rewarded = [entry for entry in read_record(whole / "rewards.jsonl") if entry["rewards"]]
    assert len(rewarded) >= 3
    shares = {json.dumps(entry["scores"]) for entry in read_record(whole / "steps.jsonl") if "scores" in entry}
    assert len(shares) >= 3, "the weights hardly ever changed"
