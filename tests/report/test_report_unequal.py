"""Runs and rows that must not be compared as if they were equal: other settings, budgets, models, ways to score."""

import json
import re

import pytest
from made_runs import everywhere, make_run, make_suite, write_json

from rota.report.sentences import missing, what_was_run
from rota.report.study import read_study
from rota.report.tables.budgets import convergence_tables
from rota.report.tables.scores import ablation_tables


def change(run, section, /, **settings):
    """Other settings in ``run.json``, as a run of another config would have them."""
    about = json.loads((run / "run.json").read_text(encoding="utf-8"))
    about["config"][section] |= settings
    write_json(run / "run.json", about)
    return run


def test_runs_with_other_budgets_are_no_seeds_of_one_row(tmp_path):
    short = make_run(tmp_path / "short" / "uniform" / "seed-1", seed=1)
    long = make_run(tmp_path / "long" / "uniform" / "seed-2", seed=2, steps=40)
    said = (
        f"{short} and {long} are both of the row 'uniform', but training.steps is 20 in the first and 40 in the "
        "second; make a report for each"
    )
    with pytest.raises(ValueError, match=f"^{re.escape(said)}$"):
        read_study([tmp_path / "short", tmp_path / "long"])


@pytest.mark.parametrize(
    ("section", "before", "after", "said"),
    [
        ("training", {"tokens": 100}, {"tokens": 200}, "training.tokens is 100 in the first and 200 in the second"),
        ("student", {"width": None}, {"width": 64}, "student.width is None in the first and 64 in the second"),
        ("teacher", {"warmup": {"until": "10%"}}, {"warmup": None}, "teacher.warmup.until is '10%' in .* and None in"),
        ("teacher", {"warmup": None}, {"warmup": {"until": "10%"}}, "teacher.warmup.until is None in .* and '10%' in"),
        ("teacher", {"name": "dqn"}, {"name": "tscl"}, "teacher.name is 'dqn' in the first and 'tscl' in the second"),
    ],
)
def test_the_first_setting_that_differs_is_named_with_both_values(tmp_path, section, before, after, said):
    change(make_run(tmp_path / "row" / "seed-1", seed=1), section, **before)
    change(make_run(tmp_path / "row" / "seed-2", seed=2), section, **after)
    with pytest.raises(ValueError, match=said):
        read_study([tmp_path])


@pytest.mark.parametrize(
    ("section", "before", "after"),
    [
        ("student", {"device": "cpu", "compile": False}, {"device": "cuda", "compile": True}),
        ("training", {"threads": 1, "keep": 2}, {"threads": 8, "keep": 5}),
        ("training", {}, {"setting_of_a_later_version": 0.1}),
        ("teacher", {"run": "here/dqn/seed-1"}, {"run": "/there/dqn/seed-2"}),
        ("teacher", {"second": {"run": "here/dqn/seed-1"}}, {"second": {"run": "/there/dqn/seed-2"}}),
        ("teacher", {"table": "mine/seed-1.csv"}, {"table": "mine/seed-2.csv"}),
        ("data", {"folder": "here"}, {"folder": "/there"}),
    ],
)
def test_seeds_may_differ_in_where_they_were_trained_and_in_what_contains_the_seed(tmp_path, section, before, after):
    change(make_run(tmp_path / "row" / "seed-1", seed=1), section, **before)
    change(make_run(tmp_path / "row" / "seed-2", seed=2), section, **after)
    assert sorted(read_study([tmp_path]).rows["row"].runs) == [1, 2]


def test_a_file_of_another_seed_is_another_setting(tmp_path):
    change(make_run(tmp_path / "row" / "seed-1", seed=1), "teacher", table="mine/seed-1.csv")
    change(make_run(tmp_path / "row" / "seed-2", seed=2), "teacher", table="mine/seed-1.csv")
    with pytest.raises(ValueError, match=r"teacher.table is 'mine/seed-\{seed\}.csv' .* 'mine/seed-1.csv'"):
        read_study([tmp_path])


@pytest.fixture
def unequal(tmp_path):
    """Two rows as the baseline, two with twice the updates, one with a larger model and more batches an update."""
    rows = {name: {"label": name.capitalize()} for name in ("uniform", "like", "late", "later", "large")}
    make_suite(tmp_path, rows, seeds=[1])
    scores = {"chrf": everywhere(1.0), "bleu": everywhere(1.0)}
    for name in rows:
        run = make_run(tmp_path / name / "seed-1", steps=40 if "late" in name else 20, scores=scores)
        change(run, "training", accumulate=1)
    change(tmp_path / "large" / "seed-1", "training", accumulate=3)
    change(tmp_path / "large" / "seed-1", "student", preset="small")
    return read_study([tmp_path])


