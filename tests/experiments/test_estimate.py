"""How long a suite will take: every figure worked out by hand."""

import json

import pytest
from suite_cases import write_suite

from rota.experiments.estimate import Pace, measure_pace, rough_update, together
from rota.experiments.jobs import plan
from rota.experiments.status import Status
from rota.experiments.suite import load_suite


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
    write_lines(job.folder / "timings.jsonl", [{"step": step, "wall": wall} for step, wall in walls])
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
    assert pace.seconds(uniform, Status("partial", 60)) == 45  # 20 updates
    assert pace.seconds(uniform, Status("another", 60)) == 0, "nothing will be done to it"
    assert pace.seconds(uniform, Status("damaged")) == 0
    assert pace.seconds(warm, Status("missing")) == 80, "a row that has not begun is like the mean of the others, 0.5"
    assert Pace({"uniform": 0.25}, None).seconds(uniform, Status("partial", 60)) == 5


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
