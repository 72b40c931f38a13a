"""The maps of align on its page: what they show and the shares beside them, against the records of the two runs."""

from __future__ import annotations

import gzip
import json
import re
from collections import Counter

import pytest
from doc_pages import DOCS

from rota.report.numbers.helping import help_maps

ARMS = DOCS / "results" / "arms"
RUNS = ARMS / "runs" / "maps"
SECTION = (ARMS / "align.md").read_text(encoding="utf-8").split("## Its maps")[1].split("\n## ")[0]
MAPS = dict(re.findall(r"!\[([^\]]*)\]\(([^)]*)\)", SECTION))
SEEDS = (1002, 1004)
LANGUAGES = ("az", "be", "gl", "sk", "tr", "ru", "pt", "cs")


def entries(seed, name):
    path = RUNS / "messy-ted8-small" / "align" / f"seed-{seed}" / f"{name}.jsonl.gz"
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def halves(seed):
    """For both halves of a run, (training text, language) to the effect, and to whether it is clear of zero."""
    arms = ["az", "be", "gl", "gl-web", "sk", "sk-interface", "tr", "ru", "pt", "cs"]
    for found in help_maps(entries(seed, "observations"), arms, 2):
        pairs = [(i, a, j, b) for i, a in enumerate(found.arms) for j, b in enumerate(found.languages)]
        yield {(a, b): (found.means[i, j], bool(found.sure[i, j])) for i, a, j, b in pairs}


def row_of(label):
    (line,) = [line for line in SECTION.splitlines() if line.startswith(f"| {label}")]
    return [float(cell) for cell in line.strip("|").split("|")[1:]]


def test_both_maps_are_on_the_page():
    assert sorted(MAPS.values()) == [
        "../../pictures/who-helps-whom-second-seed.png",
        "../../pictures/who-helps-whom.png",
    ]
    assert all((ARMS / path).is_file() for path in MAPS.values())


@pytest.mark.parametrize("alternative", MAPS)
def test_what_replaces_a_map_for_those_who_do_not_see_it_tells_the_halves_apart(alternative):
    assert "First half:" in alternative
    assert "Second half:" in alternative


@pytest.mark.parametrize("seed", SEEDS)
def test_the_shares_are_those_of_the_updates_after_the_warm_up(seed):
    seen = Counter()
    for step in entries(seed, "steps"):
        if step["step"] > 100:
            seen[step["arm"]] += step["tokens"]
    arms = ["az", "be", "gl", "gl-web", "sk", "sk-interface", "tr", "ru", "pt", "cs"]
    shares = [100 * seen[arm] / sum(seen.values()) for arm in arms]
    assert row_of(f"`align`, seed {seed}") == pytest.approx(shares, abs=0.051)


def test_the_prior_is_temperature_two_by_tokens():
    last = entries(1002, "validations")[-1]
    run = json.loads((RUNS / "messy-ted8-small" / "align" / "seed-1002" / "run.json").read_text(encoding="utf-8"))
    sentences = run["data"]["arms"]
    # sqrt(sentences) times the mean length is the number of tokens through sqrt(sentences).
    weights = {a: last["tokens"][a] / last["epochs"][a] / sentences[a] ** 0.5 for a in sentences}
    arms = ["az", "be", "gl", "gl-web", "sk", "sk-interface", "tr", "ru", "pt", "cs"]
    shares = [100 * weights[arm] / sum(weights.values()) for arm in arms]
    assert row_of("prior") == pytest.approx(shares, abs=0.1)


def test_the_dev_losses():
    late = [
        sum(sum(v["dev_loss"].values()) / len(v["dev_loss"]) for v in entries(seed, "validations")[-5:]) / 5
        for seed in SEEDS
    ]
    assert [f"{loss:.3f}" for loss in late] == ["4.681", "4.623"]
    assert "The dev loss was 4.681 and 4.623." in SECTION


def test_what_is_said_of_both_first_halves():
    for seed in SEEDS:
        first, _ = halves(seed)
        own = first["cs", "cs"][0]
        assert own == max(effect for effect, _ in first.values())
        assert all(first["cs", language][0] < 0 for language in LANGUAGES if language != "cs")
        for text in ("az", "be", "gl"):
            assert sum(effect > 0.1 for effect, _ in (first[text, b] for b in LANGUAGES)) >= 6
        sums = {a: sum(first[a, b][0] for b in LANGUAGES) for a, _ in first}
        assert min(sums, key=sums.__getitem__) == "pt"
    first, _ = halves(1002)
    assert sum(effect > 0 and sure for effect, sure in (first["gl-web", b] for b in LANGUAGES)) == 5


def test_what_is_said_of_the_misaligned_text_in_both_second_halves():
    numbers = []
    for seed in SEEDS:
        _, second = halves(seed)
        assert second["gl-web", "tr"][0] > 0
        assert second["gl-web", "tr"][1]
        assert second["gl-web", "pt"][0] > 0
        assert second["gl-web", "pt"][1]
        assert [b for b in LANGUAGES if second["cs", b][0] > 0 and second["cs", b][1]] == ["cs"]
        numbers.append(second["gl-web", "gl"])
    assert [(f"{effect:.2f}", sure) for effect, sure in numbers] == [("-0.66", False), ("-0.49", True)]


def test_no_alarm_was_raised():
    assert "No alarm was raised" in SECTION
    assert not list(RUNS.glob("*/align/*/alarms.jsonl*"))
