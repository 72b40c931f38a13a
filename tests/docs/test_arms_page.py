"""The page of good arms and bad ones, against the records of its synthetic runs."""

import gzip
import importlib.util
import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

ARMS = Path(__file__).parents[2] / "docs" / "results" / "arms"
RUNS = ARMS / "runs" / "synthetic"


def tables():
    spec = importlib.util.spec_from_file_location("arms_tables", ARMS / "tables.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def section(title):
    """Of the page, from below its title to the next one."""
    return (ARMS / "README.md").read_text(encoding="utf-8").split(title, 1)[1].split("\n## ", 1)[0]


def rows_of_the_page():
    lines = [line for line in section("## Synthetic\n").splitlines() if line.startswith("| `")]
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


def readings_of_the_gate(run):
    """Step, and for each arm its target tokens so far with the gain from the source and its error."""
    steps, seen, found = tables().records(run, "steps.jsonl"), Counter(), []
    told = [each for each in tables().records(run, "observations.jsonl") if "source_gain" in each]
    for each in told:
        for line in steps:
            seen[line["arm"]] += line["tokens"]
            if line["step"] == each["step"]:
                break
        found.append((each["step"], {arm: (seen[arm], *gain) for arm, gain in each["source_gain"].items()}))
    return found


def first_closed(readings, reach):
    """The rule as docs/teachers.md has it, with NumPy: the first step at which it closes arms, and which."""
    for last, (step, now) in enumerate(readings):
        looks = [arms for _, arms in readings[: last + 1]]
        closed = []
        for arm, (tokens, *_) in now.items():
            gain, error = np.array([each[arm][1:] for each in looks[-8:]]).T
            comparable = ([each[a][1] for each in looks if each[a][0] <= reach * tokens][-8:] for a in now if a != arm)
            others = np.median([np.mean(gains) for gains in comparable if gains] or [0.0])
            if others >= 0.2 and gain.mean() + 2 * np.sqrt((error**2).sum()) / len(error) < 0.2 * others:
                closed.append(arm)
        if closed:
            return step, closed
    return None


@pytest.mark.parametrize(("seed", "at", "with_2", "with_4"), [(1, 2410, 2110, 1810), (2, 2710, 1210, 910)])
def test_the_gate_closed_the_misaligned_arm_when_the_page_says(seed, at, with_2, with_4):
    run = ARMS / "runs" / "gate" / "ted8-small" / "align" / f"seed-{seed}"
    readings = readings_of_the_gate(run)
    assert [first_closed(readings, reach) for reach in (1, 2, 4)] == [
        (step, ["gl-web"]) for step in (at, with_2, with_4)
    ]
    (alarm,) = tables().records(run, "alarms.jsonl")
    assert (alarm["step"], alarm["kind"], alarm["arm"]) == (at, "closed", "gl-web")


@pytest.mark.parametrize(
    ("column", "corpus", "length"), [(0, "messy-debian", "debian"), (2, "messy-ted8-small", "ted8-small")]
)
def test_the_controls_of_align_are_those_of_the_records(column, corpus, length):
    lines = section("## Is it the shares, or their timing?").splitlines()
    found = [[cell.strip(" `") for cell in line[1:-1].split("|")] for line in lines if line.startswith("| ")]
    written = {name: cells[column : column + 2] for name, *cells in found[1:]}
    names = {"uniform": "uniform", "align": "align", "its mixture": "its-mixture", "length": f"length-{length}"}
    assert list(written) == list(names)
    for label, row in names.items():
        run = ARMS / "runs" / "controls" / corpus / row / "seed-1003"
        dev = [np.mean(list(each["dev_loss"].values())) for each in tables().records(run, "validations.jsonl")]
        test = [each["score"] for each in tables().records(run, "evals.jsonl") if each["metric"] == "loss"]
        assert len(test) == 8
        assert written[label] == [f"{np.mean(dev[-5:]):.3f}", f"{np.mean(test):.3f}"]


LARGE = {"messy-debian": ("it", "da", "sk"), "messy-ted8-small": ("tr", "ru", "pt", "cs")}
ROW_OF = {
    "temperature 2 +": "temperature-2",
    "temperature 1.3 +": "temperature-1.3",
    "`align`, `prior: 1.3` +": "align-prior",
    "`align`, `direction: loss` +": "align-loss",
    "rise +": "rise",
    "rise, shuffled +": "rise-shuffled",
    "tail +": "tail",
    "tail, shuffled +": "tail-shuffled",
    "uniform": "uniform",
    "length": "length-",
    "`align`": "align",
}


def share_and_loss(run, large):
    """The part of the target tokens after the warm-up on the large texts, and the mean test loss, as on the page."""
    seen = Counter()
    for each in tables().records(run, "steps.jsonl"):
        if each["step"] > 100:
            seen[each["arm"]] += each["tokens"]
    losses = [each["score"] for each in tables().records(run, "evals.jsonl") if each["metric"] == "loss"]
    return [f"{100 * sum(seen[arm] for arm in large) / sum(seen.values()):.0f} %", f"{np.mean(losses):.3f}"]


def test_shares_of_large_texts_and_losses_are_those_of_the_records():
    lines = section("## Why is align behind on messy debian?\n").splitlines()
    rows = [line.strip("|").split("|") for line in lines if line.startswith("| ")][1:]
    assert [cells[0].strip() for cells in rows] == sorted(ROW_OF, key=[row[0].strip() for row in rows].index)
    for name, *cells in rows:
        found = []
        for corpus, large in LARGE.items():
            folder = "shares" if name.endswith("+ ") else "controls"
            row = ROW_OF[name.strip()] + (corpus.removeprefix("messy-") if name.strip() == "length" else "")
            run = ARMS / "runs" / folder / corpus / row / "seed-1003"
            found += share_and_loss(run, large) if run.exists() else ["", ""]
        assert [cell.strip() for cell in cells] == found, name


LASTING = ARMS / "runs" / "lasting"


def lasting(corpus):
    return [json.loads(line) for line in (LASTING / f"{corpus}.jsonl").read_text(encoding="utf-8").splitlines()]


def correlation(found):
    return float(np.corrcoef(list(found["product"].values()), list(found["gain"].values()))[0, 1])


@pytest.mark.parametrize("corpus", ["messy-debian", "messy-ted8-small"])
def test_the_tables_of_what_stays_are_those_of_the_records(corpus):
    page, found = section("## The lasting effect of an update\n"), lasting(corpus)
    for arm in found[0]["product"]:
        cells = (f"{each['product'][arm]:+.2f} | {1000 * each['gain'][arm]:+.1f}" for each in found)
        assert f"| `{arm}` | {' | '.join(cells)} |" in page
    for each in found:
        assert f"{corpus.replace('-', ' ', 1)}, step {each['step']}: {correlation(each):.2f}" in page


def test_the_agreement_of_directions_is_that_of_the_records():
    page = section("## The lasting effect of an update\n")
    every = [each for corpus in ("messy-debian", "messy-ted8-small") for each in lasting(corpus)]
    for tokens in every[0]["agreement"]:
        values = [value for each in every for value in each["agreement"][tokens]]
        assert f"| {tokens} | {np.median(values):.2f} | {min(values):.2f} |" in page
