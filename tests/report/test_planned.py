"""Planned contrasts over hand-made records: worked out again with scipy, or by hand."""

import csv
import json
import shutil

import numpy as np
import pytest
from made_runs import everywhere, make_run, make_suite

from rota.plan import Plan, PlannedTest, find_plan, write_plan
from rota.report.numbers.planned import (
    check_endpoints,
    detectable,
    minus_best,
    planned_results,
    residual_variance,
)
from rota.report.sentences import how_made
from rota.report.study import read_study
from rota.report.tables.planned import plan_points, planned_table

SEEDS = (1, 2, 3, 4)
CHRF = {
    "align": (30.0, 32.0, 34.0, 33.0),
    "t2": (29.0, 30.5, 33.5, 31.0),
    "t5": (29.5, 31.0, 32.0, 32.0),
    "uniform": (25.0, 28.0, 28.5, 27.0),
}
CPU = {"align": 60.0, "t2": 30.0, "t5": 30.0, "uniform": 30.0}
"""Processor seconds of each half of a run."""


def make_study(folder, *, shift=0.0, plan=None, rows=CHRF, **about):
    make_suite(folder, {row: {"label": row.upper(), "warmup": ""} for row in rows}, seeds=list(SEEDS))
    for row, scores in rows.items():
        for seed, score in zip(SEEDS, scores, strict=True):
            losses = {5: everywhere(4.0), 10: everywhere(3.0 + seed / 10), 15: everywhere(2.5), 20: everywhere(2.0)}
            run = make_run(
                folder / row / f"seed-{seed}",
                seed=seed,
                teacher=row,
                dev_losses=losses,
                scores={"chrf": everywhere(score + shift * (row == "t2"))},
                time={"cpu": CPU[row]},
                **about,
            )
            if plan is not None:
                described = json.loads((run / "run.json").read_text())
                (run / "run.json").write_text(json.dumps(described | {"plan": plan}))
    return folder


def plan(contrasts, **changes):
    values = {"contrasts": contrasts, "endpoint": "chrf", "seeds": list(SEEDS)} | changes
    return Plan.model_validate(values)


def test_minus_one_row_is_the_paired_t_test_of_scipy(tmp_path):
    stats = pytest.importorskip("scipy.stats")
    study = read_study([make_study(tmp_path)])
    [found] = planned_results(plan({"a": {"row": "align", "minus": "t2"}}), {"": study})
    theirs = stats.ttest_rel(CHRF["align"], CHRF["t2"])
    low, high = theirs.confidence_interval()
    assert found.found.mean == pytest.approx(1.25)
    assert found.found.p == pytest.approx(theirs.pvalue)
    assert found.found.interval == pytest.approx((low, high), rel=1e-6)
    assert found.p_holm == found.found.p, "one test needs no correction"


def test_to_be_ahead_of_the_best_is_to_be_ahead_of_all(tmp_path):
    stats = pytest.importorskip("scipy.stats")
    study = read_study([make_study(tmp_path)])
    [found] = planned_results(plan({"a": {"row": "align", "minus_best_of": ["t2", "t5", "uniform"]}}), {"": study})
    by_row = {row: stats.ttest_rel(CHRF["align"], CHRF[row]) for row in ("t2", "t5", "uniform")}
    # Means: 32.25 against 31, 31.125 and 27.125, so that t5 is the best.
    assert (found.found.best, found.found.mean) == ("t5", pytest.approx(1.125))
    assert found.found.p == pytest.approx(max(each.pvalue for each in by_row.values()))
    lows = [each.confidence_interval().low for each in by_row.values()]
    highs = [each.confidence_interval(1 - 0.05 / 3).high for each in by_row.values()]
    assert found.found.interval == pytest.approx((min(lows), min(highs)), rel=1e-6)


def test_to_seem_behind_the_best_of_three_has_three_chances():
    stats = pytest.importorskip("scipy.stats")
    ours = dict(enumerate((2.0, 2.2, 2.1, 2.4)))
    others = {"a": (1.9, 2.0, 2.05, 2.2), "b": (2.5, 2.6, 2.5, 2.9), "c": (1.95, 2.2, 2.0, 2.3)}
    values = {name: dict(enumerate(found)) for name, found in others.items()}
    found = minus_best(ours, values, range(4), higher_is_better=False)  # losses
    p = {name: stats.ttest_rel(list(ours.values()), theirs).pvalue for name, theirs in others.items()}
    assert (found.best, found.mean) == ("a", pytest.approx(0.1375))
    assert found.p == pytest.approx(3 * min(p["a"], p["c"])), "b is worse, and has no say"
    higher = {name: [-value for value in theirs] for name, theirs in others.items()}
    mirrored = minus_best(
        {seed: -value for seed, value in ours.items()},
        {name: dict(enumerate(theirs)) for name, theirs in higher.items()},
        range(4),
        higher_is_better=True,
    )
    assert mirrored.mean == pytest.approx(-found.mean)
    assert mirrored.interval == pytest.approx((-found.interval[1], -found.interval[0]))


