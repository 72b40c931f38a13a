"""Where the runs of a study lie, what their folders say of them, and copies of their records without models."""

from __future__ import annotations

import gzip
import json
import re
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from rota.files import write_atomically

Progress = Callable[[str, int, int | None], None]
"""Hears (stage, done, in all)."""

LEAVE_OUT = "restore it, or leave the run out"
AFTER_ALL = "restore it, or delete it: rows are then named after their folders"

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
"""What every report reads in ``run.json``."""


def record_path(folder: Path, name: str) -> Path:
    """A record of a run, plain as training writes it, or gzipped as it is committed."""
    plain = folder / name
    return plain if plain.exists() else folder / f"{name}.gz"


def check_folder(path: Path, option: str) -> None:
    """Refuse a path that can be no folder, because it or a part of it is a file."""
    for part in (path, *path.parents):
        if part.exists() and not part.is_dir():
            raise ValueError(f"{option} is {str(path)!r}, but {part} is a file; name a folder")


def _is_run(path: Path) -> bool:
    return (path / "run.json").exists()


def suite_folder(path: Path) -> Path | None:
    """The folder with ``suite.json``: the path itself, or above a row or a run of a suite."""
    path = path.resolve()
    return next(
        (folder for folder in (path, path.parent, path.parent.parent) if (folder / "suite.json").exists()), None
    )


def suite_of(path: Path) -> dict[str, Any]:
    """What ``suite.json`` says of a path in a suite; empty elsewhere."""
    folder = suite_folder(path)
    return {} if folder is None else _checked_suite(folder / "suite.json")


def _checked_suite(path: Path) -> dict[str, Any]:
    suite = read_json(path, AFTER_ALL)
    rows, seeds = suite.get("rows", []), suite.get("seeds", [])
    if not (isinstance(rows, list) and all(isinstance(row, dict) and isinstance(row.get("name"), str) for row in rows)):
        raise ValueError(f"{path}: 'rows' is {shown(rows)}, not a list of rows with names; {AFTER_ALL}")
    if not (isinstance(seeds, list) and all(isinstance(seed, int) for seed in seeds)):
        raise ValueError(f"{path}: 'seeds' is {shown(seeds)}, not a list of whole numbers; {AFTER_ALL}")
    return suite


def shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def run_folders(path: Path) -> list[Path]:
    """The runs in a folder: itself, those below it, or those two levels below, as in a suite."""
    if not path.is_dir():
        raise ValueError(f"no folder {str(path)!r}; give run folders or the folder of a suite")
    if _is_run(path):
        return [path]
    found = [*path.glob("*/run.json"), *path.glob("*/*/run.json")]
    return sorted((about.parent for about in found), key=_natural)


def _natural(path: Path) -> list[tuple[int, str]]:
    """Seed 10 after seed 9."""
    return [(int(part), "") if part.isdigit() else (0, part) for part in re.split(r"(\d+)", str(path))]


def read_json(path: Path, remedy: str = LEAVE_OUT) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path} is no JSON ({error}); {remedy}") from None
    if not isinstance(found, dict):
        raise ValueError(f"{path} is no JSON object; {remedy}")
    return found


def about_run(folder: Path) -> dict[str, Any]:
    """What ``run.json`` says, with all that a report asks of it."""
    path = folder / "run.json"
    about = read_json(path)
    for place, kind in NEEDED.items():
        found: Any = about
        for key in place.split("."):
            if not isinstance(found, dict) or key not in found:
                raise ValueError(f"{path} has no {place!r}; {LEAVE_OUT}")
            found = found[key]
        if not isinstance(found, kind):
            raise ValueError(f"{path}: {place!r} is {shown(found)}, not {KINDS[kind]}; {LEAVE_OUT}")
    return about


COPIED = ("validations.jsonl", "timings.jsonl", "evals.jsonl", "selection.json")
GZIPPED = ("steps.jsonl", "observations.jsonl", "rewards.jsonl")


def copy_records(path: Path, out: Path, progress: Progress = lambda *_: None) -> int:
    """Copy what a report needs of the runs in ``path`` to ``out``; returns the bytes written.

    The folder ``out`` is laid out like ``path``. The same records give the same bytes.
    """
    check_target([path], out)
    path = path.resolve()
    folders = run_folders(path)
    root = suite_folder(path) or (path.parent if path in folders else path)
    written = 0
    if (root / "suite.json").exists():
        written += _copy(root / "suite.json", out / "suite.json")
    for done, folder in enumerate(folders, start=1):
        written += _copy_run(folder, out / folder.relative_to(root))
        progress(f"copying {path.name}", done, len(folders))
    return written


def copy_all(paths: Sequence[Path], out: Path, progress: Progress = lambda *_: None) -> int:
    """One study straight into ``out``, several into a folder each."""
    check_target(paths, out)
    if len(paths) == 1:
        return copy_records(paths[0], out, progress)
    return sum(copy_records(path, out / path.resolve().name, progress) for path in paths)


def check_target(paths: Sequence[Path], out: Path) -> None:
    """Refuse a folder for copies that lies in what is copied, and two studies that would be copied into one folder."""
    check_folder(out, "--records")
    names = [path.resolve().name for path in paths]
    for path, name in zip(paths, names, strict=True):
        target = (out if len(paths) == 1 else out / name).resolve()
        if path.resolve() in (target, *target.parents):
            raise ValueError(f"{out} lies in {path}, whose records are to be copied; choose a folder outside")
        if names.count(name) > 1:
            raise ValueError(f"two of the folders are named {name!r}; copy their records one at a time")


def _copy_run(folder: Path, out: Path) -> int:
    written = _copy_settings(folder / "run.json", out / "run.json")
    written += sum(_copy(folder / name, out / name) for name in COPIED)
    written += sum(_gzip(record_path(folder, name), out / f"{name}.gz") for name in GZIPPED)
    return written + sum(_copy(probe, out / "policy" / probe.name) for probe in sorted(folder.glob("policy/*.json")))


def _copy_settings(source: Path, target: Path) -> int:
    """Of the folder of the data only the name: records are for others, whose machines have other paths."""
    about = json.loads(source.read_text(encoding="utf-8"))
    if "folder" in about.get("data", {}):
        about["data"]["folder"] = Path(about["data"]["folder"]).name
    write_atomically(target, json.dumps(about, indent=1, ensure_ascii=False) + "\n")
    return target.stat().st_size


def _copy(source: Path, target: Path) -> int:
    """Bytes written; nothing where the run has no such file."""
    if not source.exists():
        return 0
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, target)
    return target.stat().st_size


def _gzip(source: Path, target: Path) -> int:
    """Without name and time of the file, so that the same record gives the same bytes."""
    if not source.exists():
        return 0
    if source.suffix == ".gz":
        return _copy(source, target)
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = target.with_name(f".{target.name}.partial")
    with (
        source.open("rb") as plain,
        partial.open("wb") as file,
        gzip.GzipFile("", "wb", compresslevel=9, fileobj=file, mtime=0) as packed,
    ):
        shutil.copyfileobj(plain, packed)
    partial.replace(target)
    return target.stat().st_size
