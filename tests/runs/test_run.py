import gzip
import json
import lzma
import subprocess
import sys

import pytest

from rota.runs import Run

ABOUT = {
    "config": {"training": {"steps": 40}, "teacher": {"name": "uniform"}},
    "seed": 3,
    "data": {"sizes": {"az": 10, "tr": 90}, "low_resource": ["az"]},
}


def make_run(folder, about=ABOUT):
    run = Run(folder)
    run.write_about(about)
    return run


def write_checkpoint(run, step):
    folder = run.checkpoints_folder / str(step)
    folder.mkdir(parents=True)
    (folder / "checkpoint.json").write_text(
        json.dumps({"format": 1, "step": step, "complete": True, "files": {"state.json": ""}})
    )


def test_a_run_says_what_its_description_says(tmp_path):
    run = make_run(tmp_path / "run")
    assert (run.seed, run.steps, run.sizes) == (3, 40, {"az": 10, "tr": 90})
    assert (run.low_resource, run.high_resource) == (["az"], ["tr"])
    assert run.setting("config.teacher.name") == "uniform"
    assert (tmp_path / "run" / "run.json").read_text().startswith('{\n "config": {')


def test_a_folder_without_a_description_is_not_a_run(tmp_path):
    assert not Run(tmp_path).exists
    assert not Run(tmp_path).is_trained
    with pytest.raises(ValueError, match=r"is not a run folder \(no run\.json\); give the folder that"):
        _ = Run(tmp_path).seed


@pytest.mark.parametrize(
    ("content", "why"),
    [("", "Expecting value"), ("[]", "not a JSON object"), ('{"config": {}}', "it has no data.sizes")],
)
def test_a_damaged_description_is_named_with_the_remedy(tmp_path, content, why):
    (tmp_path / "run.json").write_text(content)
    with pytest.raises(ValueError, match=rf"run\.json is damaged \({why}\); copy it again, or delete the run"):
        _ = Run(tmp_path).about


def test_a_setting_that_is_missing_is_named(tmp_path):
    run = make_run(tmp_path)
    for key in ("config.evaluation", "config.training.steps.more", "hardware"):
        with pytest.raises(ValueError, match=rf"run\.json is damaged \(it has no {key}\); copy it again"):
            run.setting(key)


def test_records_are_read_plain_or_compressed_and_the_plain_one_first(tmp_path):
    run = Run(tmp_path)
    assert list(run.read("rewards")) == []
    assert run.find_record("rewards") is None
    (tmp_path / "rewards.jsonl.gz").write_bytes(gzip.compress(b'{"step": 1, "rewards": {}}\n'))
    assert list(run.read("rewards")) == [{"step": 1, "rewards": {}}]
    (tmp_path / "rewards.jsonl.xz").write_bytes(lzma.compress(b'{"step": 3, "rewards": {}}\n'))
    assert list(run.read("rewards")) == [{"step": 3, "rewards": {}}], "as it is published now"
    for name, pack in (("steps.jsonl.gz", gzip.compress), ("steps.jsonl.xz", lzma.compress)):
        assert not run.is_published
        (tmp_path / name).write_bytes(pack(b""))
        assert run.is_published
        (tmp_path / name).unlink()
    record = run.record("rewards")
    record.write({"step": 2, "rewards": {}})
    record.close()
    assert run.find_record("rewards") == tmp_path / "rewards.jsonl"
    assert list(run.read("rewards")) == [{"step": 2, "rewards": {}}]


def test_probes_come_in_the_order_of_their_steps(tmp_path):
    run = Run(tmp_path)
    assert run.probes() == []
    run.policy_folder.mkdir()
    for name, step in (("100", 100), ("20", 20), ("other", None)):
        (run.policy_folder / f"{name}.json").write_text(json.dumps({"step": step}))
    assert [probe["step"] for probe in run.probes()] == [20, 100]


def test_how_far_a_run_is_comes_from_its_files(tmp_path):
    run = make_run(tmp_path)
    assert (run.saved_step(), run.last_step(), run.last_dev_loss(), run.is_trained) == (0, 0, None, False)
    write_checkpoint(run, 20)
    update = {"step": 24, "arm": "az", "why": "sampled", "loss": 1.0, "tokens": 9}
    lines = [json.dumps(update), json.dumps(update | {"step": 25}), '{"st']
    (tmp_path / "steps.jsonl").write_text("\n".join(lines))
    (tmp_path / "validations.jsonl").write_text('{"step": 20, "dev_loss": {"az": 2.0, "tr": 4.0}}\nhalf a li\n')
    assert (run.saved_step(), run.last_step(), run.last_dev_loss(), run.is_trained) == (20, 25, 3.0, False)
    assert (run.is_saved(20), run.is_saved(40)) == (True, False)
    write_checkpoint(run, 40)
    assert run.is_trained


def test_one_process_trains_a_run_at_a_time(tmp_path):
    run = Run(tmp_path / "run")
    assert not run.is_locked
    with run.locked():
        assert run.is_locked
        with pytest.raises(ValueError, match=r"another process is training .*run; wait for it"):
            run.locked().__enter__()
    assert not run.is_locked


def test_a_file_cannot_become_a_run(tmp_path):
    (tmp_path / "run").touch()
    with pytest.raises(ValueError, match="run cannot be a folder, since there is a file of that name"):
        Run(tmp_path / "run").locked().__enter__()


READS_EVERYTHING = """
import sys
from rota.runs import Run
from rota.runs.standing import evaluated, standing_model, standing_scores
run = Run(sys.argv[1])
print(run.seed, run.steps, len(list(run.read("steps"))), len(evaluated(run)), run.probes(), run.selection())
print(run.saved_step(), run.is_trained, run.is_locked, run.last_dev_loss(), run.checkpoints().list())
print(standing_scores(run), standing_model(run))
heavy = {"torch", "safetensors", "tokenizers", "sacrebleu", "matplotlib", "transformers"} & set(sys.modules)
assert not heavy, heavy
"""


def test_reading_a_run_does_not_import_torch(tmp_path):
    run = make_run(tmp_path)
    write_checkpoint(run, 40)
    entry = {"step": 40, "split": "test", "search": {"beam": 5}, "language": "az", "metric": "bleu", "score": 1.0}
    entry |= {"signature": "tok:13a"}
    (tmp_path / "evals.jsonl").write_text(json.dumps(entry) + "\n")
    (tmp_path / "selection.json").write_text('{"best": {"step": 40, "steps": [40]}}')
    done = subprocess.run(
        [sys.executable, "-c", READS_EVERYTHING, tmp_path], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
