"""``rota train --processes 2`` does what one process does, passes signals on, and ends if one of them fails."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from rota.cli.processes import exit_code, train_in

CONFIG = """
data:
  corpus: synthetic
  folder: data
  synthetic: {families: {la: {lala: 200, lato: 60}}, dev: 8, test: 4}
  subwords: {size: 300}
student: {preset: tiny, width: 16, feedforward: 32, heads: 2, layers: 1, lr_warmup: 4}
teacher: {name: temperature, temperature: 2}
training: {steps: 300, tokens: 60, accumulate: 2, checkpoint_every: 5, validate_every: 300, keep: 2, threads: 1,
  tensorboard: false}
"""


def command(folder, *options):
    return [sys.executable, "-m", "rota", "train", "run.yaml", "--run", folder, *options]


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    folder = tmp_path_factory.mktemp("processes")
    (folder / "run.yaml").write_text(CONFIG)
    subprocess.run(command("one"), cwd=folder, check=True, stdout=subprocess.DEVNULL)
    return folder


def steps(folder):
    return [
        {key: entry[key] for key in ("step", "arm", "loss", "tokens")}
        for entry in map(json.loads, (folder / "steps.jsonl").read_text().splitlines())
    ]


def started(project, run):
    """The command in two processes, once its first checkpoint is there."""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    process = subprocess.Popen(command(run, "--processes", "2"), cwd=project, **pipes)
    deadline = time.monotonic() + 300
    while not (project / run / "checkpoints" / "5").exists() and time.monotonic() < deadline:
        assert process.poll() is None, process.communicate()
        time.sleep(0.02)
    return process


def ranks_of(process):
    found = subprocess.run(["ps", "-o", "pid=", "--ppid", str(process.pid)], capture_output=True, text=True, check=True)
    return [int(pid) for pid in found.stdout.split()]


def check_goes_on_to_the_same_end(project, run):
    again = subprocess.run(command(run, "--processes", "2"), cwd=project, capture_output=True, text=True, check=False)
    assert again.returncode == 0, again.stderr
    assert "resuming from step" in again.stdout
    assert "with 2 processes" in again.stdout
    assert steps(project / run) == steps(project / "one")


def test_ctrl_c_saves_and_the_same_command_ends_as_one_process_does(project):
    process = started(project, "interrupted")
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=200)
    assert process.returncode == 130, output
    assert "and saved; continue with: the same command, or in one process: " in output
    assert "Traceback" not in output
    check_goes_on_to_the_same_end(project, "interrupted")


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="asks ps for children")
def test_a_killed_process_ends_all_in_one_line_and_the_same_command_goes_on(project):
    process = started(project, "killed")
    os.kill(ranks_of(process)[1], signal.SIGKILL)
    output, _ = process.communicate(timeout=200)
    assert process.returncode == 2
    assert output.count("another process of this run has ended or hangs; the same command resumes") == 1
    check_goes_on_to_the_same_end(project, "killed")


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="asks ps for children")
def test_the_processes_save_and_end_when_the_command_itself_is_killed(project):
    process = started(project, "orphans")
    ranks = ranks_of(process)
    process.kill()
    deadline = time.monotonic() + 90
    while any(os.path.exists(f"/proc/{pid}") for pid in ranks) and time.monotonic() < deadline:  # noqa: PTH110
        time.sleep(0.1)
    assert not any(os.path.exists(f"/proc/{pid}") for pid in ranks)  # noqa: PTH110
    process.communicate()
    check_goes_on_to_the_same_end(project, "orphans")


@pytest.mark.parametrize(
    ("codes", "code"),
    [((0, 0), 0), ((2, 2), 2), ((2, -9), 2), ((-9, 2), 2), ((-9, -9), 137), ((0, -15), 143), ((130, 130), 130)],
)
def test_the_exit_code_is_that_of_a_process_that_could_say_why(codes, code):
    assert exit_code(codes) == code


def test_a_process_that_hangs_when_another_one_has_failed_is_ended(monkeypatch):
    scripts = iter(["import sys; sys.exit(3)", "import time; time.sleep(600)"])
    start = subprocess.Popen
    monkeypatch.setattr(
        subprocess, "Popen", lambda _, **options: start([sys.executable, "-c", next(scripts)], **options)
    )
    began = time.monotonic()
    assert train_in(2, ["train"], grace=0.5) == 3
    assert time.monotonic() - began < 60


def test_under_torchrun_the_option_is_refused(rota, tmp_path, monkeypatch):
    (tmp_path / "run.yaml").write_text(CONFIG)
    monkeypatch.setenv("WORLD_SIZE", "2")
    code, _, error = rota("train", tmp_path / "run.yaml", "--processes", "2")
    assert (code, error) == (
        2,
        "error: --processes is 2, but torchrun has started processes already; leave it out\n",
    )
