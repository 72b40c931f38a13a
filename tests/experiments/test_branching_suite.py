"""Suites whose rows begin from one checkpoint for each seed, on several corpora, under a plan."""

import json
import shutil
import signal

import pytest
import test_compare
from suite_cases import SUITE
from test_compare import alive, start

from rota import api
from rota.config import load_config
from rota.experiments.jobs import Pace, Status, look, plan, without_idle_stems
from rota.experiments.queue import Queue
from rota.experiments.suite import load_suite
from rota.plan import find_plan
from rota.report.folders import copy_records
from rota.runs import Run
from rota.settings import ConfigError

HEAD = SUITE.partition("rows:")[0]
ROWS = """
rows:
  uniform: {teacher: {name: uniform, warmup: 30}}
  warm: {teacher: {name: proportional, warmup: 30}}
branch: true
"""
PLAN = """
plan:
  contrasts: {main: {row: warm, minus: uniform}}
  endpoint: dev-loss
  interest: 0.1
"""
CORPORA = """
corpora:
  one:
    data:
      corpus: synthetic
      synthetic: {families: {la: {lala: 300, lato: 60}}, dev: 12, test: 6}
      low_resource: [lato]
      subwords: {size: 400}
  two:
    data:
      corpus: synthetic
      synthetic: {families: {ka: {kaka: 200, kato: 50}}, dev: 12, test: 6}
      low_resource: [kato]
      subwords: {size: 400}
    training: {tokens: 120}
"""


def write(folder, text, name="small.yaml"):
    path = folder / name
    path.write_text(text)
    return path


def jobs_of(folder, text, **options):
    suite = load_suite(write(folder, text))
    return plan(suite, folder / "runs", rows=suite.choose(None), **options)


def test_every_seed_has_one_stem_and_its_rows_wait_for_it(tmp_path):
    jobs = jobs_of(tmp_path, HEAD + ROWS, seeds=(1, 2))
    assert [job.name for job in jobs] == [
        *("stem/seed-1", "uniform/seed-1", "warm/seed-1"),
        *("stem/seed-2", "uniform/seed-2", "warm/seed-2"),
    ]
    stem, _, warm = jobs[:3]
    assert (stem.until, stem.steps, stem.is_stem) == (30, 30, True)
    assert stem.folder == tmp_path / "runs" / "stems" / "warmup" / "seed-1"
    assert (warm.needs, warm.stem, warm.begins, warm.steps) == (("stem/seed-1",), stem.folder, 30, 80)
    # A second for each update: the stem's 30, and 50 for each row.
    seconds = [Pace({"uniform": 1.0}, None).seconds(job, Status("missing")) for job in jobs[:3]]
    assert seconds == [30, 50, 50]


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ("  cold: {teacher: uniform}\n", "row 'cold': suite 'small' branches where the warm-up ends, and this row has"),
        (
            "  told: {teacher: {name: tscl, warmup: 30}}\n",
            "row 'told': its teacher decides or is told something before",
        ),
        (
            "  slow: {teacher: {name: uniform, warmup: 30, decide_every: 10}}\n",
            "rows 'uniform' and 'slow' cannot begin from the same checkpoint: teacher.decide_every is 1 and 10; make",
        ),
        (
            "  later: {teacher: {name: uniform, warmup: 31}}\n",
            "rows 'uniform' and 'later' cannot begin from the same checkpoint: teacher.warmup.until is 30 and 31",
        ),
        (
            "  wide: {teacher: {name: uniform, warmup: 30}, training: {tokens: 160}}\n",
            "cannot begin from the same checkpoint: training.tokens is 150 and 160",
        ),
        (
            "  other: {teacher: {name: uniform, warmup: 30}, data: {subwords: {size: 500}}}\n",
            "cannot begin from the same checkpoint: data.subwords.size is 400 and 500",
        ),
        ("  stems: {teacher: {name: uniform, warmup: 30}}\n", "has a row 'stem' or 'stems'; give it another name"),
    ],
)
def test_rows_that_are_not_treated_equally_are_refused_before_anything_runs(tmp_path, more, message):
    text = HEAD + ROWS.replace("branch: true\n", more) + "branch: true\n"
    with pytest.raises(ConfigError, match=message):
        jobs_of(tmp_path, text)
    if "stems:" not in more:
        jobs = jobs_of(tmp_path, text.replace("}\nbranch", ", branch: false}\nbranch"))
        assert jobs[-1].stem is None
        assert not jobs[-1].needs


