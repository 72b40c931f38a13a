"""The demo, on corpora small enough for a test."""

import pytest

from rota import api
from rota.cli import demo
from rota.data.corpora.gettext import CatalogueUnavailable

TINY = {
    "data": {
        "corpus": "synthetic",
        "synthetic": {"families": {"la": {"lala": 400, "lato": 60}}, "dev": 6, "test": 6},
        "subwords": {"size": 400},
    },
    "student": {"preset": "tiny", "width": 16, "heads": 2, "feedforward": 16, "layers": 1, "lr_warmup": "10%"},
    "training": {"steps": 20, "tokens": 100, "checkpoint_every": "50%", "validate_every": "50%", "threads": 1},
}


@pytest.fixture
def tiny(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(demo.CORPORA, "synthetic", TINY)
    return tmp_path


def test_it_ends_with_scores_samples_a_picture_and_what_to_try_next(rota, tiny):
    code, output, error = rota("demo", "--corpus", "synthetic", "--teacher", "align", "--beside", "uniform")
    assert code == 0, error
    for words in ("lato (low)", "BLEU", "macro", "translation", "reference", "Try next", "--beside proportional"):
        assert words in output
    assert (tiny / "demo" / "synthetic" / "align" / "shares.png").exists()
    assert output.count("macro") == 2, "one table for align, one for uniform beside it"
    page = (tiny / "demo" / "synthetic" / "report" / "index.html").read_text()
    assert "who helps whom" in page.lower()


def test_one_run_unless_another_is_asked_for(rota, tiny):
    code, output, error = rota("demo", "--corpus", "synthetic")
    assert code == 0, error
    assert output.count("macro") == 1
    assert not (tiny / "demo" / "synthetic" / "align").exists()


def test_a_second_time_everything_is_there_already(rota, tiny):
    assert rota("demo", "--corpus", "synthetic")[0] == 0
    before = (tiny / "demo" / "synthetic" / "uniform" / "steps.jsonl").stat().st_mtime_ns
    code, output, _ = rota("demo", "--corpus", "synthetic")
    assert code == 0
    assert "is trained: 20 steps" in output
    assert (tiny / "demo" / "synthetic" / "uniform" / "steps.jsonl").stat().st_mtime_ns == before


@pytest.mark.parametrize("teacher", ["mixed", "tscl", "dqn"])
def test_another_teacher_can_be_tried(rota, tiny, teacher):
    assert rota("demo", "--corpus", "synthetic", "--teacher", teacher)[0] == 0


def test_without_a_registry_it_says_so_and_uses_generated_languages(rota, tiny, monkeypatch):
    prepare = api.prepare

    def unreachable(config, **keywords):
        if config.data.corpus == "catalogues":
            raise CatalogueUnavailable("no package registry can be reached")
        return prepare(config, **keywords)

    monkeypatch.setattr(api, "prepare", unreachable)
    code, output, error = rota("demo")
    assert code == 0, error
    assert "no package registry can be reached" in output
    assert "their scores say nothing about real ones" in output
    assert (tiny / "demo" / "synthetic" / "uniform" / "shares.png").exists()


def test_it_can_be_made_shorter_and_says_so_in_what_to_try_next(rota, tiny):
    code, output, error = rota("demo", "--corpus", "synthetic", "--steps", "30")
    assert code == 0, error
    assert "trained 30 steps" in output
    assert "--steps 30 --teacher uniform --beside proportional" in output
    code, _, error = rota("demo", "--corpus", "synthetic", "--steps", "5")
    assert code == 2
    assert "--steps" in error
