"""What ``rota check`` finds: whether a run, prepared data, or a folder with several of them is as Rota wrote it.

Nothing is changed and no model is loaded. What is wrong with a run is found in :mod:`rota.runs.check`; here are data
folders, which have a checksum of each file in their manifest, what a suite says of its runs, and the way from a folder
to what it holds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from rota.data.store import MANIFEST, Manifest
from rota.files import sha256_of
from rota.plan import PLAN, find_plan
from rota.report.folders import SUITE, suite_of
from rota.runs import Run
from rota.runs.check import Findings, Progress, check_json, check_run


def check_folder(folder: Path, progress: Progress = lambda *_: None) -> Findings:
    """All that is wrong with a run, with prepared data, or with every run, data folder and suite below a folder."""
    if not folder.is_dir():
        raise ValueError(f"no folder {str(folder)!r}; give a run, prepared data, or a folder with several of them")
    found = Findings()
    there = list(_below(folder))
    if not there:
        raise ValueError(f"{folder} holds neither a run (run.json) nor prepared data ({MANIFEST}); give one that does")
    for each in there:
        part = _check(each, progress)
        found.files += part.files
        found.unchecked += part.unchecked
        found.problems += part.problems
    return found


def _below(folder: Path) -> Iterator[Path]:
    """The folder itself if it is a run or prepared data, else those below it, and the suites that they belong to."""
    if _is_whole(folder):
        yield folder
        return
    if any((folder / name).is_file() for name in (SUITE, PLAN)):
        yield folder
    for path in sorted(folder.iterdir()):
        if path.is_dir() and not path.name.startswith("."):
            yield from _below(path)


def _is_whole(folder: Path) -> bool:
    """A run or prepared data: what lies below is part of it."""
    return Run(folder).exists or (folder / MANIFEST).is_file()


def _check(folder: Path, progress: Progress) -> Findings:
    if Run(folder).exists:
        return check_run(Run(folder), progress)
    return check_data(folder, progress) if _is_whole(folder) else check_suite(folder)


def check_suite(folder: Path) -> Findings:
    """What a suite says of its rows, and its plan; the runs are checked by themselves."""
    found = Findings()
    read: dict[str, Callable[[Path], object]] = {SUITE: suite_of, PLAN: find_plan}
    for name, as_written in read.items():
        path = folder / name
        if not path.is_file() or check_json(path, found) is None:
            continue
        try:
            as_written(folder)
        except ValueError as error:
            found.add_error(path, error)
    return found


def check_data(folder: Path, progress: Progress = lambda *_: None) -> Findings:
    """Every file of a data folder against its checksum, and the manifest against its check value and fingerprint."""
    found = Findings()
    if check_json(folder / MANIFEST, found) is None:
        return found
    try:
        manifest = Manifest.load(folder)
    except ValueError as error:
        found.add_error(folder / MANIFEST, error)
        return found
    for number, (name, recorded) in enumerate(manifest.files.items()):
        progress(f"{folder}", number, len(manifest.files))
        path = folder / name
        found.files += 1
        if not path.is_file():
            found.add(path, "it is missing")
        elif path.stat().st_size != recorded.bytes:
            found.add(path, f"it has {path.stat().st_size:,} bytes instead of {recorded.bytes:,}")
        elif sha256_of(path) != recorded.sha256:
            found.add(path, "its checksum differs")
    progress(f"{folder}", len(manifest.files), len(manifest.files))
    return found
