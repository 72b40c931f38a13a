import json
import shutil
from pathlib import Path

import pytest
from window_cases import (
    HIGH,
    LOW,
    STEPS,
    damage,
    make_config,
    make_run,
    selection_references,
    windows_of,
    write_translations,
    write_validations,
)

from rota import api
from rota.data.division import teacher_part
from rota.data.store import Store
from rota.evaluation.config import EvaluationConfig
from rota.evaluation.metrics import score
from rota.evaluation.selection import select_window, selection_pairs
from rota.evaluation.translator import Loader, Translator

ENSEMBLES = EvaluationConfig(beam=2, select="low-resource")


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return api.prepare(make_config(tmp_path_factory.mktemp("selection") / "data"))


@pytest.fixture(scope="module")
def original(store, tmp_path_factory) -> Path:
    return make_run(tmp_path_factory.mktemp("original") / "run", store)


@pytest.fixture
def run(original, tmp_path) -> Path:
    return shutil.copytree(original, tmp_path / "run")


def select(run, store, config=ENSEMBLES, **changes):
    config = EvaluationConfig.model_validate({**config.model_dump(), "combine": None, **changes})
    return select_window(Loader(run, "cpu", config.checkpoints), store, config)


def test_the_window_with_the_best_low_resource_dev_bleu_is_chosen(run, store):
    first, second, third = windows_of(40, 50, 60)
    write_translations(run, store, {first: ("lala",), second: LOW, third: HIGH}, ENSEMBLES)
    found = select(run, store)
    assert [window.averages["low-resource"] for window in found.windows] == pytest.approx([50, 100, 0])
    assert found.best.steps == second
    assert found.best.step == 50


def test_only_the_languages_that_choose_are_translated(run, store):
    select(run, store)
    languages = {path.name.split(".")[3] for path in (run / "translations").iterdir()}
    assert languages == set(LOW)


def test_other_languages_can_choose(run, store):
    first, second, third = windows_of(40, 50, 60)
    write_translations(run, store, {first: ("lala",), second: LOW, third: (*HIGH, "lala")}, ENSEMBLES)
    assert select(run, store, select="high-resource").best.steps == third
    tied = select(run, store, select="macro")
    assert [window.averages["macro"] for window in tied.windows] == pytest.approx([100 / 3, 200 / 3, 200 / 3])
    assert tied.best.steps == second, "of equal ones the earliest"
    assert tied.windows[2].averages == pytest.approx({"low-resource": 50, "high-resource": 100, "macro": 200 / 3})


def test_of_windows_with_equal_bleu_the_dev_loss_chooses(run, store):
    first, second, third = windows_of(40, 50, 60)
    write_translations(run, store, {first: (), second: (), third: ()}, ENSEMBLES)
    write_validations(run, {step: {"lala": loss} for step, loss in {10: 3.0, 50: 2.0, 60: 9.0}.items()})
    found = select(run, store)
    assert [window.averages["low-resource"] for window in found.windows] == [0, 0, 0]
    assert found.best.steps == second


def test_without_files_the_windows_are_translated(run, store):
    found = select(run, store)
    texts = [source for source, _ in selection_pairs(store, ["lali"], 0.5, "text")["lali"]]
    translator = Translator.load(run, steps=(20, 30, 40, 50), combine="ensemble", device="cpu")
    hypotheses = [" ".join(line.split()) for line in translator.translate(texts, "lali", beam=2)]
    assert len(set(hypotheses)) > 1
    written = run / "translations" / "20+30+40+50.ensemble.dev-selection.lali.beam2-1.txt"
    assert written.read_text().split("\n") == [*hypotheses, ""]
    expected = score(hypotheses, selection_references(store, "lali"))[0].value
    assert found.windows[1].bleu["lali"] == pytest.approx(expected)


def test_averages_and_single_checkpoints_can_be_compared_too(run, store):
    averages = select(run, store, combine="average", window=5)
    assert [window.steps for window in averages.windows] == [STEPS[:5], STEPS[1:]]
    assert (run / "translations" / "10+20+30+40+50.average.dev-selection.lala.beam2-1.txt").exists()
    single = select(run, store, combine="last")
    assert [window.steps for window in single.windows] == [(step,) for step in STEPS]
    assert (run / "translations" / "10.dev-selection.lala.beam2-1.txt").exists()


def test_another_beam_may_be_used_while_selecting(run, store):
    select(run, store, select_beam=1)
    assert {path.name.split(".")[4] for path in (run / "translations").iterdir()} == {"beam1-1"}
    assert json.loads((run / "selection.json").read_text())["search"] == {"beam": 1, "length_penalty": 1.0}


def test_the_other_beam_can_be_given_to_the_command(run, rota):
    code, output, error = rota("evaluate", run, "--select", "macro", "--combine", "average", "--select-beam", "1")
    assert code == 0, error
    names = [path.name.split(".") for path in (run / "translations").iterdir()]
    beams = {(part, beam) for _, _, part, _, beam, _ in names}
    assert beams == {("dev-selection", "beam1-1"), ("test", "beam2-1")}
    assert "dev sentences (beam 1;" in output


