"""What users get wrong gives one clear line each: value, place, remedy; exit code 2; nothing left behind."""

import errno
import gzip
import json
import resource
from contextlib import contextmanager

import pytest

from rota.cli import _in_words
from rota.runs import Run

GOOD = """
data:
  languages: [az, tr]
  low_resource: [az]
  train: text/train.{language}.tsv
  dev: text/dev.{language}.tsv
  test: text/test.{language}.tsv
  subwords: {size: 300, lines: 50}
student: {preset: tiny, width: 16, heads: 2, feedforward: 16, layers: 1, lr_warmup: 2}
training: {steps: 4, tokens: 60, checkpoint_every: 2, tensorboard: false, threads: 1}
"""
NUMBERS = ("one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A config and a corpus that work; each test breaks one thing."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "text").mkdir()
    for language in ("az", "tr"):
        for number, split in enumerate(("train", "dev", "test")):
            lines = [f"{language} {split} sözü {word}\tthe {split} word {word} {number}\n" for word in NUMBERS]
            (tmp_path / "text" / f"{split}.{language}.tsv").write_text("".join(lines), encoding="utf-8")
    (tmp_path / "run.yaml").write_text(GOOD)
    return tmp_path


def replace(project, old, new):
    text = (project / "run.yaml").read_text()
    assert old in text
    (project / "run.yaml").write_text(text.replace(old, new))


def assert_one_line(result, *words):
    code, _, error = result
    assert code == 2, error
    assert error.count("\n") == 1, error
    assert error.startswith("error: ")
    assert "Traceback" not in error
    for word in words:
        assert word in error


def test_the_config_and_corpus_of_these_tests_are_right(rota, project):
    assert rota("train", "run.yaml")[0] == 0


CONFIG_MISTAKES = [
    ("training: {steps: 4", "training: {stepps: 4", ["unknown key 'training.stepps'", "did you mean 'steps'"]),
    ("training: {steps: 4", "training: {steps: soon", ["training.steps", "'soon' is not a count"]),
    ("training: {steps: 4", "training: {steps: 0", ["training.steps", "greater than or equal to 1"]),
    ("checkpoint_every: 2", "checkpoint_every: 120%", ["training.checkpoint_every", "'120%' is not a duration"]),
    ("low_resource: [az]", "low_resource: [ax]", ["unknown low-resource language 'ax'", "did you mean 'az'"]),
    ("languages: [az, tr]", "languages: [az, az]", ["'az' is listed twice"]),
    (
        "languages: [az, tr]",
        "languages: [az, en]",
        ["'en' cannot be a source language: English is the target", "remove it from"],
    ),
    ("student: {preset: tiny", "student: {preset: huge", ["student.preset", "'tiny', 'small' or 'base'"]),
    ("heads: 2", "heads: 3", ["16", "3"]),
    ("student: {", "student: {dropout: 1.5, ", ["student.dropout", "less than 1"]),
    ("student: {", "teacher: unifrom\nstudent: {", ["teacher", "'unifrom'", "did you mean 'uniform'"]),
    (
        "student: {",
        "teacher: {name: temperature, temperature: -2}\nstudent: {",
        ["teacher.temperature", "greater than 0"],
    ),
    ("student: {", "teacher: {name: fixed, shares: {xx: 1}}\nstudent: {", ["unknown language 'xx'", "az, tr"]),
    ("student: {", "teacher: fixed\nstudent: {", ["'teacher.shares' is missing", "example shares: {be: 0.5, ru: 0.5}"]),
    ("student: {", "teacher: {name: fixed, shares: {az: 0}}\nstudent: {", ["all shares are 0"]),
    (
        "student: {",
        "teacher: {name: uniform, observe_every: 3, decide_every: 2}\nstudent: {",
        ["multiple of decide_every"],
    ),
    ("student: {", "student: {device: gpu9, ", ["device 'gpu9'", "auto or cpu"]),
    ("  dev: text/dev.{language}.tsv\n", "", ["no dev text", "pattern"]),
    ("text/dev.{language}.tsv", "text/dev.{lang}.tsv", ["{lang}", "{language}"]),
    ("text/train.{language}.tsv", "text/train.az.tsv", ["data.train: 'text/train.az.tsv' is the same file for all 2 "]),
    ("text/dev.{language}.tsv", "text/dev.az.tsv", ["data.dev: ", "write {language} where their names differ"]),
    ("text/test.{language}.tsv", "['text/test.{language}.tsv', more.tsv]", ["data.test: 'more.tsv' is the same file"]),
    ("subwords: {size: 300", "subwords: {size: 100", ["subwords.size 100 is too small"]),
    ("data:", "data: [", ["run.yaml, line", "not valid YAML"]),
    ("training: {", "seed: -1\ntraining: {", ["seed", "greater than or equal to 0"]),
    ("training: {", "seed: 1\nseed: 2\ntraining: {", ["run.yaml", "not valid YAML"]),
    ("training: {", "evaluation: {beam: 0}\ntraining: {", ["evaluation.beam"]),
]


