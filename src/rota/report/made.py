"""What a report was made from and what it said, so that one that is up to date is not made again. No figures here.

A file in the folder of the report holds a digest of its origin (the records, the options, the program) and the size and
time of each file of the report. It is removed before the first of these changes and written after the last, so that a
report that was killed on the way is made again.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import rota
from rota.files import fingerprint, read_json_if_whole, write_json
from rota.plan import PLAN
from rota.report.folders import SUITE, corpora_of, run_folders

MADE = ".made.json"
"""In the folder of a report."""

LIBRARIES = ("rota-nmt", "matplotlib", "numpy")
"""Another version of these may draw another figure."""

Stamp = str | None
"""Another one after any change of a file; None if there is no such file."""


@dataclass(frozen=True)
class Request:
    """What ``rota report`` was asked for."""

    paths: Sequence[Path]
    out: Path
    title: str | None = None
    baseline: str | None = None
    regret: bool = False

    def origin(self) -> str | None:
        """A digest of everything that the report depends on; None if the folders cannot be read as runs."""
        try:
            read = [sorted(set(_records(path))) for path in self.paths]
        except (OSError, ValueError):
            return None
        records = [(str(path), _stamp(path)) for found in read for path in found]
        asked = [self.title, self.baseline, self.regret, str(self.out)]
        where = [(str(path), str(path.resolve())) for path in self.paths]
        return fingerprint([asked, where, records, _program()])


def lines_if_up_to_date(out: Path, origin: str | None) -> list[str] | None:
    """What was printed when the report in ``out`` was made from the same; None if it must be made."""
    made = read_json_if_whole(out / MADE) if (out / MADE).is_file() else None
    if made is None or origin is None or made.get("origin") != origin:
        return None
    if any(_stamp(out / name) != stamp for name, stamp in made["files"].items()):
        return None
    lines: list[str] = made["lines"]
    return lines


def forget(out: Path) -> None:
    """Before the first change in ``out``."""
    (out / MADE).unlink(missing_ok=True)


def remember(out: Path, origin: str | None, files: Iterable[Path], lines: Sequence[str]) -> None:
    """After the last change; ``origin`` is from before the records were read, since runs may have gone on."""
    if origin is None:
        return
    stamps = {path.relative_to(out).as_posix(): _stamp(path) for path in sorted(files)}
    write_json(out / MADE, {"origin": origin, "files": stamps, "lines": list(lines)}, checked=True)


def _records(path: Path) -> Iterator[Path]:
    """All files that a report on a path may read, also some that are not there yet."""
    path = path.resolve()
    yield from (folder / SUITE for folder in (path, path.parent, path.parent.parent))
    yield path / PLAN
    for corpus in corpora_of(path):
        if (path / corpus).is_dir():
            yield from _records(path / corpus)
    for folder in run_folders(path):
        yield from (found for pattern in ("*.json", "*.jsonl", "*.jsonl.?z") for found in folder.glob(pattern))
        yield from (folder / "policy").glob("*.json")
        yield from (folder / "checkpoints").glob("*")


def _stamp(path: Path) -> Stamp:
    """The time of the change of the inode too: a tool that sets back the time of a file cannot set this one."""
    try:
        found = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    if path.is_dir():  # a checkpoint, which appears as a whole; what lies in it is not read
        return "folder"
    return f"{found.st_size} {found.st_mtime_ns} {found.st_ctime_ns} {found.st_ino}"


def _program() -> list[object]:
    root = Path(rota.__file__).parent
    sources = [path for path in sorted(root.rglob("*")) if path.suffix in (".py", ".csv", ".css")]
    return [sys.version, [_version(name) for name in LIBRARIES], [(str(path), _stamp(path)) for path in sources]]


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return ""
