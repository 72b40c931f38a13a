"""``rota train --steps``: what was trained is the first part of the longer run; a message tells of the rate."""

import json
import shlex

import pytest
from test_early_stopping import VALUES

from rota import api
from rota.config import parse_config
from rota.runs import Run
from rota.settings import ConfigError
from rota.start.extension import about_rate, extended

SHARES = {"lr_warmup": "25%", "learning_rate": {"peak": 0.01}}
FIXED = {"lr_warmup": 2, "learning_rate": {"peak": 0.01}}


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return tmp_path_factory.mktemp("extension") / "data"


def config(data, student, teacher="uniform", **training):
    return parse_config(
        {
            "data": {**VALUES["data"], "folder": str(data)},
            "student": {**VALUES["student"], **student},
            "teacher": teacher,
            "training": {**VALUES["training"], **training},
        }
    )


def same_records(one, other):
    return all(
        one.record_path(name).read_bytes() == other.record_path(name).read_bytes() for name in ("steps", "validations")
    )


@pytest.mark.parametrize("teacher", ["uniform", {"name": "temperature", "temperature": 5}])
def test_an_extended_run_equals_one_that_was_planned_as_long(tmp_path, data, teacher):
    run, whole = Run(tmp_path / "run"), Run(tmp_path / "whole")
    # A quarter of 8 steps is 2; in the longer run it stays 2.
    short = config(data, SHARES, teacher, steps=8, validate_every="25%", checkpoint_every="50%")
    api.train(short, run.folder)
    loop = api.train(short, run.folder, steps=12)
    api.train(config(data, FIXED, teacher, steps=12, validate_every=2, checkpoint_every=4), whole.folder)
    assert (loop.step, run.steps, run.is_trained) == (12, 12, True)
    assert same_records(run, whole)
    assert run.about["extensions"] == [{"from": 8, "to": 12, "at": 8}]


def test_it_can_be_interrupted_resumed_and_extended_again(tmp_path, data):
    run, whole = Run(tmp_path / "run"), Run(tmp_path / "whole")
    short = config(data, SHARES, steps=8, validate_every="25%")
    api.train(short, run.folder)
    api.train(short, run.folder, steps=12, until=9)
    api.train(short, run.folder, until=11)  # without --steps: it is as long as it was made
    api.train(short, run.folder, steps=12)
    api.train(short, run.folder, steps=14)
    api.train(config(data, FIXED, steps=14, validate_every=2), whole.folder)
    steps = [note["to"] for note in Run(run.folder).about["extensions"]]
    assert steps == [12, 14]
    assert run.record_path("steps").read_bytes() == whole.record_path("steps").read_bytes()


def test_every_share_becomes_the_number_it_was():
    values = {
        "data": {"corpus": "synthetic"},
        "student": {"lr_warmup": "10%"},
        "teacher": {"name": "cooldown", "warmup": "5%"},
        "training": {"steps": 1000},
    }
    longer = extended(parse_config(values), 3000).dump()
    assert longer["training"]["steps"] == 3000
    assert longer["student"]["lr_warmup"] == 100
    assert longer["training"]["validate_every"] == 50
    assert longer["teacher"]["warmup"]["until"] == 50
    assert "%" not in json.dumps({name: longer[name] for name in ("student", "teacher", "training")})


def test_the_message_says_whether_the_rate_is_made_for_it():
    def said(decay):
        rate = {"peak": 0.01, "decay": decay}
        values = {"data": {"corpus": "synthetic"}, "student": {"lr_warmup": 10, "learning_rate": rate}}
        return about_rate(parse_config({**values, "training": {"steps": 300}}), 200, 200)

    for decay in ("inverse-sqrt", "hold-then-inverse-sqrt"):
        assert "the run that 300 steps would have been from the start" in said(decay)
    # Linear, from 0.01 at step 10 to 0 just after 200: 0.01 / 191 at step 200; for 300 steps 100 / 291 of 0.01 at 201.
    assert "was at 5.2e-05 at step 200" in said("linear")
    assert "goes back to 0.0034 and falls to 0 at step 300" in said("linear")
    for decay in ("cosine", "warmup-stable-decay"):
        assert "not what 300 steps from the start would give" in said(decay)


