"""Curves of dev BLEU and chrF in a report, and why runs stopped early, from records made by hand."""

import pytest
from made_runs import SIZES, everywhere, make_run

from rota.report.assemble import make_report, make_sections
from rota.report.figures.drawing import schedule_looks
from rota.report.figures.results import dev_score_figure, dev_scores_by_step
from rota.report.numbers.measures import GOAL, MACRO
from rota.report.sentences import stopped_early, what_was_run
from rota.report.study import read_study

LOSSES = {step: everywhere(5.0 - step / 10) for step in (5, 10, 15, 20)}
STOP = {"step": 10, "why": "early-stopping", "best": 4.5, "text": "the last 2 validations have not been better than 1"}


def scored(bleu, chrf):
    """The first language has eight points more than the others."""
    more = next(iter(SIZES))
    return {
        step: {"bleu": {**everywhere(bleu), more: bleu + 8}, "chrf": everywhere(chrf + step)}
        for step in (5, 10, 15, 20)
    }


def test_the_curve_is_the_mean_over_languages_or_that_of_the_goal(tmp_path):
    make_run(tmp_path / "one", dev_losses=LOSSES, dev_scores=scored(10.0, 30.0), goal={"az": 3, "tr": 1})
    run = read_study([tmp_path / "one"]).any_run
    assert dev_scores_by_step(run, "bleu", MACRO) == pytest.approx(dict.fromkeys((5, 10, 15, 20), 12.0))
    assert dev_scores_by_step(run, "bleu", GOAL)[5] == pytest.approx(10 + 8 * 0.75)
    assert dev_scores_by_step(run, "chrf", MACRO) == {5: 35.0, 10: 40.0, 15: 45.0, 20: 50.0}


def test_validations_without_scores_are_left_out(tmp_path):
    """A run that started from a model has measured its loss before the first update, and translated nothing."""
    make_run(tmp_path / "one", dev_losses={0: everywhere(6.0), **LOSSES}, dev_scores=scored(10.0, 30.0))
    assert list(dev_scores_by_step(read_study([tmp_path / "one"]).any_run, "chrf", MACRO)) == [5, 10, 15, 20]


def test_the_figure_has_both_scores_and_says_what_they_are(tmp_path):
    for row, bleu in {"one": 10.0, "two": 4.0}.items():
        make_run(tmp_path / row, teacher="uniform" if row == "one" else "late", dev_losses=LOSSES)
        (tmp_path / row).rename(tmp_path / f"{row}-plain")
        make_run(tmp_path / row, dev_losses=LOSSES, dev_scores=scored(bleu, 30.0), warmup=f"{bleu:g}%")
    study = read_study([tmp_path / "one", tmp_path / "two"])
    looks = schedule_looks(list(study.rows))
    picture = dev_score_figure(study.main, looks, MACRO, "all languages")
    assert picture.name == "dev-scores"
    assert picture.title == "BLEU and chrF of dev sentences: all languages"
    assert "Greedy translations of 8 dev sentences of each language" in picture.caption
    assert "stopped" not in picture.caption
    assert "one (warm-up 10%) BLEU 12.0, chrF 50.0; two (warm-up 4%) BLEU 6.0, chrF 50.0" in picture.alt
    assert "dev BLEU" in picture.svg
    assert "dev chrF" in picture.svg
    plain = read_study([tmp_path / "one-plain"])
    assert dev_score_figure(plain.main, schedule_looks(list(plain.rows)), MACRO, "all languages") is None


def test_a_report_says_where_and_why_a_run_stopped(tmp_path):
    make_run(tmp_path / "row" / "seed-1", dev_losses=LOSSES)
    short = {step: LOSSES[step] for step in (5, 10)}
    make_run(tmp_path / "row" / "seed-2", seed=2, done=10, dev_losses=short, stops=[STOP])
    went_on = [STOP, {"step": 10, "why": "continued"}]
    make_run(tmp_path / "row" / "seed-3", seed=3, dev_losses=LOSSES, stops=went_on)
    study = read_study([tmp_path / "row"])
    title = study.rows["row"].title
    assert stopped_early(study) == [f"{title}, seed 2: stopped early at step 10 of 20; {STOP['text']}."]
    assert "3 finished runs of 20 updates" in what_was_run(study)
    assert what_was_run(study).endswith("1 run stopped early (synthetic).")
    curves = next(part for part in make_sections(study, study.rows["row"]) if part.name == "curves")
    assert list(curves.points) == stopped_early(study)
    [loss] = [picture for picture in curves.pictures if picture.name == "dev-loss-macro"]
    assert loss.caption.endswith("A cross marks where a run stopped early.")
    page = make_report([tmp_path / "row"], tmp_path / "report").page.read_text()
    assert STOP["text"] in page
