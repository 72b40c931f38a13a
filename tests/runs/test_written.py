"""What is lost at the end of a run's folder is noticed: lines of scores and hashes, and its last checkpoint."""

import json
import logging
import lzma
import shutil
import subprocess
import sys

import pytest

from rota import api
from rota.config import parse_config
from rota.files import read_json, write_json
from rota.report.folders import copy_records
from rota.runs import Run
from rota.runs.check import check_run
from rota.runs.written import Written

CONFIG = {
    "data": {
        "corpus": "synthetic",
        "synthetic": {"families": {"la": {"lala": 200, "lato": 60}}, "dev": 20, "test": 6},
        "low_resource": ["lato"],
        "subwords": {"size": 300},
    },
    "student": {"preset": "tiny", "width": 16, "heads": 2, "feedforward": 16, "layers": 1, "lr_warmup": 2},
    "teacher": "uniform",
    "training": {"steps": 12, "tokens": 60, "checkpoint_every": 3, "validate_every": 3, "threads": 1, "keep": 2},
    "evaluation": {"beam": 1},
}
LOST = r"copy it again, or delete written.json beside it and run rota evaluate again"


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    """A run that was trained and evaluated, beside its data."""
    folder = tmp_path_factory.mktemp("written")
    (folder / "config.yaml").write_text(json.dumps({**CONFIG, "data": {**CONFIG["data"], "folder": f"{folder}/data"}}))
    api.train(config_of(folder), folder / "run")
    api.evaluate(folder / "run")
    return folder


def config_of(folder):
    return parse_config({**CONFIG, "data": {**CONFIG["data"], "folder": str(folder / "data")}})


@pytest.fixture
def run(original, tmp_path):
    """A copy that may be harmed; its data are those of the original."""
    return Run(shutil.copytree(original / "run", tmp_path / "run"))


def cut(path, lines):
    """Keep so many lines."""
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:lines]))


def problems(run):
    return [str(problem) for problem in check_run(run).problems]


def test_what_a_run_has_at_least_is_written_beside_it(run):
    # BLEU, chrF and loss of two languages; a file of translations for each; updates 3, 6, 9 and 12 of 12.
    assert read_json(run.folder / "written.json", remedy="") == {
        "checkpoints": [3, 6, 9, 12],
        "translations": 2,
        "evals": 6,
    }
    assert problems(run) == []


@pytest.mark.parametrize(("name", "lines"), [("evals", 6), ("translations", 2)])
@pytest.mark.parametrize("left", ["all but one", "none", "no file"])
def test_lines_that_are_gone_from_the_end_are_noticed_by_check_and_evaluate(rota, run, name, lines, left):
    path = run.record_path(name)
    kept = lines - 1 if left == "all but one" else 0
    cut(path, kept)
    if left == "no file":
        path.unlink()
    why = f"it has {kept} {'line' if kept == 1 else 'lines'}, and had {lines}"
    assert problems(run) == [f"{path}: {why}"]
    code, _, error = rota("evaluate", run.folder)
    assert (code, error) == (2, f"error: {path} is damaged ({why}); {LOST}\n")


@pytest.mark.parametrize("command", [["report"], ["export", "--to", "hf"]])
def test_report_and_export_refuse_scores_of_which_the_last_are_gone(rota, run, tmp_path, command):
    cut(run.record_path("evals"), 3)
    name, *options = command
    code, _, error = rota(name, run.folder, *options, "--out", tmp_path / "out")
    assert (code, error) == (
        2,
        f"error: {run.record_path('evals')} is damaged (it has 3 lines, and had 6); {LOST}\n",
    )


STEPS = "it has 11 lines up to step 12, and had 12 when the checkpoint of that step was saved"
VALIDATIONS = "it has 3 lines up to step 12, and had 4 when the checkpoint of that step was saved"


