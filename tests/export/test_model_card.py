from __future__ import annotations

import json

import pytest
from export_cases import STEPS, make_run
from ruamel.yaml import YAML

from rota.export.model_card import _title, model_card
from rota.runs import Run
from rota.runs.standing import Model

BEAM = {"beam": 5, "length_penalty": 1.0}
GREEDY = {"beam": 1, "length_penalty": 1.0}


@pytest.fixture
def run(tmp_path):
    return make_run(tmp_path / "run", steps=STEPS)


def record(run, language, score, *, metric="bleu", search=BEAM, split="test", **more):
    entry = {"step": 100, "split": split, "search": search, "language": language, "metric": metric, "score": score}
    with (run / "evals.jsonl").open("a") as file:
        file.write(json.dumps({**entry, "signature": f"{metric}|v2", **more}) + "\n")


def card_of(run, steps=(100,), combine="last", to="hf", quantization="float32"):
    return model_card(Run(run), Model(steps, combine), to=to, quantization=quantization)


def test_the_header_is_yaml_in_which_norwegian_is_a_language(run):
    header = card_of(run).split("---\n")[1]
    content = YAML(typ="safe", pure=True).load("%YAML 1.1\n---\n" + header)
    assert content["language"] == ["az", "no", "pt_br", "en"]
    assert content["library_name"] == "transformers"
    assert "library_name: ctranslate2" in card_of(run, to="ctranslate2")


def test_it_says_languages_sizes_schedule_and_steps(run):
    card = card_of(run)
    assert "| az (low-resource) | 1,200 |" in card
    assert "| no | 25,000 |" in card
    assert "Teacher `temperature`, 100 steps of 200 target tokens, seed 1." in card
    assert "- `temperature`: `3.0`" in card
    assert "those of step 100" in card
    assert "the mean over the checkpoints at steps 40, 60" in card_of(run, (40, 60), "average")


def test_scores_come_with_averages_and_signatures(run):
    for language, score in (("az", 10.0), ("no", 30.0), ("pt_br", 20.0)):
        record(run, language, score)
        record(run, language, score + 5, metric="chrf")
        record(run, language, 99.0, search=GREEDY)
        record(run, language, 98.0, split="dev")
    card = card_of(run)
    assert "| az (low-resource) | 1,200 | 10.0 | 15.0 |" in card
    assert "| low-resource | | 10.0 | 15.0 |" in card
    assert "| high-resource | | 25.0 | 30.0 |" in card
    assert "| macro | | 20.0 | 25.0 |" in card
    assert "- BLEU: `bleu|v2`" in card
    assert "(beam 5, length penalty 1)" in card


def test_scores_of_another_search_are_better_than_none(run):
    record(run, "az", 12.5, search=GREEDY)
    assert "| az (low-resource) | 1,200 | 12.5 |" in card_of(run)
    assert "(beam 1, length penalty 1)" in card_of(run)


def test_scores_of_other_weights_are_left_out(run):
    record(run, "az", 12.5, steps=[80, 100], combine="ensemble")
    record(run, "az", 12.5, step=80)
    assert "No test scores were recorded" in card_of(run)
    assert "No test scores were recorded" in card_of(run, (80, 100), "average")
    record(run, "az", 13.5, steps=[80, 100], combine="average")
    assert "| 1,200 | 13.5 |" in card_of(run, (80, 100), "average")


def test_rounded_weights_are_said_to_be_rounded(run):
    assert "rounded to 8 bits" in card_of(run, to="ctranslate2", quantization="int8")
    assert "rounded" not in card_of(run)


@pytest.mark.parametrize(
    ("names", "target", "title"),
    [
        (["az", "tr"], "en", "az, tr to en"),
        (["az-en", "en-az"], None, "az-en, en-az"),
        ([f"l{number}" for number in range(17)], "en", "17 languages to en"),
        ([f"l{number}-en" for number in range(63)], None, "63 directions"),
    ],
)
def test_the_title_counts_languages_that_would_not_fit(names, target, title):
    assert _title(names, target) == title