def test_what_cannot_be_extended_is_refused(tmp_path, data):
    run = Run(tmp_path / "run")
    short = config(data, SHARES, steps=4)
    api.train(short, run.folder)
    with pytest.raises(ConfigError, match=r"--steps 3, but .* is planned for 4 updates"):
        api.train(short, run.folder, steps=3)
    with pytest.raises(ConfigError, match="training.steps is 9, but .* was begun with 4"):
        api.train(config(data, SHARES, steps=9), run.folder, steps=9)
    with pytest.raises(ConfigError, match="holds another run: teacher"):
        api.train(config(data, SHARES, "proportional", steps=4), run.folder, steps=9)
    with pytest.raises(ConfigError, match="go on with --steps 4, extend it with a larger count, choose"):
        api.train(config(data, SHARES, steps=9), run.folder)
    assert "extensions" not in Run(run.folder).about


def test_the_command_extends_a_run_and_plans_a_new_one(tmp_path, data, rota):
    path = tmp_path / "my.yaml"
    path.write_text(json.dumps({**VALUES, "data": {**VALUES["data"], "folder": str(data)}}))
    code, output, _ = rota("train", path, "--run", tmp_path / "run", "--steps", "4")
    assert code == 0
    assert Run(tmp_path / "run").steps == 4
    assert "extensions" not in Run(tmp_path / "run").about
    again = tmp_path / "again"
    assert rota("train", path, "--run", again)[0] == 0
    code, output, _ = rota("train", path, "--run", again, "--steps", "14")
    assert code == 0
    assert "does not depend on the end of the run" in " ".join(output.split())
    assert "trained 14 steps" in output
    code, _, error = rota("train", path, "--run", again, "--steps", "soon")
    assert code == 2
    assert "--steps: 'soon' is not a count" in error
    code, _, error = rota("train", path, "--run", again, "--steps", "0")
    assert code == 2
    assert "--steps is 0; write at least 1" in error


def printed(output):
    """The command after "continue with", as a shell reads it, without the name of the program."""
    [line] = [line for line in output.splitlines() if "continue with: " in line]
    return shlex.split(line.partition("continue with: ")[2])[1:]


@pytest.mark.parametrize("length", [("--steps", "8"), ("--set", "training.steps=8")], ids=["steps", "set"])
@pytest.mark.parametrize("teacher", ["uniform", "dqn"])
def test_the_printed_command_resumes_and_steps_extend_a_run_whose_length_is_not_the_config_s(
    tmp_path, data, rota, length, teacher
):
    path, run = tmp_path / "my.yaml", tmp_path / "a run"
    values = {**VALUES, "data": {**VALUES["data"], "folder": str(data)}, "teacher": teacher}
    path.write_text(json.dumps({**values, "training": {**VALUES["training"], "steps": 300, "validate_every": "25%"}}))
    code, output, error = rota("train", path, "--run", run, *length, "--until", "4")
    assert code == 0, error
    code, output, error = rota(*printed(output), "--until", "6")
    assert code == 0, error
    assert "resuming from step 4" in output
    code, output, error = rota(*printed(output))
    assert code == 0, error
    assert "trained 8 steps" in output
    code, output, error = rota("train", path, "--run", run, "--steps", "12", "--until", "10")
    assert code == 0, error
    assert "goes on from 8 to 12 steps" in " ".join(output.split())
    code, output, error = rota(*printed(output))
    assert code == 0, error
    assert "trained 12 steps" in output
    assert [note["to"] for note in Run(run).about["extensions"]] == [12]
    short = {**values, "training": {**VALUES["training"], "steps": 8, "validate_every": "25%"}}
    api.train(parse_config(short), tmp_path / "whole")
    api.train(parse_config(short), tmp_path / "whole", steps=12)
    assert same_records(Run(run), Run(tmp_path / "whole"))


def test_another_run_is_not_continued_because_steps_names_the_length(tmp_path, data, rota):
    path, run = tmp_path / "my.yaml", tmp_path / "run"
    path.write_text(json.dumps({**VALUES, "data": {**VALUES["data"], "folder": str(data)}}))
    assert rota("train", path, "--run", run, "--steps", "4")[0] == 0
    for more, message in {
        ("--steps", "4", "--set", "seed=2"): "holds another run: seed was 1 and is 2",
        ("--steps", "6", "--set", "teacher=proportional"): "holds another run: teacher",
        (): "holds another run: training.steps was 4 and is 12; go on with --steps 4, extend it with a larger count, "
        "choose another folder with --run, or delete it",
    }.items():
        code, _, error = rota("train", path, "--run", run, *more)
        assert code == 2
        assert message in " ".join(error.split())
    assert rota("train", path, "--run", run, "--steps", "6")[0] == 0
    code, _, error = rota("train", path, "--run", run)
    assert code == 2
    assert "training.steps is 12, but" in error
    assert "was begun with 4; go on with --steps 6, extend it" in error
    assert Run(run).steps == 6
