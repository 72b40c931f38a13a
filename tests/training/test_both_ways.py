"""A run in several directions: arms are directions, losses and scores are of directions, a goal names languages."""

import pytest

from rota import api
from rota.config import parse_config
from rota.evaluation.metrics import averages, directions
from rota.runs import Run
from rota.types import Route

VALUES = {
    "data": {
        "corpus": "synthetic",
        "synthetic": {"families": {"la": {"lala": 150, "lato": 60}}, "dev": 24, "test": 6},
        "directions": ["lala-en", "en-lala", "lato-en", "en-lato", "lala-lato"],
        "low_resource": ["lato"],
        "subwords": {"size": 300},
    },
    "student": {"preset": "tiny", "width": 16, "heads": 2, "feedforward": 16, "layers": 1, "lr_warmup": 2},
    "training": {"steps": 8, "tokens": 60, "checkpoint_every": 4, "validate_every": 4, "threads": 1},
    "teacher": {"name": "tscl", "warmup": None, "reward_tokens": 60},
}
NAMES = ["lala-en", "en-lala", "lato-en", "en-lato"]


def config(tmp_path, **more):
    data = {**VALUES["data"], "folder": str(tmp_path / "data"), **more.pop("data", {})}
    return parse_config({**VALUES, "data": data, **more})


def test_a_run_in_several_directions_is_the_same_cut_in_two_and_is_scored_by_direction(tmp_path):
    settings = config(tmp_path, data={"directions": "both-ways"}, goal="lato")
    whole, parts = Run(tmp_path / "whole"), Run(tmp_path / "parts")
    api.train(settings, whole.folder)
    api.train(settings, parts.folder, until=3)
    api.train(settings, parts.folder)
    for name in ("steps", "validations", "rewards"):
        assert whole.record_path(name).read_bytes() == parts.record_path(name).read_bytes()
    assert list(whole.sizes) == NAMES
    assert whole.goal == {"lato-en": 0.5, "en-lato": 0.5}, "a language stands for all its directions"
    assert whole.targets == ("en", "lala", "lato")
    assert whole.low_resource == ["lato-en", "en-lato"]
    found = api.evaluate(whole.folder, select="none", beam=1)
    assert list(found.scores) == NAMES
    means = found.averages("chrf")
    values = found.values("chrf")
    assert means["into en"] == pytest.approx((values["lala-en"] + values["lato-en"]) / 2)
    assert means["out of en"] == pytest.approx((values["en-lala"] + values["en-lato"]) / 2)


def test_languages_that_share_no_sentences_cannot_be_joined(tmp_path):
    apart = {"families": {"la": {"lala": 9}, "ke": {"lato": 9}}, "dev": 2, "test": 2}
    with pytest.raises(
        ValueError, match="lala joined with synthetic lato: no two sentences have the same translation; give 'train'"
    ):
        api.prepare(config(tmp_path, data={"synthetic": apart}))


def test_averages_into_and_out_of_need_two_directions_of_either_and_two_targets():
    routes = {name: Route(*name.split("-"), name) for name in ("gl-en", "pt-en", "en-gl", "pt-gl")}
    assert directions(routes, routes) == {
        "into en": ["gl-en", "pt-en"],
        "into gl": ["en-gl", "pt-gl"],
        "out of pt": ["pt-en", "pt-gl"],
    }
    into_english = {name: routes[name] for name in ("gl-en", "pt-en")}
    assert directions(into_english, into_english) == {}
    values = {"gl-en": 1.0, "pt-en": 2.0, "en-gl": 3.0, "pt-gl": 5.0}
    assert averages(values, [], None, routes)["into gl"] == 4.0
