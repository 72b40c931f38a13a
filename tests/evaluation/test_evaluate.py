import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from pydantic import ValidationError
from window_cases import LOW, damage, make_config, make_run, selection_references, windows_of, write_translations

from rota import api
from rota.evaluation.config import EvaluationConfig
from rota.evaluation.evaluate import evaluate
from rota.evaluation.translator import Translator
from rota.runs.records import read_record


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return api.prepare(make_config(tmp_path_factory.mktemp("evaluate") / "data"))


@pytest.fixture(scope="module")
def original(store, tmp_path_factory) -> Path:
    return make_run(tmp_path_factory.mktemp("original") / "run", store)


@pytest.fixture
def run(original, tmp_path) -> Path:
    return shutil.copytree(original, tmp_path / "run")


def entries(run):
    return list(read_record(run / "evals.jsonl"))


def test_without_options_the_last_checkpoint_is_scored(run):
    found = api.evaluate(run)
    assert found.model.steps == (60,)
    assert found.select is None
    first = entries(run)[0]
    assert {key: first[key] for key in ("step", "steps", "combine", "select", "split", "language", "metric")} == {
        "step": 60,
        "steps": [60],
        "combine": "last",
        "select": None,
        "split": "test",
        "language": "lala",
        "metric": "bleu",
    }
    assert first["search"] == {"beam": 2, "length_penalty": 1.0}
    assert first["sentences"] == 6
    assert first["translations"] == "translations/60.test.lala.beam2-1.txt"
    assert len((run / first["translations"]).read_text().splitlines()) == 6
    assert [entry["metric"] for entry in entries(run)] == ["bleu", "chrf", "loss"] * 3, "of three languages"


def test_the_selected_window_translates_the_test_sets(run, store):
    first, second, third = windows_of(40, 50, 60)
    config = EvaluationConfig(beam=2, select="low-resource")
    write_translations(run, store, {first: (), second: LOW, third: ("lala",)}, config)
    found = api.evaluate(run, select="low-resource")
    assert found.model.steps == (20, 30, 40, 50)
    assert found.model.combine == "ensemble", "as in the paper, unless another is asked for"
    assert {(entry["step"], entry["select"], entry["combine"]) for entry in entries(run)} == {
        (50, "low-resource", "ensemble")
    }
    texts = [source for source, _ in store.text("test", "kiki")]
    translator = Translator.load(run, steps=(20, 30, 40, 50), combine="ensemble")
    expected = [" ".join(line.split()) for line in translator.translate(texts, "kiki", beam=2)]
    assert len(set(expected)) > 1
    assert found.translations["kiki"].read_text().split("\n") == [*expected, ""]


def test_the_command_translates_with_the_selected_ensemble(rota, run):
    selection = {"combine": "ensemble", "best": {"steps": [10, 20, 30, 60]}}
    (run / "selection.json").write_text(json.dumps(selection))
    code, output, error = rota("translate", run, "-l", "lala", "--beam", "2", "--selected", stdin="la la\nlala\n")
    assert code == 0, error
    ensemble = Translator.load(run, steps=[10, 20, 30, 60], combine="ensemble")
    expected = ensemble.translate(["la la", "lala"], "lala", beam=2)
    assert output.splitlines() == [" ".join(line.split()) for line in expected]
    assert expected != Translator.load(run).translate(["la la", "lala"], "lala", beam=2)


def test_a_step_names_the_window_that_ends_there(run):
    assert api.evaluate(run, step=40).model.steps == (40,)
    assert api.evaluate(run, step=40, combine="ensemble").model.steps == (10, 20, 30, 40)
    found = api.evaluate(run, step=50, combine="average", window=2)
    assert found.model.steps == (40, 50)
    assert found.translations["lali"].name == "40+50.average.test.lali.beam2-1.txt"
    assert api.evaluate(run, combine="average").model.steps == (30, 40, 50, 60)


def test_the_config_of_the_run_says_how_it_is_evaluated(store, tmp_path):
    run = make_run(tmp_path / "run", store, select="macro", combine="average", window=5, select_beam=1)
    found = api.evaluate(run)
    assert (found.select, found.model.combine, len(found.model.steps)) == ("macro", "average", 5)
    assert api.evaluate(run, select="none").model.steps == (60,)
    assert api.evaluate(run, step=20).model.steps == (20,)
    assert api.evaluate(run, select="macro", window=6).model.combine == "ensemble"


