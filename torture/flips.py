"""One changed byte in a file of a run or of prepared data: ``rota check`` notices it, or no result depends on it.

What ``check`` does not notice, the other commands are tried on: each must refuse, or make the same files as before.
"""

from __future__ import annotations

import random
import re
from pathlib import Path

import mutations
from counts import Counts
from forks import Outcome, run_batch, run_rota
from inputs import SECONDS, judged
from kills import REPORT, Projects, contents
from samples import EVALUATE, PREPARE, Command, train

DONE = (PREPARE, train("dqn"), EVALUATE, ("policy", "run"))
FOLDERS = ("run", "data")
RESULTS: tuple[Command, ...] = (train("dqn"), EVALUATE, REPORT)


class Flips:
    """Trials in copies of one project, each with one flip."""

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
        project = self.projects.project
        self.projects.restore(self.done)
        path.write_bytes(changed)
        for command in RESULTS:
            outcome = run_rota(command, project)
            end = judged(outcome)
            if end == "refused":
                return "refused by another command", ""
            if end != "accepted":
                return end, f"rota {' '.join(command)}: {outcome.last_line}"
        now = contents(project)
        self.projects.restore(self.done)
        name = path.relative_to(project).as_posix()
        different = [each for each in self.expected if self.expected[each] != now.get(each) and each != name]
        return ("silent", ", ".join(different[:4])) if different else ("harmless", "")
