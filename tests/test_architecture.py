"""The picture of docs/design.md as a table: imports point down, siblings do not know each other."""

import ast
from pathlib import Path

import pytest

import rota

ROOT = Path(rota.__file__).parent

LEAVES = {"types", "measures", "settings", "files", "statistics", "team", "plan", "goal"}
PARTS = {"data", "student", "teachers"}
COMPOSERS = {"training", "evaluation"}
BELOW_CONFIG = LEAVES | {"runs"} | PARTS | COMPOSERS

MAY_IMPORT: dict[str, set[str]] = {
    "types": {"measures"},
    "measures": set(),
    "settings": set(),
    "files": set(),
    "statistics": {"types"},
    "goal": {"types"},
    "team": {"types"},
    "plan": {"settings", "files"},
    "runs": LEAVES,
    "data": LEAVES,
    "student": LEAVES,
    "teachers": LEAVES | {"runs"},  # some repeat the records of another run
    "training": LEAVES | {"runs"} | PARTS,
    "evaluation": LEAVES | {"runs", "data", "student"},
    "export": LEAVES | {"runs", "data", "student", "evaluation"},
    "simulation": LEAVES | {"teachers", "training", "config", "api"},
    "testing": LEAVES | {"runs", "teachers", "training", "simulation"},
    "hf": LEAVES | {"runs", "student", "teachers", "training"},
    # Files only: it never loads a model.
    "report": {"types", "settings", "files", "runs", "statistics", "plan", "goal"},
    "config": BELOW_CONFIG,
    "start": LEAVES | {"runs", "data", "student", "evaluation", "config"},
    "api": BELOW_CONFIG | {"config", "start"},
    "experiments": BELOW_CONFIG | {"config", "start", "api"},
    "cli": BELOW_CONFIG | {"config", "api", "report", "experiments", "simulation", "export"},
    "__init__": BELOW_CONFIG | {"config", "api"},
    "__main__": {"cli"},
}


def part_of(path: Path) -> str:
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


def imported_parts(path: Path) -> set[str]:
    """The parts of Rota that a file imports, at its top or inside a function."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} has a relative import; write it in full"
            module = node.module or ""
            names = [f"rota.{alias.name}" for alias in node.names] if module == "rota" else [module]
        else:
            continue
        found |= {name.split(".")[1] for name in names if name.startswith("rota.")}
    return found


FILES = sorted(ROOT.rglob("*.py"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_point_down(path):
    part = part_of(path)
    assert part in MAY_IMPORT, f"{part} is not in the picture; add it to docs/design.md and to this table"
    upwards = imported_parts(path) - MAY_IMPORT[part] - {part}
    assert not upwards, f"{path.name} imports {sorted(upwards)}, which the picture does not allow"


@pytest.mark.parametrize("name", ["types", "measures", "settings", "files", "statistics", "plan", "goal"])
def test_the_leaves_know_no_torch(name):
    assert "import torch" not in (ROOT / f"{name}.py").read_text(encoding="utf-8")


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_files_have_a_natural_size(path):
    lines = len(path.read_text(encoding="utf-8").splitlines())
    assert lines <= 450, "split the file: it is more than one thing"
    assert lines >= 40 or path.name in ("__init__.py", "__main__.py"), "put it where it is used: it is a fragment"


FOLDERS = sorted({path.parent for path in FILES})


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda path: str(path.relative_to(ROOT)))
def test_folders_are_not_crowded_and_say_what_flows_through_them(folder):
    modules = [path for path in folder.glob("*.py") if path.name not in ("__init__.py", "__main__.py")]
    assert len(modules) <= 12, "a newcomer does not know where to look: make a folder"
    about = ast.get_docstring(ast.parse((folder / "__init__.py").read_text(encoding="utf-8"))) or ""
    assert len(about.splitlines()) >= 3, f"{folder.name}/__init__.py does not say how data flow through this folder"


@pytest.mark.parametrize("folder", FOLDERS[1:], ids=lambda path: str(path.relative_to(ROOT)))
def test_the_design_page_shows_every_folder(folder):
    design = (ROOT.parents[1] / "docs" / "design.md").read_text(encoding="utf-8")
    assert f"`{folder.relative_to(ROOT).as_posix()}/`" in design
