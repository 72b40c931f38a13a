"""SIGKILL before a change of a file, or after a random time: the same command run again ends as if nothing had been.

Every file of the project must then be the same, bit for bit, as after an uninterrupted command, and no file may
be left over. Not compared are times and logs: see ``DIFFERS_ANYWAY``.
"""

from __future__ import annotations

import hashlib
import json
import random
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import samples
from counts import Counts
from forks import Moments, run_rota
from samples import COMPARE, EVALUATE, PREPARE, Command, train

DIFFERS_ANYWAY = ("timings.jsonl", "log.txt", "phases.jsonl", ".made.json")
How = dict[str, Any]
"""When a command is killed: ``kill_at`` a change of a file, or ``kill_after`` so many seconds."""

TIMES = re.compile(rb'"(wall|processor|seconds|started|date|time|check)": ?("[^"]*"|[-0-9.e+]+)')

EXPORT: Command = ("export", "run", "--to", "hf", "--out", "exported")
REPORT: Command = ("report", "run", "--out", "report")
OTHER_DATA: Command = (*PREPARE, "--again", "--set", "data.synthetic.dev=12")

SCENARIOS: dict[str, tuple[tuple[Command, ...], Command]] = {  # what was run before, and what is killed
    "prepare": ((), PREPARE),
    "prepare over older data": ((PREPARE,), OTHER_DATA),
    **{f"train {teacher}": ((PREPARE,), train(teacher)) for teacher in samples.TEACHERS},
    "train from nothing": ((), train("uniform")),
    "evaluate": ((PREPARE, train("uniform")), EVALUATE),
    "report": ((PREPARE, train("uniform")), REPORT),
    "report over an older one": ((PREPARE, train("uniform"), REPORT, EVALUATE), REPORT),
    "export": ((PREPARE, train("uniform")), EXPORT),
    "export over an older one": ((PREPARE, train("uniform"), EXPORT), (*EXPORT, "--step", "12")),
    "export ctranslate2": (
        (PREPARE, train("uniform")),
        ("export", "run", "--to", "ctranslate2", "--out", "exported"),
    ),
    "policy": ((PREPARE, train("dqn")), ("policy", "run")),
    "schedule": ((PREPARE, train("uniform")), ("schedule", "run", "--to", "csv", "--out", "schedule.csv")),
    "compare": ((PREPARE,), COMPARE),
    "compare with a plan": ((PREPARE,), ("compare", "planned.yaml", "--jobs", "1", "--seeds", "1,2")),
}


@dataclass
class Scenario:
    """The project before the command, and what the command makes of it."""

    name: str
    command: Command
    before: Path
    whole: dict[str, str] = field(default_factory=dict)
    moments: int = 0
    seconds: float = 0.0


class Projects:
    """Projects as they are before a command; each state is made once."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.project = folder, folder / "project"  # the same path for all: some files hold it
        self._states: dict[tuple[Command, ...], Path] = {}
        self._copied_from: Path | None = None
        self._copied: dict[Path, tuple[int, ...]] = {}

    def state(self, commands: tuple[Command, ...]) -> Path:
        if commands not in self._states:
            if commands:
                self.restore(self.state(commands[:-1]))
                outcome = run_rota(commands[-1], self.project)
                if outcome.code != 0:
                    raise RuntimeError(f"rota {' '.join(commands[-1])}: {outcome.output[-1500:]}")
            else:
                samples.begin(self.project)
            kept = self.folder / f"state-{len(self._states)}"
            shutil.copytree(self.project, kept)
            self._states[commands] = kept
        return self._states[commands]

    def restore(self, state: Path) -> None:
        """The project is as in ``state``; what has not been touched since it was copied from there stays."""
        if self._copied_from != state:
            shutil.rmtree(self.project, ignore_errors=True)
            self._copied_from, self._copied = state, {}
        wanted = {path.relative_to(state): path for path in sorted(state.rglob("*"))}
        for path in sorted(self.project.rglob("*"), reverse=True):  # what is in a folder before the folder
            kept = wanted.get(path.relative_to(self.project))
            if path.is_symlink() or not path.is_dir():
                if self._copied.get(path) != _touched(path):
                    path.unlink()
            elif kept is None or not kept.is_dir():
                path.rmdir()
        self.project.mkdir(parents=True, exist_ok=True)
        for name, path in wanted.items():
            copy = self.project / name
            if path.is_dir():
                copy.mkdir(exist_ok=True)
            elif not copy.exists():
                shutil.copy2(path, copy)
                self._copied[copy] = _touched(copy)


def _touched(path: Path) -> tuple[int, ...]:
    """Another one after any change of a file, also if its times were set back."""
    found = path.lstat()
    return found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_mode


def prepared(name: str, projects: Projects) -> Scenario:
    earlier, command = SCENARIOS[name]
    before = projects.state(earlier)
    projects.restore(before)
    moments = Moments(projects.project)
    whole = run_rota(command, projects.project, moments=moments)
    if whole.code != 0:
        raise RuntimeError(f"rota {' '.join(command)} ended with {whole.code}: {whole.output[-1500:]}")
    return Scenario(name, command, before, contents(projects.project), moments.count, whole.elapsed)


def contents(project: Path) -> dict[str, str]:
    """A digest of each file; of those that hold times, of the rest."""
    return {
        path.relative_to(project).as_posix(): _digest(path) for path in sorted(project.rglob("*")) if path.is_file()
    }


def _digest(path: Path) -> str:
    if path.name in DIFFERS_ANYWAY:
        return ""
    data = path.read_bytes()
    if path.suffix in (".json", ".jsonl"):
        data = TIMES.sub(b"", data)
    return hashlib.sha256(data).hexdigest()[:16]


def attempts(scenario: Scenario, rng: random.Random) -> Iterator[How]:
    """Arguments of the killed command: every moment once, in random order, and random times in between."""
    order = rng.sample(range(scenario.moments), scenario.moments)
    while True:
        for number, moment in enumerate(order):
            yield {"kill_at": moment}
            if number % 4 == 3:
                yield {"kill_after": rng.random() * scenario.seconds}


def kill_once(scenario: Scenario, projects: Projects, how: How, counts: Counts) -> None:
    project = projects.project
    projects.restore(scenario.before)
    kind, words = f"kills: {scenario.name}", json.dumps(how)
    moments = Moments(project, how.get("kill_at"))
    killed = run_rota(scenario.command, project, moments=moments, kill_after=how.get("kill_after"))
    if killed.code == 0:
        counts.add(kind, "ended before")
        return
    if killed.traceback:
        counts.add(kind, "traceback", f"{words}: {killed.last_line}")
        return
    again = run_rota(scenario.command, project)
    if again.code == 1 and scenario.name.startswith("compare"):
        again = run_rota(scenario.command, project)  # the killed one's run may still be saving
    if again.code != 0:
        end = "traceback" if again.traceback else "hang" if again.code < 0 else "lost"
        counts.add(kind, end, f"{words}: {again.code}: {again.last_line}")
        return
    now = contents(project)
    other = sorted(name for name in scenario.whole if scenario.whole[name] != now.get(name))
    left = sorted(now.keys() - scenario.whole.keys())
    if other:
        counts.add(kind, "lost", f"{words}: {', '.join(other[:5])}")
    elif left:
        counts.add(kind, "left over", f"{words}: {', '.join(left[:5])}")
    else:
        counts.add(kind, "the same")
