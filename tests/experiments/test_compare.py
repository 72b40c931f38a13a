"""``rota compare`` with real processes: interrupted, gone on with, with a run that fails, and skipped when done."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from suite_cases import BAD_ROW, SUITE, write_suite

from rota import api
from rota.config import load_config
from rota.runs.records import read_record

ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}
RUNS = ("uniform", "warm")
SUITES_PAGE = Path(__file__).parents[2] / "docs" / "suites.md"


def start(folder, *options):
    command = [sys.executable, "-m", "rota", "compare", "small.yaml", *options]
    return subprocess.Popen(command, cwd=folder, env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


def wait_until(there, process=None, seconds=900):
    deadline = time.monotonic() + seconds
    while not there():
        assert time.monotonic() < deadline
        assert process is None or process.poll() is None, process.communicate()[0].decode()
        time.sleep(0.02)


def wait_until_training(folder, out="runs/small", process=None):
    """Until both runs have saved once."""
    saved = [folder / out / row / "seed-1" / "checkpoints" / "20" for row in RUNS]
    wait_until(lambda: all(path.exists() for path in saved), process)


def alive(marker):
    """Processes whose command line has the marker."""
    found = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout
    return [line for line in found.splitlines() if "rota.experiments.queue" in line and marker in line]


def undisturbed(folder, row):
    """The same run in one piece, in this process."""
    config = load_config(folder / "runs" / "small" / row / "seed-1" / "config.yaml")
    run = folder / "whole" / row
    api.train(config, run)
    return run


@pytest.fixture(scope="module")
def interrupted(tmp_path_factory):
    """A suite of two runs whose command got SIGINT; and what it said."""
    folder = tmp_path_factory.mktemp("compare")
    write_suite(folder)
    process = start(folder)
    wait_until_training(folder, process=process)
    process.send_signal(signal.SIGINT)
    output = process.communicate(timeout=120)[0].decode()
    return folder, process.returncode, output


@pytest.fixture(scope="module")
def finished(interrupted):
    """The same suite, gone on with, and with a row that fails; exit code and output."""
    folder = interrupted[0]
    write_suite(folder, more=BAD_ROW)
    process = start(folder)
    output = process.communicate(timeout=300)[0].decode()
    return folder, process.returncode, output


def test_an_interrupted_suite_saves_and_says_how_to_go_on(interrupted):
    folder, code, output = interrupted
    assert code == 130, output
    assert "uniform/seed-1: stopped" in output
    assert "0 of 2 runs are done, in runs/small; stopped, and what was running is saved; continue with: " in output
    assert output.rstrip().endswith("compare small.yaml")
    assert not alive(str(folder)), "no process is left"


def test_one_failing_run_does_not_stop_the_others(finished):
    _, code, output = finished
    assert code == 1
    assert "bad/seed-1: failed: unknown language 'moon'; the corpus has lala, lato" in output
    assert "2 of 3 runs are done, in runs/small; 1 failed; try those again with: " in output
    assert "uniform/seed-1: done" in output
    assert "warm/seed-1: done" in output


def test_an_interrupted_suite_ends_as_an_undisturbed_one(finished, monkeypatch):
    folder, _, output = finished
    assert "running from step 0" not in output.replace("bad/seed-1: running from step 0", ""), "both went on"
    monkeypatch.chdir(folder)
    for row in RUNS:
        whole, run = undisturbed(folder, row), folder / "runs" / "small" / row / "seed-1"
        for name in ("steps.jsonl", "validations.jsonl", "checkpoints/80/student.network.safetensors"):
            assert (run / name).read_bytes() == (whole / name).read_bytes(), f"{row}: {name}"


def test_every_run_is_scored_and_the_suite_described(finished):
    folder = finished[0]
    for row in RUNS:
        run = folder / "runs" / "small" / row / "seed-1"
        assert {entry["language"] for entry in read_record(run / "evals.jsonl")} == {"lala", "lato"}
        assert json.loads((run / "run.json").read_text())["config"]["name"] == row
        assert json.loads((run / "run.json").read_text())["config"]["training"]["threads"] == 1
        assert [entry["phase"] for entry in read_record(run / "phases.jsonl")][-2:] == ["train", "evaluate"]
    described = json.loads((folder / "runs" / "small" / "suite.json").read_text())
    assert [row["name"] for row in described["rows"]] == ["uniform", "warm", "bad"]
    assert described["rows"][1] == {
        "name": "warm",
        "label": "Proportional",
        "warmup": "30",
        "table": "other",
        "paper": None,
        "place": None,
        "seeds": None,
    }


def test_what_is_done_is_skipped(finished, rota, monkeypatch):
    folder = finished[0]
    monkeypatch.chdir(folder)
    before = (folder / "runs" / "small" / "warm" / "seed-1" / "log.txt").read_bytes()
    code, output, _ = rota("compare", "small.yaml", "--rows", "uniform,warm")
    assert code == 0
    assert "2 of 2 runs are done, in runs/small; next: " in output
    assert (folder / "runs" / "small" / "warm" / "seed-1" / "log.txt").read_bytes() == before


def test_the_plan_lists_done_partial_and_missing_and_touches_nothing(finished, rota, monkeypatch):
    folder = finished[0]
    monkeypatch.chdir(folder)
    partial = folder / "runs" / "small" / "warm" / "seed-2"
    api.train(load_config(folder / "runs/small/warm/seed-1/config.yaml", ["seed=2"]), partial, until=13)
    files = sorted(folder.rglob("*"))
    code, output, error = rota("compare", "small.yaml", "--seeds", "2", "--dry-run", "--jobs", "2")
    assert code == 0, error
    lines = [" ".join(line.split()) for line in output.splitlines()]
    assert lines[0] == "small in runs/small: 6 runs, 2 done, 1 partial, 3 missing"
    assert "uniform 1 done" in lines
    assert any(line.startswith("warm 2 partial (step 13 of 80)") for line in lines)
    assert any(line.startswith("bad 2 missing") for line in lines)
    assert "from the times of 2 rows that have begun; scoring as in these runs." in " ".join(lines)
    assert sorted(folder.rglob("*")) == files


def test_another_size_in_the_same_folder_is_refused_and_nothing_is_lost(finished, rota, monkeypatch):
    folder = finished[0]
    monkeypatch.chdir(folder)
    before = (folder / "runs" / "small" / "uniform" / "seed-1" / "steps.jsonl").read_bytes()
    code, output, _ = rota("compare", "small.yaml", "--rows", "uniform", "--steps", "60")
    assert code == 1
    assert "uniform/seed-1 holds another run: " in output
    assert "choose another folder with --out, or delete what is there" in output
    assert (folder / "runs" / "small" / "uniform" / "seed-1" / "steps.jsonl").read_bytes() == before


def test_the_plan_says_below_the_list_why_a_run_is_not_touched_and_counts_no_time_for_it(finished, rota, monkeypatch):
    folder = finished[0]
    monkeypatch.chdir(folder)
    (folder / "long.yaml").write_text(SUITE + "  a-row-whose-name-takes-half-of-a-line: {teacher: uniform}\n")
    out = ("--out", "runs/small", "--dry-run", "--jobs", "1")
    code, output, _ = rota("compare", "long.yaml", "--set", "training.tokens=151", *out)
    assert code == 0
    lines = [" ".join(line.split()) for line in output.splitlines()]
    assert lines[0] == "long in runs/small: 3 runs, 1 missing, 2 another"
    assert "uniform 1 another run" in lines
    assert any(line.startswith("a-row-whose-name-takes-half-of-a-line 1 missing") for line in lines)
    why = "training.tokens was 150 and is 151; choose another folder with --out, or delete what is there"
    assert f"uniform/seed-1, warm/seed-1: another run: {why}" in " ".join(lines)
    code, output, _ = rota("compare", "small.yaml", "--rows", "warm", "--set", "training.tokens=151", "--dry-run")
    assert output.splitlines()[-1] == "Nothing else is left to do."


def test_other_settings_of_the_search_score_again_without_training(finished, rota, monkeypatch):
    folder = finished[0]
    monkeypatch.chdir(folder)
    options = ("compare", "small.yaml", "--rows", "uniform", "--set", "evaluation.beam=2", "--dry-run")
    assert "trained, not scored" in rota(*options)[1]


def test_another_window_or_beam_of_the_selection_scores_again_without_training(finished, rota, monkeypatch):
    folder = finished[0]
    monkeypatch.chdir(folder)
    api.evaluate(folder / "runs" / "small" / "uniform" / "seed-1", select="macro", window=2, select_beam=2)
    selects = ["evaluation.select=macro", "evaluation.window=2", "evaluation.select_beam=2"]

    def plan(*changes):
        options = [part for change in (*selects, *changes) for part in ("--set", change)]
        return rota("compare", "small.yaml", "--rows", "uniform", "--dry-run", *options)[1]

    assert "Nothing is left to do." in plan()
    assert "trained, not scored" in plan("evaluation.window=3")
    assert "trained, not scored" in plan("evaluation.select_beam=1")


@pytest.mark.parametrize("suite", ["laptop", "paper", "controls"])
def test_the_plan_of_a_built_in_suite_needs_no_data(suite, rota, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, output, error = rota("compare", suite, "--rows", "all", "--seeds", "1", "--dry-run")
    assert code == 0, error
    lines = [" ".join(line.split()) for line in output.splitlines()]
    assert any(line.startswith("replay-proportions 1 missing") for line in lines)
    assert any(line.startswith("dqn 1 missing") for line in lines)
    assert "from rough speeds of a CPU core" in " ".join(lines)
    assert list(tmp_path.iterdir()) == []


def test_one_run_is_counted_as_one(rota, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_suite(tmp_path)
    lines = rota("compare", "small.yaml", "--rows", "warm", "--dry-run")[1].splitlines()
    assert lines[0] == "small in runs/small: 1 run, 1 missing"


def test_the_name_of_a_row_is_not_cut_however_narrow_the_screen(rota, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "50")
    write_suite(tmp_path, more="  a-row-whose-name-takes-half-of-a-line: {teacher: uniform}\n")
    lines = rota("compare", "small.yaml", "--dry-run")[1].splitlines()
    # It may take several lines: whether the console has 50 columns depends on what made it first.
    assert "a-row-whose-name-takes-half-of-a-line" in "".join(line.split()[0] for line in lines if line.strip())


def test_the_plans_on_the_page_about_suites_are_what_the_command_prints(rota, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {0, 1})  # however many the machine has
    shown = re.findall(r"```\n\$ rota (compare [^\n]*--dry-run)\n(.*?)```", SUITES_PAGE.read_text(), re.DOTALL)
    assert len(shown) == 2
    for command, output in shown:
        printed = [line.rstrip() for line in rota(*command.split())[1].splitlines()]
        assert printed == output.splitlines(), f"print the plan of {command!r} anew"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("moon",), "no suite 'moon'; give laptop, controls, order, paper"),
        (("small.yaml", "--rows", "moon"), "no row 'moon' in suite 'small'; it has uniform, warm"),
        (("small.yaml", "--seeds", "x"), "seeds 'x' are not understood"),
        (("small.yaml", "--steps", "0"), "--steps is 0; give at least 1"),
        (("small.yaml", "--tokens", "few"), "--tokens: 'few' is not a count"),
        (("small.yaml", "--on", "moon"), "--on 'moon' is not known; it is local or ray"),
        (("small.yaml", "--set", "training.stps=3"), "unknown key 'training.stps'; did you mean 'steps'?"),
        (("small.yaml", "--corpus", "moon"), "no corpus 'moon'; give catalogues, debian, synthetic, ted8"),
        (("small.yaml", "--rows", ","), "--rows ',' names no row; suite 'small' has uniform, warm"),
        (("small.yaml", "--on", "moon", "--dry-run"), "--on 'moon' is not known; it is local or ray"),
        (("small.yaml", "--out", "small.yaml"), "small.yaml cannot be a folder, since there is a file of that name"),
        (("small.yaml", "--out", "small.yaml/x"), "small.yaml/x cannot be a folder, since there is a file of that"),
        (("small.yaml", "--set", "seed=4"), "--set 'seed=4' would make all seeds of a row the same run; use --seeds"),
        (("small.yaml", "--set", "name=zz"), "--set 'name=zz' would name all runs the same; a run is named after"),
        (("paper.yaml", "--dry-run"), "rows.moon.paper: the paper has no row 'tscl/moon'; its rows are uniform-0"),
    ],
)
def test_mistakes_on_the_command_line_are_one_line(rota, tmp_path, monkeypatch, options, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "small.yaml").write_text(SUITE)
    (tmp_path / "paper.yaml").write_text(SUITE + "  moon: {teacher: uniform, paper: tscl/moon}\n")
    code, _, error = rota("compare", *options)
    assert code == 2
    assert message in error
    assert error.count("\n") == 1
    assert not (tmp_path / "runs").exists()


@pytest.mark.slow
def test_runs_save_and_stop_when_the_command_is_killed_and_a_new_one_goes_on(tmp_path, monkeypatch):
    write_suite(tmp_path)
    process = start(tmp_path, "--set", "training.steps=400")
    wait_until_training(tmp_path, process=process)
    folders = [tmp_path / "runs" / "small" / row / "seed-1" for row in RUNS]
    busy = [run for run in folders if not (run / "checkpoints" / "400").exists()]  # on a busy machine one may be done
    process.kill()
    process.communicate()
    again = start(tmp_path, "--set", "training.steps=400")  # at once: the old processes may still be saving
    output = again.communicate(timeout=300)[0].decode()
    assert again.returncode == 0, output
    monkeypatch.chdir(tmp_path)
    assert busy
    assert all("stopped at step" in (run / "log.txt").read_text() for run in busy), "they were told, and saved"
    for row in RUNS:
        run = tmp_path / "runs" / "small" / row / "seed-1"
        assert (run / "steps.jsonl").read_bytes() == (undisturbed(tmp_path, row) / "steps.jsonl").read_bytes()
    assert not alive(str(tmp_path))
