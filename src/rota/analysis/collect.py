"""The records of a study without its models: small enough to be committed, enough to make its report again."""

from __future__ import annotations

import gzip
import json
import shutil
from collections.abc import Sequence
from pathlib import Path

from rota.analysis.folders import check_folder, record_path, run_folders, suite_folder
from rota.analysis.runs import Progress
from rota.files import write_atomically

COPIED = ("validations.jsonl", "timings.jsonl", "evals.jsonl", "selection.json")
GZIPPED = ("steps.jsonl", "observations.jsonl")


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
