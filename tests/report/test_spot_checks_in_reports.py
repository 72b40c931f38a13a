"""What a report makes of spot checks: the curve of the source gain, and the epochs of each language."""

import pytest
from made_runs import everywhere, make_run

from rota.report.assemble import make_report
from rota.report.ending import arm_totals
from rota.report.figures.results import source_gains_by_step
from rota.report.numbers.advice import read_facts
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


def test_epochs_are_those_of_the_end_where_validations_have_them(tmp_path):
    """The last spot check comes before the end: it said 8.7 epochs of what the end of the run said 9.0."""
    counted = dict(zip(ARMS, (9.0, 2.0, 1.5, 0.5), strict=True))
    made = {"dev_losses": {20: everywhere(3.0)}, "epochs": counted}
    make_run(tmp_path / "uniform" / "seed-1", spot_checks=checks(0.2, [8.7, 1.9, 1.4, 0.4]), **made)
    make_run(tmp_path / "uniform" / "seed-2", seed=2, **made)  # one that did not look
    [row] = read_study([tmp_path]).rows.values()
    assert [cell.text for cell in epoch_table([row], ARMS).rows[0]][2:] == ["2", "9.0", "2.0", "1.5", "0.5"]
    for run in row.runs.values():
        assert {arm.arm: arm.epochs for arm in read_facts(run).arms} == counted
        assert {total.arm: total.epochs for total in arm_totals(run)} == counted


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
