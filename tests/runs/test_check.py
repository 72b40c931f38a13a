"""``rota check`` on a real run and its data: every flipped bit is noticed, with its file and line."""

import gzip
import json
import logging
import random
import shutil

import pytest

from rota import api
from rota.cli.check import check_folder
from rota.config import parse_config
from rota.files import read_json, write_json
from rota.plan import Plan, write_plan
from rota.runs import Run
from rota.runs.check import check_run
from rota.runs.records import Record

CONFIG = {
    "data": {
        "corpus": "synthetic",
        "synthetic": {"families": {"la": {"lala": 200, "lato": 60}}, "dev": 20, "test": 6},
        "low_resource": ["lato"],
        "subwords": {"size": 300},
    },
    "student": {"preset": "tiny", "width": 16, "heads": 2, "feedforward": 16, "layers": 1, "lr_warmup": 2},
    "teacher": {
        **{"name": "dqn", "warmup": None, "groups": 2, "group_sentences": 1, "decide_every": 1, "hidden": [4]},
        **{"replay_minimum": 1, "replay_batch": 2, "reward_tokens": 60},
    },
    "training": {"steps": 9, "tokens": 60, "checkpoint_every": 3, "validate_every": 3, "threads": 1, "keep": 1},
    "evaluation": {"beam": 1, "select": "macro", "combine": "average", "window": 2},
}


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    """A run that was trained, evaluated and probed, beside its data."""
    from rota.teachers.dqn.policy import probe_checkpoint

    folder = tmp_path_factory.mktemp("checked")
    config = parse_config({**CONFIG, "data": {**CONFIG["data"], "folder": str(folder / "data")}})
    api.train(config, folder / "run")
    api.evaluate(folder / "run")
    run = Run(folder / "run")
    probe_checkpoint(run.checkpoint()).write(run.policy_folder / "9.json")
    return folder


@pytest.fixture
def folder(original, tmp_path):
    """A copy that may be harmed; its data are those of the original."""
    shutil.copytree(original / "run", tmp_path / "run")
    shutil.copytree(original / "data", tmp_path / "data")
    run = Run(tmp_path / "run")
    run.write_about(run.about | {"data": run.about["data"] | {"folder": str(tmp_path / "data")}})
    return tmp_path


def flip(path, place, bit):
    content = bytearray(path.read_bytes())
    content[place] ^= 1 << bit
    path.write_bytes(content)


def checked_files(folder):
    """What must not change unnoticed: not the lock, the curves for TensorBoard, nor pictures."""
    return [
        path
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not path.name.startswith(".") and "tensorboard" not in path.parts
    ]


def test_a_whole_run_and_its_data_have_no_problems(original):
    found = check_folder(original)
    assert found.problems == []
    assert found.unchecked == []
    # Each file was read: run.json, subwords, records, checkpoints with their manifests, the rest.
    assert found.files >= len(checked_files(original))


def test_every_flipped_bit_of_any_file_is_noticed(folder):
    rng = random.Random(1)
    files = checked_files(folder)
    assert {path.suffix for path in files} >= {".json", ".jsonl", ".safetensors", ".txt", ".tsv", ".tokens"}
    silent = []
    for number in range(4 * len(files)):
        path = files[number % len(files)]
        whole = path.read_bytes()
        if not whole:
            continue
        place, bit = rng.randrange(len(whole)), rng.randrange(8)
        flip(path, place, bit)
        part = folder / "run" if folder / "run" in path.parents else folder / "data"
        if not check_folder(part).problems:
            silent.append((str(path.relative_to(folder)), place, bit))
        path.write_bytes(whole)
    assert silent == []


@pytest.mark.parametrize("name", ["evals.jsonl", "validations.jsonl"])
def test_every_single_bit_at_the_end_of_a_record_is_noticed_also_those_of_its_last_line_break(folder, name):
    path = folder / "run" / name
    path.write_bytes(path.read_bytes().splitlines(keepends=True)[0])  # a file of one line: nothing comes after it
    whole = path.read_bytes()
    for place in range(len(whole) - 24, len(whole)):
        for bit in range(8):
            flip(path, place, bit)
            with pytest.raises(ValueError, match=rf"{name}, line 1 is damaged \("):
                list(Run(folder / "run").read(name.removesuffix(".jsonl")))
            path.write_bytes(whole)


