"""A report of runs that have a goal: its headline is about that, not about all languages."""

import pytest
from made_runs import SIZES, make_run

from rota.report.numbers.measures import CHRF, GOAL, MACRO, headline_scope, values
from rota.report.sentences import headlines
from rota.report.study import read_study
from rota.report.tables.scores import average_tables

WEIGHTS = {"az": 2, "tr": 1}


def by_language(base, az):
    return {**dict.fromkeys(SIZES, base), "az": az}


def make_study(folder, goals=(WEIGHTS, WEIGHTS)):
    """The goal gains 4 points of az, two thirds of it; all four languages one quarter."""
    for (row, az), goal in zip({"base": 30.0, "better": 34.0}.items(), goals, strict=True):
        for seed in (1, 2, 3):
            scores = {"chrf": by_language(20.0, az + seed / 10 * (row == "better"))}
            make_run(folder / row / f"seed-{seed}", seed=seed, scores=scores, goal=goal)
    return read_study([folder])


def test_the_values_of_a_run_have_the_mean_of_its_goal(tmp_path):
    study = make_study(tmp_path)
    found = values(study.rows["base"].first, CHRF)
    assert found[GOAL] == pytest.approx((2 * 30 + 20) / 3)
    assert found[MACRO] == pytest.approx((30 + 3 * 20) / 4)


def test_headlines_and_the_first_table_are_about_the_goal(tmp_path):
    study = make_study(tmp_path)
    said = headlines(study, study.rows["base"])
    assert said[0] == "The differences in this list are those of the goal (az 0.67, tr 0.33)."
    assert "chrF +2.80" in said[1], "two thirds of 4.2"
    tables = average_tables(study, study.rows["base"])
    assert [table.name for table in tables][:2] == ["goal", "averages"]
    assert "as the goal (az 0.67, tr 0.33) weighs them" in tables[0].caption


def test_runs_with_different_goals_are_compared_by_all_languages(tmp_path):
    study = make_study(tmp_path, goals=(WEIGHTS, "be"))
    assert headline_scope(study) == MACRO
    assert "chrF +1.05" in headlines(study, study.rows["base"])[0], "a quarter of 4.2"


def test_without_a_goal_there_is_no_such_table(tmp_path):
    study = make_study(tmp_path, goals=("all", "all"))
    assert next(table.name for table in average_tables(study, study.rows["base"])) == "averages"
    assert GOAL not in values(study.rows["base"].first, CHRF)