@pytest.mark.parametrize(
    ("command", "name", "why"),
    [
        (["report", "--out", "out"], "steps", STEPS),
        (["report", "--out", "out"], "validations", VALIDATIONS),
        (["report", "--out", "out"], "timings", "it ends with step 9, and there is a validation of step 12"),
        (["advise"], "steps", STEPS),
        (["evaluate", "--select", "loss"], "validations", VALIDATIONS),
    ],
)
def test_nothing_is_made_of_a_record_of_training_that_lost_its_end(rota, run, monkeypatch, command, name, why):
    monkeypatch.chdir(run.folder.parent)
    path = run.record_path(name)
    cut(path, len(path.read_bytes().splitlines()) - 1)
    first, *options = command
    code, _, error = rota(first, run.folder, *options)
    remedy = "copy it again, or delete the run and train it again"
    assert (code, error.splitlines()[-1]) == (2, f"error: {path} is damaged ({why}); {remedy}")


def test_what_came_after_the_newest_checkpoint_may_be_gone(run):
    """It was maybe never on the disk: a run that goes on makes it again."""
    shutil.rmtree(run.checkpoints_folder / "12")
    for name, lines in (("steps", 10), ("validations", 3), ("timings", 3)):
        cut(run.record_path(name), lines)
        assert len(list(run.read(name))) == lines
    cut(run.record_path("steps"), 8)
    with pytest.raises(ValueError, match=r"it has 8 lines up to step 9, and had 9 when"):
        list(run.read("steps"))


def test_a_record_that_was_cut_within_a_line_has_lost_that_line(run):
    path = run.record_path("evals")
    path.write_bytes(path.read_bytes()[:-20])
    assert problems(run) == [f"{path}: it has 5 lines, and had 6"]


def test_nothing_is_added_to_a_record_that_has_lost_lines(run):
    entry = list(run.read("evals"))[-1]
    cut(run.record_path("evals"), 4)
    with pytest.raises(ValueError, match=r"evals.jsonl is damaged \(it has 4 lines, and had 6\)"):
        run.append("evals", [entry])
    assert len(run.record_path("evals").read_bytes().splitlines()) == 4


def test_the_remedy_helps(run):
    scores = run.record_path("evals").read_bytes()
    cut(run.record_path("evals"), 4)
    run.written.path.unlink()
    api.evaluate(run.folder)
    assert run.record_path("evals").read_bytes() == scores
    assert run.written.read() == {"evals": 6}, "the translations are counted when one is added"
    assert problems(run) == []


@pytest.mark.parametrize("name", ["evals", "translations"])
def test_a_process_killed_before_it_counted_its_lines_leaves_a_run_that_goes_on(original, run, monkeypatch, name):
    """As if killed between the two: the lines are there, the count is the one of before."""
    for path in (run.record_path("evals"), run.record_path("translations"), run.written.path):
        path.unlink()
    shutil.rmtree(run.translations_folder)
    killed_at = iter(range(9))
    kill = {"translations": 1, "evals": 2}[name]  # the count of the second translation, and of the scores

    def write(path, content, *, checked=False):
        if next(killed_at) == kill:
            raise KeyboardInterrupt
        write_json(path, content, checked=checked)

    with monkeypatch.context() as patch:
        patch.setattr("rota.runs.written.write_json", write)
        with pytest.raises(KeyboardInterrupt):
            api.evaluate(run.folder)
    counted = run.written.lines(name)
    there = len(list(run.read(name)))
    assert (counted, there) == {"translations": (1, 2), "evals": (0, 6)}[name]
    assert problems(run) == []
    api.evaluate(run.folder)
    assert problems(run) == []
    assert run.written.read() == {"translations": 2, "evals": 6}
    for record in ("evals", "translations"):
        assert run.record_path(record).read_bytes() == (original / "run" / f"{record}.jsonl").read_bytes()


def test_a_run_of_an_earlier_version_is_read_and_counted_from_its_next_score_on(run):
    run.written.path.unlink()
    cut(run.record_path("evals"), 5)
    shutil.rmtree(run.checkpoints_folder / "12")
    assert problems(run) == []
    assert len(list(run.read("evals"))) == 5
    run.append("evals", [next(iter(run.read("evals"))) | {"metric": "other"}])
    assert run.written.read() == {"evals": 6}
    assert [path.name for path in run.folder.glob(".*")] == [".lock"], "which is that of training"


