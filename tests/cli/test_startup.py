"""What only reads files or settings must not wait for torch, whose import takes seconds."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from rota.config import load_config

RECORDS = Path(__file__).parents[2] / "docs" / "results" / "laptop" / "ted8-small-3k" / "uniform"
SCRIPT = """
import json, sys
from rota.cli import main
sys.argv = ["rota", *json.loads(sys.argv[1])]
try:
    main()
except SystemExit as end:
    assert not end.code, end.code
assert "torch" not in sys.modules
"""
CONFIG = """
data:
  corpus: synthetic
  synthetic: {families: {la: {lala: 200, lato: 60}}, dev: 8, test: 4}
  subwords: {size: 300}
"""


@pytest.mark.parametrize(
    "arguments",
    [
        ["--help"],
        ["teachers"],
        ["teachers", "dqn"],
        ["compare", "laptop", "--dry-run"],
        ["prepare", "small.yaml"],
        ["report", str(RECORDS), "--out", "report"],
    ],
    ids=" ".join,
)
def test_no_torch(arguments, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    if "prepare" in arguments:
        from rota import api

        Path("small.yaml").write_text(CONFIG)
        api.prepare(load_config("small.yaml"))
    subprocess.run([sys.executable, "-c", SCRIPT, json.dumps(arguments)], check=True, stdout=subprocess.DEVNULL)


def test_python_users_get_at_what_they_need_without_torch():
    code = (
        "import sys, rota; rota.load_config, rota.prepare, rota.train, rota.evaluate; assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