def test_repeating_an_evaluation_changes_nothing(run):
    api.evaluate(run, select="low-resource")
    files = {path: path.stat().st_mtime_ns for path in (run / "translations").iterdir()}
    written = (run / "evals.jsonl").read_text()
    api.evaluate(run, select="low-resource")
    assert {path: path.stat().st_mtime_ns for path in (run / "translations").iterdir()} == files
    assert (run / "evals.jsonl").read_text() == written


def test_scores_of_older_versions_are_not_written_again(run):
    api.evaluate(run)
    older = [
        {key: value for key, value in entry.items() if key not in ("steps", "combine", "select", "sentences")}
        for entry in entries(run)
    ]
    (run / "evals.jsonl").write_text("".join(json.dumps(entry) + "\n" for entry in older))
    api.evaluate(run)
    assert entries(run) == older


def test_an_evaluation_that_was_stopped_goes_on(run, store):
    def stop(stage, done, total):
        if stage == "translating lali" and done:
            raise KeyboardInterrupt

    config = EvaluationConfig(beam=2)
    with pytest.raises(KeyboardInterrupt):
        evaluate(run, store, config, progress=stop)
    assert not (run / "evals.jsonl").exists()
    first = run / "translations" / "60.test.lala.beam2-1.txt"
    before = first.stat().st_mtime_ns
    evaluate(run, store, config)
    assert first.stat().st_mtime_ns == before
    assert len(entries(run)) == 9


@pytest.fixture
def same_threads() -> Iterator[None]:
    """The command changes the number of torch's threads for the whole process."""
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("same_threads")
def test_several_processes_write_the_same_files(rota, run):
    assert rota("evaluate", run, "--threads", 1, "--beam", 2)[0] == 0
    alone = {path.name: path.read_bytes() for path in (run / "translations").iterdir()}
    scores = (run / "evals.jsonl").read_bytes()
    assert len(alone) == 3
    for path in (run / "translations", run / "evals.jsonl", run / "translations.jsonl", run / "written.json"):
        path.rename(path.with_name(f"old-{path.name}"))
    assert rota("evaluate", run, "--threads", 2, "--beam", 2)[0] == 0
    assert {path.name: path.read_bytes() for path in (run / "translations").iterdir()} == alone
    assert (run / "evals.jsonl").read_bytes() == scores


@pytest.mark.usefixtures("same_threads")
def test_the_command_translates_the_same_with_two_cores(rota, run, monkeypatch):
    monkeypatch.setattr("rota.student.search.batches.LOGITS", 1)  # one sentence a batch
    text = "la la\nlala\n\nkile mite sano\nla\n"
    outputs = [rota("translate", run, "-l", "lala", "--threads", count, stdin=text)[1] for count in (1, 2)]
    assert outputs[0] == outputs[1]
    assert outputs[0].count("\n") == 5


def test_a_language_that_is_complete_is_kept_when_two_processes_are_stopped(run, store):
    def stop(stage, done, total):
        if stage == "translating lali" and done:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        evaluate(run, store, EvaluationConfig(beam=2), progress=stop, processes=2)
    evaluate(run, store, EvaluationConfig(beam=2))
    assert len(entries(run)) == 9


def test_ctrl_c_ends_the_command_and_says_that_nothing_is_lost(rota, run, monkeypatch):
    def press(*_arguments, **_options):
        raise KeyboardInterrupt

    monkeypatch.setattr(Translator, "translate_each", press)
    code, output, _ = rota("evaluate", run)
    assert code == 130
    assert "what has been translated is kept" in " ".join(output.split())


def test_the_command_shows_the_windows_and_marks_the_best(rota, run, store):
    first, second, third = windows_of(40, 50, 60)
    config = EvaluationConfig(beam=2, select="low-resource")
    write_translations(run, store, {first: ("lala",), second: LOW, third: ()}, config)
    code, output, error = rota("evaluate", run, "--select", "low-resource")
    assert code == 0, error
    rows = [line.split() for line in output.splitlines()]
    assert ["40", "50.00", "-"] in rows
    assert ["50", "100.00", "-", "*"] in rows
    assert ["60", "0.00", "-"] in rows
    plain = " ".join(output.split())
    assert "ensemble of steps 20, 30, 40, 50 (best low-resource), test" in plain
    counts = [len(selection_references(store, arm)) for arm in LOW]
    assert all(0 < count < 9 for count in counts), "a part of each dev set of 9, by the text of the English"
    assert f"the teacher saw none of them): lala {counts[0]}, lali {counts[1]}" in plain
    assert "says little about which is best" not in plain
    assert "nothing was chosen" not in plain


