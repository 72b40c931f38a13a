"""The queue of a suite, with work that ends when the test says so, and the processes that it starts."""

import json
import subprocess

import pytest
from rich.console import Console
from suite_cases import write_suite

from rota.cli import studies
from rota.experiments.board import Board
from rota.experiments.jobs import check_sources, plan
from rota.experiments.queue import LocalWork, Queue, alone, evaluate_command
from rota.experiments.suite import load_suite
from rota.training.loop import StopSignal

REPLAY = '  again: {teacher: {name: replay-proportions, run: "{runs}/uniform/seed-{seed}"}}\n'


class Work:
    """Ends after so many looks with an exit code; a stopped one ends at the next look."""

    def __init__(self, looks, code):
        self.looks, self.code, self.stopped, self.killed = looks, code, False, False

    def poll(self):
        self.looks -= 1
        if self.stopped:
            return 143
        return self.code if self.looks < 0 else None

    def stop(self):
        self.stopped = True

    def kill(self):
        self.killed = True


class World:
    """A queue over made work; ``log`` has what happened, in order."""

    def __init__(self, tmp_path, *, more="", at_once=2, ends=None, rows=None, seeds=(1,)):
        suite = load_suite(write_suite(tmp_path, more=more))
        self.jobs = plan(suite, tmp_path / "runs", rows=rows or list(suite.rows), seeds=seeds)
        self.log, self.works, self.most, self.ends = [], {}, 0, ends or {}
        self.queue = Queue(self.jobs, self.start, at_once=at_once, changed=self.changed)

    def start(self, job, trained):
        self.works[job.name] = Work(*self.ends.get(job.name, (2, 0)))
        return self.works[job.name]

    def changed(self, entry):
        self.log.append(f"{entry.job.name} {entry.state}")
        running = sum(other.state == "running" for other in self.queue.entries.values())
        self.most = max(self.most, running)

    def run(self, stop=lambda: False):
        self.queue.run(stop, pause=0)
        return {name: entry.state for name, entry in self.queue.entries.items()}


def test_no_more_runs_at_a_time_than_asked_for(tmp_path):
    world = World(tmp_path, seeds=(1, 2, 3), at_once=2)
    assert set(world.run().values()) == {"done"}
    assert world.most == 2
    assert World(tmp_path, at_once=1, seeds=(1, 2)).run()


def test_one_that_fails_does_not_stop_the_others(tmp_path):
    world = World(tmp_path, ends={"uniform/seed-1": (0, 2)})
    (tmp_path / "runs" / "uniform" / "seed-1").mkdir(parents=True)
    (tmp_path / "runs" / "uniform" / "seed-1" / "log.txt").write_text("some\nerror: no such moon\n\n")
    assert world.run() == {"uniform/seed-1": "failed", "warm/seed-1": "done"}
    assert [entry.note for entry in world.queue.failures()] == ["no such moon"]


def test_one_that_is_damaged_does_not_stop_the_others(tmp_path):
    (tmp_path / "runs" / "uniform" / "seed-1").mkdir(parents=True)
    (tmp_path / "runs" / "uniform" / "seed-1" / "run.json").write_text("{}")
    world = World(tmp_path)
    assert world.run() == {"uniform/seed-1": "failed", "warm/seed-1": "done"}
    assert "seed-1/run.json is damaged (it has no config)" in world.queue.failures()[0].note
    assert "uniform/seed-1" not in world.works


def test_a_run_that_was_killed_says_by_what(tmp_path):
    world = World(tmp_path, ends={"uniform/seed-1": (0, -9)})
    world.run()
    assert "ended by SIGKILL, perhaps because memory ran out" in world.queue.failures()[0].note


def test_a_run_starts_when_the_one_it_reads_is_trained(tmp_path):
    world = World(tmp_path, more=REPLAY, rows=["again", "uniform"])
    assert set(world.run().values()) == {"done"}
    assert world.log.index("uniform/seed-1 done") < world.log.index("again/seed-1 running")


def write_last_step(world, *, checkpoint):
    """The records of a run whose last update is written down, with or without the checkpoint that follows it."""
    folder = world.jobs[1].folder
    folder.mkdir(parents=True)
    (folder / "steps.jsonl").write_text('{"step": 80, "arm": "lala", "why": "", "loss": 1.0, "tokens": 9}\n')
    if checkpoint:
        (folder / "checkpoints" / "80").mkdir(parents=True)


