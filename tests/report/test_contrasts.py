"""What differences over seeds allow to say: marks, and what a study could have seen."""

import csv
import io

import pytest
from made_runs import everywhere, make_run

from rota.report.numbers.contrasts import contrast, marks, pooled_detectable
from rota.report.numbers.measures import CHRF, FINAL_LOSS, MACRO
from rota.report.sentences import headlines
from rota.report.study import read_study
from rota.report.tables.scores import average_tables
from rota.report.tables.table import to_csv
from rota.statistics import paired_seeds, smallest_detectable


def test_a_mark_stands_where_the_interval_excludes_zero_and_knows_which_side_is_better(tmp_path):
    for row, shift in (("base", 0.0), ("more", 5.0), ("less", -5.0)):
        for seed in (1, 2, 3):
            score = 30 + shift + seed / 10 + (seed == 1 and shift > 0) * 0.1
            losses = {20: everywhere(2 + shift / 10 + seed / 100 + (seed == 2) * (shift != 0) * 0.001)}
            scores = {"chrf": everywhere(score)}
            make_run(tmp_path / row / f"seed-{seed}", seed=seed, scores=scores, dev_losses=losses)
    study = read_study([tmp_path])
    rows, base = list(study.rows.values()), study.rows["base"]
    assert marks(rows, base, CHRF, MACRO) == {"more": "++", "less": "−−"}
    assert marks(rows, base, FINAL_LOSS, MACRO) == {"more": "−−", "less": "++"}, "less loss is better"


def test_a_mark_is_single_where_it_does_not_survive_holm(tmp_path):
    """Differences 1, 2, 1.5 have t = 1.5 / (0.5 / sqrt 3) = 5.196, p = 0.035: below 0.05, not below 0.05 / 2."""
    scores = {"base": (30.0, 30.0, 30.0), "better": (31.0, 32.0, 31.5), "same": (30.0, 31.0, 29.0)}
    for row, found in scores.items():
        for seed, score in enumerate(found, start=1):
            make_run(tmp_path / row / f"seed-{seed}", seed=seed, scores={"chrf": everywhere(score)})
    study = read_study([tmp_path])
    assert marks(list(study.rows.values()), study.rows["base"], CHRF, MACRO) == {"better": "+"}
    for table in average_tables(study, study.rows["base"]):
        lines = list(csv.DictReader(io.StringIO(to_csv(table))))
        better = next(line for line in lines if (line["row"], line["scope"]) == ("better", "macro"))
        assert float(better["p_t"]) == pytest.approx(0.0351, abs=1e-4)
        assert float(better["p_holm"]) == pytest.approx(2 * 0.0351, abs=2e-4), "what the marks rest on"
        assert all(line["p_holm"] == "" for line in lines if line["row"] == "base")


def test_two_seeds_that_agree_bear_no_mark(tmp_path):
    """Differences 1.0 and 1.001: an interval far from zero, from a single degree of freedom."""
    for row, found in {"base": (30.0, 30.0), "lucky": (31.0, 31.001)}.items():
        for seed, score in enumerate(found, start=1):
            make_run(tmp_path / row / f"seed-{seed}", seed=seed, scores={"chrf": everywhere(score)})
    study = read_study([tmp_path])
    assert contrast(study.rows["lucky"], study.rows["base"], CHRF, MACRO).interval[0] > 0.9
    assert marks(list(study.rows.values()), study.rows["base"], CHRF, MACRO) == {}
    said = headlines(study, study.rows["base"])
    assert any("2 seeds, too few for a verdict." in sentence for sentence in said)
    assert not any("exclude zero" in sentence for sentence in said)


def test_the_summary_says_once_what_could_have_been_seen_by_the_spread_of_all_rows(tmp_path):
    """Differences 1, 2, 3 and 0, 7, 14 have spreads 1 and 7; their root mean square is 5, as that of 5, 10, 15."""
    scores = {"base": (30.0, 30.0, 30.0), "calm": (31.0, 32.0, 33.0), "wild": (30.0, 37.0, 44.0)}
    for row, found in scores.items():
        for seed, score in enumerate(found, start=1):
            make_run(tmp_path / row / f"seed-{seed}", seed=seed, scores={"chrf": everywhere(score)})
    study = read_study([tmp_path])
    rows, base = list(study.rows.values()), study.rows["base"]
    like = paired_seeds([0.0, 0.0, 0.0], [5.0, 10.0, 15.0]).smallest_detectable
    assert pooled_detectable(rows, base, CHRF, MACRO) == (3, pytest.approx(like))
    said = f"Over all rows together the study could have seen {like:.2f} (chrF) with 3 seeds a row."
    assert headlines(study, base).count(said) == 1
    assert pooled_detectable(rows[:2], base, CHRF, MACRO) is None, "one row has its own figure"


def test_rows_with_more_seeds_count_for_more_in_what_all_rows_could_have_seen(tmp_path):
    """Spreads 1 and 1 of three pairs, 2 of five: (2 + 2 + 4 * 4) / 8 = 2.5; three pairs are the most usual number."""
    wanted = {"a": (-1.0, 0.0, 1.0), "b": (-1.0, 0.0, 1.0), "c": (-(8**0.5), 0.0, 0.0, 0.0, 8**0.5)}
    for row, found in {"base": (0.0,) * 5, **wanted}.items():
        for seed, score in enumerate(found, start=1):
            make_run(tmp_path / row / f"seed-{seed}", seed=seed, scores={"chrf": everywhere(30 + score)})
    study = read_study([tmp_path])
    like = smallest_detectable(2.5**0.5, 3)
    found = pooled_detectable(list(study.rows.values()), study.rows["base"], CHRF, MACRO)
    assert found == (3, pytest.approx(like))