@pytest.mark.parametrize(
    ("old", "new", "words"), CONFIG_MISTAKES, ids=[new.replace("\n", " ")[:40] for _, new, _ in CONFIG_MISTAKES]
)
def test_a_mistake_in_the_config(rota, project, old, new, words):
    replace(project, old, new)
    assert_one_line(rota("train", "run.yaml"), *words)


def break_text(project, name, content):
    path = project / "text" / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())


CORPUS_MISTAKES = [
    ("train.az.tsv", "bir\tone\niki\n", ["train.az.tsv, line 2", "1 column;", "source TAB English"]),
    ("train.az.tsv", b"bir\tone\n\xff\xfe\ttwo\n", ["train.az.tsv, line 2", "not UTF-8", "iconv"]),
    ("train.az.tsv", "", ["train.az.tsv", "no sentence pair"]),
    ("dev.tr.tsv", "\t\n", ["text/dev.tr.tsv", "nothing of dev for 'tr'", "limits in data.cleaning", "1 empty side"]),
    (
        "train.tr.tsv",
        "the same\tthe test word one 2\n",
        ["error: text/train.tr.tsv", "nothing of train for 'tr'", "1 English in dev or test"],
    ),
]


@pytest.mark.parametrize(
    ("name", "content", "words"), CORPUS_MISTAKES, ids=[words[-1] for *_, words in CORPUS_MISTAKES]
)
def test_a_mistake_in_the_corpus_leaves_nothing_behind(rota, project, name, content, words):
    break_text(project, name, content)
    assert_one_line(rota("prepare", "run.yaml"), *words)
    assert not list(project.glob("prepared/*"))


def test_a_mistake_in_the_corpus_leaves_no_run_behind(rota, project):
    break_text(project, "train.az.tsv", "")
    assert_one_line(rota("train", "run.yaml"), "no sentence pair")
    assert not list(project.glob("runs/*"))


def test_a_run_that_another_process_trains_is_refused_before_anything_is_prepared(rota, project):
    with Run(project / "runs" / "run").locked():
        assert_one_line(rota("train", "run.yaml"), "another process is training runs/run")
    assert not (project / "prepared").exists()


def test_a_missing_file_is_named_with_its_language(rota, project):
    (project / "text" / "dev.tr.tsv").unlink()
    assert_one_line(rota("prepare", "run.yaml"), "no file text/dev.tr.tsv", "'tr'", "check the pattern")


def test_unequal_files_are_named_with_both_counts(rota, project):
    for name, lines in (("az.az", 3), ("az.en", 2), ("tr.tr", 2), ("tr.en", 2)):
        (project / "text" / name).write_text("word after word\n" * lines)
    replace(project, "text/train.{language}.tsv", "text/{language}.{side}")
    assert_one_line(rota("prepare", "run.yaml"), "text/az.az has 3 lines", "text/az.en has 2", "aligned")