def test_stems_that_nothing_waits_for_are_left_out(tmp_path):
    jobs = jobs_of(tmp_path, HEAD + ROWS)
    assert without_idle_stems(jobs) == jobs
    for job in jobs[1:]:
        folder = job.folder / "checkpoints" / "40"
        folder.mkdir(parents=True)
        (folder / "checkpoint.json").write_text(
            json.dumps({"format": 1, "step": 40, "complete": True, "files": {"state.json": ""}})
        )
        if job is jobs[1]:
            assert without_idle_stems(jobs)[0].is_stem, "the other row has not begun"
    left = without_idle_stems(jobs)
    assert [job.name for job in left] == ["uniform/seed-1", "warm/seed-1"]
    assert not left[0].needs


def test_each_corpus_has_its_rows_and_its_stems_in_a_folder_of_its_own(tmp_path):
    text = HEAD + ROWS + CORPORA
    jobs = jobs_of(tmp_path, text)
    names = [job.name for job in jobs]
    assert names == [f"{corpus}/{row}/seed-1" for corpus in ("one", "two") for row in ("stem", "uniform", "warm")]
    warm = jobs[5]
    assert warm.folder == tmp_path / "runs" / "two" / "warm" / "seed-1"
    assert warm.needs == ("two/stem/seed-1",)
    assert warm.config.training.tokens == 120
    assert [str(job.config.data.folder) for job in jobs[2::3]] == ["prepared/small-one", "prepared/small-two"]
    only = jobs_of(tmp_path, text, corpora=["two"])
    assert {job.corpus for job in only} == {"two"}
    fewer = jobs_of(tmp_path, text.replace("    training: {tokens: 120}", "    rows: uniform\n    seeds: [4]"))
    assert [job.name for job in fewer if not job.is_stem] == [
        *("one/uniform/seed-1", "one/warm/seed-1", "two/uniform/seed-4")
    ]


def test_a_row_may_have_more_seeds_than_the_others(tmp_path):
    text = HEAD + ROWS.replace("warmup: 30}}\nbranch", "warmup: 30}, seeds: 3}\nbranch")
    rows = [job.name for job in jobs_of(tmp_path, text) if not job.is_stem]
    assert rows == ["uniform/seed-1", "warm/seed-1", "warm/seed-2", "warm/seed-3"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (CORPORA.replace("two:\n    data:", "two:\n    rows: moon\n    data:"), "no row 'moon' in suite 'small'"),
        ("corpora: {one: moon}\n", "no corpus 'moon'; give catalogues, debian, synthetic, ted8, or a YAML file"),
        ("corpora: {one: {data: synthetic, moon: 1}}\n", "unknown key 'corpora.one.moon'"),
        (PLAN.replace("minus: uniform", "minus: moon"), "plan.contrasts.main names the row 'moon'"),
        (
            PLAN.replace("minus: uniform", "minus: uniform, corpora: moon"),
            "names the corpus 'moon'; the suite has none",
        ),
        (
            "corpora: {one: synthetic, two: {data: synthetic, rows: uniform}}\n" + PLAN,
            "plan.contrasts.main: row 'warm' is not run on corpus 'two'",
        ),
    ],
)
def test_mistakes_in_corpora_and_plans_are_one_line(tmp_path, text, message):
    with pytest.raises(ConfigError, match=message):
        load_suite(write(tmp_path, HEAD + ROWS + text))


@pytest.mark.parametrize(
    ("options", "text", "message"),
    [
        (("--corpus", "moon"), CORPORA, "no corpus 'moon' in suite 'small'; it has one, two"),
        ((), PLAN.replace("dev-loss", "moon"), "endpoint 'moon' is not known"),
        ((), PLAN.replace("uniform}", "uniform, at: time}").replace("dev-loss", "bleu"), "at: time needs endpoint"),
        (("--noise", "none"), PLAN, "is for --dry-run of a suite with a plan"),
        (("--noise", "none", "--dry-run"), "", "is for --dry-run of a suite with a plan"),
        (("--noise", "none", "--dry-run"), PLAN, "no runs in none, whose noise is asked for"),
    ],
)
def test_mistakes_on_the_command_line_are_found_before_anything_runs(
    rota, tmp_path, monkeypatch, options, text, message
):
    monkeypatch.chdir(tmp_path)
    write(tmp_path, HEAD + ROWS + text)
    code, _, error = rota("compare", "small.yaml", *options)
    assert (code, error.count("\n")) == (2, 1)
    assert message in error
    assert not (tmp_path / "runs").exists()


@pytest.fixture(scope="module")
def branched(tmp_path_factory):
    """Two rows on two corpora from shared stems under a plan; interrupted once, then finished."""
    folder = tmp_path_factory.mktemp("branched")
    write(folder, HEAD + ROWS + CORPORA + PLAN)
    process = start(folder, "--jobs", "2")
    test_compare.wait_until(lambda: (folder / "runs/small/one/uniform/seed-1/checkpoints").exists(), process)
    process.send_signal(signal.SIGINT)
    stopped = process.communicate(timeout=120)[0].decode()
    assert process.returncode == 130, stopped
    process = start(folder, "--jobs", "2")
    output = process.communicate(timeout=300)[0].decode()
    assert process.returncode == 0, output
    assert not alive(str(folder))
    return folder, output