ADDS_TWENTY = """
import sys
from rota.runs import Run
run = Run(sys.argv[1])
entry = next(iter(run.read("evals")))
for number in range(20):
    run.append("evals", [entry | {"metric": f"{sys.argv[2]}-{number}"}])
"""


def test_two_processes_that_add_scores_count_all_of_them_and_a_reader_is_not_misled(run):
    workers = [subprocess.Popen([sys.executable, "-c", ADDS_TWENTY, run.folder, metric]) for metric in ("a", "b")]
    while any(worker.poll() is None for worker in workers):
        list(run.read("evals"))
    assert [worker.returncode for worker in workers] == [0, 0]
    assert (run.written.lines("evals"), len(list(run.read("evals")))) == (46, 46)


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ({"evals": "6"}, "its evals is not a whole number"),
        ({"translations": -1}, "its translations is not a whole number"),
        ({"checkpoints": 12}, "its checkpoints are not a list of steps"),
        ({"checkpoints": ["12"]}, "its checkpoints are not a list of steps"),
    ],
)
def test_a_count_without_a_check_value_is_held_to_its_form(run, content, why):
    run.written.path.write_text(json.dumps(content))
    assert problems(run) == [f"{run.written.path}: {why}"]
    with pytest.raises(ValueError, match=rf"written.json is damaged \({why}\); delete it; the next rota train"):
        api.evaluate(run.folder)


def test_copied_records_are_known_to_be_cut_too(rota, run, tmp_path):
    copy_records(run.folder, tmp_path / "copy")
    copy = Run(tmp_path / "copy" / "run")
    assert copy.written.read() == {"evals": 6}
    assert problems(copy) == []
    packed = copy.find_record("evals")
    lines = lzma.decompress(packed.read_bytes()).splitlines(keepends=True)
    packed.write_bytes(lzma.compress(b"".join(lines[:5])))
    assert problems(copy) == [f"{packed}: it has 5 lines, and had 6"]
    run.written.path.unlink()  # as an earlier version would have left it
    copy_records(run.folder, tmp_path / "copy")
    assert copy.written.read() == {}


def test_a_checkpoint_that_is_gone_is_named(run):
    shutil.rmtree(run.checkpoints_folder / "6")
    assert problems(run) == [f"{run.checkpoints_folder / '6'}: it is missing"]
    shutil.rmtree(run.checkpoints_folder / "12")
    assert problems(run)[1:] == [
        f"{run.checkpoints_folder / '12'}: it is missing; rota train goes on from step 9 and makes it again"
    ]


@pytest.mark.parametrize(("gone", "goes_on"), [(["12"], 9), (["3", "6", "9", "12"], 0)])
def test_training_says_that_its_last_checkpoint_is_gone_and_makes_it_again(original, run, caplog, gone, goes_on):
    for step in gone:
        shutil.rmtree(run.checkpoints_folder / step)
    with caplog.at_level(logging.WARNING):
        api.train(config_of(original), run.folder)
    last = run.checkpoints_folder / "12"
    said = f"checkpoint {last} is missing; training goes on from step {goes_on}, and makes it again"
    assert [record.getMessage() for record in caplog.records if "missing" in record.getMessage()] == [said]
    for name in ("steps.jsonl", "validations.jsonl", "checkpoints/12/student.network.safetensors"):
        assert (run.folder / name).read_bytes() == (original / "run" / name).read_bytes()
    assert problems(run) == []
    caplog.clear()
    api.train(config_of(original), run.folder)
    assert "missing" not in caplog.text


def test_where_no_complete_checkpoint_is_left_training_cannot_make_the_last_one_again(rota, original, run):
    for step in ("9", "12"):
        shutil.rmtree(run.checkpoints_folder / step)
    remedy = "it is missing; copy it again, or delete the run and train it again"
    assert problems(run) == [f"{run.checkpoints_folder / step}: {remedy}" for step in ("9", "12")]
    code, _, error = rota("train", original / "config.yaml", "--run", run.folder)
    lacks = f"{run.checkpoints_folder} has no intact complete checkpoint, and 12 is missing"
    assert (code, error.splitlines()[-1]) == (2, f"error: {lacks}; delete the run's folder to start again")


