"""What a person sees of a suite: a live table while it runs; in advance, what there is and how long the rest takes."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Final

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from rota.experiments.jobs import REFUSED, Job, Pace, Status, check_sources, look, measure_pace, together
from rota.experiments.queue import ANOTHER, Entry
from rota.experiments.suite import Suite

FIRST = ("running", "failed", "stopped", "waiting", "done")
"""The order of importance where not all rows fit."""

STYLE = {"running": "bold", "failed": "red", "done": "green", "waiting": "dim", "stopped": "yellow"}
LINES = 5
"""Progress lines for each run where there is no terminal."""

PACE_EVERY: Final = 30.0
"""Seconds between two readings of the runs' timings."""

COLUMNS: Final = 80
"""The width that tables must fit."""

NAMED: Final = 4
"""At most so many runs are named with a reason that they share."""


class Board:
    """A context manager; the queue calls ``changed`` and ``watch``."""

    def __init__(self, console: Console, title: str) -> None:
        self.console, self.title = console, title
        self.entries: Sequence[Entry] = ()
        self.time_left: Callable[[], float | None] = lambda: None
        self._told: dict[str, int] = {}  # fifths of each run that have been reported
        self._live = Live(get_renderable=self.render, console=console, refresh_per_second=1, transient=False)

    def __enter__(self) -> Board:
        if self.console.is_terminal:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.console.is_terminal:
            self._live.stop()

    def changed(self, entry: Entry) -> None:
        if self.console.is_terminal:
            return
        self._told[entry.job.name] = entry.step * LINES // entry.steps
        start = max(entry.step, entry.job.begins)
        what = {"running": f"running from step {start:,}"}.get(entry.state, entry.state)
        loss = f", dev loss {entry.dev_loss:.3f}" if entry.state == "done" and entry.dev_loss is not None else ""
        self._say(f"{entry.job.name}: {what}{loss}{': ' if entry.note else ''}{entry.note}")

    def watch(self) -> None:
        """A line for every fifth of a run, where there is no terminal."""
        if self.console.is_terminal:
            return
        for entry in self.entries:
            fifth = entry.step * LINES // entry.steps
            if entry.state == "running" and fifth > self._told.get(entry.job.name, 0):
                self._told[entry.job.name] = fifth
                self._say(f"{entry.job.name}: {self._progress(entry)}")

    def _progress(self, entry: Entry) -> str:
        parts = [f"step {entry.step:,}/{entry.steps:,}"]
        if entry.dev_loss is not None:
            parts.append(f"dev loss {entry.dev_loss:.3f}")
        scoring = entry.step >= entry.steps and not entry.job.is_stem
        parts.append("scoring" if scoring else _left(entry))
        return ", ".join(part for part in parts if part)

    def _say(self, line: str) -> None:
        self.console.print(f"{time.strftime('%H:%M:%S')} {line}", soft_wrap=True)

    def render(self) -> Group:
        return Group(Text(self.title, style="bold"), self._table(), Text(self.summary()))

    def summary(self) -> str:
        """How many are in which state, and the time left."""
        counts = Counter(entry.state for entry in self.entries)
        parts = [f"{counts[state]} {state}" for state in ("done", "running", "waiting", "failed", "stopped")]
        found = ", ".join(part for part in parts if not part.startswith("0 "))
        left = self.time_left()
        return found if left is None else f"{found}; about {clock(left)} left"

    def _table(self) -> Table:
        table = Table(box=None, padding=(0, 1), show_edge=False)
        table.add_column("row", overflow="fold")  # a truncated name may be that of another row
        for name in ("seed", "state", "step", "dev loss", "left"):
            table.add_column(name, justify="left" if name == "state" else "right", no_wrap=True)
        table.add_column("", overflow="ellipsis", no_wrap=True)
        shown = self._that_fit()
        for entry in self.entries:
            if entry.job.name in shown:
                table.add_row(*self._cells(entry), style=STYLE[entry.state])
        if len(shown) < len(self.entries):
            table.add_row(f"... {len(self.entries) - len(shown)} more", style="dim")
        return table

    def _cells(self, entry: Entry) -> list[str]:
        loss = "" if entry.dev_loss is None else f"{entry.dev_loss:.3f}"
        scoring = entry.state == "running" and entry.trained
        state = "scoring" if scoring else entry.state
        left = _left(entry).removesuffix(" left") if entry.state == "running" and not scoring else ""
        return [entry.job.title, str(entry.job.seed), state, f"{entry.step:,}/{entry.steps:,}", loss, left, entry.note]

    def _that_fit(self) -> set[str]:
        """Names of the entries that are shown: all, or the ones that matter most."""
        room = max(1, self.console.height - 5)
        if len(self.entries) <= room + 1:
            return {entry.job.name for entry in self.entries}
        ranked = sorted(self.entries, key=lambda entry: FIRST.index(entry.state))
        return {entry.job.name for entry in ranked[:room]}


