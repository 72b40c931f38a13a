"""What is shown while a suite runs: the table of a terminal, the lines of a log."""

import io
import re
from types import SimpleNamespace

import pytest
from rich.console import Console
from suite_cases import write_suite

from rota.experiments import queue
from rota.experiments.board import Board, clock
from rota.experiments.jobs import Status, plan
from rota.experiments.queue import Entry
from rota.experiments.suite import load_suite

NOW = 130.0


@pytest.fixture(autouse=True)
def _clock(monkeypatch):
    """Estimates of the time left are made at second 130."""
    monkeypatch.setattr(queue, "time", SimpleNamespace(monotonic=lambda: NOW))


def entries_of(tmp_path, *states):
    """One run of 80 steps for each, in the order of the suite."""
    suite = load_suite(write_suite(tmp_path))
    jobs = plan(suite, tmp_path / "runs", rows=["uniform"], seeds=range(1, len(states) + 1))
    return [Entry(job, Status("missing"), state=state) for job, state in zip(jobs, states, strict=True)]


def board_of(entries, *, terminal, height=25):
    console = Console(
        file=io.StringIO(), width=100, height=height, force_terminal=terminal, color_system=None, legacy_windows=False
    )
    board = Board(console, "small in runs/small")
    board.entries = entries
    return board


def table(board):
    board.console.print(board.render())
    return [" ".join(line.split()) for line in board.console.file.getvalue().splitlines()]


def lines(board):
    """What was printed, without the time of day."""
    printed = board.console.file.getvalue().splitlines()
    assert all(re.match(r"\d\d:\d\d:\d\d ", line) for line in printed)
    return [line[9:] for line in printed]


def test_the_table_has_a_line_for_every_run_and_a_summary(tmp_path):
    entries = entries_of(tmp_path, "done", "running", "failed", "waiting")
    entries[0].step, entries[0].dev_loss = 80, 3.5
    entries[1].step, entries[1].dev_loss, entries[1].mark = 50, 4.25, (NOW - 60, 20)  # 30 steps in a minute, 30 to go
    entries[2].note, entries[3].note = "no such moon", "reads dqn/seed-1"
    board = board_of(entries, terminal=True)
    board.time_left = lambda: 1_200.0
    assert table(board) == [
        "small in runs/small",
        "row seed state step dev loss left",
        "uniform 1 done 80/80 3.500",
        "uniform 2 running 50/80 4.250 60 s",
        "uniform 3 failed 0/80 no such moon",
        "uniform 4 waiting 0/80 reads dqn/seed-1",
        "1 done, 1 running, 1 waiting, 1 failed; about 20 min left",
    ]


def test_a_run_that_is_trained_is_shown_as_scoring(tmp_path):
    entries = entries_of(tmp_path, "running", "running")
    for entry in entries:
        entry.step = 80
    (entries[0].job.folder / "checkpoints" / "80").mkdir(parents=True)
    found = table(board_of(entries, terminal=True))
    assert found[2:4] == ["uniform 1 scoring 80/80", "uniform 2 running 80/80"], "the second is not saved yet"


def test_where_not_all_runs_fit_those_that_matter_are_shown_in_their_order(tmp_path):
    entries = entries_of(tmp_path, "done", "waiting", "failed", "done", "running", "waiting")
    found = table(board_of(entries, terminal=True, height=8))  # room for three, and a line about the others
    assert [line.split()[1:3] for line in found[2:5]] == [["2", "waiting"], ["3", "failed"], ["5", "running"]]
    assert found[5:] == ["... 3 more", "2 done, 1 running, 2 waiting, 1 failed"]


def test_one_more_than_the_room_takes_the_place_of_the_line_about_the_others(tmp_path):
    found = table(board_of(entries_of(tmp_path, *["done"] * 4), terminal=True, height=8))
    assert [line.split()[1] for line in found[2:6]] == ["1", "2", "3", "4"]


def test_a_terminal_shows_the_table_to_the_end_and_no_lines(tmp_path):
    entries = entries_of(tmp_path, "running")
    board = board_of(entries, terminal=True)
    with board:
        entries[0].step = 40
        board.changed(entries[0])
        board.watch()
        entries[0].state = "done"
    shown = board.console.file.getvalue()
    assert "small in runs/small" in shown
    assert "1 done" in shown, "as it was at the end"
    assert "running from" not in shown


def test_elsewhere_there_is_a_line_for_each_change_and_each_fifth(tmp_path):
    entry = entries_of(tmp_path, "running")[0]
    board = board_of([entry], terminal=False)
    with board:
        entry.step = 33  # gone on with: two fifths (32) had been reached before
        board.changed(entry)
        entry.mark = (NOW - 30, 33)
        for step in (47, 48, 49, 63):
            entry.step, entry.dev_loss = step, 4.25
            board.watch()
        entry.step = 80
        board.watch()
        entry.state = "done"
        board.watch()
        board.changed(entry)
    assert lines(board) == [
        "uniform/seed-1: running from step 33",
        "uniform/seed-1: step 48/80, dev loss 4.250, 64 s left",  # 15 steps in 30 seconds, 32 to go
        "uniform/seed-1: step 80/80, dev loss 4.250, scoring",  # which may take longer than the training
        "uniform/seed-1: done, dev loss 4.250",
    ]


def test_a_line_about_a_failure_has_its_reason(tmp_path):
    entry = entries_of(tmp_path, "failed")[0]
    entry.note, entry.dev_loss = "no such moon", 4.0
    board = board_of([entry], terminal=False)
    board.changed(entry)
    assert lines(board) == ["uniform/seed-1: failed: no such moon"]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (45, "45 s"),
        (89, "89 s"),
        (90, "2 min"),
        (720, "12 min"),
        (5_400, "1.5 h"),
        (12_240, "3.4 h"),
        (172_800, "2 days"),
    ],
)
def test_times_are_as_exact_as_an_estimate_deserves(seconds, text):
    assert clock(seconds) == text
