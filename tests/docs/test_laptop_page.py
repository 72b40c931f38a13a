"""The page of the laptop study, against the tables that were made from its records."""

import csv
import re
from pathlib import Path

import pytest

LAPTOP = Path(__file__).parents[2] / "docs" / "results" / "laptop"
PAGE = (LAPTOP / "README.md").read_text(encoding="utf-8").replace("−", "-")
ROWS = {
    "uniform, no warm-up": "uniform",
    "proportional, no warm-up": "proportional",
    "uniform, warm-up": "uniform-warmup",
    "proportional, warm-up": "proportional-warmup",
    "shuffled batches": "shuffled",
    "TSCL": "tscl",
    "DQN": "dqn",
    "temperature 2": "temperature-2",
    "temperature 5": "temperature-5",
    "DQN's proportions, replayed": "replay-proportions",
}
METRICS = ("dev-loss", "chrf", "bleu")
CORPORA = ("catalogues", "ted8-small")


def table(heading, first):
    """The cells of the first table below a heading that begins with the column ``first``."""
    section = PAGE.split(f"## {heading}\n", 1)[1].split("\n## ", 1)[0]
    lines = section[section.index(f"| {first} |") :].split("\n\n", 1)[0].splitlines()
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def numbers(corpus, name):
    path = LAPTOP / f"report-{corpus}" / "tables" / f"{name}.csv"
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize(("corpus", "heading"), [("catalogues", "Catalogues"), ("ted8-small", "ted8-small")])
def test_means_and_differences_are_those_of_the_report(corpus, heading):
    found = {(each["row"], each["metric"]): each for each in numbers(corpus, "averages")}
    rows = table(heading, "schedule")
    assert len(rows) == len(ROWS)
    for label, *cells in rows:
        for metric, written, difference in zip(METRICS, cells[::2], cells[1::2], strict=True):
            expected, digits = found[ROWS[label], metric], 3 if metric == "dev-loss" else 2
            assert written == f"{float(expected['mean']):.{digits}f} ± {float(expected['sd']):.{digits}f}"
            if difference:
                mean, low, high = (f"{float(expected[name]):+.{digits}f}" for name in ("difference", "low", "high"))
                assert difference == f"{mean} [{low}, {high}]", (label, metric)


def test_the_pooled_p_values_are_those_of_the_reports():
    rows = table("All rows in one model", "adjusted p, pooled")
    assert len(rows) == len(ROWS) - 1
    pooled = {
        (corpus, metric, each["row"]): float(each["pooled_p"])
        for corpus in CORPORA
        for metric in METRICS
        for each in numbers(corpus, f"pooled-{metric}")
    }
    for label, *cells in rows:
        keys = [(corpus, metric, ROWS[label]) for corpus in CORPORA for metric in METRICS]
        expected = ["<0.001" if pooled[key] < 0.001 else f"{pooled[key]:.3f}" for key in keys]
        assert cells == expected, label


@pytest.mark.parametrize(
    ("metric", "digits", "row", "named"),
    [
        ("dev-loss", 3, "temperature-5", "that of temperature 5, "),
        ("dev-loss", 3, "uniform-warmup", "uniform with warm-up "),
        ("dev-loss", 3, "dqn", "DQN "),
        ("dev-loss", 3, "tscl", "TSCL "),
        ("dev-loss", 3, "proportional-warmup", "proportional with warm-up "),
        ("chrf", 2, "uniform-warmup", "that of uniform with warm-up, "),
        ("chrf", 2, "dqn", "DQN "),
        ("chrf", 2, "temperature-5", "temperature 5 "),
    ],
)
def test_the_regrets_are_those_of_the_report(metric, digits, row, named):
    text = " ".join(PAGE.split("**Regret.**", 1)[1].split("\n\n", 1)[0].split())
    part = text.split("in chrF", 1)[metric == "chrf"]
    (expected,) = [each for each in numbers("regret", f"regret-{metric}") if each["row"] == row]
    regret, low, high = (f"{float(expected[name]):.{digits}f}" for name in ("regret", "low", "high"))
    assert f"{named}{regret}" in part
    assert f"{regret} [{low}, {high}]" in part


@pytest.mark.parametrize("corpus", CORPORA)
def test_what_is_called_shown_is_what_holm_leaves(corpus):
    """The one rule of the page, for every adjusted p value that it gives beside a difference of the nine rows."""
    shown = {
        (each["row"], each["metric"])
        for each in numbers(corpus, "averages")
        if each["metric"] in METRICS and each["p_holm"] and float(each["p_holm"]) < 0.05
    }
    expected = {
        "catalogues": {("proportional", "chrf"), ("proportional-warmup", "chrf"), ("shuffled", "bleu")},
        "ted8-small": {
            *(("proportional", "dev-loss"), ("proportional-warmup", "dev-loss")),
            *(("proportional-warmup", "chrf"), ("temperature-2", "dev-loss")),
        },
    }
    assert shown == expected[corpus], "the sentences below the tables name these"


def test_the_documented_commands_name_folders_that_are_there():
    folders = re.findall(r"rota report ((?:docs/results/laptop/\S+ )+)", PAGE)
    assert len(folders) == 3
    for folder in " ".join(folders).split():
        assert (LAPTOP.parents[2] / folder).is_dir()
