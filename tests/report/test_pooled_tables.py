"""Tables of all schedules at once over hand-made records."""

import csv
import re
import shutil

import pytest
from made_runs import everywhere, make_run, make_suite

from rota.report.figures.regret import regret_figure
from rota.report.numbers.measures import CHRF as POINTS
from rota.report.numbers.measures import MACRO
from rota.report.numbers.pooled import loss_curve, regret_over
from rota.report.study import read_study
from rota.report.tables.pooled import equal_time_tables, pooled_tables, regret_tables

CHRF = {"uniform": (30.0, 32.0, 34.0), "dqn": (31.0, 34.0, 37.0), "tscl": (30.0, 32.0, 34.0)}
CPU = {"uniform": 30.0, "dqn": 60.0, "tscl": 30.0}
"""Processor seconds of each half of a run."""


def make_study(folder, *, chrf=CHRF, seeds=3, **about):
    make_suite(folder, {row: {"label": row.upper()} for row in chrf}, seeds=list(range(1, seeds + 1)))
    for row, scores in chrf.items():
        for seed in range(1, seeds + 1):
            losses = {10: everywhere(3.0), 20: everywhere(2.0 + seed / 10)}
            make_run(
                folder / row / f"seed-{seed}",
                seed=seed,
                teacher=row,
                dev_losses=losses,
                scores={"chrf": everywhere(scores[seed - 1])},
                time={"cpu": CPU[row]},
                **about,
            )
    return folder


def cells(table, row):
    found = next(line for line in table.rows if line[0].text == row)
    return [cell.text for cell in found]


def test_the_pooled_table_has_the_difference_and_the_freedom_of_all_rows(tmp_path):
    study = read_study([make_study(tmp_path)])
    loss, chrf = pooled_tables(study, study.rows["uniform"])
    assert (loss.name, chrf.name) == ("pooled-dev-loss", "pooled-chrf")
    # Residuals: dqn -2/3, 0, 2/3 and the others half of it with the other sign: squares 4/3 in all, over 4.
    found = next(line for line in chrf.data if line["row"] == "dqn")
    assert found["pooled_difference"] == pytest.approx(2)
    assert found["pooled_error"] == pytest.approx((1 / 3 * 2 / 3) ** 0.5)
    assert found["pooled_df"] == pytest.approx(4)
    assert found["paired_p_t"] == pytest.approx(0.0742, abs=1e-4)
    # Dunnett's 5 % point for two rows and 4 degrees of freedom is 3.31 in the printed tables; 3.31 * 0.4714 = 1.56.
    assert cells(chrf, "DQN")[3] == "+2.00 [+0.44, +3.56]"
    assert [line[0].text for line in chrf.rows] == ["DQN", "TSCL"]
    assert cells(loss, "DQN")[3:6] == ["0.000 [0.000, 0.000]", "inf", "1.000"], "losses without any noise"


def test_one_seed_has_no_pooled_table_and_no_equal_time(tmp_path):
    study = read_study([make_study(tmp_path, seeds=1)])
    assert pooled_tables(study, study.rows["uniform"]) == []
    assert equal_time_tables(study, study.rows["uniform"]) == []


def test_at_equal_time_a_run_that_costs_twice_as_much_is_read_half_way(tmp_path):
    study = read_study([make_study(tmp_path)])
    assert loss_curve(study.rows["dqn"].runs[1], "macro") == ([60.0, 120.0], [3.0, 2.1])
    [table] = equal_time_tables(study, study.rows["uniform"])
    assert "1.0 minutes of processor time" in table.caption
    assert cells(table, "UNIFORM")[3:] == ["20", *["2.200 ± 0.100"] * 3, ""]
    # 3.0 under every seed, minus 2.1, 2.2 and 2.3: 0.8 +- 4.303 * 0.1 / sqrt(3).
    assert cells(table, "DQN")[3:] == ["10", *["3.000 ± 0.000"] * 3, "+0.800 [+0.552, +1.048]"]


def test_runs_without_timings_have_no_table_at_equal_time(tmp_path):
    folder = make_study(tmp_path)
    (folder / "tscl" / "seed-2" / "timings.jsonl").write_text("")
    study = read_study([folder])
    assert equal_time_tables(study, study.rows["uniform"]) == []


def test_regret_is_over_the_rows_that_all_studies_have(rota, tmp_path):
    one = make_study(tmp_path / "one")
    other = {"uniform": (40.0, 40.0, 40.0), "dqn": (39.0, 39.0, 39.0)}
    two = make_study(tmp_path / "two", chrf=other, data="another corpus")
    tables = {table.name: table for table in regret_tables({"one": read_study([one]), "two": read_study([two])})}
    assert list(tables) == ["regret-dev-loss", "regret-chrf"]
    # uniform is 2 behind in the first and the best in the second; dqn the reverse, by 1.
    assert [line[0].text for line in tables["regret-chrf"].rows] == ["dqn", "uniform"]
    assert cells(tables["regret-chrf"], "uniform")[3:] == ["2.00", "0.00"]
    assert cells(tables["regret-chrf"], "dqn")[2] == "0.50 [0.50, 0.50]"
    code, _, error = rota("report", one, two, "--regret", "--out", tmp_path / "report")
    assert code == 0, error
    written = list(csv.DictReader((tmp_path / "report" / "tables" / "regret-chrf.csv").read_text().splitlines()))
    assert float(written[1]["regret"]) == 1.0
    code, _, error = rota("report", one, "--regret", "--out", tmp_path / "other")
    assert (code, "regret is over several corpora" in error) == (2, True)
    code, _, error = rota("report", one, two, "--regret", "--baseline", "dqn", "--out", tmp_path / "other")
    assert (code, "--baseline has no meaning with --regret" in error) == (2, True)


def test_the_figure_of_regret_has_a_number_for_each_corpus_and_frames_the_best(tmp_path):
    other = {"uniform": (40.0, 40.0, 40.0), "dqn": (39.0, 39.0, 39.0)}
    studies = {
        "one": read_study([make_study(tmp_path / "one")]),
        "two": read_study([make_study(tmp_path / "two", chrf=other, data="another corpus")]),
    }
    picture = regret_figure(regret_over(studies, POINTS, MACRO), {"uniform": "Uniform", "dqn": "DQN"}, POINTS)
    assert picture.alt.endswith(": DQN 0.50 (one 0.00, two 1.00); Uniform 1.00 (one 2.00, two 0.00)")
    words = re.findall(r"<text[^>]*>([^<]*)</text>", picture.svg)
    assert [words.index(name) for name in ("DQN", "Uniform")] == sorted(words.index(n) for n in ("DQN", "Uniform"))
    cells = [word for word in words if word in ("0", "1.00", "2.00")]
    assert cells[-4:] == ["0", "1.00", "2.00", "0"], "by line, then by corpus"
    assert "from resampled seeds" in picture.caption


def test_schedules_with_few_seeds_are_in_the_regret_of_those_with_many(tmp_path):
    studies = {}
    for name in ("one", "two"):
        folder = make_study(tmp_path / name, data=name)
        shutil.rmtree(folder / "tscl" / "seed-3")
        studies[name] = read_study([folder])
    found = regret_over(studies, POINTS, MACRO)
    # dqn is 1, 2 and 3 ahead of uniform; tscl has two seeds, and is uniform under both.
    assert {row: each.mean for row, each in found.items()} == pytest.approx(
        {"dqn": 0, "uniform": 2, "tscl": 2}, abs=0.3
    )
    [table] = [table for table in regret_tables(studies) if table.name == "regret-chrf"]
    assert "because not all schedules have the same seeds" in table.caption
