"""What benchmarks/golden.py calls a difference: a byte of a record, a bit of a tensor, a key; and what it does not."""

import importlib
import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
RUN = {"config": {"seed": 1}, "config_fingerprint": "aa", "versions": {"torch": "2"}, "data": {"folder": "/one"}}


@pytest.fixture
def golden_files(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module("golden_files")


@pytest.fixture
def golden(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module("golden")


@pytest.fixture
def folders(tmp_path):
    """The same small run twice."""
    for name in ("before", "after"):
        checkpoint = tmp_path / name / "checkpoints" / "10"
        checkpoint.mkdir(parents=True)
        lines = [{"step": 1, "loss": 6.5}, {"step": 2, "loss": 6.25}]
        (tmp_path / name / "steps.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        (tmp_path / name / "run.json").write_text(json.dumps(RUN))
        (tmp_path / name / "timings.jsonl").write_text(f"never the same: {name}\n")
        (checkpoint / "state.json").write_text(json.dumps({"teacher": {"left": [1, 2]}}))
        (checkpoint / "checkpoint.json").write_text(json.dumps({"step": 10, "files": {"state.json": name}}))
        save_file({"weight": np.zeros(3, np.float32)}, checkpoint / "network.safetensors")
    return tmp_path / "before", tmp_path / "after"


def differences(golden_files, folders, *allowed):
    return [str(found) for found in golden_files.compare_folders(*folders, allowed).different]


def test_equal_runs_are_identical_whatever_their_times_and_checksums(golden_files, folders):
    found = golden_files.compare_folders(*folders)
    assert (found.different, found.noted, found.new) == ([], [], [])


def test_one_changed_byte_of_a_record_is_found_and_named(golden_files, folders):
    record = folders[1] / "steps.jsonl"
    record.write_text(record.read_text().replace("6.25", "6.26"))
    assert differences(golden_files, folders) == ["steps.jsonl, line 2: loss 6.25 became 6.26"]


def test_the_same_values_in_other_bytes_are_a_difference_of_records_alone(golden_files, folders):
    for name in ("steps.jsonl", "run.json"):
        file = folders[1] / name
        file.write_text(file.read_text().replace(": ", ":"))
    assert differences(golden_files, folders) == ["steps.jsonl, line 1: the same values in other bytes"]


def test_a_record_that_ends_early_is_found(golden_files, folders):
    record = folders[1] / "steps.jsonl"
    record.write_text(record.read_text().splitlines(keepends=True)[0])
    assert differences(golden_files, folders)[0].startswith("steps.jsonl, line 2: ")


def test_a_tensor_that_differs_in_one_value_is_found_and_named(golden_files, folders):
    file = folders[1] / "checkpoints/10/network.safetensors"
    save_file({"weight": np.array([0, 0, 0.5], np.float32)}, file)
    expected = "checkpoints/10/network.safetensors, weight: 1 of 3 values differ, by 0.5 at most"
    assert differences(golden_files, folders) == [expected]


def test_minus_zero_differs_from_zero(golden_files, folders):
    save_file({"weight": np.array([0, 0, -0.0], np.float32)}, folders[1] / "checkpoints/10/network.safetensors")
    (found,) = differences(golden_files, folders)
    assert found.endswith("weight: 1 of 3 values differ, by 0 at most")


@pytest.mark.parametrize(
    ("tensors", "how"),
    [
        ({"weight": np.zeros(3)}, "weight: F32 [3] became F64 [3]"),
        ({"weight": np.zeros((3, 1), np.float32)}, "weight: F32 [3] became F32 [3, 1]"),
        ({"weight": np.zeros(3, np.float32), "bias": np.zeros(1)}, "bias: the tensor is new"),
    ],
)
def test_tensors_are_compared_by_name_type_and_shape(golden_files, folders, tensors, how):
    save_file(tensors, folders[1] / "checkpoints/10/network.safetensors")
    assert differences(golden_files, folders) == [f"checkpoints/10/network.safetensors, {how}"]


@pytest.mark.parametrize(
    ("teacher", "how"),
    [
        ({"left": [1, 3]}, "teacher.left.1: 2 became 3"),
        ({"left": [1, 2.0]}, "teacher.left.1: 2 became 2.0"),
        ({"left": [1]}, "teacher.left.1: 2 is missing"),
        ({"left": [1, 2], "right": None}, "teacher.right: null is new"),
    ],
)
def test_a_key_of_a_checkpoint_is_named(golden_files, folders, teacher, how):
    (folders[1] / "checkpoints/10/state.json").write_text(json.dumps({"teacher": teacher}))
    assert differences(golden_files, folders) == [f"checkpoints/10/state.json, {how}"]


def test_a_new_key_is_a_difference_unless_it_is_allowed(golden_files, folders):
    changed = RUN | {"config": {"seed": 1, "speed": 2}, "config_fingerprint": "bb"}
    (folders[1] / "run.json").write_text(json.dumps(changed))
    fingerprint, key = 'run.json, config_fingerprint: "aa" became "bb"', "run.json, config.speed: 2 is new"
    assert sorted(differences(golden_files, folders)) == sorted([fingerprint, key])
    assert differences(golden_files, folders, "config.s*") == []


def test_versions_and_folders_may_differ(golden_files, folders):
    changed = RUN | {"versions": {"torch": "3"}, "data": {"folder": "/other"}}
    (folders[1] / "run.json").write_text(json.dumps(changed))
    assert differences(golden_files, folders) == []


def test_a_missing_file_differs_a_new_one_is_listed_and_a_picture_is_noted(golden_files, folders):
    before, after = folders
    (before / "figure.png").write_bytes(b"one")
    (after / "figure.png").write_bytes(b"two")
    (after / "rewards.jsonl").write_text("{}\n")
    (after / "steps.jsonl").unlink()
    found = golden_files.compare_folders(before, after)
    assert [str(each) for each in found.different] == ["steps.jsonl: is missing"]
    assert found.new == ["rewards.jsonl"]
    assert [each.file for each in found.noted] == ["figure.png"]


def test_a_checkpoint_too_many_is_a_difference(golden_files, folders):
    (folders[1] / "checkpoints/17").mkdir()
    (folders[1] / "checkpoints/17/checkpoint.json").write_text("{}")
    expected = "checkpoints/17/checkpoint.json: is a checkpoint that BEFORE does not have"
    assert differences(golden_files, folders) == [expected]


def test_every_check_has_jobs_that_make_its_folders_after_what_they_need(golden, tmp_path):
    before, after = (golden.Version(name, tmp_path, tmp_path / name, kept=True) for name in ("one", "two"))
    own = [job for version in (before, after) for job in golden.jobs_of(version, tmp_path, "one")]
    jobs = [*own, *golden.continued_jobs(before, after)]
    made = [job.makes for job in jobs]
    assert len(made) == len(set(made))
    for number, job in enumerate(jobs):
        assert set(job.after) <= set(made[:number]), job.makes
    for check in golden.checks_of(before, after, quick=False):
        assert {check.before, check.after} <= set(made), check.name
    quick = {check.name for check in golden.checks_of(before, after, quick=True)}
    assert quick == {"prepare", *golden.QUICK}


def test_the_table_names_what_failed_and_what_differs(golden, folders, capsys):
    before, after = folders
    checks = [golden.Check("dqn", "whole", before, after), golden.Check("tscl", "whole", before, before / "gone")]
    errors = {before / "gone": "rota train ended with code 2: error: no data"}
    (after / "steps.jsonl").write_text("{}\n")
    assert golden.show(checks, errors, [], every=False) is False
    rows = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert rows[0].startswith("dqn whole DIFFERENT steps.jsonl, line 1: step 1 is missing; loss 6.5 is missing")
    assert rows[1] == "tscl whole FAILED rota train ended with code 2: error: no data"
    assert golden.show([golden.Check("dqn", "whole", before, before)], {}, [], every=False) is True
