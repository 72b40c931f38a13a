"""How far the runs of a suite are, when one counts as scored, and how long the rest takes, worked out by hand."""

import json
from pathlib import Path

import pytest
from suite_cases import write_suite

from rota import api
from rota.config import parse_config
from rota.experiments.jobs import (
    Job,
    Pace,
    Status,
    is_scored,
    look,
    measure_pace,
    plan,
    rough_update,
    together,
    write_description,
)
from rota.experiments.suite import load_suite
from rota.report.assemble import make_report

STUDY = Path(__file__).parents[2] / "docs" / "results" / "laptop"
REMEDY = "copy it again, or delete the run and train it again"
LANGUAGES = {"lala", "lato"}
SELECTS = {"select": "macro", "combine": "ensemble", "window": 2, "beam": 5, "select_beam": 1}
COMBINES = {"combine": "average", "window": 2, "beam": 5}


def job_of(tmp_path, evaluation):
    """A run of 80 steps with checkpoints at 20, 40, 60 and 80."""
    overrides = [f"evaluation.{key}={'null' if value is None else value}" for key, value in evaluation.items()]
    suite = load_suite(write_suite(tmp_path))
    return plan(suite, tmp_path / "runs", rows=["uniform"], seeds=[1], overrides=overrides)[0]


def write_scores(job, steps, metrics=("bleu", "chrf")):
    """What ``rota evaluate`` records of a run that is scored with these checkpoints."""
    wanted = job.config.evaluation
    job.folder.mkdir(parents=True, exist_ok=True)
    model = {"step": steps[-1], "steps": steps, "combine": wanted.combine, "select": wanted.select}
    score = {"split": "test", "search": wanted.search, "score": 20.0, "signature": "tok:13a"}
    entries = [model | score | {"language": name, "metric": metric} for name in sorted(LANGUAGES) for metric in metrics]
    (job.folder / "evals.jsonl").write_text("".join(json.dumps(entry) + "\n" for entry in entries))


def write_selection(job, best):
    wanted = job.config.evaluation
    about = {"select": wanted.select, "combine": wanted.combine, "window": wanted.window}
    content = about | {"search": wanted.selecting.search, "best": {"steps": best, "step": best[-1]}}
    (job.folder / "selection.json").write_text(json.dumps(content))


def write_checkpoint(job, step):
    folder = job.folder / "checkpoints" / str(step)
    folder.mkdir(parents=True)
    (folder / "checkpoint.json").write_text(
        json.dumps({"format": 1, "step": step, "complete": True, "files": {"state.json": ""}})
    )


def scored_after(tmp_path, before, change, *, steps, best=None):
    """Whether a run that was scored with the settings ``before`` counts as scored after the change."""
    job = job_of(tmp_path, before)
    write_scores(job, steps)
    if best is not None:
        write_selection(job, best)
    return is_scored(job_of(tmp_path, before | change), LANGUAGES)


@pytest.mark.parametrize(
    ("change", "scored"),
    [
        ({}, True),
        ({"window": 3}, False),
        ({"select_beam": 5}, False),
        ({"select_beam": None}, False),  # that of the search, 5
        ({"select": "low-resource"}, False),
        ({"combine": "average"}, False),
        ({"beam": 4}, False),
        ({"length_penalty": 0.5}, False),
    ],
)
def test_a_selected_model_is_scored_again_if_it_would_be_selected_otherwise(tmp_path, change, scored):
    assert scored_after(tmp_path, SELECTS, change, steps=[40, 60], best=[40, 60]) is scored


def test_a_selection_by_loss_translates_nothing_so_its_beam_does_not_matter(tmp_path):
    by_loss = SELECTS | {"select": "loss"}
    assert scored_after(tmp_path, by_loss, {"select_beam": 5}, steps=[40, 60], best=[40, 60])
    assert not scored_after(tmp_path, by_loss, {"window": 3}, steps=[40, 60], best=[40, 60])


