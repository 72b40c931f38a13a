"""Which model stands for a run: the same for all who ask, after any sequence of ``rota evaluate``."""

import shutil
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from window_cases import STEPS, make_config, make_run, windows_of, write_translations, write_validations

from rota import api
from rota.config import parse_config
from rota.evaluation.comparison import compare_runs
from rota.evaluation.config import EvaluationConfig
from rota.experiments.jobs import Job, is_scored
from rota.export.model import choose
from rota.export.model_card import model_card
from rota.report.study import read_study
from rota.runs import Run
from rota.runs.standing import Model, standing_model, standing_scores

CONFIGS = {
    "plain": {},
    "selects": {"select": "low-resource"},
    "averages": {"combine": "average", "window": 2},
    "few": {"combine": "average", "window": 9},  # the run has six checkpoints
}

CALLS = [
    {},
    {"step": 20},
    {"step": 60, "combine": "ensemble", "window": 2},
    {"beam": 1},
    {"combine": "average", "window": 2},
    {"combine": "ensemble"},
    {"select": "none"},
    {"select": "low-resource"},
    {"select": "low-resource", "beam": 1},
    {"select": "macro"},
    {"select": "macro", "combine": "average"},
    {"select": "loss", "combine": "last"},
    {"split": "dev"},
    {"split": "dev", "select": "high-resource"},
]


@pytest.fixture(scope="module")
def originals(tmp_path_factory):
    """A run for each config; low-resource, macro and loss choose three different windows."""
    base = tmp_path_factory.mktemp("standing")
    store = api.prepare(make_config(base / "data"))
    runs = {name: make_run(base / name, store, **evaluation) for name, evaluation in CONFIGS.items()}
    low, macro, high = windows_of(40, 50, 60)
    right = {low: ("lala", "lali"), macro: ("lala", "lali", "kiki"), high: ("kiki",)}
    for run in runs.values():
        for beam in (1, 2):
            for combine in ("ensemble", "average"):
                search = EvaluationConfig(beam=beam, select="macro", combine=combine)
                write_translations(run, store, right, search)
        losses = dict(zip(STEPS, (3.0, 3.0, 2.0, 3.0, 3.0, 3.0), strict=True))
        write_validations(run, {step: dict.fromkeys(store.languages, loss) for step, loss in losses.items()})
    return runs


def copy_of(original, folder):
    """A copy that shares checkpoints and translations: what one example has translated, the next one reads."""
    for path in original.iterdir():
        if path.is_dir():
            (folder / path.name).symlink_to(path)
        else:
            shutil.copyfile(path, folder / path.name)
    return folder


def or_mistake(ask):
    """What a command finds, or what it says is wrong."""
    try:
        return ask()
    except ValueError as error:
        return str(error)


def exported(model):
    """One folder holds one network."""
    return Model(model.steps[-1:]) if model.combine == "last" else Model(model.steps, "average")


def of_suite(run):
    """Whether ``rota compare`` would be satisfied with how the run was scored."""
    config = parse_config(run.about["config"])
    return is_scored(Job("row", run.seed, run.folder, {}, config), run.sizes)


def check_all_agree(run):
    """Report, compare-scores, export and model card."""
    scores, model = standing_scores(run), standing_model(run)
    assert read_study([run.folder]).any_run.scores == scores
    compared = or_mistake(lambda: compare_runs([run.folder], [run.folder], resamples=100, trials=100))
    if scores is None:
        assert "has no scores of its test sets (none); run rota evaluate" in compared
    else:
        assert compared.baseline[0].scores == scores
        assert scores.model == model
    if model.select is None and model.step < STEPS[-1]:
        assert "and its last checkpoint is of step 60; score that" in or_mistake(lambda: choose(run))
        return
    written = choose(run)
    assert written == exported(model)
    if scores is not None and written.name == model.name:  # else an ensemble, whose average has other scores
        card = model_card(run, written, to="hf", quantization="float32")
        for arm, value in scores.values("chrf").items():
            assert f"| {run.sizes[arm]:,} | {scores.values('bleu')[arm]:.1f} | {value:.1f} |" in card


