"""``--engine ctranslate2``: the same scores as our own search, in files and records of their own."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from rota import api
from rota.config import parse_config
from rota.evaluation.config import EvaluationConfig
from rota.evaluation.translator import read_lines
from rota.runs import Run
from rota.runs.records import read_record
from rota.runs.standing import Asked, evaluated, standing_scores

pytest.importorskip("ctranslate2")

LEARNED = {
    "data": {
        "corpus": "synthetic",
        "synthetic": {"families": {"la": {"lala": 1000}}, "dev": 9, "test": 40},
        "low_resource": ["lala"],
        "subwords": {"size": 400},
    },
    "student": {
        "preset": "tiny",
        "layers": 1,
        "width": 64,
        "heads": 2,
        "feedforward": 128,
        "dropout": 0.0,
        "learning_rate": {"peak": 0.01, "decay": "linear"},
        "lr_warmup": "10%",
    },
    "training": {
        "steps": 300,
        "tokens": 600,
        "checkpoint_every": 100,
        "validate_every": 300,
        "threads": 1,
        "tensorboard": False,
    },
}


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    """Trained until most of its translations end by themselves: at the limit of length the engines differ."""
    folder = tmp_path_factory.mktemp("engine")
    config = parse_config({**LEARNED, "data": {**LEARNED["data"], "folder": str(folder / "data")}})
    api.train(config, folder / "run")
    return folder / "run"


@pytest.fixture(scope="module")
def evaluations(run):
    return {
        engine: api.evaluate(run, engine=engine, metrics="bleu,chrf", processes=2) for engine in ("rota", "ctranslate2")
    }


@pytest.mark.parametrize("metric", ["bleu", "chrf"])
def test_the_scores_are_the_same_to_rounding(evaluations, metric):
    ours, theirs = (evaluations[engine].values(metric) for engine in ("rota", "ctranslate2"))
    assert ours["lala"] > {"bleu": 0.3, "chrf": 10}[metric], "a model that knows nothing would show nothing"
    assert theirs == pytest.approx(ours, abs=0.05)


def test_both_keep_their_own_files_and_records(run, evaluations):
    for arm, path in evaluations["rota"].translations.items():
        other = evaluations["ctranslate2"].translations[arm]
        assert path.name == f"300.test.{arm}.beam5-1.txt"
        assert other.name == f"300.test.{arm}.beam5-1-ctranslate2.txt"
        ours, theirs = read_lines(path), read_lines(other)
        assert sum(a == b for a, b in zip(ours, theirs, strict=True)) >= 0.98 * len(ours)
    searches = [entry["search"] for entry in read_record(run / "evals.jsonl")]
    assert searches[0] == {"beam": 5, "length_penalty": 1.0}
    assert searches[-1] == {"beam": 5, "length_penalty": 1.0, "engine": "ctranslate2"}
    standing = standing_scores(Run(run))
    assert standing is not None
    assert "engine" not in standing.search, "the config asks for our own search, though it was not the last"
    asked = Asked.of({"beam": 5, "length_penalty": 1.0, "engine": "ctranslate2"})
    assert [asked.has_search(scores) for scores in evaluated(Run(run))] == [False, True]


def test_the_average_of_a_window_is_one_network(run, rota):
    code, _, error = rota("evaluate", run, "--engine", "ctranslate2", "--combine", "average", "--metrics", "bleu")
    assert code == 0, error
    assert (run / "translations" / "100+200+300.average.test.lala.beam5-1-ctranslate2.txt").is_file()


@pytest.mark.parametrize("options", [("--combine", "ensemble"), ("--select", "low-resource")])
def test_an_ensemble_is_refused(run, rota, options):
    code, _, error = rota("evaluate", run, "--engine", "ctranslate2", *options)
    assert code == 2
    assert (
        error == "error: ctranslate2 translates with one network and an ensemble has several; add --combine average\n"
    )


def test_an_unknown_engine_is_named_with_the_known_ones(run, rota):
    code, _, error = rota("evaluate", run, "--engine", "marian")
    assert code == 2
    assert error == "error: --engine is 'marian'; it is one of rota, ctranslate2\n"


def test_where_it_is_not_installed_nothing_is_translated(run, rota, monkeypatch):
    monkeypatch.setitem(sys.modules, "ctranslate2", None)
    code, _, error = rota("evaluate", run, "--engine", "ctranslate2", "--beam", 3)
    assert code == 2
    assert error == "error: ctranslate2 is not installed; install it with: pip install ctranslate2\n"
    assert not list((run / "translations").glob("*beam3*"))


def test_a_config_names_an_engine_only_if_it_is_another():
    assert "engine" not in EvaluationConfig().model_dump()
    assert EvaluationConfig(engine="ctranslate2").model_dump()["engine"] == "ctranslate2"
    with pytest.raises(ValueError, match="an ensemble has several"):
        EvaluationConfig(engine="ctranslate2", combine="ensemble")