def test_scores_of_another_window_than_the_selected_one_do_not_count(tmp_path):
    assert not scored_after(tmp_path, SELECTS, {}, steps=[40, 60], best=[60, 80]), "stopped after selecting anew"
    assert not scored_after(tmp_path, SELECTS, {}, steps=[40, 60], best=[20, 40])


def test_a_selected_single_checkpoint_has_no_window(tmp_path):
    single = SELECTS | {"combine": "last"}
    assert scored_after(tmp_path, single, {"window": 3}, steps=[40], best=[40])


def test_without_a_record_of_the_selection_a_run_is_scored_again(tmp_path):
    assert not scored_after(tmp_path, SELECTS, {}, steps=[40, 60])


@pytest.mark.parametrize(
    ("before", "steps", "change", "scored"),
    [
        (COMBINES, [60, 80], {}, True),
        (COMBINES, [60, 80], {"select_beam": 3}, True),  # nothing is selected
        (COMBINES, [60, 80], {"window": 3}, False),
        (COMBINES, [60, 80], {"window": 1}, False),
        (COMBINES, [40, 60], {}, False),  # rota evaluate --step 60
        (COMBINES | {"window": 4}, [20, 40, 60, 80], {}, True),
        # The run has four checkpoints: more cannot be asked for.
        (COMBINES | {"window": 9}, [20, 40, 60, 80], {}, True),
        (COMBINES | {"window": 9}, [20, 40, 60, 80], {"window": 5}, True),
        (COMBINES | {"window": 9}, [20, 40, 60, 80], {"window": 3}, False),
        ({"combine": "last", "beam": 5}, [80], {"window": 2}, True),
    ],
)
def test_a_combined_model_is_scored_again_with_another_number_of_checkpoints(tmp_path, before, steps, change, scored):
    assert scored_after(tmp_path, before, change, steps=steps) is scored


@pytest.mark.parametrize(("there", "scored"), [((60, 80), True), ((40, 60, 80), False)])
def test_fewer_checkpoints_than_the_window_will_do_if_there_are_no_more(tmp_path, there, scored):
    job = job_of(tmp_path, COMBINES | {"window": 4})
    for step in there:
        write_checkpoint(job, step)
    write_scores(job, [60, 80])
    assert is_scored(job, LANGUAGES) is scored


def make_run(job, content):
    job.folder.mkdir(parents=True, exist_ok=True)
    (job.folder / "run.json").write_text(content)


@pytest.mark.parametrize("content", ["", "{}", '{"config": {}}', "[]"])
def test_a_run_whose_description_is_damaged_is_told_apart_from_the_others(tmp_path, content):
    job = job_of(tmp_path, {})
    make_run(job, content)
    found = look(job)
    assert found.state == "damaged"
    assert found.why.startswith(f"{job.folder / 'run.json'} is damaged (")


def test_a_run_with_damaged_scores_is_told_apart_from_the_others(tmp_path):
    job = job_of(tmp_path, {})
    make_run(job, json.dumps({"config": job.config.dump(), "data": {"sizes": dict.fromkeys(LANGUAGES, 9)}}))
    write_checkpoint(job, 80)
    assert look(job).state == "trained"
    (job.folder / "evals.jsonl").write_text('{"split": "test"}\n')
    assert look(job).why == f"{job.folder}/evals.jsonl, line 1 is damaged (it has no step); {REMEDY}"
    (job.folder / "evals.jsonl").write_text("half a li\n")
    assert look(job) == Status(
        "damaged", why=f"{job.folder}/evals.jsonl, line 1 is damaged (Expecting value); {REMEDY}"
    )


def study_job(run, **evaluation):
    about = json.loads((run / "run.json").read_text())
    config = parse_config(about["config"] | {"evaluation": about["config"]["evaluation"] | evaluation})
    return Job(run.parent.name, about["seed"], run, {}, config), set(about["data"]["sizes"])


