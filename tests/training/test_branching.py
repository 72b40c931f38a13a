"""A run that begins with a stem, another run stopped where the warm-up ends, equals one that trained it itself."""

import json
import shutil

import pytest

from rota import api
from rota.config import parse_config
from rota.runs import Run
from rota.settings import ConfigError
from rota.training import branching

DATA = {
    "corpus": "synthetic",
    "synthetic": {"families": {"la": {"lala": 300, "lato": 60}}, "dev": 20, "test": 4},
    "low_resource": ["lato"],
    "subwords": {"size": 300},
}
STUDENT = {"preset": "tiny", "width": 16, "heads": 2, "feedforward": 16, "layers": 1, "lr_warmup": 4, "average": 0.9}
TRAINING = {"steps": 24, "tokens": 60, "checkpoint_every": 4, "validate_every": 5, "threads": 1, "tensorboard": False}
DQN = {"name": "dqn", "hidden": [8], "groups": 2, "group_sentences": 2, "replay_minimum": 2, "replay_batch": 2}
TEACHERS = {
    "uniform": {"name": "uniform", "warmup": 10},
    "temperature": {"name": "temperature", "warmup": 10, "decide_every": 3},
    "dqn": DQN | {"warmup": {"until": 10, "inform": "none"}, "decide_every": 2, "reward_tokens": 60},
    "tscl": {
        "name": "tscl",
        "warmup": {"until": 10, "inform": "none"},
        "first_visits": "after-warmup",
        "reward_tokens": 60,
        "decide_every": 2,
        "observe_every": 4,
    },
    "dqn, Rota's": DQN | {"variant": "rota", "warmup": 10, "decide_every": 2},
    "tscl, Rota's": {"name": "tscl", "variant": "rota", "warmup": 10, "decide_every": 2},
    "mixed": {"name": "mixed", "warmup": 10},
    "align": {"name": "align", "warmup": 10, "observe_every": 5, "start": 0, "refresh": 5, "gate_every": 5},
}


@pytest.fixture(autouse=True, scope="module")
def data_folder(tmp_path_factory):
    DATA["folder"] = str(tmp_path_factory.mktemp("data") / "data")


def config(teacher, **changes):
    values = {"data": DATA, "student": STUDENT, "training": TRAINING}
    for section, value in changes.items():
        values[section] = values.get(section, {}) | value if isinstance(value, dict) else value
    return parse_config(values | {"teacher": TEACHERS[teacher] if isinstance(teacher, str) else teacher})


def train_stem(folder, of):
    stem = folder / "stem"
    api.train(api.stem_of(of), stem, until=api.warmup_steps(of))
    return stem


def contents(run, ends=10):
    """Every file of a run that must be the same: the records, the weights, and later checkpoints as a whole.

    In those of the warm-up the next choice may have been asked for ahead, as in any run that was not stopped there.
    """
    names = ("steps", "observations", "rewards", "validations", "spot_checks", "alarms")
    files = {name: (run / f"{name}.jsonl").read_bytes() for name in names if (run / f"{name}.jsonl").exists()}
    for path in sorted((run / "checkpoints").rglob("*")):
        if path.name.startswith("student.") or (path.is_file() and int(path.parent.name) > ends):
            files[str(path.relative_to(run))] = path.read_bytes()
    return files


@pytest.mark.parametrize("teacher", TEACHERS)
def test_a_branch_is_bit_for_bit_the_run_that_trains_its_warm_up_itself(tmp_path, teacher):
    whole = config(teacher)
    api.train(whole, tmp_path / "whole")
    stem = train_stem(tmp_path, whole)
    assert [found.step for found in Run(stem).checkpoints().list()] == [4, 8, 10]
    api.train(whole, tmp_path / "branch", stem=stem)
    assert contents(tmp_path / "branch") == contents(tmp_path / "whole")


@pytest.mark.parametrize("patience", [1, 3])
def test_early_stopping_ends_a_branch_where_it_ends_the_whole_run(tmp_path, patience):
    """No loss falls by a hundred nats: over at the second validation, in the warm-up, or at the fourth, after it."""
    rule = {"early_stopping": {"patience": patience, "smallest_change": 100.0}}
    whole = config("temperature", training=rule | {"validate_every": 4})
    api.train(whole, tmp_path / "whole")
    stem = train_stem(tmp_path, whole)
    loop = api.train(whole, tmp_path / "branch", stem=stem)
    run, alone = Run(tmp_path / "branch"), Run(tmp_path / "whole")
    assert loop.is_over
    assert (run.end, run.stop, run.is_trained) == (4 + 4 * patience, alone.stop, True)
    assert contents(run.folder) == contents(alone.folder)


def test_several_runs_branch_from_one_stem_and_leave_it_as_it_was(tmp_path):
    stem = train_stem(tmp_path, config("uniform"))
    before = contents(stem)
    for teacher in ("uniform", {"name": "proportional", "warmup": 10}):
        run = tmp_path / str(len(list(tmp_path.iterdir())))
        api.train(config(teacher), run, stem=stem)
        assert Run(run).about["stem"]["step"] == 10
    assert contents(stem) == before
    assert "stem" not in Run(stem).about


def test_the_processor_time_of_the_stem_counts_for_the_branch(tmp_path):
    of = config("uniform", training={"validate_every": 8})
    stem = train_stem(tmp_path, of)
    spent = list(Run(stem).read("timings"))
    assert [entry["step"] for entry in spent] == [8, 10], "also the time after the last validation"
    api.train(of, tmp_path / "branch", stem=stem)
    timings = list(Run(tmp_path / "branch").read("timings"))
    assert timings[:2] == spent
    assert [entry["step"] for entry in timings] == [8, 10, 16, 24]


