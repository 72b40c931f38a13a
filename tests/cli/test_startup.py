"""What only reads files or settings must not wait for torch, whose import takes seconds."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from rota.config import load_config

RECORDS = Path(__file__).parents[2] / "docs" / "results" / "laptop" / "ted8-small-3k" / "uniform"
SCRIPT = """
import json, sys, time
from rota.cli import main
arguments, heavy, limit = json.loads(sys.argv[1])
sys.argv = ["rota", *arguments]
try:
    main()
except SystemExit as end:
    assert not end.code, end.code
loaded = [name for name in heavy if name in sys.modules]
assert not loaded, loaded
taken = time.process_time()
sum(number * number for number in range(1_000_000))
yardstick = time.process_time() - taken
assert taken < limit * yardstick, (taken, yardstick)
"""
"""The yardstick takes about 0.09 s, and longer on a busy machine, as everything does there."""

LIMIT = 45
"""Yardsticks that a command may take: about 4 s."""

DRAWN = 150
"""A report that draws figures."""

HEAVY = ("torch", "pandas", "scipy", "transformers", "tensorboard", "sacrebleu", "matplotlib.pyplot")
DRAWING = ("matplotlib", "PIL")
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
        ["check", str(RECORDS / "seed-1")],
        ["compare", "laptop", "--dry-run"],
        ["compare", "example", "--dry-run"],
        ["prepare", "small.yaml"],
    ],
    ids=lambda arguments: " ".join(Path(part).name for part in arguments),
)
def test_what_only_reads_files_loads_nothing_heavy(arguments, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    if "prepare" in arguments:
        from rota import api

        Path("small.yaml").write_text(CONFIG)
        api.prepare(load_config("small.yaml"))
    run(arguments, [*HEAVY, *DRAWING], LIMIT)


def run(arguments, heavy, limit):
    given = json.dumps([arguments, heavy, limit])
    return subprocess.run([sys.executable, "-c", SCRIPT, given], check=True, capture_output=True, text=True).stdout


@pytest.mark.parametrize("runs", [RECORDS / "seed-1", RECORDS], ids=lambda path: path.name)
def test_a_report_that_is_up_to_date_draws_nothing(runs, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    arguments = ["report", str(runs), "--out", "report"]
    said = run(arguments, HEAVY, DRAWN)
    assert run(arguments, [*HEAVY, *DRAWING, "rota.report.figures"], LIMIT) == said


def test_the_command_line_itself_needs_neither_arrays_nor_configs():
    code = "import sys, rota.cli; print([name for name in ('numpy', 'pydantic', 'tokenizers') if name in sys.modules])"
    found = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert found.stdout.strip() == "[]"


def test_python_users_get_at_what_they_need_without_torch():
    code = (
        "import sys, rota; rota.load_config, rota.prepare, rota.train, rota.evaluate; assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


TRAIN = """
import sys
from rota import api
from rota.config import parse_config
config = parse_config({
    "data": {
        "corpus": "synthetic", "folder": sys.argv[1] + "/data",
        "synthetic": {"families": {"la": {"lala": 60, "lato": 30}}, "dev": 4, "test": 4}, "subwords": {"size": 300},
    },
    "student": {"preset": "tiny", "width": 8, "heads": 2, "feedforward": 8, "layers": 1, "lr_warmup": 1},
    "teacher": "uniform",
    "training": {"steps": 2, "tokens": 60, "validate_every": 2, "checkpoint_every": 2, "tensorboard": False},
})
api.train(config, sys.argv[1] + "/run")
loaded = [name for name in ("sacrebleu", "lxml", "transformers", "matplotlib") if name in sys.modules]
assert not loaded, loaded
"""


def test_a_run_does_not_load_what_it_does_not_use(tmp_path):
    done = subprocess.run([sys.executable, "-c", TRAIN, str(tmp_path)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
