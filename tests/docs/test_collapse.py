"""The collapse of docs/alarms.md and the learned row of docs/suites.md, trained to the end: minutes each."""

import re
from pathlib import Path

import pytest
from doc_pages import DOCS
from ruamel.yaml import YAML

from rota import api
from rota.config import parse_config
from rota.experiments.suite import Suite
from rota.report.history import read_history
from rota.runs import Run


def blocks(page):
    found = re.findall(r"```yaml\n(.*?)```", (DOCS / page).read_text(encoding="utf-8"), re.DOTALL)
    return [YAML(typ="safe", pure=True).load(text) for text in found]


def collapse_config(folder, teacher=None, **training):
    [values] = [found for found in blocks("alarms.md") if "student" in found]
    values["data"]["folder"] = str(folder / "data")
    values["training"] = {**values["training"], "tensorboard": False, **training}
    return parse_config(values if teacher is None else {**values, "teacher": teacher})


def suite_config(folder, row):
    [values] = [found for found in blocks("suites.md") if "rows" in found]
    written = Suite.model_validate({"name": "doc", **values}).values(row, 1, folder)
    written["data"]["folder"] = str(folder / "data")
    return parse_config(written)


COLLAPSE = {"one-arm", "no-updates"}
"""The alarms of a collapse; which of them comes first depends on whether two languages take turns for a while."""


def trained(config, folder):
    """The mean dev loss at the end, the smallest share of a language, and the steps of alarms by kind, first ones."""
    api.train(config, folder)
    run = Run(folder)
    history = read_history(run.read("steps"), list(run.sizes), run.steps)
    shares = [history.tokens[arm] / sum(history.tokens.values()) for arm in run.sizes]
    first = {entry["kind"]: entry["step"] for entry in reversed(list(run.read("alarms")))}
    return run.last_dev_loss(), min(shares), first


def test_the_examples_are_there_and_can_be_read():
    assert collapse_config(Path("x")).teacher.variant == "paper"
    assert suite_config(Path("x"), "dqn").teacher.variant == "scaled"


@pytest.fixture(scope="module")
def uniform(tmp_path_factory):
    """The dev loss that the same run has in the end with uniform shares."""
    folder = tmp_path_factory.mktemp("uniform")
    return trained(collapse_config(folder, "uniform"), folder / "run")[0]


def learned_examples():
    """Every teacher that learns, as the pages write it in a config; but for the one that is meant to collapse."""
    found = {}
    for page in sorted(DOCS.rglob("*.md")):
        if "results" in page.parts:
            continue
        for line in re.findall(r"^teacher: [^#\n]+", page.read_text(encoding="utf-8"), re.MULTILINE):
            teacher = YAML(typ="safe", pure=True).load(line)["teacher"]
            name = teacher if isinstance(teacher, str) else teacher.get("name")
            if name in ("tscl", "dqn", "align", "odm", "exp3", "exp3-s") and "variant: paper" not in line:
                found[line.removeprefix("teacher: ").strip()] = teacher
    return found


def test_examples_of_learned_teachers_are_found():
    assert {"align", "{name: tscl, curriculum: norm}", "{name: align, map: true}"} <= learned_examples().keys()


@pytest.mark.slow
@pytest.mark.parametrize("example", learned_examples())
def test_an_example_ends_near_uniform_and_starves_no_language(tmp_path, uniform, example):
    loss, share, alarms = trained(collapse_config(tmp_path, learned_examples()[example]), tmp_path / "run")
    assert loss < uniform + 0.4
    assert share > 400 / 16_800, "the smallest language has at least its share of the corpus: align gives it 4.8 %"
    assert not COLLAPSE & alarms.keys()


@pytest.mark.slow
def test_a_collapse_is_noticed_prevented_by_the_defaults_and_caught_by_the_guard(tmp_path, uniform):
    bad, _, alarms = trained(collapse_config(tmp_path), tmp_path / "collapse")
    assert bad > uniform + 0.8
    assert min(alarms[kind] for kind in COLLAPSE & alarms.keys()) <= 1_300, "there is time to do something about it"
    caught, _, alarms = trained(collapse_config(tmp_path, guard=True), tmp_path / "guarded")
    assert caught < bad - 0.3
    assert "guard" in alarms
    for name in ("dqn", "tscl"):
        loss, share, alarms = trained(collapse_config(tmp_path, name), tmp_path / name)
        assert loss < uniform + 0.4
        assert share > 0.05
        assert not COLLAPSE & alarms.keys()


@pytest.mark.slow
def test_the_learned_row_of_the_suites_page_ends_near_uniform(tmp_path):
    uniform, _, _ = trained(suite_config(tmp_path, "uniform"), tmp_path / "uniform")
    loss, share, _ = trained(suite_config(tmp_path, "dqn"), tmp_path / "dqn")
    assert loss < uniform + 0.4
    assert share > 0.05