def test_the_best_of_equal_rows_is_seldom_beaten_or_lost_to_by_chance():
    rng = np.random.default_rng(1)
    wrong, covered = 0, 0
    for _ in range(400):
        drawn = rng.normal(size=(5, 8))
        others = {str(row): dict(enumerate(drawn[row])) for row in range(1, 5)}
        found = minus_best(dict(enumerate(drawn[0])), others, range(8), higher_is_better=True)
        wrong += found.p < 0.05
        covered += found.interval[0] <= 0 <= found.interval[1]
    assert wrong / 400 <= 0.06
    assert covered / 400 >= 0.94


def test_holm_is_over_all_lines_of_the_plan(tmp_path):
    study = read_study([make_study(tmp_path)])
    contrasts = {"a": {"row": "align", "minus": "uniform"}, "b": {"row": "align", "minus": "t2"}}
    first, second = planned_results(plan(contrasts), {"": study})
    assert first.found.p < second.found.p
    assert (first.p_holm, second.p_holm) == (pytest.approx(2 * first.found.p), second.found.p)


def test_only_planned_seeds_that_all_rows_have_count(tmp_path):
    folder = make_study(tmp_path)
    (folder / "t2" / "seed-3" / "evals.jsonl").write_text("")
    study = read_study([folder])
    [found] = planned_results(plan({"a": {"row": "align", "minus": "t2"}}, seeds=[1, 2, 3, 9]), {"": study})
    assert (found.found.seeds, found.planned) == (2, 4)
    assert found.found.mean == pytest.approx((1.0 + 1.5) / 2)
    [none] = planned_results(plan({"a": {"row": "align", "minus": "t2"}}, seeds=[3, 4]), {"": study})
    assert (none.found, none.p_holm, none.verdict) == (None, None, "no test yet")


def test_at_equal_processor_time_the_slower_row_is_read_earlier(tmp_path):
    study = read_study([make_study(tmp_path)])
    contrasts = {"a": {"row": "align", "minus": "t2", "at": "time"}}
    both = ("dev-loss", "late-dev-loss")
    raw, late = (planned_results(plan(contrasts, endpoint=name), {"": study})[0] for name in both)
    # align has used 60 s at step 10, where t2 has ended: 3.1, 3.2, 3.3, 3.4 against 2.
    assert raw.budget == {"": 60.0}
    assert raw.found.mean == pytest.approx(1.25)
    # Means of the validations so far: (4 + 3.1) / 2 and so on, against (4 + 3.1 + 2.5 + 2) / 4 and so on.
    expected = np.mean([(7 + seed / 10) / 2 - (11.5 + seed / 10) / 4 for seed in SEEDS])
    assert late.found.mean == pytest.approx(expected)


def test_where_a_plan_has_costs_time_is_counted_in_updates(tmp_path):
    folder = make_study(tmp_path)
    for path in folder.glob("*/seed-*/timings.jsonl"):
        path.unlink()  # what the runs recorded plays no part
    contrasts = {"a": {"row": "align", "minus": "t2", "at": "time"}}
    study = read_study([folder])
    written = plan(contrasts, endpoint="dev-loss", costs={"align": 1.6})
    [found] = planned_results(written, {"": study})
    # t2 ends after 20 updates, which are 12.5 of align: between (3 + seed / 10) at 10 and 2.5 at 15.
    assert found.budget == {"": 20.0}
    assert found.found.mean == pytest.approx(np.mean([(3 + seed / 10 + 2.5) / 2 - 2 for seed in SEEDS]))
    table = planned_table([found], {"": study}, several=False)
    assert "dev loss at the cost of 20 updates" in [cell.text for cell in table.rows[0]]
    points = plan_points(written, {"": study})
    assert points[-1] == "Time is counted in updates: with what a teacher measures, one of ALIGN costs 1.6, others 1."
    with pytest.raises(ValueError, match=r"plan\.costs names the row 'algin'; the suite has a, b"):
        plan({"a": {"row": "a", "minus": "b"}}, costs={"algin": 1.1}).resolved(["a", "b"], [], SEEDS)
    with pytest.raises(ValueError, match="greater than 0"):
        plan(contrasts, costs={"align": 0})


