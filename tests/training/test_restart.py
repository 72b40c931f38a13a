"""A learning rate that restarts where the teacher switches, in real training, whole and cut in two."""

import pytest

from rota import api
from rota.config import check_durations, parse_config
from rota.runs import Run
from rota.settings import ConfigError

DATA = {
    "corpus": "synthetic",
    "synthetic": {"families": {"la": {"lala": 200, "lato": 30}}, "dev": 20, "test": 4},
    "subwords": {"size": 300},
}
STUDENT = {
    **{"preset": "tiny", "width": 16, "heads": 2, "feedforward": 16, "layers": 1},
    **{"lr_warmup": 2, "learning_rate": {"peak": 0.01}},
}
TRAINING = {"steps": 12, "tokens": 60, "checkpoint_every": 12, "validate_every": 6, "threads": 1, "tensorboard": False}


def config(folder, teacher, student=STUDENT):
    data = {**DATA, "folder": str(folder / "data")}
    return parse_config({"data": data, "student": student, "teacher": teacher, "training": TRAINING})


RESTARTING = {"name": "two-phase", "switch": 5, "restart_learning_rate": True}


@pytest.mark.parametrize("cut", [4, 5, 6])
def test_a_run_with_a_restart_that_is_cut_in_two_equals_the_whole(tmp_path, cut):
    whole, halves = Run(tmp_path / "whole"), Run(tmp_path / "halves")
    api.train(config(tmp_path, RESTARTING), whole.folder)
    api.train(config(tmp_path, RESTARTING), halves.folder, until=cut)
    loop = api.train(config(tmp_path, RESTARTING), halves.folder)
    for name in ("steps", "validations"):
        assert whole.record_path(name).read_bytes() == halves.record_path(name).read_bytes()
    # 2 steps of warm-up to 0.01, then 0.01 * sqrt(2 / step): 0.00632 at step 5, and again from step 6 on.
    found = [loop.student.schedule(step) for step in (1, 2, 5, 6, 7, 12)]
    assert found == pytest.approx([0.005, 0.01, 0.01 * (2 / 5) ** 0.5, 0.005, 0.01, 0.01 * (2 / 7) ** 0.5])


def test_a_restart_changes_training_from_the_switch_on_and_not_before(tmp_path):
    plain, restarted = Run(tmp_path / "plain"), Run(tmp_path / "restarted")
    api.train(config(tmp_path, {**RESTARTING, "restart_learning_rate": False}), plain.folder)
    api.train(config(tmp_path, RESTARTING), restarted.folder)
    before, after = ([entry["loss"] for entry in run.read("steps")] for run in (plain, restarted))
    # The loss of an update is that before its step: step 6 is the first with another rate, step 7 shows it.
    assert before[:6] == after[:6]
    assert all(one != other for one, other in zip(before[6:], after[6:], strict=True))


@pytest.mark.parametrize("restart", [12, 0])
def test_a_restart_outside_the_run_is_refused(tmp_path, restart):
    student = STUDENT | {"learning_rate": {"peak": 0.01, "restart": restart}}
    with pytest.raises(ConfigError, match=rf"student\.learning_rate\.restart is step {restart} and the run has 12"):
        check_durations(config(tmp_path, "uniform", student))


def test_the_orders_of_unimax_train_on_the_same_batches(tmp_path):
    """Early, late and spread: every language's batches are the same ones, so are their tokens; only when differs."""
    losses, tokens = {}, {}
    for when in ("early", "spread", "late"):
        run = Run(tmp_path / when)
        api.train(config(tmp_path, {"name": "unimax", "epochs": 0.2, "when": when}), run.folder)
        steps = list(run.read("steps"))
        losses[when] = [entry["loss"] for entry in steps]
        tokens[when] = {arm: [e["tokens"] for e in steps if e["arm"] == arm] for arm in ("lala", "lato")}
    assert tokens["early"] == tokens["spread"] == tokens["late"]
    assert 0 < len(tokens["early"]["lato"]) < len(tokens["early"]["lala"])
    assert losses["early"] != losses["late"]
