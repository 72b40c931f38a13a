"""Early stopping: the rule worked out by hand, in real training, whole and cut in two, and in reports and suites."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota import api
from rota.config import parse_config
from rota.report.study import StudyRun
from rota.runs import Run
from rota.settings import ConfigError
from rota.training.progress.stopping import EarlyStopping, Stopping

GOAL = {"az": 0.75, "tr": 0.25}


def stopping(**settings):
    return Stopping(EarlyStopping(**settings), {"az": 1.0})


def waits(rule, values):
    """Validations without improvement after each of the values."""
    found = []
    for step, value in enumerate(values, start=1):
        rule.validated(step, {"az": value})
        found.append(rule.waited)
    return found


def test_a_loss_must_fall_and_a_score_rise():
    assert waits(stopping(on="loss"), [3.0, 2.0, 2.5, 1.9]) == [0, 0, 1, 0]
    assert waits(stopping(on="bleu"), [3.0, 2.0, 2.5, 3.1]) == [0, 1, 2, 0]
    assert waits(stopping(on="chrf"), [3.0, 3.0]) == [0, 1], "the same is not better"


def test_a_change_that_is_too_small_does_not_count_as_better():
    rule = stopping(smallest_change=0.1)
    assert waits(rule, [3.0, 2.95, 2.91, 2.85]) == [0, 1, 2, 0], "all are compared with the best, 3.0"
    assert (rule.best, rule.best_step) == (2.85, 4)


def test_it_is_over_after_as_many_validations_as_its_patience():
    rule = stopping(patience=2)
    waits(rule, [3.0, 3.0])
    assert not rule.is_over
    rule.validated(3, {"az": 3.0})
    assert rule.is_over
    assert rule.text == "the last 2 validations have not been better than the dev loss 3.000 of step 1"
    assert rule.entry(30)["why"] == "early-stopping"


def test_the_goal_weighs_the_languages():
    rule = Stopping(EarlyStopping(), GOAL)
    rule.validated(1, {"az": 2.0, "tr": 4.0})
    assert rule.best == pytest.approx(0.75 * 2 + 0.25 * 4)


@given(st.lists(st.floats(0, 10), min_size=1, max_size=30), st.integers(0, 29))
def test_a_rule_that_was_saved_goes_on_as_if_it_had_not_been(values, cut):
    whole, first, second = stopping(), stopping(), stopping()
    waits(whole, values)
    waits(first, values[:cut])
    second.load_state_dict(json.loads(json.dumps(first.state_dict())))
    for step, value in enumerate(values[cut:], start=cut + 1):
        second.validated(step, {"az": value})
    assert second.state_dict() == whole.state_dict()


def test_with_another_criterion_it_begins_anew():
    before, after = stopping(on="loss"), stopping(on="chrf")
    waits(before, [3.0, 4.0])
    after.load_state_dict(before.state_dict())
    assert (after.best, after.waited) == (None, 0)


VALUES = {
    "data": {
        "corpus": "synthetic",
        "synthetic": {"families": {"la": {"lala": 200, "lato": 60}}, "dev": 20, "test": 4},
        "subwords": {"size": 300},
    },
    "student": {
        **{"preset": "tiny", "width": 16, "heads": 2, "feedforward": 16, "layers": 1},
        **{"lr_warmup": 2, "learning_rate": {"peak": 0.01}},
    },
    "training": {
        **{"steps": 12, "tokens": 60, "checkpoint_every": 6, "validate_every": 2, "threads": 1},
        **{"tensorboard": False, "spot_checks": 0},
    },
}
RULE = {"patience": 2, "smallest_change": 5.0}  # nothing falls by five nats: over at the third validation


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return tmp_path_factory.mktemp("stopping") / "data"


def config(data, rule=RULE, **more):
    training = {**VALUES["training"], **({} if rule is None else {"early_stopping": rule}), **more}
    return parse_config({**VALUES, "data": {**VALUES["data"], "folder": str(data)}, "training": training})


def losses(run):
    return [(entry["step"], entry["loss"]) for entry in run.read("steps")]


def test_a_run_that_stops_early_is_finished_and_says_why(tmp_path, data):
    run, whole = Run(tmp_path / "run"), Run(tmp_path / "whole")
    loop = api.train(config(data), run.folder)
    api.train(config(data, rule=None), whole.folder)
    assert (loop.step, loop.is_over, run.end, run.steps) == (6, True, 6, 12)
    assert run.is_trained
    assert StudyRun(run.folder, "row").finished
    assert run.stop["text"] == loop.stopping.text
    assert (run.stop["step"], run.stop["best_step"], run.stop["waited"]) == (6, 2, 2)
    assert losses(run) == losses(whole)[:6], "the rule changes no update"
    assert (whole.stop, whole.end) == (None, 12)
    assert run.end_of(4) == 4, "the warm-up alone, as in the stem of a suite"
    assert Run(tmp_path / "nothing").end_of(12) == 12, "a folder in which nothing has begun"
    again = api.train(config(data), run.folder)
    assert again.step == 6, "it does not go on by itself"


def test_a_run_cut_in_two_stops_where_the_whole_one_does(tmp_path, data):
    api.train(config(data), tmp_path / "whole")
    api.train(config(data), tmp_path / "cut", until=3)
    api.train(config(data), tmp_path / "cut", until=5)
    api.train(config(data), tmp_path / "cut")
    for name in ("steps", "validations", "stops"):
        assert (
            Run(tmp_path / "cut").record_path(name).read_bytes()
            == Run(tmp_path / "whole").record_path(name).read_bytes()
        )


def test_a_run_that_stopped_goes_on_without_the_rule_or_with_more_patience(tmp_path, data):
    run, whole = Run(tmp_path / "run"), Run(tmp_path / "whole")
    api.train(config(data), run.folder)
    loop = api.train(config(data, {**RULE, "patience": 3}), run.folder)
    assert (loop.step, run.stop["step"], run.end) == (8, 8, 8)
    api.train(config(data, rule=None), run.folder)
    assert (run.stop, run.end) == (None, 12)
    assert [entry["why"] for entry in run.read("stops")] == [
        *("early-stopping", "continued", "early-stopping", "continued"),
    ]
    api.train(config(data, rule=None), whole.folder)
    assert losses(run) == losses(whole)


def test_the_last_validation_stops_nothing(tmp_path, data):
    run = Run(tmp_path / "run")
    loop = api.train(config(data, {**RULE, "patience": 5}), run.folder)
    assert (loop.step, run.stop) == (12, None)


def test_the_setting_is_written_only_where_it_is_used(data):
    assert "early_stopping" not in config(data, rule=None).dump()["training"]
    assert config(data).dump()["training"]["early_stopping"]["on"] == "loss"
    with pytest.raises(ConfigError, match="patience"):
        config(data, {"patience": 0})


def test_the_command_says_why_it_stopped_and_how_to_go_on(tmp_path, data, rota):
    values = {**VALUES, "data": {**VALUES["data"], "folder": str(data)}}
    values["training"] = {**VALUES["training"], "early_stopping": RULE}
    path = tmp_path / "my.yaml"
    path.write_text(json.dumps(values))
    code, output, _ = rota("train", path, "--run", tmp_path / "run")
    assert code == 0
    assert "stopped early at step 6 of 12: the last 2 validations have not been better than the dev loss" in output
    assert "--select loss" in output
    assert "--set training.early_stopping=null" in output
