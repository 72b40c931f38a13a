"""Mutated configs, suites, command lines and record files: each ends well or is refused in one line.

A command has 10 seconds of processor time and 1 GB of memory. A config or command line that is accepted ends where its
work would begin; some configs are given to commands that may work until their time is over.
"""

from __future__ import annotations

import random
import signal
import sys
from typing import Any

import mutations
import samples
from counts import Counts
from forks import MEMORY, Outcome, run_batch, run_rota
from kills import EXPORT, Projects
from samples import COMPARE, EVALUATE, PREPARE, train

SECONDS = 10
NEVER = {"demo"}  # it takes minutes and asks for the network
RECORDS = (".json", ".jsonl", ".txt", ".tsv", ".yaml")
DONE = (PREPARE, train("uniform"), EVALUATE, train("dqn", "dqn"), ("policy", "dqn"), EXPORT, COMPARE)
READERS = (
    *(("report", "run"), ("report", "runs/suite"), ("evaluate", "run"), EVALUATE, ("check", "run"), ("check", ".")),
    *(("schedule", "run", "--to", "csv", "--out", "new.csv"), ("policy", "dqn"), train("uniform"), train("dqn", "dqn")),
    *(("compare-scores", "run", "runs/suite/uniform/seed-1"), ("translate", "run", "-l", "lala"), EXPORT, PREPARE),
    *(("compare", "suite.yaml", "--dry-run", "--out", "runs/suite"), ("report", "run", "--records", "copied")),
    *(("check", "data"), (*PREPARE, "--set", "data.folder=data"), ("check", "exported")),
)


def end_where_work_begins() -> None:
    from rota import api

    api.prepare = lambda *_, **__: sys.exit(0)  # type: ignore[assignment]


def judged(outcome: Outcome, *, may_work: bool = False) -> str:
    """The end of a trial in a word or two."""
    if outcome.traceback:
        return "traceback"
    if outcome.code in (-signal.SIGXCPU, -signal.SIGPROF, -signal.SIGKILL):
        return "at work at the limit" if may_work else "hang"
    if outcome.memory > MEMORY:
        return "memory"
    if outcome.code == 0:
        return "accepted"
    if outcome.code == 1 and "out of memory" in outcome.output:
        return "refused for its memory" if may_work else "memory"
    if outcome.code in (1, 2) and outcome.last_line.startswith(("error: ", "failed: ")):
        return "refused"
    if outcome.code == 1 and (" problem" in outcome.last_line or " failed; " in outcome.last_line):
        return "refused"  # of check and compare, which have said what is wrong line by line
    return "other"