def test_a_damaged_gzip_file_is_named(rota, project):
    for language in ("az", "tr"):
        whole = gzip.compress((project / "text" / f"train.{language}.tsv").read_bytes())
        (project / "text" / f"train.{language}.tsv.gz").write_bytes(whole[:-12])
    replace(project, "train.{language}.tsv", "train.{language}.tsv.gz")
    assert_one_line(rota("prepare", "run.yaml"), "train.az.tsv.gz is damaged")


@contextmanager
def no_file_above(size):
    """What a full disk is to a command: a file cannot grow."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_no_room_for_a_checkpoint_or_an_export_is_one_line_and_the_same_command_goes_on(rota, project):
    assert rota("prepare", "run.yaml")[0] == 0
    with no_file_above(15_000):
        assert_one_line(rota("train", "run.yaml"), "File too large: 'runs/run/checkpoints/.2.partial/student.")
    assert list((project / "runs" / "run" / "checkpoints").iterdir()) == [], "what was begun takes no room"
    assert rota("train", "run.yaml")[0] == 0
    export = ("export", "runs/run", "--to", "hf", "--out", "model")
    with no_file_above(15_000):
        assert_one_line(rota(*export), "File too large: ", "model.safetensors'")
    assert not list(project.glob("*model*"))
    assert rota(*export)[0] == 0


def test_a_full_disk_is_said_with_what_to_do():
    words = "; free some, and type the same command again: what was saved is used"
    assert _in_words(OSError(errno.ENOSPC, "No space left on device")) == f"there is no space left{words}"
    assert _in_words(OSError(errno.EDQUOT, "Quota exceeded", "a/b")) == f"there is no space left for a/b{words}"


@pytest.mark.parametrize("where", ["CONFIG", "--run"])
def test_a_text_in_the_place_of_a_path_is_cut(rota, project, where):
    text = "training:\n" + "  steps: 100\n" * 400
    command = ["train", text] if where == "CONFIG" else ["train", project / "run.yaml", "--run", text]
    code, output, error = rota(*command)
    assert_one_line((code, output, error), "is too long to be the name of a file; give a path")
    assert len(error) < 200


def test_a_config_that_is_not_there(rota, project):
    assert_one_line(rota("train", "nothing.yaml"), "no config 'nothing.yaml'")
    assert_one_line(rota("prepare", "text"), "'text' is a folder; give the path of a YAML file")


def test_an_override_without_a_value(rota, project):
    assert_one_line(
        rota("train", "run.yaml", "--set", "training.steps"), "--set 'training.steps'", "training.steps=10k"
    )


def test_a_wrong_override_is_not_blamed_on_the_file(rota, project):
    result = rota("train", "run.yaml", "--set", "training.steps=soon")
    assert_one_line(result, "error: --set 'training.steps=soon': training.steps: 'soon' is not a count")
    replace(project, "heads: 2", "heads: 3")
    assert_one_line(rota("train", "run.yaml", "--set", "training.steps=9"), "error: run.yaml: student")


def test_the_end_of_a_run_is_said_if_until_is_beyond_it(rota, project):
    code, output, _ = rota("train", "run.yaml", "--until", "1000", "--set", "training.steps=1")
    assert code == 0
    assert "--until 1,000 is beyond the run, which ends at step 1 (training.steps)" in output
    assert "trained 1 step on " in output
    assert "\nnext: " in output


def test_data_prepared_otherwise(rota, project):
    assert rota("prepare", "run.yaml")[0] == 0
    replace(project, "size: 300", "size: 320")
    assert_one_line(rota("prepare", "run.yaml"), "data.subwords.size changed from 300 to 320", "--again")
    assert rota("prepare", "run.yaml", "--again")[0] == 0


def test_a_run_goes_on_though_rota_has_learned_a_new_setting_since(rota, project):
    assert rota("train", "run.yaml", "--until", "2")[0] == 0
    path = project / "runs" / "run" / "run.json"
    about = json.loads(path.read_text(encoding="utf-8"))
    del about["config"]["training"]["accumulate"], about["check"]  # as if it were newer than this run
    path.write_text(json.dumps(about), encoding="utf-8")
    assert rota("train", "run.yaml", "--until", "3")[0] == 0


def test_a_run_folder_that_holds_another_run(rota, project):
    assert rota("train", "run.yaml", "--until", "2")[0] == 0
    assert_one_line(
        rota("train", "run.yaml", "--set", "seed=5"), "runs/run holds another run", "seed was 1 and is 5", "--run"
    )


def test_a_run_trained_on_other_data(rota, project):
    assert rota("train", "run.yaml")[0] == 0
    assert rota("prepare", "run.yaml", "--again", "--set", "data.subwords.size=320")[0] == 0
    assert_one_line(rota("evaluate", "runs/run"), "holds other data than runs/run was trained on")


def test_a_folder_that_is_no_run(rota, project):
    assert_one_line(rota("evaluate", "text"), "text is not a run folder", "rota train")
    assert_one_line(rota("translate", "text", "--language", "az", stdin="bir\n"), "text is not a run folder")


def test_a_checkpoint_that_is_not_there(rota, project):
    assert rota("train", "run.yaml")[0] == 0
    assert_one_line(rota("evaluate", "runs/run", "--step", "3"), "no checkpoint of step 3", "2, 4")


def test_a_language_the_run_does_not_know(rota, project):
    assert rota("train", "run.yaml")[0] == 0
    assert_one_line(
        rota("translate", "runs/run", "--language", "fi", stdin="yksi\n"), "unknown language 'fi'", "az, tr"
    )


def test_a_split_that_does_not_exist(rota, project):
    assert rota("train", "run.yaml")[0] == 0
    assert_one_line(rota("evaluate", "runs/run", "--split", "train"), "--split is 'train'", "dev or test")


def test_a_warmup_longer_than_the_run(rota, project):
    replace(project, "student: {", "teacher: {name: dqn, variant: paper}\nstudent: {")
    result = rota("train", "run.yaml")
    assert_one_line(result, "teacher.warmup lasts 16,000 steps and the run 4", "teacher.warmup: 10%")


def test_a_folder_that_is_a_file(rota, project):
    assert_one_line(rota("train", "run.yaml", "--run", "run.yaml"), "run.yaml")
    assert_one_line(rota("train", "run.yaml", "--run", "run.yaml/deeper"), "run.yaml")


def test_text_to_translate_that_is_not_utf8(rota, project):
    assert rota("train", "run.yaml")[0] == 0
    result = rota("translate", "runs/run", "--language", "az", stdin=b"bir\n\xff\n")
    assert_one_line(result, "standard input, line 2", "0xff is not UTF-8")


def test_a_run_that_is_being_trained_by_another_process(rota, project):
    with Run(project / "runs" / "run").locked():
        assert_one_line(rota("train", "run.yaml"), "another process is training runs/run")
    assert rota("train", "run.yaml")[0] == 0


def test_a_damaged_checkpoint_to_translate_with(rota, project):
    assert rota("train", "run.yaml")[0] == 0
    weights = project / "runs" / "run" / "checkpoints" / "4" / "student.network.safetensors"
    weights.write_bytes(weights.read_bytes()[:-9])
    assert_one_line_at_the_end(rota("evaluate", "runs/run", "--step", "4"), "no intact checkpoint of step 4")
    assert rota("evaluate", "runs/run")[0] == 0, "the one before is used"


def assert_one_line_at_the_end(result, *words):
    code, output, error = result
    assert_one_line((code, output, error.splitlines()[-1] + "\n"), *words)


def test_names_with_brackets_are_no_markup(rota, project):
    code, output, _ = rota("train", "run.yaml", "--run", "runs/m[/b]", "--until", "2")
    assert code == 0
    assert "--run 'runs/m[/b]'" in output


def test_a_teacher_that_needs_settings_is_nothing_for_the_demo(rota, project):
    result = rota("demo", "--corpus", "synthetic", "--teacher", "fixed")
    assert_one_line(result, "--teacher fixed needs teacher.shares", "write it in a config and use rota train")


def test_an_unknown_demo_corpus(rota, project):
    assert_one_line(rota("demo", "--corpus", "bible"), "--corpus is 'bible'", "catalogues, synthetic")
