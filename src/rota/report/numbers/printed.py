"""The numbers that the paper prints, which a report shows beside ours."""

from __future__ import annotations

import csv
import difflib
import re
from dataclasses import dataclass
from functools import cache
from importlib import resources

from rota.report.study import Row

STEPS = 150_000
"""Of every run in the paper."""

LANGUAGES = ("az", "be", "gl", "sk", "tr", "ru", "pt", "cs")


@dataclass(frozen=True)
class PaperRow:
    """One row of the paper's tables. ``scores``: metric to language, group or ``macro`` (as printed) to value."""

    scores: dict[str, dict[str, float]]
    best_step: int | None


def paper_row(key: str | None) -> PaperRow | None:
    """The row of a key such as ``uniform-16000`` or ``tscl-alpha-0.3``; separators do not matter."""
    if key is None:
        return None
    known = _read()
    if _plain(key) not in known:
        raise ValueError(f"the paper has no row {key!r}; its rows are {', '.join(known)}")
    return known[_plain(key)]


def printed_row(row: Row) -> PaperRow | None:
    """The paper's numbers for a row of a study; None also where the suite names a row that the paper does not have."""
    return None if row.paper is None else _read().get(_plain(row.paper))


def nearest_row(key: str) -> str:
    """The key of the paper that a mistaken one comes nearest to."""
    return difflib.get_close_matches(_plain(key), list(_read()), n=1, cutoff=0.0)[0]


def _plain(key: str) -> str:
    return re.sub(r"[^a-z0-9.+]+", "-", key.lower())


@cache
def _read() -> dict[str, PaperRow]:
    rows: dict[str, PaperRow] = {}
    for name, columns in (("results.csv", ("schedule", "warmup")), ("ablations.csv", ("teacher", "setting"))):
        text = resources.files("rota.report").joinpath("data", name).read_text(encoding="utf-8")
        for line in csv.DictReader(text.splitlines()):
            key = _plain("-".join(line[column] for column in columns))
            best = int(line["best_step"]) if line["best_step"] else None
            row = rows.setdefault(key, PaperRow({}, best))
            row.scores[line["metric"]] = _scores(line)
    return rows


def _scores(line: dict[str, str]) -> dict[str, float]:
    """Languages and ``macro`` as printed; the means of the groups from the languages."""
    scores = {arm: float(line[arm]) for arm in LANGUAGES if arm in line}
    for name, arms in (("low-resource", LANGUAGES[:4]), ("high-resource", LANGUAGES[4:])):
        if all(arm in scores for arm in arms):
            scores[name] = sum(scores[arm] for arm in arms) / len(arms)
    return scores | ({"macro": float(line["average"])} if "average" in line else {})
