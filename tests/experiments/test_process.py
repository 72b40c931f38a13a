"""What a run is scored with, its own config and what its suite says otherwise by now; and its threads."""

import json
import subprocess

import pytest
from suite_cases import write_suite

from rota.experiments.jobs import plan
from rota.experiments.process import LocalWork, evaluate_command
from rota.experiments.suite import load_suite


@pytest.mark.parametrize(
    ("before", "now", "options"),
    [
        ({"beam": 1}, {"beam": 1}, []),
        ({"beam": 5}, {"beam": 1}, ["--beam", "1"]),
        ({"select": "macro"}, {"select": "macro", "select_beam": 1}, ["--select-beam", "1"]),
        ({"select": "macro", "select_beam": 1}, {"select": "macro", "beam": 5}, ["--select-beam", "5"]),
        ({"select": "macro"}, {}, ["--select", "none", "--combine", "last"]),
        ({}, {"select": "loss", "window": 2}, ["--select", "loss", "--combine", "ensemble", "--window", "2"]),
        ({}, {"window": 2, "select_beam": 2}, []),
        ({}, {"length_penalty": 0.6}, ["--length-penalty", "0.6"]),
    ],
)
def test_a_run_is_scored_as_its_suite_says_now(tmp_path, before, now, options):
    suite = load_suite(write_suite(tmp_path))

    def job(evaluation):
        overrides = [f"evaluation.{key}={value}" for key, value in ({"beam": 5} | evaluation).items()]
        return plan(suite, tmp_path / "runs", rows=["uniform"], seeds=[1], overrides=overrides)[0]

    begun = job(before)
    begun.folder.mkdir(parents=True)
    (begun.folder / "run.json").write_text(json.dumps({"config": begun.config.dump(), "data": {"sizes": {}}}))
    assert evaluate_command(job(now)) == ["evaluate", str(begun.folder), *options]


def test_a_run_has_as_many_threads_as_it_is_given_whatever_the_shell_says(tmp_path, monkeypatch):
    names = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "RAYON_NUM_THREADS")
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    for name in names[1:]:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("ROTA_CACHE", "elsewhere")
    started = []
    monkeypatch.setattr(subprocess, "Popen", lambda command, **options: started.append((command, options)))
    job = plan(load_suite(write_suite(tmp_path)), tmp_path / "runs", rows=["uniform"], seeds=[1])[0]
    LocalWork(job, trained=False, threads=3)
    [(command, options)] = started
    assert command[-4:] == ["train", str(job.folder / "config.yaml"), "--run", str(job.folder)]
    assert {name: options["env"].get(name) for name in names} == dict.fromkeys(names, "3")
    assert options["env"]["ROTA_CACHE"] == "elsewhere", "the rest of the environment stays"