class BadInput:
    """Trials in copies of one project."""

    def __init__(self, projects: Projects, rng: random.Random, counts: Counts) -> None:
        self.projects, self.rng, self.counts = projects, rng, counts
        self.bare, self.done = projects.state((PREPARE,)), projects.state(DONE)

    def configs(self) -> None:
        """Forty that end where their work would begin, and sometimes one that works, which may take its 10 seconds."""
        self.projects.restore(self.bare)
        commands = (("train", "config.yaml"), ("prepare", "config.yaml"), ("train", "config.yaml", "--until", "3"))
        self._batch("config", [(self.rng.choice(commands), "config.yaml", samples.CONFIG) for _ in range(40)])
        if self.rng.random() < 0.8:
            return
        content = mutations.text(samples.CONFIG, self.rng)
        (self.projects.project / "config.yaml").write_bytes(content)
        self._try("config, to work with", ("train", "config.yaml"), content, works=True, stop=False)

    def overrides(self) -> None:
        """Values of ``--set``."""
        self.projects.restore(self.bare)
        keys = (
            "training.steps",
            "teacher",
            "student",
            "data.synthetic",
            "student.learning_rate",
            "data",
            "x",
            "teacher.name",
        )
        said = [f"{self.rng.choice(keys)}={self._nonsense()}" for _ in range(40)]
        commands = [("train", "config.yaml", "--set", each) for each in said]
        self._batch("--set", [(command, "config.yaml", samples.CONFIG) for command in commands], mutate=False)

    def suites(self) -> None:
        self.projects.restore(self.bare)
        suites = (("suite.yaml", samples.SUITE), ("planned.yaml", samples.PLANNED_SUITE))
        chosen = [self.rng.choice(suites) for _ in range(20)]
        self._batch("suite", [(("compare", name, "--dry-run"), name, original) for name, original in chosen])

    def _batch(self, kind: str, trials: list[tuple[tuple[str, ...], str, str]], *, mutate: bool = True) -> None:
        project = self.projects.project
        changed = [
            (command, project / name, mutations.text(original, self.rng) if mutate else original.encode())
            for command, name, original in trials
        ]
        outcomes = run_batch(changed, project, SECONDS, before=end_where_work_begins)
        for (command, _, content), outcome in zip(changed, outcomes, strict=True):
            self._count(kind, command, content, outcome, works=False)

    def command_line(self) -> None:
        self.projects.restore(self.done)
        self._try("command line", self._any_command(), b"", stdin=mutations.text("lala lala\n" * 3, self.rng))

    def record(self) -> None:
        project = self.projects.project
        self.projects.restore(self.done)
        paths = sorted(path for path in project.rglob("*") if path.suffix in RECORDS and path.parent != project)
        path = self.rng.choice(paths)
        original = path.read_text("utf-8")
        if self.rng.random() < 0.5:  # else most changes are refused before anything is made of them
            original = mutations.without_checks(original)
        path.write_bytes(mutations.record(original, self.rng))
        command = self.rng.choice([each for each in READERS if path.relative_to(project).parts[0] in " ".join(each)])
        self._try("record", command, path.relative_to(project).as_posix().encode(), works=True, stop=False)

    def _try(
        self,
        kind: str,
        command: tuple[str, ...],
        content: bytes,
        *,
        works: bool = False,
        stop: bool = True,
        stdin: bytes = b"",
    ) -> None:
        before = end_where_work_begins if stop and not works else lambda: None
        project = self.projects.project
        outcome = run_rota(command, project, stdin=stdin, before=before, processor_seconds=SECONDS)
        self._count(kind, command, content, outcome, works=works)

    def _count(self, kind: str, command: tuple[str, ...], content: bytes, outcome: Outcome, *, works: bool) -> None:
        end = judged(outcome, may_work=works)
        what = content if len(content) < 600 else content[:300] + b" ... " + content[-300:]
        said = f"rota {' '.join(command)!r} {what!r}: {outcome.code}: {outcome.output[-400:]!r}"
        self.counts.add(f"bad input: {kind}", end, said)

    def _any_command(self) -> tuple[str, ...]:
        """A command with some of its options, with values that fit and values that do not."""
        import typer

        from rota.cli import app

        commands: Any = getattr(typer.main.get_command(app), "commands")  # noqa: B009 - not known to mypy
        name = self.rng.choice(sorted(commands.keys() - NEVER))
        words = [name]
        for parameter in commands[name].params:
            if parameter.param_type_name == "argument":
                words += [self._value(parameter)] * (self.rng.random() < 0.95)
            elif parameter.name != "on" and (parameter.required or self.rng.random() < 0.3):
                words.append(self.rng.choice(parameter.opts))
                words += [] if getattr(parameter, "is_flag", False) else [self._value(parameter)]
        if self.rng.random() < 0.1:
            words.insert(self.rng.randrange(len(words) + 1), self._nonsense())
        return tuple(words)

    def _value(self, parameter: Any) -> str:
        kind = str(getattr(parameter, "type", None) or parameter.type_descriptor.annotation).lower()  # of two Typers
        if self.rng.random() < 0.25:
            return self._nonsense()
        if parameter.name == "set_":
            return f"{self.rng.choice(('training.steps', 'teacher', 'student.width', 'data', 'x'))}={self._nonsense()}"
        if "path" in kind or parameter.param_type_name == "argument":
            return self.rng.choice(
                ("run", "dqn", "data", "config.yaml", "suite.yaml", "runs/suite", "exported", "new", ".")
            )
        if "int" in kind or "float" in kind:
            return self.rng.choice(("0", "1", "2", "4", "16", "-1", "1.5", "100"))
        return self.rng.choice(
            ("test", "dev", "bleu", "loss", "hf", "csv", "weights", "macro", "lala", "uniform", "1,2", "all")
        )

    def _nonsense(self) -> str:
        text = self.rng.choice(mutations.VALUES).replace("\x00", "")
        return text if self.rng.random() < 0.9 else text + "\udcff"
