"""The league's published records belong to its plan; its planned contrasts are worked out again, without our code."""

import gzip
import json
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from made_runs import SIZES, make_run, make_suite

from rota.experiments.suites import open_suite
from rota.plan import find_plan, write_plan
from rota.report.numbers.planned import planned_results
from rota.report.study import read_study
from rota.runs import Run

LEAGUE = Path(__file__).parents[2] / "docs" / "results" / "league"
RECORDS = LEAGUE / "runs"
SUITE = open_suite(str(LEAGUE / "plan.yaml"))
TEMPERATURES = ("uniform", "temperature-2", "temperature-5")
MESSY, CLEAN = ("messy-debian", "messy-ted8-small"), ("debian", "catalogues", "ted8-small")


def read(path):
    packed = path.with_name(f"{path.name}.gz")
    text = gzip.decompress(packed.read_bytes()).decode() if packed.exists() else path.read_text()
    return [json.loads(line) for line in text.splitlines()]


def loss_of(root, corpus, row, seed):
    """Mean of the languages' cross-entropies on their test sets."""
    found = {e["language"]: e["score"] for e in read(root / corpus / row / f"seed-{seed}" / "evals.jsonl")}
    return np.mean(list(found.values()))


def recomputed(root, corpora, row, references, seeds):
    """Mean difference to the best of the references over the seeds, and its p: the largest where all are worse."""
    stats = pytest.importorskip("scipy.stats")
    losses = {
        name: np.array([np.mean([loss_of(root, corpus, name, seed) for corpus in corpora]) for seed in seeds])
        for name in (row, *references)
    }
    gains = {name: losses[name] - losses[row] for name in references}
    p = {name: stats.ttest_1samp(gain, 0).pvalue for name, gain in gains.items()}
    best = min(gains, key=lambda name: gains[name].mean())
    behind = [p[name] for name in references if gains[name].mean() < 0]
    ahead = gains[best].mean() > 0
    return -gains[best].mean(), max(p.values()) if ahead else min(1, len(references) * min(behind))


def planned_in_numpy(root, seeds_of):
    """Every planned contrast of test losses, by its name and its corpora; seeds may be missing on some."""
    every, found = (*CLEAN, *MESSY), {}
    for name, groups, references in (
        ("messy", [(corpus,) for corpus in MESSY], TEMPERATURES),
        ("clean", [(corpus,) for corpus in CLEAN], TEMPERATURES),
        ("timing", [(corpus,) for corpus in MESSY], ("align-replayed",)),
        ("regret", [every], TEMPERATURES),
    ):
        for corpora in groups:
            seeds = seeds_of(corpora, ("align", *references))
            if len(seeds) > 1:
                found[name, corpora] = recomputed(root, corpora, "align", references, seeds)
    return found


def results(root):
    there = [corpus for corpus in (*CLEAN, *MESSY) if any((root / corpus).glob("*/seed-*"))]
    studies = {corpus: read_study([root / corpus]) for corpus in there}
    return planned_results(find_plan(root).plan, studies)


def agree(root, seeds_of):
    expected, compared = planned_in_numpy(root, seeds_of), 0
    for found in results(root):
        corpora = tuple(sorted(found.test.corpora))
        for (name, where), (mean, p) in expected.items():
            if found.test.name == name and corpora == tuple(sorted(where)):
                assert found.found.mean == pytest.approx(mean)
                assert found.found.p == pytest.approx(p)
                compared += 1
    return compared


def published():
    return sorted(path.parent for path in RECORDS.glob("*/*/seed-*/run.json") if path.parent.parent.name != "stems")


def complete_seeds(corpora, rows):
    """The planned seeds of which every run of these rows on these corpora is published."""
    pairs = list(product(corpora, rows))
    return [
        seed for seed in range(1, 9) if all((RECORDS / corpus / row / f"seed-{seed}").is_dir() for corpus, row in pairs)
    ]


def test_published_runs_are_finished_and_began_under_the_plan():
    assert published()
    plan = find_plan(RECORDS)
    for folder in published():
        run = Run(folder)
        assert folder.parent.name in SUITE.rows
        assert folder.parent.parent.name in SUITE.corpora
        assert run.is_trained
        assert list(run.read("evals"))
        assert run.about["plan"] == plan.fingerprint


def test_the_recomputation_agrees_on_losses_made_by_hand(tmp_path):
    rng, seeds = np.random.default_rng(1), (1, 2, 3, 4)
    rows = (*TEMPERATURES, "align", "align-replayed")
    for corpus in (*CLEAN, *MESSY):
        make_suite(tmp_path / corpus, {row: {} for row in rows}, seeds=list(seeds))
        for row, seed in product(rows, seeds):
            scores = {"loss": {language: 4 + rng.normal() / 10 for language in SIZES}}
            make_run(tmp_path / corpus / row / f"seed-{seed}", seed=seed, teacher=row, scores=scores)
    plan = SUITE.plan.resolved(list(SUITE.rows), list(SUITE.corpora), seeds)
    write_plan(plan, tmp_path)
    assert agree(tmp_path, lambda corpora, rows: seeds) == 8


def test_planned_contrasts_are_those_of_a_few_lines_of_numpy():
    assert agree(RECORDS, complete_seeds) == 8
