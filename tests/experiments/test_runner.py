"""The queue of a suite, with work that ends when the test says so: order, limits, failures, interruption."""

import pytest
from rich.console import Console
from suite_cases import write_suite

from rota.experiments import compare
from rota.experiments.board import Board
from rota.experiments.jobs import plan
from rota.experiments.runner import Runner, alone
from rota.experiments.status import check_sources
from rota.experiments.suite import load_suite
from rota.training.stop import StopSignal

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
    """A runner over made work; ``log`` has what happened, in order."""

    def __init__(self, tmp_path, *, more="", at_once=2, ends=None, rows=None, seeds=(1,)):
        suite = load_suite(write_suite(tmp_path, more=more))
        self.jobs = plan(suite, tmp_path / "runs", rows=rows or list(suite.rows), seeds=seeds)
        self.log, self.works, self.most, self.ends = [], {}, 0, ends or {}
        self.runner = Runner(self.jobs, self.start, at_once=at_once, changed=self.changed)

    def start(self, job, trained):
        self.works[job.name] = Work(*self.ends.get(job.name, (2, 0)))
        return self.works[job.name]

    def changed(self, entry):
        self.log.append(f"{entry.job.name} {entry.doing}")
        running = sum(other.doing == "running" for other in self.runner.entries.values())
        self.most = max(self.most, running)

    def run(self, stop=lambda: False):
        self.runner.run(stop, pause=0)
        return {name: entry.doing for name, entry in self.runner.entries.items()}


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
    assert [entry.note for entry in world.runner.failures()] == ["no such moon"]


def test_one_that_is_damaged_does_not_stop_the_others(tmp_path):
    (tmp_path / "runs" / "uniform" / "seed-1").mkdir(parents=True)
    (tmp_path / "runs" / "uniform" / "seed-1" / "run.json").write_text("{}")
    world = World(tmp_path)
    assert world.run() == {"uniform/seed-1": "failed", "warm/seed-1": "done"}
    assert "seed-1/run.json is damaged (it has no config)" in world.runner.failures()[0].note
    assert "uniform/seed-1" not in world.works


def test_a_run_that_was_killed_says_by_what(tmp_path):
    world = World(tmp_path, ends={"uniform/seed-1": (0, -9)})
    world.run()
    assert "ended by SIGKILL, perhaps for want of memory" in world.runner.failures()[0].note


def test_a_run_starts_when_the_one_it_reads_is_trained(tmp_path):
    world = World(tmp_path, more=REPLAY, rows=["again", "uniform"])
    assert set(world.run().values()) == {"done"}
    assert world.log.index("uniform/seed-1 done") < world.log.index("again/seed-1 running")


def write_last_step(world, *, checkpoint):
    """The records of a run whose last update is written down, with or without the checkpoint that follows it."""
    folder = world.jobs[1].folder
    folder.mkdir(parents=True)
    (folder / "steps.jsonl").write_text('{"step": 80, "arm": "lala"}\n')
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
    notes = {entry.job.row: entry.note for entry in world.runner.failures()}
    assert notes["again"] == "it reads uniform/seed-1, which is not trained"
    assert "again/seed-1" not in world.works


def test_a_run_that_nobody_will_train_is_named_before_anything_starts(tmp_path):
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
        world.runner.run(lambda: False, watch=watch, pause=0)
    assert all(work.killed for work in world.works.values())
    assert {entry.doing for entry in world.runner.entries.values()} == {"stopped"}


@pytest.mark.parametrize(
    ("interruptions", "said"),
    [(1, "; stopped, and what was running is saved; go"), (2, "; killed; each goes on from its last checkpoint; go")],
)
def test_what_is_said_at_the_end_tells_saved_runs_from_killed_ones(tmp_path, capsys, interruptions, said):
    world, stop = World(tmp_path, ends={"uniform/seed-1": (99, 0), "warm/seed-1": (99, 0)}), StopSignal()
    board = Board(Console(quiet=True), "suite")

    def watch():
        stop.received = "SIGINT"
        if interruptions == 2:
            raise KeyboardInterrupt

    board.watch = watch
    saved = compare._run(world.runner, board, stop)
    with pytest.raises(SystemExit, match="130"):
        compare._say_how_it_ended(world.runner, tmp_path, stop, "rota compare", saved=saved)
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
