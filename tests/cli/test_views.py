"""Progress of long work: bars on a terminal, now and then a line elsewhere."""

import io
import re
import time

import pytest
from rich.console import Console

from rota.cli import views


@pytest.fixture
def printed(monkeypatch):
    """What is printed where there is no terminal, with a line every hundredth of a second."""
    file = io.StringIO()
    monkeypatch.setattr(views, "console", Console(file=file, markup=False, highlight=False))
    monkeypatch.setattr(views, "LINE_SECONDS", 0.01)
    return file


def wait_for(file, text):
    limit = time.monotonic() + 20
    while text not in file.getvalue():
        assert time.monotonic() < limit, f"{text!r} never came; there was {file.getvalue()!r}"
        time.sleep(0.005)


def test_without_a_terminal_lines_say_what_is_done_and_how_far_it_is(printed):
    with views.ProgressBar() as progress:
        progress("cleaning [/b]", 1_200, None)
        wait_for(printed, "cleaning [/b]: 1,200, 0:00:0")
        progress("encoding", 5_000, 20_000)
        wait_for(printed, "encoding: 5,000 of 20,000, 0:00:0")
    lines = printed.getvalue().splitlines()
    assert all(re.fullmatch(r"[^:]+: [0-9,]+( of [0-9,]+)?, 0:00:[0-9]{2} so far", line) for line in lines)
    time.sleep(0.05)
    assert printed.getvalue().splitlines() == lines, "nothing is said when it is over"


def test_a_stage_that_reports_nothing_for_long_is_still_heard_of(printed):
    with views.ProgressBar() as progress:
        progress("learning subwords", 0, None)
        wait_for(printed, "so far\nlearning subwords, 0:00:")
    assert printed.getvalue().startswith("learning subwords, 0:00:0")


def test_short_work_says_nothing(printed, monkeypatch):
    monkeypatch.setattr(views, "LINE_SECONDS", 30.0)
    began = time.monotonic()
    with views.ProgressBar() as progress:
        progress("cleaning", 10, 10)
    assert printed.getvalue() == ""
    assert time.monotonic() - began < 15, "nobody waits for the next line"


def test_lines_end_with_the_work_that_fails(printed):
    with pytest.raises(ValueError, match="no such text"), views.ProgressBar():
        raise ValueError("no such text")
    assert printed.getvalue() == ""


def test_a_terminal_has_bars_and_no_lines(monkeypatch):
    file = io.StringIO()
    monkeypatch.setattr(views, "console", Console(file=file, force_terminal=True, width=100))
    monkeypatch.setattr(views, "LINE_SECONDS", 0.01)
    with views.ProgressBar() as progress:
        progress("encoding", 5, 20)
        time.sleep(0.05)
    assert "encoding" in file.getvalue()
    assert "0/20" in file.getvalue()
    assert "so far" not in file.getvalue()
