"""The table of shares and alarms on this page, from records: python tables.py runs/synthetic."""

import gzip
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from statistics import fmean
from typing import Any

ARMS = ("kaka-web", "lala-copy", "sisa", "lala", "kaka", "lato")
TINY = "sisa"
LAST = 5  # validations whose dev losses are averaged


def records(run: Path, name: str) -> Iterator[dict[str, Any]]:
    """The lines of a file of records, gzipped or not; none if the run has no such file."""
    plain, zipped = run / name, run / f"{name}.gz"
    if zipped.exists():
        with gzip.open(zipped, "rt", encoding="utf-8") as lines:
            yield from map(json.loads, lines)
    elif plain.exists():
        yield from map(json.loads, plain.read_text(encoding="utf-8").splitlines())


def cells(run: Path) -> list[str]:
    """The cells of a run's row, without its name."""
    validations = list(records(run, "validations.jsonl"))
    tokens, epochs = validations[-1]["tokens"], validations[-1]["epochs"]
    shares = [f"{100 * tokens[arm] / sum(tokens.values()):.0f}" for arm in ARMS]
    loss = fmean(fmean(each["dev_loss"].values()) for each in validations[-LAST:])
    chrf = [each["score"] for each in records(run, "evals.jsonl") if each["metric"] == "chrf"]
    alarms = (f"`{each['kind']}`{_of(each)} ({each['step']})" for each in records(run, "alarms.jsonl"))
    return [*shares, f"{epochs[TINY]:.0f}", f"{loss:.2f}", f"{fmean(chrf):.1f}" if chrf else "", ", ".join(alarms)]


def _of(alarm: dict[str, Any]) -> str:
    return f" `{alarm['arm']}`" if alarm.get("arm") else ""


def table(folder: Path) -> dict[str, list[str]]:
    """The rows of all runs with seed 1, by the name of the row."""
    return {run.parent.name: cells(run) for run in sorted(folder.glob("*/seed-1"))}


if __name__ == "__main__":
    for name, row in table(Path(sys.argv[1])).items():
        print("| " + " | ".join([f"`{name}`", *row]) + " |")