def test_a_branched_suite_ends_as_runs_that_trained_everything_themselves(branched, monkeypatch):
    folder, output = branched
    assert " runs are done, in runs/small; next: " in output
    monkeypatch.chdir(folder)
    run = folder / "runs" / "small" / "two" / "warm" / "seed-1"
    api.train(load_config(run / "config.yaml"), folder / "whole")
    for name in ("steps.jsonl", "validations.jsonl", "checkpoints/80/student.network.safetensors"):
        assert (run / name).read_bytes() == (folder / "whole" / name).read_bytes(), name


def test_runs_record_their_stem_and_the_plan_they_began_under(branched):
    folder = branched[0] / "runs" / "small"
    plan = find_plan(folder)
    for corpus in ("one", "two"):
        runs = [Run(folder / corpus / row / "seed-1") for row in ("uniform", "warm")]
        assert {run.about["plan"] for run in runs} == {plan.fingerprint}
        assert len({run.about["stem"]["checkpoint"] for run in runs}) == 1
        assert {run.about["stem"]["step"] for run in runs} == {30}
        assert [row["name"] for row in json.loads((folder / corpus / "suite.json").read_text())["rows"]] == [
            *("uniform", "warm")
        ]
        stem = Run(folder / corpus / "stems" / "warmup" / "seed-1")
        spent = [entry["step"] for entry in runs[0].read("timings")]
        assert spent[:2] == [entry["step"] for entry in stem.read("timings")] == [20, 30]


def test_a_finished_branched_suite_needs_no_stems_and_its_plan_can_be_judged(branched, rota, monkeypatch):
    folder = branched[0]
    monkeypatch.chdir(folder)
    shutil.move("runs/small/one/stems", "aside")
    code, output, error = rota("compare", "small.yaml", "--dry-run")
    assert code == 0, error
    assert output.startswith("small in runs/small: 4 runs, 4 done")
    assert "The plan, 2 tests:" in output
    shutil.move("aside", "runs/small/one/stems")
    code, output, error = rota("report", "runs/small", "--out", "report")
    assert code == 0, error
    assert "All 4 runs of it began under this very plan" in (folder / "report" / "report.md").read_text()
    assert (folder / "report" / "figures" / "regret-dev-loss.png").exists()


def test_a_study_goes_on_from_its_published_records(branched, rota, monkeypatch):
    folder = branched[0]
    monkeypatch.chdir(folder)
    copy_records(folder / "runs" / "small", folder / "published")
    code, output, error = rota("compare", "small.yaml", "--dry-run", "--out", "published")
    assert code == 0, error
    assert output.startswith("small in published: 4 runs, 4 done")
    shutil.rmtree("published/two/warm")
    process = start(folder, "--out", "published")
    output = process.communicate(timeout=300)[0].decode()
    assert process.returncode == 0, output
    assert [path.parent.parent.name for path in folder.glob("published/*/*/*/checkpoints")] == ["warm"]
    stem = folder / "published" / "two" / "stems" / "warmup" / "seed-1"
    assert [path.parent for path in folder.glob("published/*/stems/*/*/checkpoints")] == [stem]
    again, before = (Run(folder / root / "two" / "warm" / "seed-1") for root in ("published", "runs/small"))
    assert list(again.read("steps")) == list(before.read("steps"))


def test_published_records_of_an_unfinished_run_are_left_alone(branched, tmp_path):
    copy_records(branched[0] / "runs" / "small", tmp_path / "runs")
    job = next(job for job in jobs_of(tmp_path, HEAD + ROWS + CORPORA + PLAN) if job.name == "one/warm/seed-1")
    assert look(job).state == "done"
    job.run.find_record("evals").unlink()
    assert look(job).state == "damaged", "they were published with scores"
    job.run.written.path.unlink()
    assert look(job).state == "another"
    assert "published records of a run that was not finished" in look(job).why


def test_a_stem_that_fails_fails_its_rows(tmp_path):
    jobs = jobs_of(tmp_path, HEAD + ROWS)

    class Fails:
        def poll(self):
            return 2

    queue = Queue(jobs, lambda job, trained: Fails(), at_once=2)
    queue.run(lambda: False, pause=0)
    assert {name: entry.state for name, entry in queue.entries.items()} == dict.fromkeys(queue.entries, "failed")
    assert queue.entries["warm/seed-1"].note == "it begins with stem/seed-1, which is not trained"
    assert look(jobs[0]).state == "missing"
