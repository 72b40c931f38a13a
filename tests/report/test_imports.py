"""What the report imports: files of runs and nothing of training, and its own folders from the bottom up."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest
from made_runs import make_run

import rota.report

ROOT = Path(rota.report.__file__).parent
FILES = sorted(path for path in ROOT.rglob("*.py") if path.parent != ROOT or path.name != "__init__.py")

HEAVY = ("torch", "tokenizers", "safetensors", "sacrebleu", "transformers")
TRAINING = ("rota.api", "rota.config", "rota.data", "rota.evaluation", "rota.student", "rota.teachers", "rota.training")

LAYERS = (
    "folders history",
    "made",
    "study",
    "numbers",
    "sentences",
    "ending advice recommend",
    "tables",
    "figures",
    "page",
    "single",
    "assemble",
    "several",
)
"""From the bottom up; a module imports its own folder and what lies below it."""


def run_python(code, *arguments):
    return subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)], capture_output=True, text=True, check=False
    )


def module_name(path):
    parts = path.relative_to(ROOT.parent).with_suffix("").parts
    return ".".join(("rota", *(part for part in parts if part != "__init__")))


def test_the_report_loads_neither_torch_nor_the_training_side():
    modules = ", ".join(map(module_name, FILES))
    made = run_python(f"import sys, {modules}; print(*sys.modules)")
    assert made.returncode == 0, made.stderr
    loaded = set(made.stdout.split())
    assert not loaded & {*HEAVY, *TRAINING}


def test_the_package_itself_imports_nothing():
    made = run_python(
        "import sys, rota; before = set(sys.modules); import rota.report; print(*(set(sys.modules) - before))"
    )
    assert made.stdout.split() == ["rota.report"], made.stderr


def test_the_command_works_where_torch_cannot_be_imported(tmp_path):
    run = make_run(tmp_path / "alone")
    code = "import runpy, sys; sys.modules['torch'] = None; runpy.run_module('rota', run_name='__main__')"
    made = run_python(code, "report", run, "--out", tmp_path / "report")
    assert made.returncode == 0, made.stderr
    assert (tmp_path / "report" / "index.html").exists()


def part_of(name):
    return name.split(".")[2]


def layer_of(part):
    return next(number for number, layer in enumerate(LAYERS) if part in layer.split())


@pytest.mark.parametrize("path", FILES, ids=module_name)
def test_imports_inside_the_report_point_down(path):
    part = part_of(module_name(path))
    tree = ast.parse(path.read_text(encoding="utf-8"))
    imported = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module}
    others = {part_of(name) for name in imported if name.startswith("rota.report.")} - {part}
    assert [other for other in others if layer_of(other) >= layer_of(part)] == []