def test_the_dev_loss_chooses_without_a_translation(run, store):
    # By the last validation up to each checkpoint: 10, 20 -> 3; 30, 40 -> 1; 50, 60 -> 2 (means over languages).
    losses = {5: 3.0, 30: 1.0, 45: 2.0, 61: 0.0}
    write_validations(run, {step: {"lala": loss - 0.5, "kiki": loss + 0.5} for step, loss in losses.items()})
    found = select(run, store, select="loss", window=2)
    assert [window.loss for window in found.windows] == pytest.approx([3.0, 2.0, 1.0, 1.5, 2.0])
    assert found.best.steps == (30, 40)
    assert not (run / "translations").exists()
    assert select(run, store, select="loss", combine="last").best.steps == (30,)


def test_windows_before_the_first_validation_are_not_chosen(run, store):
    write_validations(run, {30: {"lala": 2.0}, 60: {"lala": 3.0}})
    found = select(run, store, select="loss", combine="last")
    assert [window.loss for window in found.windows] == [None, None, 2.0, 2.0, 2.0, 3.0]
    assert found.best.step == 30


def test_a_run_without_dev_losses_cannot_be_selected_by_them(run, store):
    with pytest.raises(ValueError, match="--select loss needs dev losses"):
        select(run, store, select="loss")
    assert not (run / "selection.json").exists()


def test_what_was_found_is_written_down(run, store):
    first, second, third = windows_of(40, 50, 60)
    write_translations(run, store, {first: ("lala",), second: LOW, third: ()}, ENSEMBLES)
    write_validations(run, {10: {"lala": 3.0, "lali": 5.0}})
    select(run, store)
    content = json.loads((run / "selection.json").read_text())
    expected = {
        "select": "low-resource",
        "combine": "ensemble",
        "window": 4,
        "search": {"beam": 2, "length_penalty": 1.0},
        "split": "dev",
        "sentences": {arm: len(selection_references(store, arm)) for arm in LOW},
        "best": {"steps": [20, 30, 40, 50], "step": 50},
    }
    assert {key: content[key] for key in expected} == expected
    assert content["windows"][0]["steps"] == [10, 20, 30, 40]
    assert content["windows"][0]["step"] == 40
    assert content["windows"][0]["bleu"] == pytest.approx({"lala": 100, "lali": 0})
    assert content["windows"][0]["averages"] == pytest.approx({"low-resource": 50})
    assert content["windows"][0]["loss"] == 4.0


class StopAfter:
    """A progress bar at which somebody presses Ctrl-C once ``sentences`` are done."""

    def __init__(self, sentences: int) -> None:
        self.sentences = sentences

    def __call__(self, stage: str, done: int, total: int) -> None:
        if done >= self.sentences:
            raise KeyboardInterrupt


def test_an_interrupted_selection_goes_on_where_it_was(run, store, original, tmp_path):
    undisturbed = select(shutil.copytree(original, tmp_path / "undisturbed"), store)
    with pytest.raises(KeyboardInterrupt):  # 10 sentences a window: in the second
        select_window(Loader(run, "cpu", 4), store, ENSEMBLES, StopAfter(12))
    assert not (run / "selection.json").exists()
    made = {path: path.stat().st_mtime_ns for path in (run / "translations").iterdir()}
    assert {path.name.split(".")[0] for path in made} == {"10+20+30+40"}, "no half of a window"
    assert select(run, store).windows == undisturbed.windows
    assert {path: path.stat().st_mtime_ns for path in made} == made, "nothing was translated twice"


def test_a_second_selection_loads_no_network(run, store, monkeypatch):
    first = select(run, store)
    monkeypatch.delattr(Loader, "network")
    assert select(run, store).windows == first.windows


def test_progress_counts_the_sentences_of_all_windows(run, store):
    seen = []
    select_window(Loader(run, "cpu", 4), store, ENSEMBLES, lambda *report: seen.append(report))
    assert {stage for stage, _, _ in seen} == {"selecting (3 windows)"}
    sentences = 3 * sum(len(selection_references(store, arm)) for arm in LOW)
    assert {total for _, _, total in seen} == {sentences}
    assert [done for _, done, _ in seen] == sorted(done for _, done, _ in seen)
    assert seen[-1][1] == sentences


def test_damaged_checkpoints_are_passed_over(run, store):
    damage(run, 30)
    assert [window.steps for window in select(run, store).windows] == [(10, 20, 40, 50), (20, 40, 50, 60)]


def test_one_checkpoint_is_enough(store, tmp_path):
    found = select(make_run(tmp_path / "one", store, steps=(60,)), store)
    assert [window.steps for window in found.windows] == [(60,)]


def test_the_sentences_that_choose_are_not_the_teachers(store):
    for arm in store.languages:
        pairs = store.text("dev", arm)
        choosing = selection_pairs(store, [arm], 0.5, "text")[arm]
        teaching = [pairs[index] for index in teacher_part(store.split("dev"), arm, 0.5, "text")]
        assert len(choosing) + len(teaching) == 9
        assert not set(choosing) & set(teaching)
    assert selection_pairs(store, ["lala"], 1.0, "text")["lala"] == store.text("dev", "lala")


def test_a_group_without_languages_cannot_choose(run, store):
    manifest = store.manifest.model_copy(update={"low_resource": ()})
    with pytest.raises(ValueError, match="--select low-resource: the data have no low-resource languages"):
        select(run, Store(store.folder, manifest))


def test_selecting_nothing_is_refused(run, store):
    with pytest.raises(ValueError, match="nothing is to be selected"):
        select(run, store, select=None)
