"""A real process, killed with SIGKILL at random moments and started again, ends up where an undisturbed one does."""

import os
import random
import signal
import subprocess
import sys
import time

import pytest

CONFIG = """
data:
  corpus: synthetic
  folder: {folder}/data
  synthetic: {{families: {{la: {{lala: 300, lato: 60}}}}, dev: 20, test: 20}}
  subwords: {{size: 400}}
student: {{preset: tiny, width: 32, feedforward: 64, layers: 1, lr_warmup: 20}}
teacher: {teacher}
training: {{steps: 120, tokens: 150, checkpoint_every: 7, validate_every: 10, keep: 2, tensorboard: false, threads: 1}}
"""


def start(folder, run):
    command = [sys.executable, "-m", "rota", "train", str(folder / "run.yaml"), "--run", str(run)]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env={**os.environ, "OMP_NUM_THREADS": "1"}
    )


def finish(process):
    output = process.communicate(timeout=120)[0].decode()
    assert process.returncode == 0, output
    return output


def kill_while_training(process, run, rng, before):
    """SIGKILL once the run has got some way beyond ``before`` bytes of step records, and a little later."""
    steps = run / "steps.jsonl"
    goal = before + rng.randint(1, 4000)
    deadline = time.monotonic() + 60
    while process.poll() is None and time.monotonic() < deadline:
        if steps.exists() and steps.stat().st_size >= goal:
            break
        time.sleep(0.002)
    time.sleep(rng.random() * 0.05)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    return steps.stat().st_size if steps.exists() else 0


def contents(run):
    """Every file that must be the same: records, and the last checkpoint with all its parts."""
    names = ["steps.jsonl", "observations.jsonl", "validations.jsonl", "subwords.json"]
    files = {name: (run / name).read_bytes() for name in names if (run / name).exists()}
    return files | {path.name: path.read_bytes() for path in (run / "checkpoints" / "120").iterdir()}


def compare(tmp_path, teacher, kills, seed):
    (tmp_path / "run.yaml").write_text(CONFIG.format(folder=tmp_path, teacher=teacher))
    finish(start(tmp_path, tmp_path / "whole"))
    rng, run = random.Random(seed), tmp_path / "killed"
    written = 0
    for _ in range(kills):
        written = kill_while_training(start(tmp_path, run), run, rng, written)
    finish(start(tmp_path, run))
    whole, killed = contents(tmp_path / "whole"), contents(run)
    assert whole.keys() == killed.keys()
    for name, content in whole.items():
        assert killed[name] == content, f"{name} differs after {kills} kills (seed {seed})"
    checkpoints = [
        sorted(int(path.name) for path in (folder / "checkpoints").iterdir()) for folder in (tmp_path / "whole", run)
    ]
    assert checkpoints[0] == checkpoints[1]


def test_an_interrupted_run_saves_and_says_how_to_go_on(tmp_path):
    (tmp_path / "run.yaml").write_text(CONFIG.format(folder=tmp_path, teacher="uniform").replace("120", "100000"))
    run = tmp_path / "run"
    process = start(tmp_path, run)
    deadline = time.monotonic() + 60
    while not (run / "steps.jsonl").exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    time.sleep(0.3)
    process.send_signal(signal.SIGINT)
    output = process.communicate(timeout=60)[0].decode()
    assert process.returncode == 130, output
    assert "and saved; continue with: " in output
    assert output.rstrip().endswith(f"rota train {tmp_path}/run.yaml --run {run}")
    steps = [int(path.name) for path in (run / "checkpoints").iterdir()]
    assert f"stopped at step {max(steps)}" in output.replace(",", "")


def test_a_killed_run_ends_as_an_undisturbed_one(tmp_path):
    compare(tmp_path, "uniform", kills=2, seed=1)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize(
    "teacher",
    [
        "{name: temperature, warmup: 40, decide_every: 3}",
        "mixed",
        "{name: tscl, warmup: 30}",
        "{name: dqn, warmup: 30, epsilon_steps: 40, decide_every: 2, replay_minimum: 5, replay_batch: 8, hidden: [16]}",
    ],
)
def test_many_kills_change_nothing(tmp_path, teacher, seed):
    compare(tmp_path, teacher, kills=8, seed=seed)