@pytest.mark.parametrize("name", ["selection.json", "policy/9.json", "run.json", "checkpoints/3/checkpoint.json"])
def test_every_single_bit_of_the_end_of_a_json_file_is_noticed(folder, name):
    path = folder / "run" / name
    whole = path.read_bytes()
    end = whole.index(b'"check"')
    for place in range(end - 20, len(whole) - 2):  # the last line break is white space
        for bit in range(8):
            flip(path, place, bit)
            if not says_the_same(path, whole):  # the last digit of a long number may not change its value
                with pytest.raises(ValueError, match=rf"{path.name} is damaged \("):
                    read_json(path, remedy="copy it again")
            path.write_bytes(whole)


def test_what_a_suite_says_of_its_runs_is_checked_too(rota, tmp_path):
    """Every third byte of its description and of its plan, and of the plans that came before."""
    write_json(tmp_path / "suite.json", {"name": "mine", "seeds": [1], "rows": [{"name": "even"}]}, checked=True)
    for seeds in ((1,), (1, 2)):
        contrasts = {"a": {"row": "even", "minus": "five"}}
        plan = Plan.model_validate({"contrasts": contrasts, "endpoint": "dev-loss"})
        write_plan(plan.resolved(("even", "five"), (), seeds), tmp_path)
    assert (check_folder(tmp_path).files, check_folder(tmp_path).problems, check_folder(tmp_path).unchecked) == (
        2,
        [],
        [],
    )
    for path in (tmp_path / "suite.json", tmp_path / "plan.json"):
        whole = path.read_bytes()
        for place in range(0, len(whole) - 2, 3):
            flip(path, place, bit=0)
            assert [problem.file for problem in check_folder(tmp_path).problems] == [str(path)], place
            path.write_bytes(whole)
    del (about := json.loads(path.read_text()))["check"], about["plan"]["seeds"]
    write_json(path, about)
    code, output, _ = rota("check", tmp_path)
    assert (code, output.count("\n")) == (1, 2)
    assert "plan.json: its fingerprint is not" in output


def says_the_same(path, whole):
    try:
        return json.loads(path.read_bytes()) == json.loads(whole)
    except ValueError:
        return False


def test_all_damaged_lines_of_a_record_are_listed_and_the_others_are_not(folder):
    path = folder / "run" / "steps.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    for number in (2, 5):
        lines[number - 1] = lines[number - 1].replace(b'"tokens": ', b'"tokens": 1', 1)
    path.write_bytes(b"".join(lines))
    found = [problem for problem in check_run(Run(folder / "run")).problems if problem.file == str(path)]
    assert [problem.line for problem in found if "check value" in problem.problem] == [2, 5]


@pytest.mark.parametrize("name", ["steps", "observations", "validations", "timings"])
def test_a_record_with_a_damaged_line_is_not_said_to_end_there(folder, name):
    path = folder / "run" / f"{name}.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    lines[1] = lines[1].replace(b'"step": ', b'"step": 1', 1)
    path.write_bytes(b"".join(lines))
    (problem,) = check_run(Run(folder / "run")).problems
    assert problem.line == 2


def test_a_line_that_is_gone_is_noticed_in_the_middle_and_at_the_end(folder):
    path = folder / "run" / "steps.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:3] + lines[4:]))
    assert check_run(Run(folder / "run")).problems[0].line == 4
    path.write_bytes(b"".join(lines[:-1]))
    (problem,) = check_run(Run(folder / "run")).problems
    assert str(problem) == f"{path}: it ends with step 8, and there is a checkpoint of step 9"


def test_a_run_does_not_resume_from_records_that_end_before_its_checkpoint(folder):
    path = folder / "run" / "steps.jsonl"
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:-1]))
    config = parse_config({**CONFIG, "data": {**CONFIG["data"], "folder": str(folder / "data")}})
    ends = r"steps.jsonl is damaged \(it ends with step 8, and the checkpoint is of step 9\)"
    with pytest.raises(ValueError, match=ends):
        api.train(config, folder / "run")


