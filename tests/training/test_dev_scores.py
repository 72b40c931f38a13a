"""BLEU and chrF of dev sentences during training: right, recorded, shown, and without effect on training."""

import json
import logging

import numpy as np
import pytest
from rich.console import Console
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF
from test_early_stopping import VALUES

from rota import api
from rota.config import parse_config
from rota.data.store import Store
from rota.evaluation.dev_scores import DevScores, spread
from rota.evaluation.translator import Translator
from rota.runs import Run
from rota.settings import ConfigError
from rota.training.listeners import Display
from rota.training.progress import stopping


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return tmp_path_factory.mktemp("dev_scores") / "data"


def config(data, **training):
    values = {**VALUES, "data": {**VALUES["data"], "folder": str(data)}}
    return parse_config({**values, "training": {**VALUES["training"], "steps": 6, **training}})


def test_the_sample_is_spread_over_the_part():
    part = np.array([1, 3, 5, 7, 9])
    assert spread(part, 3) == [1, 5, 9]
    assert spread(part, 9) == [1, 3, 5, 7, 9]


def test_scores_are_those_of_sacrebleu_on_sentences_that_no_teacher_sees(tmp_path, data):
    loop = api.train(config(data, dev_sentences=4), tmp_path / "run")
    run, store = Run(tmp_path / "run"), Store.open(data)
    entries = list(run.read("validations"))
    assert [entry["step"] for entry in entries] == [2, 4, 6]
    translator = Translator.load(run.folder, step=6)
    for language in ("lala", "lato"):
        start, _ = store.split("dev").range(language)
        part = loop.probe.sets.selection_part(language) - start
        seen = set(loop.probe.sets.teacher_part(language) - start)
        places = spread(part, 4)
        assert not seen & set(places)
        pairs = [store.text("dev", language)[place] for place in places]
        found = translator.translate([source for source, _ in pairs], language, beam=1)
        references = [[reference for _, reference in pairs]]
        assert entries[-1]["bleu"][language] == BLEU().corpus_score(found, references).score
        assert entries[-1]["chrf"][language] == CHRF().corpus_score(found, references).score
    assert entries[-1]["chrf"]["lala"] > 0


def test_training_is_the_same_to_the_last_bit_with_and_without_them(tmp_path, data):
    scored, plain = (api.train(config(data, dev_sentences=count), tmp_path / str(count)) for count in (4, 0))
    assert (
        Run(tmp_path / "4").record_path("steps").read_bytes() == Run(tmp_path / "0").record_path("steps").read_bytes()
    )
    weights = [loop.student.state_dict()["network"] for loop in (scored, plain)]
    assert all(np.array_equal(weights[0][name], weights[1][name]) for name in weights[0])
    assert all("bleu" not in entry for entry in Run(tmp_path / "0").read("validations"))
    assert "dev_sentences" not in config(data).dump()["training"], "fingerprints stay what they were"


def test_a_run_cut_in_two_has_the_scores_of_a_whole_one(tmp_path, data):
    api.train(config(data, dev_sentences=4), tmp_path / "whole")
    api.train(config(data, dev_sentences=4), tmp_path / "cut", until=3)
    api.train(config(data, dev_sentences=4), tmp_path / "cut")
    one, other = (Run(tmp_path / name).record_path("validations").read_bytes() for name in ("whole", "cut"))
    assert one == other


@pytest.mark.parametrize("metric", ["bleu", "chrf"])
def test_a_run_can_stop_by_them(tmp_path, data, monkeypatch, metric):
    monkeypatch.setattr(stopping, "HARDLY", 0.0)
    rule = {"on": metric, "patience": 1, "smallest_change": 100}
    loop = api.train(config(data, dev_sentences=2, early_stopping=rule), tmp_path / "run")
    entries = {entry["step"]: entry for entry in Run(tmp_path / "run").read("validations")}
    assert loop.step == 4
    assert loop.stopping.best == pytest.approx(np.mean(list(entries[2][metric].values())))


@pytest.mark.parametrize(("score", "stops"), [(0.9, False), (1.0, True)])
def test_patience_counts_from_a_score_of_one_on(tmp_path, data, rota, monkeypatch, score, stops):
    scores = dict.fromkeys(("lala", "lato"), score)
    monkeypatch.setattr(DevScores, "take", lambda _: {"bleu": scores, "chrf": scores})
    training = {**VALUES["training"], "dev_sentences": 2, "early_stopping": {"on": "chrf", "patience": 1}}
    path = tmp_path / "my.yaml"
    path.write_text(json.dumps({**VALUES, "data": {**VALUES["data"], "folder": str(data)}, "training": training}))
    code, output, _ = rota("train", path, "--run", tmp_path / "run")
    assert code == 0
    assert ("the last validation has not been better than the dev chrF 1.0" in output) is stops
    assert Run(tmp_path / "run").end == (4 if stops else 12)


def test_stopping_by_scores_needs_sentences(data):
    with pytest.raises(ConfigError, match="early_stopping.on is bleu, and dev_sentences is 0; write for example 32"):
        config(data, early_stopping={"on": "bleu"})


def test_the_display_shows_the_goals_scores():
    console = Console(width=200, record=True)
    goal = {"az": 0.75, "tr": 0.25}
    display = Display(console, title="run", languages=["az", "tr"], steps=10, goal=goal)
    display.scored(5, {"bleu": {"az": 10.0, "tr": 20.0}, "chrf": {"az": 40.0, "tr": 20.0}})
    display.validated(5, {"az": 2.0, "tr": 4.0})
    assert "goal's dev loss 2.500, BLEU 12.5, chrF 35.0" in console.export_text()


def test_tensorboard_has_them_by_language(tmp_path, data):
    event_accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    logging.getLogger("tensorboard").setLevel(logging.ERROR)
    api.train(config(data, dev_sentences=2, tensorboard=True), tmp_path / "run")
    events = event_accumulator.EventAccumulator(str(Run(tmp_path / "run").tensorboard_folder))
    events.Reload()
    assert [scalar.step for scalar in events.Scalars("chrF/dev/lato")] == [2, 4, 6]
    assert "BLEU/dev/lala" in events.Tags()["scalars"]


def test_the_command_line_shows_them(tmp_path, data, rota):
    path = tmp_path / "my.yaml"
    path.write_text(json.dumps({**VALUES, "data": {**VALUES["data"], "folder": str(data)}}))
    code, output, _ = rota(
        "train", path, "--run", tmp_path / "run", "--steps", "4", "--set", "training.dev_sentences=2"
    )
    assert code == 0
    assert "BLEU " in output
    assert ", chrF " in output
