"""Where the runs of a study lie, what a suite says of them, and copies of their records without models."""

from __future__ import annotations

import lzma
import re
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from rota.files import damaged, open_atomically, read_json
from rota.plan import PLAN
from rota.runs import REMEDY, Run
from rota.runs.records import forms_of, open_record
from rota.runs.run import RecordName

Progress = Callable[[str, int, int | None], None]
"""Is called with the stage, how much is done, and how much there is in all."""

SUITE = "suite.json"
RESTORE = "restore it, or delete it: rows are then named after their folders"

KINDS: dict[type, str] = {int: "a whole number", str: "a text", list: "a list", dict: "a mapping"}

NEEDED: dict[str, type] = {
    "seed": int,
    "config.data": dict,
    "config.student.preset": str,
    "config.teacher.name": str,
    "config.training.steps": int,
    "config.training.tokens": int,
    "data.fingerprint": str,
    "data.low_resource": list,
    "data.sizes": dict,
    "versions": dict,
    "hardware.machine": str,
    "hardware.cores": int,
    "hardware.threads": int,
}
"""What every report reads in the description of a run."""


def check_described(run: Run) -> None:
    """Refuse a run whose description lacks something that a report asks of it."""
    for key, kind in NEEDED.items():
        found = run.setting(key)
        if not isinstance(found, kind):
            raise damaged(run.about_path, f"{key} is {_shown(found)}, not {KINDS[kind]}", REMEDY)


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def check_folder(path: Path, option: str) -> None:
    """Refuse a path that cannot be a folder, because it or a part of it is a file."""
    for part in (path, *path.parents):
        if part.exists() and not part.is_dir():
            raise ValueError(f"{option} is {str(path)!r}, but {part} is a file; name a folder")


def suite_folder(path: Path) -> Path | None:
    """The folder with ``suite.json``: the path itself, or above a row or a run of a suite."""
    path = path.resolve()
    return next((folder for folder in (path, path.parent, path.parent.parent) if is_suite(folder)), None)


def is_suite(path: Path) -> bool:
    return (path / SUITE).exists()


def suite_of(path: Path) -> dict[str, Any]:
    """What ``suite.json`` says of a path in a suite; empty elsewhere."""
    folder = suite_folder(path)
    return {} if folder is None else _checked_suite(folder / SUITE)


def corpora_of(path: Path) -> list[str]:
    """The corpora of a suite that has several, which lie in folders of these names; else none."""
    return list(_checked_suite(path / SUITE).get("corpora", [])) if is_suite(path) else []


def _checked_suite(path: Path) -> dict[str, Any]:
    suite = read_json(path, remedy=RESTORE)
    rows, seeds = suite.get("rows", []), suite.get("seeds", [])
    if not (isinstance(rows, list) and all(isinstance(row, dict) and isinstance(row.get("name"), str) for row in rows)):
        raise damaged(path, f"rows is {_shown(rows)}, not a list of rows with names", RESTORE)
    own = [row["seeds"] for row in rows if row.get("seeds") is not None]
    for found in (seeds, *own):
        if not (isinstance(found, list) and all(isinstance(seed, int) for seed in found)):
            raise damaged(path, f"seeds is {_shown(found)}, not a list of whole numbers", RESTORE)
    corpora = suite.get("corpora", [])
    if not (isinstance(corpora, list) and all(isinstance(name, str) for name in corpora)):
        raise damaged(path, f"corpora is {_shown(corpora)}, not a list of names", RESTORE)
    return suite


def run_folders(path: Path) -> list[Path]:
    """The runs in a folder: itself, those below it, or those two levels below, as in a suite."""
    if not path.is_dir():
        raise ValueError(f"no folder {str(path)!r}; give run folders or the folder of a suite")
    if Run(path).exists:
        return [path]
    return sorted((found for found in (*path.glob("*"), *path.glob("*/*")) if Run(found).exists), key=_natural)


def _natural(path: Path) -> list[tuple[int, str]]:
    """Seed 10 after seed 9."""
    return [(int(part), "") if part.isdigit() else (0, part) for part in re.split(r"(\d+)", str(path))]


COPIED: tuple[RecordName, ...] = ("alarms", "stops")
PACKED: tuple[RecordName, ...] = ("steps", "observations", "rewards", "validations", "spot_checks", "timings", "evals")
"""The long records, which are copied compressed."""