LATER = ["observations", "rewards", "validations", "timings"]


@pytest.mark.parametrize("name", LATER)
@pytest.mark.parametrize("left", ["all but one", "none"])
def test_a_record_that_ends_before_the_checkpoint_is_named_and_the_run_does_not_resume(folder, name, left):
    path = folder / "run" / f"{name}.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    if left == "none":
        path.unlink()
    else:
        path.write_bytes(b"".join(lines[:-1]))
    (problem,) = check_run(Run(folder / "run")).problems
    kept = len(lines) - 1 if left == "all but one" else 0
    if name == "timings":
        assert str(problem) == f"{path}: it ends with step {3 * kept}, and there is a validation of step 9"
    else:
        had = f"it has {kept} lines up to step 9, and had {len(lines)} when the checkpoint of that step was saved"
        assert str(problem) == f"{path}: {had}"
    config = parse_config({**CONFIG, "data": {**CONFIG["data"], "folder": str(folder / "data")}})
    with pytest.raises(ValueError, match=rf"{name}.jsonl is damaged \(it .*; copy it again, or delete the run"):
        api.train(config, folder / "run")


def test_a_checkpoint_that_does_not_count_lines_is_one_of_an_earlier_version(folder):
    path = folder / "run" / "validations.jsonl"
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:-1]))
    for manifest in folder.glob("run/checkpoints/*/checkpoint.json"):
        content = read_json(manifest, remedy="")
        assert list(content["records"]) == [
            *("steps", "observations", "rewards", "validations", "spot_checks", "alarms", "stops")
        ]
        del content["records"]
        write_json(manifest, content, checked=True)
    assert check_run(Run(folder / "run")).problems == []
    config = parse_config({**CONFIG, "data": {**CONFIG["data"], "folder": str(folder / "data")}})
    api.train(config, folder / "run")


def test_files_of_earlier_versions_are_read_and_counted(folder):
    run = folder / "run"
    for path in (run / "selection.json", run / "run.json"):
        content = read_json(path, remedy="")
        content.get("data", {}).pop("subwords", None)
        path.write_text(json.dumps(content))
    for name in ("steps", "evals"):
        entries = list(Run(run).read(name))
        lines = [json.dumps({key: entry[key] for key in entry if key != "hashes"}) for entry in entries]
        (run / f"{name}.jsonl").write_text("".join(f"{line}\n" for line in lines))
    found = check_folder(run)
    assert found.problems == []
    old = ("run.json", "subwords.json", "steps.jsonl", "evals.jsonl", "selection.json")
    assert sorted(found.unchecked) == sorted(str(run / name) for name in old)


def test_published_records_are_checked_too(folder):
    run = folder / "run"
    for path in run.glob("*.jsonl"):
        with gzip.open(f"{path}.gz", "wb") as file:
            file.write(path.read_bytes())
        path.unlink()
    shutil.rmtree(run / "checkpoints")
    (run / "subwords.json").unlink()
    assert check_folder(run).problems == []
    path = run / "steps.jsonl.gz"
    path.write_bytes(path.read_bytes()[:-10])
    assert next(problem.file for problem in check_folder(run).problems) == str(path)


def test_a_checkpoint_of_another_step_and_what_a_killed_process_left_are_named(folder):
    checkpoints = folder / "run" / "checkpoints"
    (checkpoints / "3").rename(checkpoints / "4")
    (checkpoints / ".7.partial").mkdir()
    (checkpoints / "6" / "student.optimiser.safetensors").write_bytes(b"left")
    found = [str(problem).removeprefix(f"{checkpoints}/") for problem in check_run(Run(folder / "run")).problems]
    assert "4/checkpoint.json: it is of step 3" in found
    assert ".7.partial: a process was killed while it saved this; rota train removes it" in found
    assert any(
        line.startswith("6/student.optimiser.safetensors: the checkpoint does not have this file") for line in found
    )


