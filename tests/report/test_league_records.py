"""The league's published records belong to its plan; its planned contrasts are worked out again, without our code."""

import gzip
import json
import lzma
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
TEMPERATURES = ("uniform", "temperature-2", "temperature-2-tokens", "temperature-5")
UNPACKED = {".xz": lzma.decompress, ".gz": gzip.decompress}
MESSY, CLEAN = ("messy-debian", "messy-ted8-small"), ("debian", "catalogues", "ted8-small")


def read(path):
    packed = {path.with_name(f"{path.name}{end}"): unpack for end, unpack in UNPACKED.items()}
    found = next((unpack(each.read_bytes()) for each, unpack in packed.items() if each.exists()), None)
    text = path.read_text() if found is None else found.decode()
    return [json.loads(line) for line in text.splitlines()]


def loss_of(root, corpus, row, seed):
    """Mean of the languages' cross-entropies on their test sets."""
    found = {e["language"]: e["score"] for e in read(root / corpus / row / f"seed-{seed}" / "evals.jsonl")}
    return np.mean(list(found.values()))


def losses_on_tests(root, corpora, rows, seeds):
    """Row to the losses of the seeds, each the mean over the corpora."""
    return {row: np.array([np.mean([loss_of(root, c, row, s) for c in corpora]) for s in seeds]) for row in rows}


def late_curve(run):
    """Steps of a run's validations, and the mean of the last five dev losses at each of them."""
    validations = read(run / "validations.jsonl")
    losses = [np.mean(list(v["dev_loss"].values())) for v in validations]
    late = [np.mean(losses[max(0, end - 5) : end]) for end in range(1, len(losses) + 1)]
    return [v["step"] for v in validations], late


def late_losses_at_equal_time(root, corpora, rows, seeds):
    """The same where align has made fewer updates than the others by as much as each of its updates costs more."""
    [corpus], read_off = corpora, {}
    for row in rows:
        curves = [late_curve(root / corpus / row / f"seed-{seed}") for seed in seeds]
        end = min(steps[-1] for steps, _ in curves)
        read_off[row] = np.array([np.interp(end / (1.06 if row == "align" else 1), *curve) for curve in curves])
    return read_off


def difference_and_p(losses, row):
    """Mean difference to the best of the other rows over the seeds, and its p: the largest where all are worse."""
    stats = pytest.importorskip("scipy.stats")
    gains = {name: values - losses[row] for name, values in losses.items() if name != row}
    p = {name: stats.ttest_1samp(gain, 0).pvalue for name, gain in gains.items()}
    best = min(gains, key=lambda name: gains[name].mean())
    behind = [p[name] for name, gain in gains.items() if gain.mean() < 0]
    ahead = gains[best].mean() > 0
    return -gains[best].mean(), max(p.values()) if ahead else min(1, len(gains) * min(behind))


def each(corpora):
    return [(corpus,) for corpus in corpora]


def planned_in_numpy(root, seeds_of):
    """Difference and p of every planned contrast, by its name and its corpora; seeds may be missing on some."""
    every, found = (*CLEAN, *MESSY), {}
    for name, groups, row, references, values in (
        ("messy", each(MESSY), "align", TEMPERATURES, losses_on_tests),
        ("clean", each(CLEAN), "align", TEMPERATURES, losses_on_tests),
        ("messy-at-equal-time", each(MESSY), "align", TEMPERATURES, late_losses_at_equal_time),
        ("clean-at-equal-time", each(CLEAN), "align", TEMPERATURES, late_losses_at_equal_time),
        ("timing", each(MESSY), "align", ("align-replayed",), losses_on_tests),
        ("dqn", [every], "dqn-rota", ("uniform",), losses_on_tests),
        ("regret", [every], "align", TEMPERATURES, losses_on_tests),
    ):
        for corpora in groups:
            rows = (row, *references)
            seeds = seeds_of(corpora, rows)
            if len(seeds) > 1:
                found[name, tuple(sorted(corpora))] = difference_and_p(values(root, corpora, rows, seeds), row)
    return found


def holm_in_numpy(p):
    """The smallest p times the number of tests, the next times one fewer, and never less than the one before."""
    ranked = sorted(p, key=p.get)
    factors = len(p) - np.arange(len(p))
    adjusted = np.minimum(1, np.maximum.accumulate(factors * np.array([p[name] for name in ranked])))
    return dict(zip(ranked, adjusted, strict=True))


def results(root):
    there = [corpus for corpus in (*CLEAN, *MESSY) if any((root / corpus).glob("*/seed-*"))]
    studies = {corpus: read_study([root / corpus]) for corpus in there}
    found = planned_results(find_plan(root).plan, studies)
    return {(one.test.name, tuple(sorted(one.test.corpora))): one for one in found if one.found is not None}


def agreed_and_not(root, seeds_of):
    """Names alone: a test that fails must not show a result before the study has ended."""
    ours, theirs = results(root), planned_in_numpy(root, seeds_of)
    assert ours.keys() == theirs.keys()
    adjusted = holm_in_numpy({test: p for test, (_, p) in theirs.items()})
    sides = {True: [], False: []}
    for test, (mean, p) in theirs.items():
        numbers = (ours[test].found.mean, ours[test].found.p, ours[test].p_holm)
        sides[bool(np.allclose(numbers, (mean, p, adjusted[test]), rtol=1e-6))].append(test)
    return len(sides[True]), sides[False]


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
        # Schedules that observe nothing did not change when the plan did; align did, and its runs were thrown away.
        kept = () if folder.parent.name.startswith("align") else plan.earlier
        assert run.about["plan"] in (plan.fingerprint, *kept)


def test_the_recomputation_agrees_on_losses_made_by_hand(tmp_path):
    rng, seeds = np.random.default_rng(1), (1, 2, 3, 4)
    rows = (*TEMPERATURES, "align", "align-replayed", "dqn-rota")
    for corpus in (*CLEAN, *MESSY):
        make_suite(tmp_path / corpus, {row: {} for row in rows}, seeds=list(seeds))
        for row, seed in product(rows, seeds):
            scores = {"loss": {language: 4 + rng.normal() / 10 for language in SIZES}}
            dev = {
                step: {language: 6 - step / 10 + rng.normal() / 10 for language in SIZES} for step in range(2, 21, 2)
            }
            folder = tmp_path / corpus / row / f"seed-{seed}"
            make_run(folder, seed=seed, teacher=row, scores=scores, dev_losses=dev)
    write_plan(SUITE.plan.resolved(list(SUITE.rows), list(SUITE.corpora), seeds), tmp_path)
    assert agreed_and_not(tmp_path, lambda corpora, rows: seeds) == (14, [])


def test_planned_contrasts_are_those_of_a_few_lines_of_numpy():
    _, not_agreed = agreed_and_not(RECORDS, complete_seeds)
    assert not_agreed == []