def copy_records(path: Path, out: Path, progress: Progress = lambda *_: None) -> int:
    """Copy what a report needs of the runs in ``path`` to ``out``; returns the bytes written.

    The folder ``out`` is laid out like ``path``. The same records give the same bytes.
    """
    check_target([path], out)
    written = 0
    for root, target, folders in _suites(path.resolve(), out):
        written += sum(_copy(root / name, target / name) for name in (SUITE, PLAN))
        for done, folder in enumerate(folders, start=1):
            written += _copy_run(Run(folder), Run(target / folder.relative_to(root)))
            progress(f"copying {root.name}", done, len(folders))
    return written


def _suites(path: Path, out: Path) -> Iterator[tuple[Path, Path, list[Path]]]:
    """The folder of each study in ``path``, where its copy goes, and its runs."""
    corpora = corpora_of(path)
    if not corpora:
        folders = run_folders(path)
        yield suite_folder(path) or (path.parent if path in folders else path), out, folders
        return
    yield path, out, []
    for corpus in corpora:
        if (path / corpus).is_dir():
            yield from _suites(path / corpus, out / corpus)


def copy_all(paths: Sequence[Path], out: Path, progress: Progress = lambda *_: None) -> int:
    """One study straight into ``out``, several into a folder each."""
    check_target(paths, out)
    return sum(copy_records(path, target, progress) for path, target in _targets(paths, out))


def _targets(paths: Sequence[Path], out: Path) -> list[tuple[Path, Path]]:
    return [(path, out if len(paths) == 1 else out / path.resolve().name) for path in paths]


def check_target(paths: Sequence[Path], out: Path) -> None:
    """Refuse a folder for copies that lies in what is copied, that has models, or that two studies would share."""
    check_folder(out, "--records")
    names = [path.resolve().name for path in paths]
    for path, target in _targets(paths, out):
        if path.resolve() in (target.resolve(), *target.resolve().parents):
            raise ValueError(f"{out} lies in {path}, whose records are to be copied; choose a folder outside")
        if names.count(path.resolve().name) > 1:
            raise ValueError(f"two of the folders are named {path.resolve().name!r}; copy their records one at a time")
        for root, copy, folders in _suites(path.resolve(), target):
            for folder in folders:
                if (found := Run(copy / folder.relative_to(root))).checkpoints_folder.exists():
                    raise ValueError(f"{found.folder} is a run with models, not a copy of one; choose another folder")


def _copy_run(run: Run, copy: Run) -> int:
    copy.write_about(_without_paths(run.about))
    scores = run.written.lines("evals")  # before they are copied: the run may be scored just now
    written = copy.about_path.stat().st_size + _copy(run.selection_path, copy.selection_path)
    written += sum(_copy(run.find_record(name), copy.record_path(name)) for name in COPIED)
    written += sum(_pack(run.find_record(name), copy.record_path(name)) for name in PACKED)
    with copy.written.changing() as counted:
        counted.clear()
        counted |= {"evals": scores} if scores else {}
    written += copy.written.path.stat().st_size if copy.written.path.is_file() else 0
    probes = sorted(run.policy_folder.glob("*.json"))
    return written + sum(_copy(probe, copy.policy_folder / probe.name) for probe in probes)


def _without_paths(about: dict[str, Any]) -> dict[str, Any]:
    """Of the folder of the data only the name: records are for others, whose machines have other paths."""
    data = about["data"]
    return about | {"data": data | {"folder": Path(data["folder"]).name} if "folder" in data else data}


def _copy(source: Path | None, target: Path) -> int:
    """Bytes written; nothing where there is no such file."""
    if source is None or not source.exists():
        return 0
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, target)
    return target.stat().st_size


def _pack(source: Path | None, target: Path) -> int:
    """Copy a record compressed with xz, and delete other forms of it in the target, which earlier versions wrote."""
    plain, packed, *earlier = forms_of(target)
    written = 0
    if source is not None and source.suffix == packed.suffix:
        written = _copy(source, packed)
    elif source is not None:
        with (
            open_record(source) as lines,
            open_atomically(packed) as [file],
            lzma.open(file, "wb", preset=6 | lzma.PRESET_EXTREME) as smaller,
        ):
            shutil.copyfileobj(lines, smaller)
        written = packed.stat().st_size
    for path in (plain, *earlier, *([packed] if source is None else [])):
        path.unlink(missing_ok=True)
    return written