def test_the_next_training_removes_what_a_killed_process_left(folder):
    checkpoints = folder / "run" / "checkpoints"
    (checkpoints / ".7.partial").mkdir()
    (checkpoints / "6" / "student.optimiser.safetensors").write_bytes(b"left")
    (checkpoints / "9").rename(checkpoints / ".9.old")  # killed between two renames
    config = parse_config({**CONFIG, "data": {**CONFIG["data"], "folder": str(folder / "data")}})
    api.train(config, folder / "run")
    assert sorted(path.name for path in checkpoints.iterdir()) == ["3", "6", "9"]
    assert check_folder(folder / "run").problems == []


@pytest.mark.parametrize(
    ("key", "value", "why"),
    [
        ("files", [], "its files is not an object of checksums"),
        ("files", {}, "its files lack state.json"),
        ("step", "9", "its step is not a whole number"),
        ("complete", None, "its complete is not true or false"),
    ],
)
def test_a_manifest_without_a_check_value_is_held_to_its_form(folder, key, value, why):
    path = folder / "run" / "checkpoints" / "9" / "checkpoint.json"
    path.write_text(json.dumps(read_json(path, remedy="") | {key: value}))
    assert [str(problem) for problem in check_run(Run(folder / "run")).problems] == [f"{path}: {why}"]
    assert Run(folder / "run").checkpoints().find().step == 6


def test_a_checkpoint_that_was_scored_and_is_another_one_now_is_a_problem_of_that_checkpoint(folder):
    api.evaluate(folder / "run", select="none", combine="last")
    checkpoints = folder / "run" / "checkpoints"
    shutil.rmtree(checkpoints / "9")
    shutil.copytree(checkpoints / "6", checkpoints / "9")
    assert [str(problem) for problem in check_run(Run(folder / "run")).problems] == [
        f"{checkpoints / '9' / 'checkpoint.json'}: it is of step 6"
    ]


def test_a_complete_checkpoint_that_lost_its_moments_is_named(folder):
    checkpoint = Run(folder / "run").checkpoint()
    manifest = read_json(checkpoint.folder / "checkpoint.json", remedy="")
    del manifest["files"]["student.optimiser.safetensors"]
    (checkpoint.folder / "student.optimiser.safetensors").unlink()
    write_json(checkpoint.folder / "checkpoint.json", manifest)
    with pytest.raises(ValueError, match=r"9 is damaged \(it has no student.optimiser.safetensors\); copy it again"):
        checkpoint.load()


def exchange(run, step, other):
    """The weights of another step, in a checkpoint that is whole in itself."""
    ours, theirs = (run.checkpoints_folder / str(each) for each in (step, other))
    manifest = read_json(ours / "checkpoint.json", remedy="")
    weights = "student.network.safetensors"
    shutil.copyfile(theirs / weights, ours / weights)
    manifest["files"][weights] = read_json(theirs / "checkpoint.json", remedy="")["files"][weights]
    write_json(ours / "checkpoint.json", manifest, checked=True)


def test_exchanged_weights_are_noticed_where_they_were_scored(folder):
    run = Run(folder / "run")
    scored = len(list(run.read("evals")))
    last = {"select": "none", "combine": "average", "window": 2}
    api.evaluate(run.folder, **last)
    exchange(run, 6, other=3)
    problems = [problem for problem in check_run(run).problems if problem.line == scored + 1]
    assert [problem.file for problem in problems] == [str(run.record_path("evals"))]
    assert problems[0].problem.endswith("have other weights than those that were scored")
    place = r"evals.jsonl, line \d+ has a score of other weights than the checkpoints of step 9"
    with pytest.raises(ValueError, match=place):
        api.evaluate(run.folder, **last)
    with pytest.raises(ValueError, match="was made with other weights than the checkpoints have now; delete"):
        api.evaluate(run.folder)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("run/translations/*.test.lala.*.txt", r"is damaged \(it was changed after it was made\); delete"),
        ("run/translations/*.dev-selection.*.txt", r"is damaged \(it was changed after it was made\); delete"),
        ("run/losses/*.test.lala.tsv", r"is damaged \(it is not what was scored\); delete it and run rota evaluate"),
        ("run/subwords.json", r"is damaged \(the run was trained with other subwords\); copy"),
        ("data/text/test.lato-en.en", r"text/test.lato-en.en is damaged \(its checksum differs\); prepare"),
        ("data/text/dev.lato-en.lato", r"text/dev.lato-en.lato is damaged \(its checksum differs\); prepare"),
        ("data/test.target.tokens", r"test.target.tokens is damaged \(its checksum differs\); prepare"),
        ("run/evals.jsonl", r"evals.jsonl, line 1 is damaged \("),
        ("run/translations.jsonl", r"translations.jsonl, line 1 is damaged \("),
        ("run/validations.jsonl", r"validations.jsonl, line 1 is damaged \("),
    ],
)
def test_evaluate_notices_what_was_changed_after_the_fact(folder, name, message):
    path = sorted(folder.glob(name))[0]
    content = path.read_bytes()
    place = next((number for number, byte in enumerate(content[20:], start=20) if chr(byte).isalnum()), 0)
    path.write_bytes(content[:place] + (b"7" if content[place : place + 1] != b"7" else b"8") + content[place + 1 :])
    with pytest.raises(ValueError, match=message):
        api.evaluate(folder / "run")