def test_rows_with_another_budget_or_model_than_the_baseline_are_named(unequal):
    assert missing(unequal, unequal.rows["uniform"]) == [
        "Late (warm-up 10%) and Later (warm-up 10%): 40 updates, not 20 as Uniform (warm-up 10%); "
        "differences from it are not of schedules alone.",
        "Large (warm-up 10%): 3 batches in an update, not 1; preset small, not tiny as Uniform (warm-up 10%); "
        "differences from it are not of schedules alone.",
    ]


def test_the_page_begins_with_ranges_where_runs_differ(unequal):
    assert what_was_run(unequal) == (
        "5 schedules, 5 finished runs of 20 to 40 updates of 100 to 300 target tokens; presets small and tiny; "
        "4 languages with 1,000 training pairs (synthetic)."
    )


def test_an_ablation_is_compared_with_no_control_and_the_page_says_that_it_is_in_no_table(tmp_path):
    rows = {"uniform": {}, "dqn-random": {"table": "control"}, "dqn-tau": {"label": "tau", "table": "dqn"}}
    make_suite(tmp_path, rows, seeds=[1])
    scores = {"chrf": everywhere(1.0), "bleu": everywhere(1.0)}
    for row in rows:
        make_run(tmp_path / row / "seed-1", teacher=row.partition("-")[0], scores=scores)
    study = read_study([tmp_path])
    assert study.default_of("dqn") is None
    assert ablation_tables(study) == []
    assert missing(study, study.rows["uniform"]) == [
        "tau (warm-up 10%): in no table of scores, because the teacher dqn was not run as it is by default; "
        "rota compare --rows dqn adds that."
    ]
    make_run(tmp_path / "dqn" / "seed-1", teacher="dqn", scores=scores)
    study = read_study([tmp_path])
    assert study.default_of("dqn").name == "dqn"
    assert missing(study, study.rows["uniform"]) == []


def test_settings_of_any_teacher_have_tables_under_the_name_of_its_row(tmp_path):
    rows = {"uniform": {}, "exp3": {"label": "EXP3"}, "exp3-gamma": {"label": "gamma = 0.5", "table": "exp3"}}
    make_suite(tmp_path, rows, seeds=[1])
    for row in rows:
        make_run(tmp_path / row / "seed-1", teacher=row.partition("-")[0], scores={"chrf": everywhere(1.0)})
    study = read_study([tmp_path])
    [scores] = ablation_tables(study)
    assert (scores.name, scores.title) == (
        "exp3-low-resource-chrf",
        "EXP3 with other settings: chrF, low-resource languages",
    )
    steps = convergence_tables(study)[1]
    assert (steps.name, steps.title) == ("exp3-convergence", "EXP3 with other settings: steps to the best model")
    assert [line[0].text for line in steps.rows] == ["EXP3", "gamma = 0.5"]


def test_a_control_varies_the_row_that_it_replays_or_the_default_of_its_own_teacher(tmp_path):
    controls = {name: {"table": "control"} for name in ("replay", "exp3-random", "temperature-5")}
    make_suite(tmp_path, {"uniform": {}, "tscl": {}, "exp3": {}, **controls}, seeds=[1])
    for row in ("uniform", "tscl", "exp3", *controls):
        make_run(tmp_path / row / "seed-1", teacher=row.partition("-")[0])
    change(tmp_path / "replay" / "seed-1", "teacher", run="runs/study/tscl/seed-1")
    study = read_study([tmp_path])
    varied = {name: study.control_of(study.rows[name]) for name in controls}
    assert varied == {"replay": study.rows["tscl"], "exp3-random": study.rows["exp3"], "temperature-5": None}


def test_scores_of_another_number_of_checkpoints_are_named(tmp_path):
    """All are averages that end with the last step; one is of two checkpoints, the others of four."""
    for row, steps in (("a", [14, 16, 18, 20]), ("b", [14, 16, 18, 20]), ("c", [18, 20])):
        scores = {"chrf": everywhere(1.0), "bleu": everywhere(1.0)}
        make_run(tmp_path / row / "seed-1", scores=scores, chosen={"combine": "average", "steps": steps})
    study = read_study([tmp_path])
    assert missing(study, study.rows["a"]) == [
        f"{metric} of c (warm-up 10%) seed 1 comes from another selection, number of checkpoints or search than that "
        "of the others."
        for metric in ("chrF", "BLEU")
    ]