def test_a_dev_bleu_near_nothing_is_said_to_say_little(rota, run, store):
    first, second, third = windows_of(40, 50, 60)
    config = EvaluationConfig(beam=2, select="low-resource")
    write_translations(run, store, {first: (), second: (), third: ()}, config)
    code, output, error = rota("evaluate", run, "--select", "low-resource")
    assert code == 0, error
    wanted = "a dev BLEU below 1 says little about which is best; --select loss goes by the dev loss"
    assert wanted in " ".join(output.split())


def test_a_single_window_is_said_to_be_no_choice(rota, store, tmp_path):
    run = make_run(tmp_path / "four", store, steps=(10, 20, 30, 40))
    code, output, error = rota("evaluate", run, "--select", "macro", "--select-beam", "1", "--beam", "1")
    assert code == 0, error
    wanted = "the only window, so nothing was chosen: --combine last chooses among single checkpoints"
    assert wanted in " ".join(output.split())
    code, output, error = rota("evaluate", run, "--select", "macro", "--combine", "last", "--beam", "1")
    assert code == 0, error
    assert "nothing was chosen" not in output


def test_few_checkpoints_are_said_to_be_few(rota, store, tmp_path):
    run = make_run(tmp_path / "short", store, steps=(30, 60))
    code, output, _ = rota("evaluate", run, "--combine", "average")
    assert code == 0
    assert "a window has 4 checkpoints" in " ".join(output.split())
    assert "average of steps 30, 60" in " ".join(output.split())


def test_a_damaged_last_checkpoint_is_not_evaluated(run):
    damage(run, 60)
    assert api.evaluate(run).model.steps == (50,)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--select", "best"), "--select is 'best'; it is one of low-resource, macro, high-resource, goal, loss, none"),
        (("--combine", "mean"), "--combine is 'mean'; it is one of last, average, ensemble"),
        (("--select", "macro", "--step", "20"), "--step 20 names a checkpoint and --select macro looks for one"),
        (("--window", "3"), "--window 3"),
        (("--select", "macro", "--combine", "last", "--window", "3"), "add --combine average or"),
        (("--select-beam", "1"), "--select-beam 1 is for selecting; add --select low-resource"),
        (("--step", "25"), "no checkpoint of step 25; it has 10, 20, 30, 40, 50, 60"),
        (("--split", "train"), "--split is 'train'; it is dev or test"),
    ],
)
def test_mistakes_are_named_in_one_line(rota, run, options, message):
    code, _, error = rota("evaluate", run, *options)
    assert code == 2
    assert message in error
    assert error.count("\n") == 1


def test_what_is_selected_is_an_ensemble_unless_the_config_says_otherwise():
    assert EvaluationConfig().combine == "last"
    assert EvaluationConfig(select="macro").combine == "ensemble"
    assert EvaluationConfig(select="macro", combine="average").combine == "average"
    assert EvaluationConfig(select="none") == EvaluationConfig()
    assert EvaluationConfig(select="macro").changed(beam=1).combine == "ensemble"
    assert EvaluationConfig(select="macro", combine="average").changed(select="none").combine == "last"
    assert EvaluationConfig().changed(length_penalty=0.5, beam=None).search == {"beam": 5, "length_penalty": 0.5}


def test_windows_have_bounds():
    for window in (0, 21):
        with pytest.raises(ValidationError, match="window"):
            EvaluationConfig(window=window)


def test_an_evaluation_killed_before_a_translation_was_written_records_it_once(run, tmp_path, monkeypatch):
    whole = shutil.copytree(run, tmp_path / "whole")
    api.evaluate(whole)

    def killed(path, text):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("rota.evaluation.translator.write_atomically", killed)
        with pytest.raises(KeyboardInterrupt):
            api.evaluate(run)
    assert len(list(read_record(run / "translations.jsonl"))) == 1
    api.evaluate(run)
    assert (run / "translations.jsonl").read_bytes() == (whole / "translations.jsonl").read_bytes()
