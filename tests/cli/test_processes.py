"""``rota train --processes 2`` does what one process does, passes signals on, and ends if one of them fails."""

import json
import os
import signal
import subprocess
import sys
import time
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

from rota.cli import app, runs
from rota.cli import processes as cli_processes
from rota.cli.processes import default_processes, exit_code, train_in
from rota.cli.runs import _say_where_it_begins
from rota.config import parse_config
from rota.teachers.curricula.dropout import DropoutVarianceConfig

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


@pytest.mark.parametrize(
    ("preset", "cores", "gpu", "training", "said"),
    [
        ("small", 2, False, {}, "--set training.accumulate=2 --set training.tokens=4000"),
        ("small", 2, False, {"accumulate": 3, "tokens": 1000}, "--set training.accumulate=6 --set training.tokens=500"),
        ("small", 2, False, {"accumulate": 2}, None),  # --processes 1 was written
        ("small", 2, False, {"threads": 2}, None),
        ("small", 1, False, {}, None),
        ("small", 2, True, {}, None),
        ("tiny", 2, False, {}, None),
    ],
)
def test_two_processes_are_named_where_they_may_be_faster(monkeypatch, preset, cores, gpu, training, said):
    import torch

    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr(torch, "get_num_threads", lambda: cores)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: gpu)
    config = parse_config({"data": {"corpus": "synthetic"}, "student": {"preset": preset}, "training": training})
    alone = config.teacher.model_copy(update={"curriculum": DropoutVarianceConfig()})
    assert cli_processes.advice_for_one(config.model_copy(update={"teacher": alone})) is None
    advice = cli_processes.advice_for_one(config)
    assert (advice is None) is (said is None)
    if said is not None:
        assert "two were 1.08 (0.85-1.16) times as fast as two threads" in advice
        assert advice.endswith(said)


@pytest.mark.parametrize(("option", "advises"), [([], True), (["--processes", "1"], False)])
def test_who_writes_one_process_is_not_advised_to_take_two(tmp_path, capsys, monkeypatch, option, advises):
    told = []
    monkeypatch.setattr(runs, "train_with_display", lambda *_, **options: told.append(options["advises"]))
    monkeypatch.setattr(cli_processes, "advice_for_one", lambda _: "two were faster")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    (tmp_path / "my.yaml").write_text(CONFIG)
    assert CliRunner().invoke(app, ["train", str(tmp_path / "my.yaml"), *option]).exit_code == 0
    assert told == [advises]
    loop = SimpleNamespace(step=0, steps=10, team=SimpleNamespace(size=1))
    _say_where_it_begins(None, loop, None, advises=told[0])
    assert capsys.readouterr().out == ("two were faster\n" if advises else "")


@pytest.mark.parametrize("step", [0, 5])
def test_it_is_said_once_where_the_run_begins(capsys, monkeypatch, step):
    monkeypatch.setattr(cli_processes, "advice_for_one", lambda _: "two were faster")
    loop = SimpleNamespace(step=step, steps=10, team=SimpleNamespace(size=1))
    _say_where_it_begins(None, loop, None, advises=True)
    assert capsys.readouterr().out == ("resuming from step 5\n" if step else "two were faster\n")


@pytest.mark.parametrize(
    ("student", "training", "environment", "count"),
    [
        ({}, {"accumulate": 2}, {}, 2),
        ({"device": "cpu"}, {"accumulate": 4}, {}, 2),
        ({}, {}, {}, 1),  # one batch in an update cannot be shared
        ({}, {"accumulate": 3}, {}, 1),
        ({"preset": "tiny"}, {"accumulate": 2}, {}, 1),
        ({"device": "cuda"}, {"accumulate": 2}, {}, 1),
        ({}, {"accumulate": 2, "threads": 2}, {}, 1),
        ({}, {"accumulate": 2}, {"OMP_NUM_THREADS": "2"}, 1),
        ({}, {"accumulate": 2}, {"WORLD_SIZE": "2"}, 1),
    ],
)
def test_two_processes_are_the_default_where_they_are_faster_and_train_the_same(
    student, training, environment, count, monkeypatch
):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr("rota.data.preparation.workers.cores", lambda: 2)
    monkeypatch.setattr(cli_processes, "_has_gpu", lambda: False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    values = {"data": {"corpus": "synthetic"}, "student": student, "training": training}
    assert default_processes(parse_config(values)) == count
    alone = parse_config({**values, "teacher": {"name": "uniform", "curriculum": "dropout-variance"}})
    assert default_processes(alone) == 1, "several processes refuse it"


def test_a_gpu_or_a_single_core_leaves_one_process(monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    config = parse_config({"data": {"corpus": "synthetic"}, "training": {"accumulate": 2}})
    monkeypatch.setattr("rota.data.preparation.workers.cores", lambda: 2)
    monkeypatch.setattr(cli_processes, "_has_gpu", lambda: True)
    assert default_processes(config) == 1
    monkeypatch.setattr(cli_processes, "_has_gpu", lambda: False)
    monkeypatch.setattr("rota.data.preparation.workers.cores", lambda: 1)
    assert default_processes(config) == 1


def test_under_torchrun_the_option_is_refused(rota, tmp_path, monkeypatch):
    (tmp_path / "run.yaml").write_text(CONFIG)
    monkeypatch.setenv("WORLD_SIZE", "2")
    code, _, error = rota("train", tmp_path / "run.yaml", "--processes", "2")
    assert (code, error) == (
        2,
        "error: --processes is 2, but torchrun has started processes already; leave it out\n",
    )


def test_a_command_without_the_option_starts_two_processes_for_a_small_student(project):
    settings = ["student.preset=small", "training.threads=null", "training.steps=4", "training.validate_every=4"]
    options = [part for setting in settings for part in ("--set", setting)]
    environment = {name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"}
    done = subprocess.run(
        command("default", *options), cwd=project, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    why = "two processes: they were 1.08 (0.85-1.16) times as fast as two threads in the benchmark"
    assert done.stdout.startswith(why) is (len(os.sched_getaffinity(0)) > 1)
    assert ("starting at step 0 with 2 processes" in done.stdout) is (len(os.sched_getaffinity(0)) > 1)
