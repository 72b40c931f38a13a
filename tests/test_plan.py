"""The plan of a comparison: what may be written, what is filled in, and its fingerprint."""

import json

import pytest
from pydantic import ValidationError

from rota.plan import PLAN, Plan, find_plan, read_plan, write_plan
from rota.settings import ConfigError

ROWS = ("uniform", "align", "temperature-2", "temperature-5")


def plan(**changes):
    values = {"contrasts": {"a": {"row": "align", "minus": "uniform"}}, "endpoint": "dev-loss"}
    return Plan.model_validate(values | changes)


def resolved(**changes):
    return plan(**changes).resolved(ROWS, ("ted", "debian"), (1, 2, 3))


def test_patterns_seeds_corpora_and_endpoints_are_filled_in_before_it_is_hashed():
    contrasts = {"a": {"row": "align", "minus_best_of": ["temperature-*", "uniform"]}}
    found = resolved(contrasts=contrasts)
    assert found.contrasts["a"].minus_best_of == ("temperature-2", "temperature-5", "uniform")
    assert found.contrasts["a"].corpora == ("ted", "debian")
    assert found.contrasts["a"].endpoint == ("dev-loss",)
    assert found.seeds == (1, 2, 3)
    written = {"a": {"row": "align", "minus_best_of": ["temperature-2", "temperature-5", "uniform"]}}
    assert resolved(contrasts=written, seeds=3).fingerprint == found.fingerprint
    assert resolved(contrasts=written, seeds=4).fingerprint != found.fingerprint
    assert resolved(contrasts=written, seeds=3, costs={"align": 1.1}).fingerprint != found.fingerprint
    assert "costs" not in found.dumped(), "fingerprints of plans that were made before there were costs must stay"


def test_the_family_has_a_test_for_each_corpus_and_endpoint_or_one_for_all_corpora_together():
    contrasts = {
        "each": {"row": "align", "minus": "uniform"},
        "one": {"row": "align", "minus": "uniform", "corpora": "ted", "at": "time"},
        "mean": {"row": "align", "minus": "uniform", "together": True, "endpoint": "bleu"},
    }
    found = resolved(contrasts=contrasts, endpoint=["dev-loss", "bleu"]).tests()
    assert [(test.name, test.corpora, test.endpoint) for test in found] == [
        ("each", ("ted",), "dev-loss"),
        ("each", ("ted",), "bleu"),
        ("each", ("debian",), "dev-loss"),
        ("each", ("debian",), "bleu"),
        ("one", ("ted",), "dev-loss"),
        ("one", ("ted",), "bleu"),
        ("mean", ("ted", "debian"), "bleu"),
    ]
    alone = plan().resolved(ROWS, (), (1,)).tests()
    assert [test.corpora for test in alone] == [()]


@pytest.mark.parametrize(
    ("contrast", "message"),
    [
        ({"row": "moon", "minus": "uniform"}, "contrasts.a names the row 'moon'; the suite has uniform, align"),
        ({"row": "align", "minus": "moon"}, "names the row 'moon'"),
        ({"row": "align", "minus_best_of": "moon-*"}, r"names the row 'moon-\*'"),
        ({"row": "align", "minus": "align"}, "compares the row 'align' with itself"),
        ({"row": "uniform", "minus_best_of": ["*"]}, "compares the row 'uniform' with itself"),
        ({"row": "align", "minus": "uniform", "corpora": ["moon"]}, "names the corpus 'moon'; the suite has ted, deb"),
    ],
)
def test_what_the_suite_does_not_have_is_a_mistake(contrast, message):
    with pytest.raises(ValueError, match=message):
        resolved(contrasts={"a": contrast})


@pytest.mark.parametrize("contrast", [{"row": "align"}, {"row": "a", "minus": "b", "minus_best_of": ["c"]}])
def test_a_contrast_has_one_reference_or_several(contrast):
    with pytest.raises(ValidationError, match="write either minus, one row, or minus_best_of, a list of rows"):
        plan(contrasts={"a": contrast})
    with pytest.raises(ValidationError, match="there is none"):
        plan(contrasts={})


def test_the_interest_is_one_for_all_endpoints_or_one_for_each():
    assert plan(interest=0.03).interest_in("bleu") == 0.03
    assert plan(interest={"dev-loss": 0.03}).interest_in("dev-loss") == 0.03
    assert plan(interest={"dev-loss": 0.03}).interest_in("bleu") is None
    assert plan().interest_in("bleu") is None


def test_the_file_keeps_the_plans_that_came_before(tmp_path):
    one, two = resolved(), resolved(seeds=9)
    assert find_plan(tmp_path) is None
    write_plan(one, tmp_path)
    before = (tmp_path / PLAN).read_bytes()
    write_plan(one, tmp_path)
    assert (tmp_path / PLAN).read_bytes() == before
    write_plan(two, tmp_path)
    found = read_plan(tmp_path / PLAN)
    assert (found.plan, found.fingerprint, found.earlier) == (two, two.fingerprint, (one.fingerprint,))


def test_a_plan_that_was_edited_by_hand_is_noticed(tmp_path):
    write_plan(resolved(), tmp_path)
    content = json.loads((tmp_path / PLAN).read_text())
    content["plan"]["seeds"] = [1]
    (tmp_path / PLAN).write_text(json.dumps(content))
    with pytest.raises(ValueError, match=r"plan.json is damaged \(its check value is not that of its content"):
        read_plan(tmp_path / PLAN)
    del content["check"]  # as earlier versions wrote it
    (tmp_path / PLAN).write_text(json.dumps(content))
    with pytest.raises(ValueError, match=r"plan.json is damaged \(its fingerprint is not "):
        read_plan(tmp_path / PLAN)
    content["plan"]["moon"] = 1
    (tmp_path / PLAN).write_text(json.dumps(content))
    with pytest.raises(ValueError, match=r"plan.json is damaged \(unknown key 'plan.moon'"):
        read_plan(tmp_path / PLAN)
    with pytest.raises(ConfigError, match=r"no plan '.*none.json'; rota compare writes one"):
        read_plan(tmp_path / "none.json")
