"""The page of good arms and bad ones, against the records of its synthetic runs."""

import gzip
import importlib.util
import json
from collections import Counter
from pathlib import Path

ARMS = Path(__file__).parents[2] / "docs" / "results" / "arms"
RUNS = ARMS / "runs" / "synthetic"


def tables():
    spec = importlib.util.spec_from_file_location("arms_tables", ARMS / "tables.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def rows_of_the_page():
    section = (ARMS / "README.md").read_text(encoding="utf-8").split("## Synthetic\n", 1)[1].split("\n## ", 1)[0]
    lines = [line for line in section.splitlines() if line.startswith("| `")]
    cells = ([cell.strip() for cell in line[1:-1].split("|")] for line in lines)
    return {name.strip("`"): row for name, *row in cells}


def test_the_table_is_made_from_the_records():
    made, written = tables().table(RUNS), rows_of_the_page()
    assert len(written) == 26
    assert written == made


def test_shares_are_those_of_the_updates():
    seen = Counter()
    with gzip.open(RUNS / "align" / "seed-1" / "steps.jsonl.gz", "rt", encoding="utf-8") as lines:
        for line in map(json.loads, lines):
            seen[line["arm"]] += line["tokens"]
    total = sum(seen.values())
    shares = [f"{100 * seen[arm] / total:.0f}" for arm in ("kaka-web", "lala-copy", "sisa", "lala", "kaka", "lato")]
    assert rows_of_the_page()["align"][:6] == shares


def test_the_alarms_that_the_page_counts():
    alarms = [row[-1] for row in rows_of_the_page().values()]
    assert sum("`unaligned` `kaka-web`" in cell for cell in alarms) == 22
    assert sum("`by-heart` `sisa`" in cell for cell in alarms) == 16
    assert not any(
        f"`{kind}` `{arm}`" in cell
        for cell in alarms
        for kind in ("unaligned", "by-heart")
        for arm in ("lala", "kaka", "lato")
    )
