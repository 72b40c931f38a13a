"""What a report makes of spot checks: the curve of the source gain, and the epochs of each language."""

import pytest
from made_runs import everywhere, make_run

from rota.report.assemble import make_report
from rota.report.figures.results import source_gains_by_step
from rota.report.numbers.cost import phase
from rota.report.study import read_study
from rota.report.tables.budgets import epoch_table
from rota.runs import Run

ARMS = ("az", "be", "tr", "ru")


def checks(last, epochs):
    """At step 5 a check of two languages, at 10 and 20 of all of them."""
    some = {"step": 5, "dev_source_gain": {"az": [9.0, 0.1], "be": [9.0, 0.1]}, "epochs": dict.fromkeys(ARMS, 0.5)}
    first = {"step": 10, "dev_source_gain": {arm: [0.1, 0.02] for arm in ARMS}, "epochs": dict.fromkeys(ARMS, 1.0)}
    gains = dict(zip(ARMS, [[last, 0.02], [last + 0.1, 0.02], [last + 0.2, 0.02], [last + 0.3, 0.02]], strict=True))
    return [some, first, {"step": 20, "dev_source_gain": gains, "epochs": dict(zip(ARMS, epochs, strict=True))}]


@pytest.fixture
def suite(tmp_path):
    for seed, last, az in ((1, 0.2, 10), (2, 0.4, 12)):
        folder, looked = tmp_path / "uniform" / f"seed-{seed}", checks(last, [az, 20, 1, 2])
        make_run(folder, seed=seed, spot_checks=looked, dev_losses={20: everywhere(3.0)})
    return tmp_path


def test_the_source_gain_is_the_mean_over_languages_where_a_check_had_them_all(suite):
    study = read_study([suite])
    [row] = study.rows.values()
    assert source_gains_by_step(row.runs[1]) == {10: pytest.approx(0.1), 20: pytest.approx(0.35)}


def test_epochs_are_those_of_the_last_check_as_means_over_seeds(suite):
    [row] = read_study([suite]).rows.values()
    table = epoch_table([row], ARMS)
    assert [cell.text for cell in table.rows[0]][2:] == ["2", "11.0", "20.0", "1.0", "2.0"]
    assert {"row": row.name, "seed": 2, "measure": "epochs of az", "value": 12} in table.data


def test_a_report_shows_both_and_one_of_runs_that_did_not_look_shows_neither(suite, tmp_path_factory):
    make_report([suite], suite / "report")
    page = (suite / "report" / "index.html").read_text(encoding="utf-8")
    assert "Source gain on dev sentences" in page
    assert "Epochs of each language" in page
    other = tmp_path_factory.mktemp("blind")
    make_run(other / "uniform" / "seed-1", dev_losses={20: everywhere(3.0)})
    make_report([other], other / "report")
    page = (other / "report" / "index.html").read_text(encoding="utf-8")
    assert "Source gain" not in page
    assert "Epochs of" not in page


def test_the_time_of_spot_checks_counts_as_validation(tmp_path):
    make_run(tmp_path / "uniform" / "seed-1", dev_losses={20: everywhere(3.0)})
    timings = '{"step": 20, "wall": 10.0, "cpu": 10.0, "phases": {"validations": 1.0, "spot checks": 0.5}}\n'
    (tmp_path / "uniform" / "seed-1" / "timings.jsonl").write_text(timings)
    [row] = read_study([tmp_path]).rows.values()
    assert phase("validations")(row.runs[1]) == pytest.approx(1.5)
    assert phase("rest")(row.runs[1]) == pytest.approx(8.5)
    assert isinstance(row.runs[1], Run)