def test_a_changed_translation_that_is_deleted_is_made_again_and_scored_alike(folder):
    run = Run(folder / "run")
    before = [(entry["language"], entry["metric"], entry["score"]) for entry in run.read("evals")]
    for path in run.translations_folder.glob("*.test.*"):
        path.unlink()
    evaluation = api.evaluate(run.folder)
    now = [(arm, score.metric, score.value) for arm, scores in evaluation.scores.items() for score in scores]
    assert now == before
    assert [(entry["language"], entry["metric"], entry["score"]) for entry in run.read("evals")] == before


def test_hashes_of_the_records_are_those_of_the_files(folder):
    import hashlib

    run = Run(folder / "run")
    entry = next(entry for entry in run.read("evals") if entry["metric"] == "bleu" and entry["language"] == "lato")
    translated = (run.folder / entry["translations"]).read_bytes()
    references = (folder / "data" / "text" / "test.lato-en.en").read_bytes()
    assert entry["hashes"]["translations"] == hashlib.sha256(translated).hexdigest()[:16]
    assert entry["hashes"]["references"] == hashlib.sha256(references).hexdigest()[:16]
    assert run.about["data"]["subwords"] == hashlib.sha256(run.subwords_path.read_bytes()).hexdigest()


def test_several_processes_may_add_to_a_record(folder):
    run = Run(folder / "run")
    held = Record(run.record_path("evals"))
    entry = list(run.read("evals"))[-1]
    run.append("evals", [entry | {"metric": "a"}])
    run.append("evals", [entry | {"metric": "b"}])
    assert [entry["metric"] for entry in run.read("evals")][-2:] == ["a", "b"]
    held.close()
    assert not list(run.folder.glob(".written.lock"))


def test_the_command_prints_one_line_a_problem_and_ends_with_1(rota, folder):
    code, output, _ = rota("check", folder / "run")
    assert (code, output.count("\n")) == (0, 1)
    assert logging.root.manager.disable == 0, "others may warn afterwards"
    assert output.endswith("files read, no problems\n")
    path = folder / "run" / "validations.jsonl"
    path.write_bytes(path.read_bytes().replace(b'"step": 6', b'"step": 5'))
    code, output, _ = rota("check", folder)
    assert code == 1
    first, last = output.splitlines()
    assert first == f"{path}, line 2: its check value is not that of its content, or a line before it is missing"
    assert last.startswith(f"{folder}: ")
    assert last.endswith("files read, 1 problem")
    code, output, _ = rota("check", folder / "run", "--json")
    found = json.loads(output)
    assert code == 1
    assert found["problems"] == [{"file": str(path), "problem": first.partition(": ")[2], "line": 2}]


@pytest.mark.parametrize(("name", "message"), [("none", "no folder"), ("data/text", "holds neither a run")])
def test_what_is_neither_a_run_nor_data_is_a_mistake(rota, folder, name, message):
    code, _, error = rota("check", folder / name)
    assert (code, error.count("\n")) == (2, 1)
    assert message in error