def test_the_clock_of_a_row_is_the_median_over_its_seeds(tmp_path):
    folder = make_study(tmp_path)
    path = folder / "t2" / "seed-1" / "timings.jsonl"
    path.write_text(path.read_text().replace('"cpu": 30.0', '"cpu": 300.0'))  # the machine did something else
    study = read_study([folder])
    [found] = planned_results(
        plan({"a": {"row": "align", "minus": "t2", "at": "time"}}, endpoint="dev-loss"), {"": study}
    )
    assert found.budget == {"": 60.0}
    assert found.found.mean == pytest.approx(1.25)


def test_corpora_are_tested_one_by_one_or_their_mean(tmp_path):
    studies = {
        "one": read_study([make_study(tmp_path / "one")]),
        "two": read_study([make_study(tmp_path / "two", shift=4.0, data="other")]),
    }
    contrasts = {
        "each": {"row": "align", "minus_best_of": ["t2", "t5"], "corpora": ["one", "two"]},
        "mean": {"row": "align", "minus_best_of": ["t2", "t5"], "corpora": ["one", "two"], "together": True},
    }
    one, two, mean = planned_results(plan(contrasts), studies)
    assert (one.best, two.best) == ({"one": "t5"}, {"two": "t2"})
    assert two.found.mean == pytest.approx(1.25 - 4)
    # One row for both corpora: t2 is (1.25 - 2.75) / 2 behind on average, t5 1.125.
    assert (mean.found.best, mean.found.mean) == ("t2", pytest.approx(-0.75))
    [lacking] = planned_results(plan({"mean": contrasts["mean"]}), {"one": studies["one"]})
    assert lacking.found is None, "a corpus has no runs yet"


@pytest.mark.parametrize(
    ("interest", "minus", "verdict"),
    [
        (None, "uniform", "better"),
        (30.0, "uniform", "better, but by less than the interest"),
        (30.0, "t2", "no difference of interest"),
        (0.1, "t2", "not decided"),
    ],
)
def test_the_verdict_follows_from_the_adjusted_p_and_the_interval(tmp_path, interest, minus, verdict):
    study = read_study([make_study(tmp_path)])
    contrasts = {"a": {"row": "align", "minus": minus}, "b": {"row": "t5", "minus": "t2"}}
    found = planned_results(plan(contrasts, interest=interest), {"": study})
    assert found[0].verdict == verdict
    worse = planned_results(plan({"a": {"row": "uniform", "minus": "align"}}), {"": study})
    assert worse[0].verdict == "worse"


def test_endpoints_are_checked_before_anything_runs():
    with pytest.raises(ValueError, match="endpoint 'moon' is not known; it is one of dev-loss, "):
        check_endpoints(plan({"a": {"row": "a", "minus": "b"}}, endpoint="moon"))
    with pytest.raises(ValueError, match=r"contrasts.a: chrf is measured at the end of a run only; at: time needs"):
        check_endpoints(plan({"a": {"row": "a", "minus": "b", "at": "time"}}))
    with pytest.raises(ValueError, match="endpoint 'moon' is not known"):
        check_endpoints(plan({"a": {"row": "a", "minus": "b"}}, interest={"moon": 1.0}))


def test_residual_variance_of_two_rows_is_half_that_of_their_difference():
    table = {row: dict(zip(SEEDS, CHRF[row], strict=True)) for row in ("align", "t2")}
    spread = np.var(np.subtract(CHRF["align"], CHRF["t2"]), ddof=1)
    assert residual_variance(table) == pytest.approx(spread / 2)
    assert residual_variance({"align": table["align"]}) is None


