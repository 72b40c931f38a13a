"""docs/tutorial.md as its reader meets it: its blocks in order, on small files of generated text."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest
from doc_pages import DOCS, ROOT, blocks

from rota.api import prepare
from rota.config import load_config, parse_config
from rota.experiments.jobs import plan
from rota.experiments.suite import load_suite

TUTORIAL, SECOND_HALF = (DOCS / "tutorial.md").read_text(encoding="utf-8").split("\n# Second half", 1)
INSTALL = "pip install"  # the one block that is not run: the tests run where it has been done

# The whole difference between the page and the test: all numbers that cost time.
SMALLER = {
    "head -n 200": "head -n 20",
    "head -n 400": "head -n 40",
    "tail -n 200": "tail -n 20",
    "tail -n +401": "tail -n +41",
    "size: 4k": "size: 400",
    "preset: tiny": "preset: tiny, width: 32, feedforward: 64, layers: 1",
    "steps: 1500, tokens: 500": "steps: 20, tokens: 100",
    "steps: 200}": "steps: 10}",
}
SENTENCES = {"be": 140, "ru": 300, "cs": 300}
WORDS = ["the", "old", "boat", "goes", "to", "a", "far", "town", "and", "this", "small", "river", "has", "no", "bridge"]


def smaller(block):
    for ours, less in SMALLER.items():
        block = block.replace(ours, less)
    return block


def steps():
    """What the reader types and saves, in order: shell blocks, and YAML blocks with the name in their first line."""
    return [(kind, smaller(content)) for kind, content in blocks(TUTORIAL) if kind in ("sh", "yaml")]


def save(block, folder):
    name = re.match(r"# (\S+\.yaml)\n", block)
    assert name, f"a YAML block of the tutorial must begin with its name: {block}"
    (folder / name[1]).write_text(block, encoding="utf-8")
    return folder / name[1]


def write_text(folder):
    """Aligned files for each language: English words in random order, and the same words backwards with an ending."""
    rng = np.random.default_rng(1)
    for language, count in SENTENCES.items():
        (folder / language).mkdir(parents=True)
        english = [" ".join(rng.choice(WORDS, size=rng.integers(4, 9))) for _ in range(count)]
        source = [" ".join(word[::-1] + language[0] for word in line.split()) for line in english]
        for name, lines in ((language, source), ("en", english)):
            (folder / language / f"{name}.txt").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def write_verses(folder):
    """The same 60 lines in four languages; be has no translation of line 20, ru none of line 21."""
    folder.mkdir()
    rng = np.random.default_rng(2)
    english = [f"{number} {' '.join(rng.choice(WORDS, size=6))}" for number in range(1, 61)]
    missing = {"be": 20, "ru": 21}
    for side in ("en", "be", "ru", "cs"):
        lines = [line if side == "en" else " ".join(word[::-1] + side[0] for word in line.split()) for line in english]
        if side in missing:
            lines[missing[side] - 1] = ""
        (folder / f"{side}.txt").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def type_in(block, folder):
    """Run a block as a shell would that stops at the first failure; gives what it printed."""
    programs = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": programs, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        ["sh", "-e", "-c", block], cwd=folder, env=environment, capture_output=True, encoding="utf-8", check=False
    )
    assert done.returncode == 0, f"{block}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def shown_after(command):
    """The output on the page under the block that begins so."""
    found = list(blocks(TUTORIAL))
    [place] = [place for place, (_, content) in enumerate(found) if content.startswith(command)]
    return found[place + 1][1]


def without_numbers(text):
    """Nor the lines about progress that a slow machine prints."""
    return re.sub(r"[+−]?\d+(\.\d+)?", "#", re.sub(r"^.* so far\n", "", text, flags=re.MULTILINE))


def test_the_numbers_that_this_test_makes_smaller_are_those_of_the_page():
    typed = "".join(content for kind, content in blocks(TUTORIAL) if kind in ("sh", "yaml"))
    assert [ours for ours in SMALLER if ours not in typed] == []


def test_the_configs_and_the_suite_of_the_tutorial_are_right(tmp_path):
    config, suite = (save(block, tmp_path) for kind, block in steps() if kind == "yaml")
    assert load_config(config).data.languages == ("be", "ru", "cs")
    jobs = plan(load_suite(suite), tmp_path / "runs", rows=["uniform", "proportional", "temperature-5"], seeds=[1, 2])
    assert len(jobs) == 6
    assert {job.config.training.steps for job in jobs} == {10}
    assert {job.config.evaluation.beam for job in jobs} == {1}


def test_what_the_tutorial_installs_exists():
    [block] = [content for _, content in steps() if INSTALL in content]
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    [named] = re.findall(r"'\.\[(.*?)\]'", block)
    assert set(named.split(",")) <= set(extras)
    assert (ROOT / re.findall(r"-c (\S+)", block)[0]).is_file()


def test_translations_of_the_same_lines_are_held_out_together(tmp_path):
    write_verses(tmp_path / "verses")
    [block] = [content for kind, content in steps() if kind == "sh" and "verses/" in content]
    type_in(block, tmp_path)
    english = (tmp_path / "verses" / "dev.en.txt").read_text(encoding="utf-8").splitlines()
    assert [int(line.split()[0]) for line in english] == [10, 20, 30, 40, 50, 60]
    patterns = {split: str(tmp_path / f"verses/{split}.{{side}}.txt") for split in ("train", "dev", "test")}
    assert "`train: verses/train.{side}.txt`" in TUTORIAL
    data = {"languages": ["be", "ru", "cs"], **patterns, "subwords": {"size": 300}, "folder": str(tmp_path / "data")}
    store = prepare(parse_config({"data": data}))
    assert store.sizes == {"be": 48, "ru": 47, "cs": 48}, "nothing but the empty lines is dropped"


@pytest.mark.slow
def test_every_block_of_the_tutorial_works_after_those_before_it(tmp_path):
    pytest.importorskip("ctranslate2")
    write_text(tmp_path / "text")
    write_verses(tmp_path / "verses")
    printed = {}
    for kind, block in steps():
        if kind == "yaml":
            save(block, tmp_path)
        elif INSTALL not in block:
            printed[block] = type_in(block, tmp_path)
    assert len((tmp_path / "out.txt").read_text(encoding="utf-8").splitlines()) == 5
    assert (tmp_path / "runs" / "my" / "selection.json").is_file()
    assert len(list((tmp_path / "runs" / "schedules").glob("*/seed-*/evals.jsonl"))) == 6
    assert (tmp_path / "report" / "index.html").is_file()
    [said] = [output for block, output in printed.items() if block.startswith("rota report")]
    # The page leaves the test loss out, and says so.
    assert without_numbers(said).replace("test loss # [#, #]; ", "") == without_numbers(shown_after("rota report"))
    assert said.count("2 seeds, too few for a verdict.") == 2
    assert (tmp_path / "models" / "my" / "README.md").is_file()
    assert "is trained: 20 steps" in printed["rota train my.yaml\n"], "the second time there is nothing to do"
    assert len(printed[list(printed)[-1]].splitlines()) == 6, "the folder, and five translations"
