"""One changed byte in a file of a run or of prepared data: ``rota check`` notices it, or no result depends on it.

So with a record that was cut at the end of a line, and with a checkpoint that was removed. What ``check`` does not
notice, the other commands are tried on: each must refuse, or make the same files as before.
"""

from __future__ import annotations

import random
import re
import shutil
from pathlib import Path

import mutations
from counts import Counts
from forks import Outcome, run_batch, run_rota
from inputs import SECONDS, judged
from kills import REPORT, Projects, contents
from samples import EVALUATE, PREPARE, Command, train

DONE = (PREPARE, train("dqn"), EVALUATE, ("policy", "run"))
FOLDERS = ("run", "data")
TIMED = ("report/report.md", "report/index.html")  # with the time that training took, which is another the second time
RESULTS: tuple[Command, ...] = (train("dqn"), EVALUATE, REPORT)


class Flips:
    """Trials in copies of one project, each with one flip, one cut or one checkpoint removed."""

    def __init__(self, projects: Projects, rng: random.Random, counts: Counts) -> None:
        self.projects, self.rng, self.counts = projects, rng, counts
        self.done = projects.state(DONE)
        projects.restore(self.done)
        for command in RESULTS:
            run_rota(command, projects.project)
        self.expected = contents(projects.project)

    def flip(self) -> None:
        """Forty at a time are given to ``rota check``; what it does not notice, to the other commands."""
        self.projects.restore(self.done)
        project = self.projects.project
        chosen = [self._choose() for _ in range(40)]
        checks = run_batch([(("check", folder), path, changed) for folder, path, changed in chosen], project, SECONDS)
        for (folder, path, changed), check in zip(chosen, checks, strict=True):
            data, name = path.read_bytes(), path.relative_to(project).as_posix()
            place = next(at for at, pair in enumerate(zip(data, changed, strict=True)) if pair[0] != pair[1])
            words = f"{name}, byte {place}: {data[place : place + 1]!r} became {changed[place : place + 1]!r}"
            end, why = self._noticed(path, changed, check)
            self.counts.add(f"flips: {folder}/{self._kind(path)}", end, f"{words}: {why}")

    def cut(self) -> None:
        """A record of the run without its last lines, ten at a time."""
        self.projects.restore(self.done)
        project = self.projects.project
        records = [path for path in sorted((project / "run").glob("*.jsonl")) if path.stat().st_size]
        chosen = [
            (path, self.rng.randrange(len(path.read_bytes().splitlines()))) for path in self.rng.choices(records, k=10)
        ]
        left = [b"".join(path.read_bytes().splitlines(keepends=True)[:lines]) for path, lines in chosen]
        trials = [(("check", "run"), path, content) for (path, _), content in zip(chosen, left, strict=True)]
        checks = run_batch(trials, project, SECONDS)
        for (path, lines), content, check in zip(chosen, left, checks, strict=True):
            end, why = self._noticed(path, content, check)
            self.counts.add(f"lost ends: {path.name}", end, f"the first {lines} lines of {path.name}: {why}")

    def remove(self) -> None:
        """A checkpoint; if it is the newest, training makes it again, and nothing is different afterwards."""
        self.projects.restore(self.done)
        folders = sorted((self.projects.project / "run" / "checkpoints").iterdir(), key=lambda path: int(path.name))
        folder = self.rng.choice(folders)
        shutil.rmtree(folder)
        check = run_rota(("check", "run"), self.projects.project)
        end = "noticed" if check.code == 1 and f"checkpoints/{folder.name}: it is missing" in check.output else "silent"
        why = check.output[-300:]
        if folder == folders[-1] and end == "noticed":
            found, why = self._results(*TIMED)
            end = "noticed, made again" if found == "harmless" else found
        which = "the newest checkpoint" if folder == folders[-1] else "an older checkpoint"
        self.counts.add(f"lost ends: {which}", end, f"checkpoint {folder.name}: {why}")

    def _choose(self) -> tuple[str, Path, bytes]:
        """A kind of file first, so that many checkpoints do not crowd out the rest; then a file, then a byte."""
        project = self.projects.project
        folder = self.rng.choice(FOLDERS)
        files = [path for path in sorted((project / folder).rglob("*")) if path.is_file() and path.stat().st_size]
        kind = self.rng.choice(sorted({self._kind(path) for path in files}))
        path = self.rng.choice([path for path in files if self._kind(path) == kind])
        return folder, path, mutations.flipped(path.read_bytes(), self.rng)

    @staticmethod
    def _kind(path: Path) -> str:
        if path.parent.name.isdigit():  # a checkpoint
            return f"checkpoints/{path.name}"
        folder = f"{path.parent.name}/" if path.parent.name in ("translations", "losses", "policy") else ""
        if folder or path.suffix in (".tokens", ".offsets"):
            return f"{folder}*{path.suffix}"
        return re.sub(r"(train|dev|test)\..*", "sentences", path.name)

    def _noticed(self, path: Path, changed: bytes, check: Outcome) -> tuple[str, str]:
        if check.traceback:
            return "traceback", check.last_line
        if check.code in (1, 2):
            return ("noticed", "") if path.name in check.output else ("other", check.output[-300:])
        if check.code != 0:
            return "hang", check.last_line
        self.projects.restore(self.done)
        path.write_bytes(changed)
        return self._results(path.relative_to(self.projects.project).as_posix())

    def _results(self, *besides: str) -> tuple[str, str]:
        """Whether the commands make the files that they would have made, ``besides`` these."""
        project = self.projects.project
        for command in RESULTS:
            outcome = run_rota(command, project)
            end = judged(outcome)
            if end == "refused":
                return "refused by another command", ""
            if end != "accepted":
                return end, f"rota {' '.join(command)}: {outcome.last_line}"
        now = contents(project)
        self.projects.restore(self.done)
        different = [each for each in self.expected if self.expected[each] != now.get(each) and each not in besides]
        return ("silent", ", ".join(different[:4])) if different else ("harmless", "")