@given(name=st.sampled_from(list(CONFIGS)), calls=st.lists(st.sampled_from(CALLS), max_size=5))
@settings(max_examples=15)
def test_all_who_ask_name_the_same_model_after_any_evaluations(originals, name, calls):
    with TemporaryDirectory() as folder:
        run = Run(copy_of(originals[name], Path(folder)))
        made = [api.evaluate(run.folder, **call) for call in calls]
        check_all_agree(run)
        selected = [each for each in made if each.selection is not None]
        if selected and selected[-1].split == "test":
            assert standing_model(run) == selected[-1].model
        if of_suite(run) and (CONFIGS[name].get("select") or not selected):
            asked = api.evaluate(run.folder)
            assert standing_model(run) == asked.model
            assert standing_scores(run).search == run_search(run)


@pytest.mark.parametrize("name", CONFIGS)
def test_what_a_suite_asks_for_stands_once_it_is_scored(originals, tmp_path, name):
    run = Run(copy_of(originals[name], tmp_path))
    assert not of_suite(run)
    found = api.evaluate(run.folder)
    assert of_suite(run)
    assert standing_model(run) == found.model


def test_the_last_selection_stands_though_its_scores_were_written_first(originals, tmp_path):
    run = Run(copy_of(originals["plain"], tmp_path))
    for select, step in (("low-resource", 40), ("macro", 50), ("low-resource", 40)):
        api.evaluate(run.folder, select=select)
        assert standing_scores(run).model == Model(windows_of(step)[0], "ensemble", select)
        check_all_agree(run)


def test_a_selection_that_was_not_scored_on_the_test_sets_leaves_the_one_before(originals, tmp_path):
    run = Run(copy_of(originals["plain"], tmp_path))
    api.evaluate(run.folder, select="macro")
    api.evaluate(run.folder, select="low-resource", split="dev")
    assert standing_scores(run).model.select == "macro"
    assert standing_scores(run, "dev").model.select == "low-resource"


def test_without_a_selection_the_last_step_stands_combined_as_the_config_asks(originals, tmp_path):
    plain, averages = (Run(copy_of(originals[name], made(tmp_path / name))) for name in ("plain", "averages"))
    for run in (plain, averages):
        for call in ({"step": 60}, {"combine": "ensemble", "window": 2}, {"combine": "average", "window": 2}):
            api.evaluate(run.folder, **call)
        api.evaluate(run.folder, step=20)
    assert standing_model(plain) == Model((60,))
    assert standing_model(averages) == Model((50, 60), "average")


def test_one_checkpoint_stands_before_a_combination_that_nothing_asked_for(originals, tmp_path):
    run = Run(copy_of(originals["averages"], tmp_path))
    for call in ({"step": 60, "combine": "last"}, {"combine": "ensemble"}):
        api.evaluate(run.folder, **call)
    assert standing_model(run) == Model((60,))


def test_scores_of_the_search_in_the_config_count(originals, tmp_path):
    run = Run(copy_of(originals["plain"], tmp_path))
    api.evaluate(run.folder, beam=1)
    assert standing_scores(run).search["beam"] == 1
    api.evaluate(run.folder)
    api.evaluate(run.folder, beam=3)
    assert standing_scores(run).search["beam"] == 2


def test_nothing_scored_leaves_the_selection_or_the_last_checkpoints(originals, tmp_path):
    runs = {name: Run(copy_of(originals[name], made(tmp_path / name))) for name in CONFIGS}
    assert standing_scores(runs["plain"]) is None
    assert standing_model(runs["plain"]) == Model((60,))
    assert standing_model(runs["averages"]) == Model((50, 60), "average")
    assert standing_model(runs["few"]) == Model(STEPS, "average")
    assert standing_model(runs["selects"]) == Model((60,)), "nothing has been selected yet"
    api.evaluate(runs["selects"].folder, split="dev")
    assert standing_model(runs["selects"]) == Model(windows_of(40)[0], "ensemble", "low-resource")


def made(folder):
    folder.mkdir()
    return folder


def run_search(run):
    return {name: run.setting(f"config.evaluation.{name}") for name in ("beam", "length_penalty")}