def test_what_a_plan_can_detect_is_the_noncentral_t_of_scipy(tmp_path):
    stats = pytest.importorskip("scipy.stats")
    study = read_study([make_study(tmp_path)])
    contrasts = {"a": {"row": "align", "minus": "t2"}, "b": {"row": "align", "minus": "t5", "endpoint": "bleu"}}
    found, unknown = detectable(plan(contrasts, seeds=12, interest=1.0), {"earlier": study})
    # Four seeds are too few for the rows' own spread: that of all rows together.
    values = np.array(list(CHRF.values()))
    residuals = values - values.mean(axis=1, keepdims=True) - values.mean(axis=0) + values.mean()
    spread = (2 * (residuals**2).sum() / 9) ** 0.5
    assert found.spread == pytest.approx(spread)

    def power(difference, seeds, alpha):
        critical, shift = stats.t.ppf(1 - alpha / 2, seeds - 1), difference / spread * seeds**0.5
        return stats.nct.sf(critical, seeds - 1, shift) + stats.nct.cdf(-critical, seeds - 1, shift)

    assert power(found.alone, 12, 0.05) == pytest.approx(0.8, abs=1e-3)
    assert power(found.corrected, 12, 0.025) == pytest.approx(0.8, abs=1e-3)
    assert power(1.0, found.enough, 0.025) >= 0.8 > power(1.0, found.enough - 1, 0.025)
    assert (unknown.spread, unknown.alone, unknown.enough) == (None, None, None)
    assert isinstance(unknown.test, PlannedTest)


def test_a_page_shows_the_planned_contrasts_first_and_the_rest_as_exploratory(rota, tmp_path):
    planned = plan({"main": {"row": "align", "minus_best_of": ["t2", "t5"]}}, interest=0.5)
    folder = make_study(tmp_path / "runs", plan=planned.fingerprint)
    write_plan(planned, folder)
    code, _, error = rota("report", folder, "--out", tmp_path / "report")
    assert code == 0, error
    page = (tmp_path / "report" / "index.html").read_text()
    assert page.index('<section id="planned">') < page.index('<section id="summary">')
    assert f"All 12 runs of it began under this very plan (fingerprint {planned.fingerprint})." in page
    markdown = (tmp_path / "report" / "report.md").read_text()
    assert "## Summary (exploratory)" in markdown
    assert "## Planned contrasts\n" in markdown
    assert "## How this was made\n" in markdown
    assert "- main: ALIGN minus the best of T2 and T5." in markdown
    assert "| main (T5) |" in markdown
    [line] = csv.DictReader((tmp_path / "report" / "tables" / "planned.csv").read_text().splitlines())
    assert float(line["difference"]) == 1.125
    assert (line["best"], line["seeds"], line["seeds_planned"]) == ("t5", "4", "4")


def test_a_page_says_if_runs_began_under_another_plan_or_none(rota, tmp_path):
    before, now = plan({"main": {"row": "align", "minus": "t2"}}), plan({"main": {"row": "align", "minus": "t5"}})
    folder = make_study(tmp_path / "runs", plan=before.fingerprint)
    about = json.loads((folder / "t5" / "seed-1" / "run.json").read_text())
    del about["plan"]
    (folder / "t5" / "seed-1" / "run.json").write_text(json.dumps(about))
    write_plan(before, folder)
    write_plan(now, folder)
    rota("report", folder, "--out", tmp_path / "report", "--records", tmp_path / "records")
    markdown = (tmp_path / "report" / "report.md").read_text()
    other = f"7 under another plan ({before.fingerprint}) and 1 without a plan"
    assert f"Of its 8 runs, 0 began under this plan (fingerprint {now.fingerprint}), but {other}: the tests" in markdown
    assert find_plan(tmp_path / "records") == find_plan(folder)


def test_an_unfinished_plan_is_an_interim_look(rota, tmp_path):
    planned = plan({"main": {"row": "align", "minus": "t2"}}, seeds=9)
    folder = make_study(tmp_path / "runs", plan=planned.fingerprint)
    write_plan(planned, folder)
    rota("report", folder, "--out", tmp_path / "report")
    markdown = (tmp_path / "report" / "report.md").read_text()
    assert "Not all planned runs have finished: this is an interim look" in markdown
    assert "| 4 of 9 |" in markdown


def with_few_seeds_of_t2(folder, planned):
    """The suite gives t2 the seeds 1 and 2, and the plan names four."""
    make_study(folder, plan=planned.fingerprint)
    described = json.loads((folder / "suite.json").read_text())
    rows = [row | {"seeds": [1, 2] if row["name"] == "t2" else None} for row in described["rows"]]
    (folder / "suite.json").write_text(json.dumps(described | {"rows": rows}))
    write_plan(planned, folder)
    return folder