@pytest.mark.parametrize("place", ["records", "checkpoints"])
def test_a_branch_that_was_killed_while_it_began_begins_again(tmp_path, monkeypatch, place):
    of = config("dqn")
    stem, run = train_stem(tmp_path, of), tmp_path / "branch"
    module, name = (branching.shutil, "copyfile") if place == "records" else (branching, "_rewrite")
    real, calls = getattr(module, name), []

    def killed(*arguments, **options):
        calls.append(arguments)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return real(*arguments, **options)

    monkeypatch.setattr(module, name, killed)
    with pytest.raises(KeyboardInterrupt):
        api.train(of, run, stem=stem)
    monkeypatch.undo()
    assert not (run / "checkpoints").exists()
    api.train(of, run, until=13, stem=stem)
    api.train(of, run, stem=stem)  # cut in two after it began
    api.train(of, tmp_path / "whole")
    assert contents(run) == contents(tmp_path / "whole")


def test_a_branch_that_was_killed_while_it_began_does_not_go_on_with_another_stem(tmp_path, monkeypatch):
    first, second = config("uniform"), config("uniform", seed=2)
    stem, run = train_stem(tmp_path, first), tmp_path / "branch"
    api.train(api.stem_of(second), tmp_path / "other", until=10)
    monkeypatch.setattr(branching, "_rewrite", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        api.train(first, run, stem=stem)
    monkeypatch.undo()
    with pytest.raises(ValueError, match=r"other is not the stem that .*branch was to begin with; give that one, or"):
        api.train(first, run, stem=tmp_path / "other")
    api.train(first, run, stem=stem)
    assert Run(run).is_trained


def test_a_run_that_has_begun_needs_its_stem_no_more(tmp_path):
    of = config("uniform")
    stem, run = train_stem(tmp_path, of), tmp_path / "branch"
    api.train(of, run, until=12, stem=stem)
    shutil.rmtree(stem)
    api.train(of, run, stem=stem)
    assert Run(run).is_trained


def test_a_run_without_a_stem_says_nothing_of_one_and_a_plan_is_written_when_it_begins(tmp_path):
    of = config("uniform")
    api.train(of, tmp_path / "run", until=2, plan="0123456789abcdef")
    api.train(of, tmp_path / "run", until=3, plan="another")
    about = json.loads((tmp_path / "run" / "run.json").read_text())
    assert (about["plan"], "stem" in about) == ("0123456789abcdef", False)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"seed": 2}, "is not a stem of this run: seed was 1 and is 2; give another --stem"),
        ({"teacher": {"warmup": 12}}, "is not a stem of this run: teacher.warmup.until was 10 and is 12"),
        ({"teacher": {"decide_every": 2}}, "is not a stem of this run: teacher.decide_every was 1 and is 2"),
        ({"student": {"dropout": 0.2}}, "is not a stem of this run: student.dropout was"),
        ({"teacher": {"warmup": None}}, "has no warm-up that it is not told of"),
        ({"data": {"subwords": {"size": 290}}}, "was trained on other data than this run has; give another --stem"),
    ],
)
def test_what_is_not_treated_equally_is_refused(tmp_path, change, message):
    of = config("uniform")
    stem = train_stem(tmp_path, of)
    if "data" in change:
        change = {"data": DATA | change["data"] | {"folder": str(tmp_path / "other")}}
    teacher = TEACHERS["uniform"] | change.pop("teacher", {})
    with pytest.raises(ConfigError, match=message):
        api.train(config(teacher, **change), tmp_path / "run", stem=stem)
    assert not (tmp_path / "run").exists()


def test_a_stem_that_has_not_come_to_the_end_of_the_warm_up_is_refused(tmp_path):
    of = config("uniform")
    api.train(api.stem_of(of), tmp_path / "stem", until=7)
    with pytest.raises(ValueError, match=r"stem is at step 7, and the warm-up ends at 10; run rota train with --until"):
        api.train(of, tmp_path / "run", stem=tmp_path / "stem")
    api.train(api.stem_of(of), tmp_path / "stem", until=10)
    weights = tmp_path / "stem" / "checkpoints" / "10" / "student.network.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1])
    with pytest.raises(ValueError, match=r"10 is damaged \(student.network.safetensors\); delete"):
        api.train(of, tmp_path / "run", stem=tmp_path / "stem")


def test_teachers_that_are_told_of_their_warm_up_or_come_before_it_have_no_stem():
    def stem(teacher):
        return parse_config({"data": {"corpus": "synthetic"}, "teacher": teacher}).teacher.stem(100)

    assert stem({"name": "uniform"}) is None
    assert stem({"name": "tscl", "warmup": 10}) is None
    assert stem({"name": "tscl", "warmup": {"until": 10, "inform": "none"}}) is None, "visits come first"
    assert stem({"name": "uniform", "warmup": {"until": 10, "inform": "all"}}) is None
    assert stem({"name": "align", "warmup": 20}) == stem({"name": "uniform", "warmup": 20})
    assert stem({"name": "align", "warmup": 25})["observe_every"] == 10, "an observation would span the end"
    assert stem({"name": "mixed", "warmup": 10})["name"] == "mixed", "its warm-up has mixed batches"
    assert stem({"name": "dqn", "warmup": {"until": "10%", "inform": "none"}}) == {
        "name": "uniform",
        "warmup": {"until": "10%", "languages": "high-resource", "inform": "none"},
        "decide_every": 10,
        "observe_every": None,
    }


def test_weights_that_are_averaged_for_a_measure_from_the_first_step_on_need_a_stem_that_has_them(tmp_path):
    of = config("align", student={"average": None})
    stem = train_stem(tmp_path, of)
    with pytest.raises(ValueError, match=r"has no 'average' of the student, .*set student.average .* for all runs"):
        api.train(of, tmp_path / "run", stem=stem)
