"""The scripts of docs/ that use exported models run as they stand, and import what they say."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent / "export"))

from export_cases import SENTENCES, make_run

from rota.evaluation.translator import Translator
from rota.export.model import export

DOCS = Path(__file__).parents[1] / "docs"


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return make_run(tmp_path_factory.mktemp("docs") / "run")


@pytest.mark.parametrize(
    ("script", "to", "imports"),
    [
        ("use_transformers.py", "hf", {"sys", "transformers"}),
        ("use_ctranslate2.py", "ctranslate2", {"sys", "ctranslate2", "tokenizers"}),
    ],
)
def test_a_script_translates_as_rota_does_without_importing_it(run, tmp_path, script, to, imports):
    tree = ast.parse((DOCS / script).read_text(encoding="utf-8"))
    found = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    found |= {str(node.module) for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert found == imports
    model = export(run, tmp_path / "model", to=to)
    done = subprocess.run(
        [sys.executable, str(DOCS / script), str(model), "no"],
        input="".join(f"{line}\n" for line in SENTENCES),
        capture_output=True,
        encoding="utf-8",
        env={**os.environ, "HF_HUB_OFFLINE": "1"},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split("\n")[:-1] == Translator.load(run).translate(SENTENCES, "no")


def test_the_model_card_shows_the_way_that_the_scripts_go():
    """Line by line, where they name the same things."""
    from rota.export.model_card import USE

    for script, to in (("use_transformers.py", "hf"), ("use_ctranslate2.py", "ctranslate2")):
        text = (DOCS / script).read_text(encoding="utf-8")
        for words in {"hf": ("max_new_tokens=2 *", "+ 11"), "ctranslate2": ("return_end_token=True", "+ 11")}[to]:
            assert words in text
            assert words in USE[to]