@pytest.mark.parametrize("options", [[], ["--select", "macro"], ["--combine", "average"]])
def test_no_other_model_is_scored_in_the_place_of_the_last_one(rota, run, options):
    shutil.rmtree(run.checkpoints_folder / "12")
    scores = run.record_path("evals").read_bytes()
    code, _, error = rota("evaluate", run.folder, *options)
    again = "is missing; name another with --step, or: rota train goes on from step 9 and makes it again"
    assert (code, error.splitlines()[-1]) == (2, f"error: {run.checkpoints_folder / '12'} {again}")
    assert run.record_path("evals").read_bytes() == scores
    assert rota("evaluate", run.folder, "--step", 9)[0] == 0


def test_a_report_is_the_same_without_the_checkpoint(rota, run, tmp_path):
    """It is made of the records, and says which step its scores are of."""
    texts = []
    for number in range(2):
        assert rota("report", run.folder, "--out", tmp_path / f"report-{number}")[0] == 0
        texts.append((tmp_path / f"report-{number}" / "report.md").read_text().replace(f"report-{number}", ""))
        shutil.rmtree(run.checkpoints_folder / "12", ignore_errors=True)
    assert texts[0] == texts[1]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"select": "macro"}, True),
        ({"combine": "average", "window": 3}, True),  # 3, 9 and 12: it would have been 6, 9 and 12
        ({"combine": "average", "window": 2}, False),
        ({}, False),
    ],
)
def test_a_model_that_an_older_checkpoint_is_missing_from_is_not_made_of_others_without_a_word(
    run, caplog, options, said
):
    shutil.rmtree(run.checkpoints_folder / "6")
    api.evaluate(run.folder, **options)
    assert (f"{run} lacks its checkpoints of step 6; the others are used" in caplog.text) == said


def test_checkpoints_that_were_dropped_or_thinned_are_not_missed(original, tmp_path):
    run = Run(tmp_path / "run")
    api.train(config_of(original), run.folder, until=4)
    assert run.written.checkpoints() == [3, 4]
    api.train(config_of(original), run.folder, until=8)
    assert run.written.checkpoints() == [3, 6, 8], "4 was saved because the run was interrupted there"
    api.train(config_of(original), run.folder)
    assert run.written.checkpoints() == [3, 6, 9, 12]
    assert [checkpoint.complete for checkpoint in run.checkpoints().list()] == [False, False, True, True]
    assert problems(run) == []


def test_a_run_killed_before_it_noted_its_checkpoint_goes_on_from_it(original, tmp_path, monkeypatch, caplog):
    run, before = Run(tmp_path / "run"), Written.changing

    def killed(written):
        if (run.checkpoints_folder / "6").is_dir():
            raise KeyboardInterrupt
        return before(written)

    with monkeypatch.context() as patch:
        patch.setattr(Written, "changing", killed)
        with pytest.raises(KeyboardInterrupt):
            api.train(config_of(original), run.folder)
    assert run.written.checkpoints() == [3]
    assert problems(run) == []
    begun = []
    api.train(config_of(original), run.folder, listeners=[lambda loop: begun.append(loop.step) or Quiet()])
    assert begun == [6]
    assert run.written.checkpoints() == [3, 6, 9, 12]
    assert "missing" not in caplog.text


class Quiet:
    def __getattr__(self, name):
        return lambda *_: None


def test_a_damaged_checkpoint_that_training_replaces_is_not_missed_afterwards(original, tmp_path, caplog):
    run = Run(tmp_path / "run")
    api.train(config_of(original), run.folder)
    (run.checkpoints_folder / "12" / "state.json").write_text("{}")
    api.train(config_of(original), run.folder, until=10)
    assert run.written.checkpoints() == [3, 6, 9, 10]
    assert problems(run) == []
    assert "is missing" not in caplog.text
