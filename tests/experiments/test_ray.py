"""The same suite as tasks of a Ray cluster that is started for the test."""

import signal
import subprocess
import sys

import pytest
from suite_cases import write_suite
from test_branching_suite import HEAD, ROWS, write
from test_compare import RUNS, alive, start, undisturbed, wait_until, wait_until_training

from rota.experiments import on_ray
from rota.runs import Run


@pytest.fixture
def on_cluster(tmp_path):
    """Starts the suite; a test that fails leaves no cluster behind, which would go on with the runs."""
    started = []

    def begin():
        started.append(start(tmp_path, "--on", "ray", "--jobs", "2"))
        return started[-1]

    yield begin
    for process in started:
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
            try:
                process.communicate(timeout=300)
            except subprocess.TimeoutExpired:
                process.kill()
                process.communicate()


def test_without_ray_the_message_says_how_to_install_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ValueError, match=r"--on ray needs Ray; install it with: pip install ray"):
        on_ray.connect()


@pytest.mark.slow
def test_a_suite_on_ray_is_interrupted_and_gone_on_with(tmp_path, monkeypatch, on_cluster):
    pytest.importorskip("ray")
    write_suite(tmp_path)
    process = on_cluster()
    wait_until_training(tmp_path, process=process)
    process.send_signal(signal.SIGINT)
    output = process.communicate(timeout=300)[0].decode()
    assert process.returncode == 130, output
    assert "uniform/seed-1: stopped" in output
    assert not alive(str(tmp_path))
    again = on_cluster()
    output = again.communicate(timeout=900)[0].decode()
    assert again.returncode == 0, output
    assert "2 of 2 runs are done" in output
    monkeypatch.chdir(tmp_path)
    for row in RUNS:
        run = tmp_path / "runs" / "small" / row / "seed-1"
        assert not (run / on_ray.STOP).exists()
        assert (run / "steps.jsonl").read_bytes() == (undisturbed(tmp_path, row) / "steps.jsonl").read_bytes()


@pytest.mark.slow
def test_rows_that_begin_from_one_stem_do_so_on_ray(tmp_path, monkeypatch, on_cluster):
    pytest.importorskip("ray")
    write(tmp_path, HEAD + ROWS)
    process = on_cluster()
    runs = tmp_path / "runs" / "small"
    wait_until(lambda: any((runs / row / "seed-1" / "checkpoints").exists() for row in RUNS), process, seconds=900)
    process.send_signal(signal.SIGINT)
    output = process.communicate(timeout=300)[0].decode()
    assert process.returncode == 130, output
    again = on_cluster()
    output = again.communicate(timeout=900)[0].decode()
    assert again.returncode == 0, output
    assert not alive(str(tmp_path))
    monkeypatch.chdir(tmp_path)
    stem = Run(runs / "stems" / "warmup" / "seed-1")
    assert stem.saved_step() == 30
    checkpoints = {Run(runs / row / "seed-1").about["stem"]["checkpoint"] for row in RUNS}
    assert len(checkpoints) == 1
    for row in RUNS:
        run, whole = runs / row / "seed-1", undisturbed(tmp_path, row)
        for name in ("steps.jsonl", "validations.jsonl", "checkpoints/80/student.network.safetensors"):
            assert (run / name).read_bytes() == (whole / name).read_bytes(), (row, name)