def test_a_run_starts_while_the_one_it_reads_is_being_scored(tmp_path):
    world = World(tmp_path, more=REPLAY, rows=["again", "uniform"], ends={"uniform/seed-1": (9, 0)})
    write_last_step(world, checkpoint=True)
    assert set(world.run().values()) == {"done"}
    assert world.log.index("again/seed-1 running") < world.log.index("uniform/seed-1 done")


def test_records_that_outran_the_last_checkpoint_are_not_read(tmp_path):
    # A run that was killed between its last record and its last checkpoint: it goes on, and cuts its records back.
    world = World(tmp_path, more=REPLAY, rows=["again", "uniform"], ends={"uniform/seed-1": (9, 0)})
    write_last_step(world, checkpoint=False)
    assert set(world.run().values()) == {"done"}
    assert world.log.index("uniform/seed-1 done") < world.log.index("again/seed-1 running")


def test_a_run_that_reads_one_that_failed_fails_with_it(tmp_path):
    world = World(tmp_path, more=REPLAY, rows=["again", "uniform", "warm"], ends={"uniform/seed-1": (0, 2)})
    assert world.run() == {"again/seed-1": "failed", "uniform/seed-1": "failed", "warm/seed-1": "done"}
    notes = {entry.job.row: entry.note for entry in world.queue.failures()}
    assert notes["again"] == "it reads uniform/seed-1, which is not trained"
    assert "again/seed-1" not in world.works


def test_a_run_that_no_job_will_train_is_named_before_anything_starts(tmp_path):
    suite = load_suite(write_suite(tmp_path, more=REPLAY))
    jobs = plan(suite, tmp_path / "runs", rows=["again"], seeds=[1])
    with pytest.raises(ValueError, match="row 'again' reads .*uniform/seed-1, which is not trained; add 'uniform' to"):
        check_sources(jobs, tmp_path / "runs")


def test_an_interruption_asks_every_run_to_save_and_waits_for_it(tmp_path):
    world = World(tmp_path, seeds=(1, 2), ends={"uniform/seed-1": (99, 0), "warm/seed-1": (99, 0)})
    assert world.run(stop=lambda: len(world.works) == 2) == {
        "uniform/seed-1": "stopped",
        "warm/seed-1": "stopped",
        "uniform/seed-2": "waiting",
        "warm/seed-2": "waiting",
    }
    assert all(work.stopped and not work.killed for work in world.works.values())


def test_a_second_interruption_kills(tmp_path):
    world = World(tmp_path, ends={"uniform/seed-1": (99, 0), "warm/seed-1": (99, 0)})

    def watch():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        world.queue.run(lambda: False, watch=watch, pause=0)
    assert all(work.killed for work in world.works.values())
    assert {entry.state for entry in world.queue.entries.values()} == {"stopped"}


@pytest.mark.parametrize(
    ("interruptions", "said"),
    [
        (1, "; stopped, and what was running is saved; continue"),
        (2, "; killed; each resumes from its last checkpoint; continue"),
    ],
)
def test_what_is_said_at_the_end_tells_saved_runs_from_killed_ones(tmp_path, capsys, interruptions, said):
    world, stop = World(tmp_path, ends={"uniform/seed-1": (99, 0), "warm/seed-1": (99, 0)}), StopSignal()
    board = Board(Console(quiet=True), "suite")

    def watch():
        stop.received = "SIGINT"
        if interruptions == 2:
            raise KeyboardInterrupt

    board.watch = watch
    saved = studies._run(world.queue, board, stop)
    with pytest.raises(SystemExit, match="130"):
        studies._say_how_it_ended(world.queue, tmp_path, stop, saved=saved)
    assert said in capsys.readouterr().out


def test_two_commands_do_not_work_on_one_folder(tmp_path):
    entered = []
    message = "another rota compare works on .*runs; wait for it, or choose another --out"
    with alone(tmp_path / "runs"):
        entered.append("first")
        with pytest.raises(ValueError, match=message), alone(tmp_path / "runs"):
            entered.append("beside the first")
    with alone(tmp_path / "runs"):
        entered.append("after it")
    assert entered == ["first", "after it"]


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
        ({}, {"metrics": "loss"}, ["--metrics", "loss"]),
        ({"metrics": "loss"}, {}, ["--metrics", "bleu,chrf,loss"]),
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
