"""docs/notebooks: small, without errors, and executed from beginning to end."""

from __future__ import annotations

import ast
import json
import re

import pytest
from doc_pages import DOCS

NOTEBOOKS = sorted((DOCS / "notebooks").glob("*.ipynb"))


def cells(path, kind):
    found = json.loads(path.read_text(encoding="utf-8"))["cells"]
    return ["".join(cell["source"]) for cell in found if cell["cell_type"] == kind]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_small_and_its_links_lead_somewhere(path):
    assert path.stat().st_size < 60_000, "make its pictures smaller, or strip them"
    for source in cells(path, "code"):
        ast.parse(source)
    for target in re.findall(r"\]\(([^)#\s]+)", "\n".join(cells(path, "markdown"))):
        assert (path.parent / target).is_file(), target
    assert '"output_type": "error"' not in path.read_text(encoding="utf-8")


def test_there_is_a_notebook():
    assert [path.name for path in NOTEBOOKS] == ["teacher_in_your_loop.ipynb"]


@pytest.mark.slow
def test_the_teacher_in_your_loop_shifts_the_shares(tmp_path):
    """The notebook, then a cell of ours that looks at what the runs did."""
    nbclient = pytest.importorskip("nbclient")
    nbformat = pytest.importorskip("nbformat")
    pytest.importorskip("ipykernel")
    notebook = nbformat.read(NOTEBOOKS[0], 4)
    look = """import json
print("LOOK", json.dumps({name: played for name, (played, _) in runs.items()}))"""
    notebook.cells.append(nbformat.v4.new_code_cell(look))
    client = nbclient.NotebookClient(notebook, timeout=600, resources={"metadata": {"path": str(tmp_path)}})
    client.execute()
    printed = "".join(output.get("text", "") for output in notebook.cells[-1].outputs)
    played = json.loads(printed.removeprefix("LOOK "))
    assert {name: len(updates) for name, updates in played.items()} == {"uniform": 1_200, "tscl": 1_200}
    # A third of 1,200 draws is 400 with a standard deviation of 16.
    assert all(abs(played["uniform"].count(kind) - 400) < 5 * 16 for kind in ("lines", "rings", "noise"))
    assert played["tscl"].count("noise") < 400 - 5 * 16
    shares = [played["tscl"][start : start + 100].count("rings") / 100 for start in range(0, 1_200, 100)]
    assert max(shares) - min(shares) > 0.5
    [picture] = [
        output for cell in notebook.cells for output in cell.get("outputs", []) if "image/png" in output.get("data", {})
    ]
    assert picture.output_type == "display_data"
