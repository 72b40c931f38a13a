"""What a person sees while a suite runs: a live table of all runs on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from types import TracebackType

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from rota.experiments.runner import Entry

FIRST = ("running", "failed", "stopped", "waiting", "done")
"""What is shown where not all rows fit."""

STYLE = {"running": "bold", "failed": "red", "done": "green", "waiting": "dim", "stopped": "yellow"}
LINES = 5
"""Lines about the training of each run where there is no terminal."""


class Board:
    """A context manager; ``changed`` and ``watch`` are what a runner calls."""

    def __init__(self, console: Console, title: str) -> None:
        self.console, self.title = console, title
        self.entries: Sequence[Entry] = ()
        self.time_left: Callable[[], float | None] = lambda: None
        self._told: dict[str, int] = {}  # fifths of each run that there was a line about
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
        what = {"running": f"running from step {entry.step:,}"}.get(entry.doing, entry.doing)
        loss = f", dev loss {entry.dev_loss:.3f}" if entry.doing == "done" and entry.dev_loss is not None else ""
        self._say(f"{entry.job.name}: {what}{loss}{': ' if entry.note else ''}{entry.note}")

    def watch(self) -> None:
        """A line for every fifth of a run, where there is no terminal."""
        if self.console.is_terminal:
            return
        for entry in self.entries:
            fifth = entry.step * LINES // entry.steps
            if entry.doing == "running" and fifth > self._told.get(entry.job.name, 0):
                self._told[entry.job.name] = fifth
                self._say(f"{entry.job.name}: {self._progress(entry)}")

    def _progress(self, entry: Entry) -> str:
        parts = [f"step {entry.step:,}/{entry.steps:,}"]
        if entry.dev_loss is not None:
            parts.append(f"dev loss {entry.dev_loss:.3f}")
        parts.append(_left(entry))
        return ", ".join(part for part in parts if part)

    def _say(self, line: str) -> None:
        self.console.print(f"{time.strftime('%H:%M:%S')} {line}", soft_wrap=True)

    def render(self) -> Group:
        return Group(Text(self.title, style="bold"), self._table(), Text(self.summary()))

    def summary(self) -> str:
        """How many are in which state, and when all will be over."""
        counts = Counter(entry.doing for entry in self.entries)
        parts = [f"{counts[doing]} {doing}" for doing in ("done", "running", "waiting", "failed", "stopped")]
        found = ", ".join(part for part in parts if not part.startswith("0 "))
        left = self.time_left()
        return found if left is None else f"{found}; about {clock(left)} left"

    def _table(self) -> Table:
        table = Table(box=None, padding=(0, 2), show_edge=False)
        for name in ("row", "seed", "state", "step", "dev loss", "left"):
            table.add_column(name, justify="left" if name in ("row", "state") else "right", no_wrap=True)
        table.add_column("", overflow="ellipsis", no_wrap=True)
        shown = self._that_fit()
        for entry in self.entries:
            if entry.job.name in shown:
                table.add_row(*self._cells(entry), style=STYLE[entry.doing])
        if len(shown) < len(self.entries):
            table.add_row(f"... {len(self.entries) - len(shown)} more", style="dim")
        return table

    def _cells(self, entry: Entry) -> list[str]:
        loss = "" if entry.dev_loss is None else f"{entry.dev_loss:.3f}"
        scoring = entry.doing == "running" and entry.trained
        state = "scoring" if scoring else entry.doing
        left = _left(entry).removesuffix(" left") if entry.doing == "running" and not scoring else ""
        return [entry.job.row, str(entry.job.seed), state, f"{entry.step:,}/{entry.steps:,}", loss, left, entry.note]

    def _that_fit(self) -> set[str]:
        """Names of the entries that are shown: all, or the ones that matter most."""
        room = max(1, self.console.height - 5)
        if len(self.entries) <= room + 1:
            return {entry.job.name for entry in self.entries}
        ranked = sorted(self.entries, key=lambda entry: FIRST.index(entry.doing))
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
