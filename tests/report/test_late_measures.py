"""Means of the last validations, and the loss on the test sets, over hand-made records."""

import json

import pytest
from made_runs import SIZES, everywhere, make_run, make_suite

from rota.report.assemble import make_report
from rota.report.numbers.measures import ACCURACY, CALIBRATED_LOSS, LATE_LOSS, TEST_LOSS, measured, values
from rota.report.study import StudyRun, read_study

LOSSES = {step: everywhere(float(step)) for step in (4, 8, 12, 16, 18, 20)}


def add_to_validations(run, **measures):
    """The same value of each measure for every language at every validation, plus its step."""
    path = run / "validations.jsonl"
    entries = [json.loads(line) for line in path.read_text().splitlines()]
    for entry in entries:
        entry |= {name: everywhere(value + entry["step"]) for name, value in measures.items()}
    path.write_text("".join(json.dumps(entry) + "\n" for entry in entries))


def test_the_late_loss_is_the_mean_of_the_last_five_validations(tmp_path):
    run = StudyRun(make_run(tmp_path / "run", dev_losses=LOSSES), "uniform")
    assert values(run, LATE_LOSS) == dict.fromkeys([*SIZES, "low-resource", "high-resource", "macro"], 74 / 5)


def test_four_validations_are_too_few(tmp_path):
    run = StudyRun(make_run(tmp_path / "run", dev_losses=dict(list(LOSSES.items())[:4])), "uniform")
    assert values(run, LATE_LOSS) == {}


def test_calibrated_losses_and_accuracy_are_means_of_the_same_five(tmp_path):
    folder = make_run(tmp_path / "run", dev_losses=LOSSES)
    assert values(StudyRun(folder, "uniform"), CALIBRATED_LOSS) == {}, "a run of an earlier version"
    add_to_validations(folder, calibrated_loss=-1.0, accuracy=0.25)
    run = StudyRun(folder, "uniform")
    assert values(run, CALIBRATED_LOSS)["macro"] == pytest.approx(74 / 5 - 1)
    assert values(run, ACCURACY)["az"] == pytest.approx(100 * (74 / 5 + 0.25)), "in per cent"


def make_study(folder, scores):
    make_suite(folder, {row: {} for row in scores}, seeds=[1, 2])
    for row, by_seed in scores.items():
        for seed, loss in enumerate(by_seed, start=1):
            known = {} if loss is None else {"loss": everywhere(loss)}
            scored = {"chrf": everywhere(30.0), "bleu": everywhere(5.0), **known}
            make_run(folder / row / f"seed-{seed}", seed=seed, dev_losses=LOSSES, scores=scored)
    return folder


def test_the_test_loss_is_compared_and_less_is_better(tmp_path):
    study = read_study([make_study(tmp_path / "study", {"uniform": (3.0, 3.1), "tscl": (2.9, 3.0)})])
    assert [metric.name for metric in measured(study)] == [
        *("dev-loss", "late-dev-loss", "best-dev-loss", "test-loss", "chrf", "bleu")
    ]
    assert values(study.rows["tscl"].runs[2], TEST_LOSS)["macro"] == 3.0
    made = make_report([tmp_path / "study"], tmp_path / "report", baseline="uniform")
    assert "test loss \N{MINUS SIGN}0.100" in made.summary[0]
    assert {"pooled-test-loss", "differences-test-loss", "low-resource-test-loss", "pooled-late-dev-loss"} <= set(
        made.tables
    )
    assert "low-resource-late-dev-loss" not in made.tables, "shown for groups alone"


@pytest.mark.parametrize(("lacking", "said"), [((None, None), False), ((2.9, None), True)])
def test_a_missing_test_loss_is_named_only_if_others_have_it(tmp_path, lacking, said):
    ours = lacking if said else (None, None)
    study = make_study(tmp_path / "study", {"uniform": (3.0, 3.1) if said else (None, None), "tscl": ours})
    made = make_report([study], tmp_path / "report")
    assert any("No test loss of tscl" in point for point in made.missing) is said
