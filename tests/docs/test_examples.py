"""Every example of the documentation: which test runs it, and those that no other test runs.

A block of Python is executed, a config is read with all its settings; blocks of the shell are checked word by word in
test_commands.py, and executed where a page is run from its beginning to its end (the tutorial).
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from doc_pages import DOCS, PAGES, ROOT, blocks
from ruamel.yaml import YAML

import rota
from rota.config import parse_config
from rota.experiments.suite import Suite

HERE = {"README.md", "docs/api.md", "docs/evaluation.md"}
ELSEWHERE = {
    "docs/hf.md": "tests/hf/test_hf_docs.py",
    "docs/gym.md": "tests/docs/test_gym.py",
    "docs/own_teacher.md": "tests/test_own_teacher.py",
}
SKETCHES = {"docs/design.md", "docs/teachers.md"}
"""Where the lines of Python show an order of calls, with names that stand for anything."""


def name_of(path):
    return path.relative_to(ROOT).as_posix()


def python_blocks(page):
    return [content for kind, content in blocks((ROOT / page).read_text(encoding="utf-8")) if kind == "python"]


def test_every_page_with_python_has_a_test_that_runs_it():
    with_python = {name_of(path) for path in PAGES if python_blocks(name_of(path))}
    assert with_python == HERE | set(ELSEWHERE) | SKETCHES
    for page, test in ELSEWHERE.items():
        text = (ROOT / test).read_text(encoding="utf-8")
        assert Path(page).name in text or Path(page).stem in text, f"{test} does not read {page}"


def test_every_script_and_notebook_beside_the_pages_is_run_by_a_test():
    tests = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("*.py"))
    scripts = [*DOCS.glob("*.py"), *DOCS.rglob("*.ipynb")]
    assert len(scripts) > 5
    lacking = [path.name for path in scripts if path.stem not in tests]
    assert not lacking, f"no test names {lacking}"


CONFIG = """
data:
  languages: [az, tr]
  train: text/train.{language}.tsv
  dev: text/dev.{language}.tsv
  test: text/test.{language}.tsv
  subwords: {size: 300}
student: {preset: tiny, width: 16, heads: 2, feedforward: 16, layers: 1, lr_warmup: 2}
training: {steps: 4, tokens: 60, threads: 1, tensorboard: false, spot_checks: 0}
evaluation: {beam: 1}
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Text of two languages, a config, and a run that was scored under the names that the page on scores has."""
    folder = tmp_path_factory.mktemp("examples")
    (folder / "my.yaml").write_text(CONFIG)
    (folder / "text").mkdir()
    rng, words = np.random.default_rng(1), ["the", "old", "boat", "goes", "far", "this", "river", "has", "no", "bridge"]
    for split, count in {"train": 120, "dev": 12, "test": 6}.items():
        for language in ("az", "tr"):
            lines = [" ".join(rng.choice(words, size=6)) for _ in range(count)]
            text = "".join(f"{line[::-1]}\t{line}\n" for line in lines)
            (folder / "text" / f"{split}.{language}.tsv").write_text(text)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        rota.train(rota.load_config("my.yaml"), run="runs/uniform")
        rota.evaluate("runs/uniform")
        shutil.copytree("runs/uniform", "runs/dqn")
    return folder


def run_block(code, folder, monkeypatch, capsys, **smaller):
    """Executes a block in the folder; ``smaller``: texts in it that are replaced. Returns its names and its output."""
    monkeypatch.chdir(folder)
    for text, instead in smaller.items():
        assert text in code
        code = code.replace(text, instead)
    names: dict[str, object] = {}
    exec(code, names)
    return names, capsys.readouterr().out


def test_the_readme_trains_and_translates(folder, monkeypatch, capsys):
    first, second = python_blocks("README.md")
    names, printed = run_block(first, folder, monkeypatch, capsys)
    assert printed == f"{names['translator'].translate(['Sabahınız xeyir.'], language='az')}\n"
    names, _ = run_block(second, folder, monkeypatch, capsys)
    assert names["language"] in ("az", "tr")


def test_the_page_on_python_trains_scores_and_translates(folder, monkeypatch, capsys):
    [code] = python_blocks("docs/api.md")
    shutil.rmtree(folder / "runs" / "my", ignore_errors=True)
    _, printed = run_block(code, folder, monkeypatch, capsys, **{"=10k": "=6"})
    assert printed.startswith("[")
    assert rota.runs.Run(folder / "runs" / "my").steps == 6


def test_the_page_on_scores_compares_two_runs(folder, monkeypatch, capsys):
    [code] = python_blocks("docs/evaluation.md")
    _, printed = run_block(code, folder, monkeypatch, capsys)
    assert "'macro': (0.0, " in printed, "a run does not differ from its copy"
    # Differences of 0.5, 0.4 and 0.2: their mean.
    assert "mean=0.3666" in printed


NOT_OURS = {"docs/commands/schedule.md"}
"""A config of OpenNMT-py."""

SUITE = {
    "name": "shown",
    "base": {},
    "rows": {name: {"teacher": "uniform"} for name in ("uniform", "dqn", "temperature-2")},
    "corpora": {"noisy": {"data": {"corpus": "catalogues"}}},
}
"""What a part of a suite, such as its plan, leaves to the rest of it."""

PATTERNS = {f"{split}: ...": f"{split}: 'text/{split}.{{language}}.tsv'" for split in ("train", "dev", "test")}


def alternatives(text):
    """A page may show several values of one key, one below the other; a config has one of them."""
    lines = [line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    keys = [re.match(r"\s*[\w-]+:", line) for line in lines]
    names = [key[0] if key else f"line {number}" for number, key in enumerate(keys)]
    repeated = [number for number, name in enumerate(names) if names.count(name) > 1 and not name.startswith("    ")]
    same = [number for number in repeated if names[number] == names[repeated[0]]]
    if not same:
        return [text]
    others = [set(same) - {kept} for kept in same]
    return ["\n".join(line for number, line in enumerate(lines) if number not in left) for left in others]


def yaml_blocks():
    for path in PAGES:
        for number, (kind, content) in enumerate(blocks(path.read_text(encoding="utf-8"))):
            if kind == "yaml" and name_of(path) not in NOT_OURS:
                for choice, text in enumerate(alternatives(content)):
                    yield pytest.param(name_of(path), text, id=f"{name_of(path)}-{number}-{choice}")


@pytest.mark.parametrize(("page", "text"), list(yaml_blocks()))
def test_every_config_of_the_documentation_can_be_read(page, text, monkeypatch):
    for written, instead in PATTERNS.items():
        text = text.replace(written, instead)
    values = YAML(typ="safe", pure=True).load(text)
    if page == "docs/own_teacher.md":
        monkeypatch.syspath_prepend(DOCS)
    if {"rows", "corpora", "plan"} & set(values):
        base = {"base": {}} if isinstance(values.get("base"), str) else {}  # the tutorial's test reads that file
        suite = Suite.model_validate({**({"name": "shown"} if "rows" in values else SUITE), **values, **base})
        assert suite.rows
    else:
        parse_config(completed(values))


def completed(values):
    """With the settings that a part of a config leaves to the rest of it."""
    data = dict(values.get("data") or {})
    if not {"corpus", "train"} & set(data):
        data["train"] = "text/train.{language}.tsv"
        data.setdefault("languages", ["gl", "be", "pt", "fr"])
    if "corpus" not in data:
        data = {"dev": "text/dev.{language}.tsv", "test": "text/test.{language}.tsv", **data}
    return {**values, "data": data}