def test_a_run_that_was_killed_right_after_its_last_checkpoint_trains_once_more_to_tidy_up(tmp_path):
    """Older checkpoints may not be thinned yet, and this one is not noted."""
    job = job_of(tmp_path, COMBINES)
    about = {"config": job.config.dump(), "data": {"sizes": dict.fromkeys(LANGUAGES, 9)}}
    job.run.write_about(about)
    for step in (60, 80):
        write_checkpoint(job, step)
    assert look(job).state == "trained", "an earlier version did not note them"
    for noted, state in ([60], "partial"), ([60, 80], "trained"):
        job.run.written.path.write_text(json.dumps({"checkpoints": noted}))
        assert look(job).state == state


def test_the_published_records_count_as_scored_with_their_own_settings_alone():
    runs = sorted(path.parent for path in STUDY.glob("*/*/seed-*/run.json"))
    assert runs
    assert all(is_scored(*study_job(run)) for run in runs)
    assert not any(is_scored(*study_job(run, window=2)) for run in runs)
    selected = [run for run in runs if (run / "selection.json").is_file()]
    assert selected
    assert not any(is_scored(*study_job(run, select_beam=5)) for run in selected)


def jobs_of(tmp_path, *, rows=("uniform", "warm"), seeds=(1,), **training):
    """Runs of 80 steps."""
    overrides = [f"training.{key}={value}" for key, value in training.items()]
    suite = load_suite(write_suite(tmp_path))
    return plan(suite, tmp_path / "runs", rows=rows, seeds=seeds, overrides=overrides)


def write_lines(path, entries):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(entry) + "\n" for entry in entries))


def write_times(job, walls, phases=()):
    """Seconds up to each validated step, and of the phases that a suite went through."""
    write_lines(
        job.folder / "timings.jsonl", [{"step": step, "wall": wall, "cpu": wall, "phases": {}} for step, wall in walls]
    )
    entries = [{"phase": phase, "seconds": seconds, "code": code} for phase, seconds, code in phases]
    write_lines(job.folder / "phases.jsonl", entries)


@pytest.mark.parametrize(
    ("training", "seconds"),
    [
        ({"tokens": 800}, 0.2),  # 800 / 4,000 tokens a second
        ({"tokens": 800, "accumulate": 3}, 0.6),  # three such batches
        ({"tokens": 800, "accumulate": 3, "threads": 2}, 0.3),  # twice as fast
    ],
)
def test_a_rough_update_is_its_tokens_at_the_speed_of_the_preset(tmp_path, training, seconds):
    job = jobs_of(tmp_path, **training)[0]
    assert rough_update(job) == pytest.approx(seconds)
    assert Pace({}, None).seconds(job, Status("missing")) == pytest.approx(80 * seconds)


@pytest.mark.parametrize(
    ("seconds", "at_once", "expected"),
    [
        ([], 2, 0.0),
        ([10.0, 20.0, 30.0], 1, 60.0),
        ([10.0, 10.0, 10.0, 10.0], 2, 20.0),
        ([60.0, 10.0, 10.0], 2, 60.0),  # never less than the longest
        ([0.0, 0.0], 2, 0.0),
    ],
)
def test_jobs_side_by_side_take_their_part_of_the_sum_but_no_less_than_the_longest(seconds, at_once, expected):
    assert together(seconds, at_once) == expected


def test_the_pace_of_a_row_is_all_its_seconds_by_all_its_updates(tmp_path):
    jobs = jobs_of(tmp_path, seeds=(1, 2))  # uniform, warm, then uniform, warm with the second seed
    write_times(jobs[0], [(20, 3.0), (40, 5.0)], [("train", 500.0, 0), ("evaluate", 99.0, 1), ("evaluate", 30.0, 0)])
    write_times(jobs[1], [(20, 10.0)])
    write_times(jobs[2], [(10, 4.0)], [("evaluate", 50.0, 0)])
    write_times(jobs[3], [(20, 1000.0)], [("evaluate", 1000.0, 0)])
    pace = measure_pace(jobs, [Status("done", 80), Status("partial", 20), Status("partial", 10), Status("another")])
    assert pace.by_row == {"uniform": pytest.approx(12 / 50), "warm": 0.5}, "runs with other settings do not count"
    assert pace.evaluation == 40.0, "what failed does not count"