def _left(entry: Entry) -> str:
    left = entry.seconds_left()
    return "" if left is None else f"{clock(left)} left"


def clock(seconds: float) -> str:
    """``45 s``, ``12 min``, ``3.4 h`` or ``82 days``: as exact as an estimate deserves."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 90 * 60:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h" if seconds < 48 * 3600 else f"{seconds / 86400:.0f} days"


def time_left(entries: Sequence[Entry], at_once: int) -> Callable[[], float | None]:
    """A function that gives the seconds until all jobs are over; it rereads the records now and then."""
    looked = -PACE_EVERY
    pace = Pace({}, None)

    def left() -> float | None:
        nonlocal looked, pace
        if time.monotonic() - looked >= PACE_EVERY:
            looked = time.monotonic()
            begun = [Status("partial" if entry.step else entry.status.state, entry.step) for entry in entries]
            pace = measure_pace([entry.job for entry in entries], begun)
        open_ = [entry for entry in entries if not entry.over]
        seconds = [pace.seconds(entry.job, Status("partial", entry.step)) for entry in open_]
        return together(seconds, at_once) if open_ else None

    return left


def overview(suite: Suite, jobs: Sequence[Job], out: Path, *, at_once: int) -> Group:
    """Every run as done, partial or missing, what is refused and why, and an estimate; nothing is touched."""
    check_sources(jobs, out)
    statuses = [look(job) for job in jobs]
    pace = measure_pace(jobs, statuses)
    seconds = [pace.seconds(job, status) for job, status in zip(jobs, statuses, strict=True)]
    names = ("row", "seed", "state", "time left")
    rows = [
        (job.title, str(job.seed), _state(job, status), clock(left) if left else "")
        for job, status, left in zip(jobs, statuses, seconds, strict=True)
    ]
    width = sum(max(map(len, column)) for column in zip(names, *rows, strict=True))
    table = Table(box=None, padding=(0, 2 if width + 4 * len(names) <= COLUMNS else 1), show_edge=False)
    table.add_column("row", overflow="fold")  # a truncated name may be that of another row
    for name in names[1:]:
        table.add_column(name, justify="left" if name == "state" else "right", no_wrap=True)
    for row in rows:
        table.add_row(*row)
    title = Text(f"{suite.name} in {out}: {_counts(statuses)}", style="bold")
    refused = [Text(line) for line in _refusals(jobs, statuses)]
    return Group(title, table, *refused, _total(seconds, pace, at_once, others=bool(refused)))


def _state(job: Job, status: Status) -> str:
    if status.state == "partial":
        return f"partial (step {status.step:,} of {job.steps:,})"
    return {"trained": "trained, not scored", "another": "another run"}.get(status.state, status.state)


def _refusals(jobs: Sequence[Job], statuses: Sequence[Status]) -> Iterator[str]:
    """A line for each reason why runs are refused, with their names: many share one."""
    names: dict[str, list[str]] = {}
    for job, status in zip(jobs, statuses, strict=True):
        if status.state in REFUSED:
            why = f"another run: {status.why}; {ANOTHER}" if status.state == "another" else status.why
            names.setdefault(why, []).append(job.name)
    for why, found in names.items():
        more = f" and {len(found) - NAMED} more" if len(found) > NAMED else ""
        yield f"{', '.join(found[:NAMED])}{more}: {why}"


def _counts(statuses: Sequence[Status]) -> str:
    states = [status.state for status in statuses]
    found = [f"{states.count(state)} {state}" for state in ("done", "trained", "partial", "missing", *REFUSED)]
    return f"{len(states)} {'run' if len(states) == 1 else 'runs'}, " + ", ".join(
        part for part in found if not part.startswith("0 ")
    )


def _total(seconds: Sequence[float], pace: Pace, at_once: int, *, others: bool) -> Text:
    if not any(seconds):
        return Text(f"Nothing {'else ' if others else ''}is left to do.")
    total = together(seconds, at_once)
    return Text(f"About {clock(total)} with {at_once} at a time ({clock(sum(seconds))} in all), {pace.source}.")
