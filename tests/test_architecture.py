"""The picture of docs/design.md as a table: imports point down, siblings do not know each other."""

import ast
from pathlib import Path

import pytest

import rota

ROOT = Path(rota.__file__).parent

LEAVES = {"types", "measures", "settings", "files", "runs", "statistics", "team"}
PARTS = {"data", "student", "teachers"}
COMPOSERS = {"training", "evaluation", "export"}
ALL_BELOW_CONFIG = LEAVES | PARTS | COMPOSERS

MAY_IMPORT: dict[str, set[str]] = {
    "measures": set(),
    "types": {"measures"},
    "settings": set(),
    "files": set(),
    "runs": {"types", "settings", "files"},
    "statistics": {"types"},
    "team": {"types"},
    "data": LEAVES,
    "student": LEAVES,
    "teachers": LEAVES,
    "training": LEAVES | PARTS,
    "evaluation": LEAVES | PARTS,  # the teachers for the probe of a saved Q network alone
    "export": LEAVES | {"data", "student", "evaluation"},
    "simulation": LEAVES | {"teachers", "training"},
    "testing": LEAVES | {"teachers", "training"},
    "report": {"types", "settings", "files", "runs", "statistics"},  # files only: it never loads a model
    "config": ALL_BELOW_CONFIG,
    "mistakes": ALL_BELOW_CONFIG | {"config"},
    "api": ALL_BELOW_CONFIG | {"config", "mistakes"},
    "experiments": ALL_BELOW_CONFIG | {"config", "mistakes", "api"},
    "cli": ALL_BELOW_CONFIG | {"config", "api", "report", "experiments", "export", "simulation"},
    "__init__": ALL_BELOW_CONFIG | {"config", "api"},
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


def test_types_know_no_torch():
    assert "torch" not in (ROOT / "types.py").read_text(encoding="utf-8").replace("No torch", "")


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_files_stay_short(path):
    assert len(path.read_text(encoding="utf-8").splitlines()) <= 450, "split the file: it is more than one thing"


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_the_design_page_says_what_lives_in_each_file(path):
    design = (ROOT.parents[1] / "docs" / "design.md").read_text(encoding="utf-8")
    assert path.name in design or path.name in ("__init__.py", "__main__.py"), (
        f"docs/design.md does not name {path.name}"
    )
