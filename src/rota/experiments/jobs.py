"""The runs of a suite: their folders, configs and order, and the file that describes the suite to a report."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from rota.checks import check_durations
from rota.config import RunConfig, overridden, parse_config
from rota.experiments.suite import Suite, check_own
from rota.experiments.values import Values
from rota.files import write_atomically
from rota.settings import ConfigError
from rota.teachers import TeacherConfig


@dataclass(frozen=True)
class Job:
    """One run of a suite: a row with one seed."""

    row: str
    seed: int
    folder: Path
    values: Values  # its config as it is written to config.yaml
    config: RunConfig
    needs: tuple[str, ...] = ()  # names of the runs of the suite whose records its teacher reads

    @property
    def name(self) -> str:
        return name_of(self.row, self.seed)

    def write_config(self) -> Path:
        """The config as YAML in the run folder, so that the run can be repeated without its suite."""
        path, text, yaml = self.folder / "config.yaml", io.StringIO(), YAML(typ="safe", pure=True)
        yaml.width = 120
        yaml.dump(self.values, text)
        write_atomically(path, text.getvalue())
        return path


def name_of(row: str, seed: int) -> str:
    return f"{row}/seed-{seed}"


def plan(
    suite: Suite,
    out: Path,
    *,
    rows: Sequence[str],
    seeds: Sequence[int],
    overrides: Sequence[str] = (),
    threads: int | None = None,
) -> list[Job]:
    """All runs, the first seed of every row before the second, so that what is finished early can be compared.

    Every config is checked here: a mistake in the last row is told before the first one has run for hours.
    """
    for override in overrides:
        check_own(override.partition("=")[0].strip(), f"--set {override!r}")
    names = {(out / name_of(row, seed)).resolve(): name_of(row, seed) for seed in seeds for row in suite.rows}
    jobs = []
    for seed in seeds:
        for row in rows:
            values = suite.values(row, seed, out)
            if threads is not None:
                values["training"] = {**(values.get("training") or {}), "threads": threads}
            config = parse_config(values, origin=f"row {row!r} of suite {suite.name!r}", overrides=overrides)
            check_durations(config)
            values = overridden(values, overrides)
            needs = [names[path.resolve()] for path in _other_runs(values) if path.resolve() in names]
            jobs.append(Job(row, seed, out / name_of(row, seed), values, config, tuple(needs)))
    _check_circles(jobs)
    return jobs


def _check_circles(jobs: Sequence[Job]) -> None:
    """Runs that wait for each other would wait for ever."""
    needs = {job.name: job.needs for job in jobs}
    free: set[str] = set()
    while len(free) < len(needs):
        more = {
            name
            for name in needs
            if name not in free and all(need in free or need not in needs for need in needs[name])
        }
        if not more:
            circle = sorted(set(needs) - free)
            raise ConfigError(
                f"{circle[0]} reads {', '.join(needs[circle[0]])}, which waits for it; change teacher.run"
            )
        free |= more


def _other_runs(values: Values) -> Iterator[Path]:
    """Folders that a teacher reads, or one of the teachers inside it."""
    teacher = values.get("teacher")
    waiting = [teacher] if isinstance(teacher, Mapping) else []
    while waiting:
        found = waiting.pop()
        waiting += [inner for inner in found.values() if isinstance(inner, Mapping)]
        if isinstance(found.get("run"), str):
            yield Path(found["run"])


def describe(suite: Suite, out: Path, jobs: Sequence[Job]) -> dict[str, Any]:
    """What ``suite.json`` says; rows and seeds of an earlier start with others stay in it."""
    before = _described(out)
    known = {row["name"]: row for row in before.get("rows", [])}
    known |= {job.row: _row(suite, job) for job in reversed(jobs)}
    order = [*suite.rows, *(name for name in known if name not in suite.rows)]
    seeds = sorted({*before.get("seeds", []), *(job.seed for job in jobs)})
    return {"name": suite.name, "seeds": seeds, "rows": [known[name] for name in order if name in known]}


def write_description(suite: Suite, out: Path, jobs: Sequence[Job]) -> None:
    text = json.dumps(describe(suite, out, jobs), indent=1, ensure_ascii=False) + "\n"
    write_atomically(out / "suite.json", text)


def _described(out: Path) -> dict[str, Any]:
    path = out / "suite.json"
    if not path.is_file():
        return {}
    try:
        before: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except ValueError:
        raise ValueError(f"{path} is damaged; delete it, it is written anew") from None
    return before


def _row(suite: Suite, job: Job) -> dict[str, Any]:
    row = suite.rows[job.row]
    return {
        "name": job.row,
        "label": row.label or job.row,
        "warmup": row.warmup or _warmup(job.config.teacher),
        "table": row.table,
        "paper": row.paper,
        "place": row.place,
    }


def _warmup(teacher: TeacherConfig) -> str:
    """The warm-up as the paper's tables name it: ``no``, ``16k``, ``16k, all languages``."""
    if teacher.warmup is None:
        return "no"
    until, languages = teacher.warmup.until, teacher.warmup.languages
    written = str(until)
    if not until.is_share and until.amount and until.amount % 1000 == 0:
        written = f"{int(until.amount) // 1000}k"
    if languages == "high-resource":
        return written
    named = f"{languages} languages" if isinstance(languages, str) else " ".join(languages)
    return f"{written}, {named}"