def test_a_plan_is_done_when_a_row_with_seeds_of_its_own_has_those(rota, tmp_path):
    planned = plan({"main": {"row": "align", "minus": "uniform"}, "few": {"row": "t2", "minus": "uniform"}})
    folder = with_few_seeds_of_t2(tmp_path / "runs", planned)
    shutil.rmtree(folder / "t2" / "seed-3")  # seed 4 was not planned, and is not counted
    rota("report", folder, "--out", tmp_path / "report")
    markdown = (tmp_path / "report" / "report.md").read_text()
    assert "and 4 seeds, of which the suite gives T2 2. All 10 runs of it began under this very plan" in markdown
    assert "| 4 of 4 |" in markdown
    assert "| 2 of 2 |" in markdown
    assert "Not all planned runs have finished" not in markdown
    shutil.rmtree(folder / "t2" / "seed-2")
    rota("report", folder, "--out", tmp_path / "report")
    assert "Not all planned runs have finished" in (tmp_path / "report" / "report.md").read_text()


def test_only_the_seeds_that_all_rows_of_a_contrast_are_to_have_count(tmp_path):
    planned = plan({"few": {"row": "align", "minus_best_of": ["t2", "uniform"]}})
    study = read_study([with_few_seeds_of_t2(tmp_path / "runs", planned)])
    [few] = planned_results(planned, {"": study})
    assert (few.planned, few.found.seeds) == (2, 2)
    assert few.found.mean == pytest.approx((1.0 + 1.5) / 2)
    [alone] = planned_results(plan({"all": {"row": "align", "minus": "uniform"}}), {"": study})
    assert (alone.planned, alone.found.seeds) == (4, 4)
    [power] = detectable(plan({"few": {"row": "align", "minus": "t2"}}, seeds=12), {"": study}, {"t2": (1, 2, 99)})
    assert power.seeds == 2


def test_a_suite_with_several_corpora_has_one_page_for_all_and_one_for_each(rota, tmp_path):
    out = tmp_path / "runs"
    contrasts = {"main": {"row": "align", "minus_best_of": ["t2", "t5"], "corpora": ["one", "two"]}}
    planned = plan(contrasts)
    make_study(out / "one", plan=planned.fingerprint)
    make_study(out / "two", shift=4.0, data="other", plan=planned.fingerprint)
    (out / "suite.json").write_text(json.dumps({"name": "both", "corpora": ["one", "two", "three"]}))
    write_plan(planned, out)
    code, output, error = rota("report", out, "--out", tmp_path / "report", "--records", tmp_path / "records")
    assert code == 0, error
    assert "No runs on three." in output
    assert "planned: main, one, chrF: +1.12 [" in output
    page = (tmp_path / "report" / "index.html").read_text()
    assert page.index('id="planned"') < page.index('id="figure-regret-chrf"') < page.index('href="one/index.html"')
    assert (tmp_path / "report" / "figures" / "regret-chrf.png").read_bytes().startswith(b"\x89PNG")
    markdown = (tmp_path / "report" / "report.md").read_text()
    assert "## Regret (exploratory)" in markdown
    assert "- [two](two/report.md)" in markdown
    assert "## Summary (exploratory)" in (tmp_path / "report" / "two" / "report.md").read_text()
    lines = list(csv.DictReader((tmp_path / "report" / "tables" / "planned.csv").read_text().splitlines()))
    assert [(line["corpora"], line["best"]) for line in lines] == [("one", "t5"), ("two", "t2")]
    # Again from the copies alone.
    rota("report", tmp_path / "records", "--out", tmp_path / "again")
    again = (tmp_path / "again" / "tables" / "planned.csv").read_bytes()
    assert again == (tmp_path / "report" / "tables" / "planned.csv").read_bytes()


def test_a_page_says_which_rows_began_from_one_checkpoint_and_where_they_did_not(tmp_path):
    folder = make_study(tmp_path)
    for row, checkpoint in (("align", "a"), ("t2", "a"), ("t5", "b")):
        path = folder / row / "seed-1" / "run.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | {"stem": {"step": 4, "checkpoint": checkpoint}}))
    said = " ".join(how_made(read_study([folder])))
    assert "ALIGN, T2 and T5 began where their common warm-up ended, from one checkpoint for each seed" in said
    assert "But runs of seed 1 began from different checkpoints." in said
    path.write_text(path.read_text().replace('"checkpoint": "b"', '"checkpoint": "a"'))
    assert "different checkpoints" not in " ".join(how_made(read_study([folder])))