def test_damaged_times_are_left_out_of_the_estimate(tmp_path):
    jobs = jobs_of(tmp_path)
    write_times(jobs[0], [(20, 3.0)])
    write_times(jobs[1], [(20, 5.0)])
    (jobs[1].folder / "timings.jsonl").write_text("{\n")
    assert measure_pace(jobs, [Status("partial", 20), Status("partial", 20)]).by_row == {"uniform": 0.15}


def test_a_run_without_a_validation_gives_no_pace(tmp_path):
    jobs = jobs_of(tmp_path)
    write_times(jobs[0], [])
    assert measure_pace(jobs, [Status("partial", 13), Status("missing")]) == Pace({}, None)


def test_what_is_left_of_a_job_is_its_updates_and_its_scoring(tmp_path):
    uniform, warm = jobs_of(tmp_path)
    pace = Pace({"uniform": 0.25, "other": 0.75}, 40.0)
    assert pace.seconds(uniform, Status("done", 80)) == 0
    assert pace.seconds(uniform, Status("trained", 80)) == 40
    assert pace.seconds(uniform, Status("trained", 60)) == 40, "it stopped early"
    assert pace.seconds(uniform, Status("partial", 60)) == 45  # 20 updates
    assert pace.seconds(uniform, Status("another", 60)) == 0, "nothing will be done to it"
    assert pace.seconds(uniform, Status("damaged")) == 0
    assert pace.seconds(warm, Status("missing")) == 80, "a row that has not begun is like the mean of the others, 0.5"
    assert Pace({"uniform": 0.25}, None).seconds(uniform, Status("partial", 60)) == 5


def test_a_run_that_stopped_early_is_trained_scored_and_reported_where_it_ended(tmp_path):
    """No loss falls by nine nats: over at the second validation, of the row that has the rule."""
    rule = {"patience": 1, "smallest_change": 9}
    row = {"teacher": "uniform", "training": {"early_stopping": rule}, "evaluation": {"select": "loss", "window": 1}}
    suite = load_suite(write_suite(tmp_path, more=f"  early: {json.dumps(row)}\n"))
    shorter = ["training.steps=12", "training.validate_every=4", "training.checkpoint_every=3"]
    out = tmp_path / "runs"
    early, whole = plan(suite, out, rows=["early", "uniform"], seeds=[1], overrides=shorter)
    write_description(suite, out, [early, whole])
    loops = [api.train(job.config, job.folder) for job in (early, whole)]
    assert [loop.step for loop in loops] == [8, 12]
    assert (look(early).state, look(early).step) == ("trained", 8)
    api.evaluate(early.folder)
    assert look(early).state == "done"
    page = make_report([out], tmp_path / "report").page.read_text()
    words = "stopped early at step 8 of 12; the last validation has not been better than the dev loss"
    assert page.count(words) == 1
    assert "1 run stopped early" in page


@pytest.mark.parametrize(
    ("pace", "words"),
    [
        (Pace({}, None), "base 170); teachers and scoring not counted"),
        (Pace({"a": 1.0}, None), "from the times of 1 row that has begun; scoring not counted"),
        (Pace({"a": 1.0, "b": 1.0}, 2.0), "from the times of 2 rows that have begun; scoring as in these runs"),
    ],
)
def test_an_estimate_says_where_it_comes_from_and_what_it_leaves_out(pace, words):
    assert pace.source.endswith(words)


@pytest.mark.parametrize(
    ("asked", "recorded", "scored"),
    [
        (None, ("bleu", "chrf"), True),
        (None, ("loss",), False),
        (None, ("bleu", "loss"), False),
        (["loss"], ("loss",), True),
        (["loss"], ("bleu", "chrf"), False),
    ],
)
def test_a_run_is_scored_if_it_has_the_metrics_asked_for(tmp_path, asked, recorded, scored):
    """The loss is not waited for beside others: runs of earlier versions do not have it."""
    job = job_of(tmp_path, {} if asked is None else {"metrics": asked})
    write_scores(job, [80], metrics=recorded)
    assert is_scored(job, LANGUAGES) is scored
