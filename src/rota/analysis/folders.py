"""Where the runs of a study lie, and what their folders say of them."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any


def record_path(folder: Path, name: str) -> Path:
    """A record of a run, plain as training writes it, or gzipped as it is committed."""
    plain = folder / name
    return plain if plain.exists() else folder / f"{name}.gz"


def _is_run(path: Path) -> bool:
    return (path / "run.json").exists()


def suite_folder(path: Path) -> Path | None:
    """The folder with ``suite.json``: the path itself, or above a row or a run of a suite."""
    path = path.resolve()
    return next(
        (folder for folder in (path, path.parent, path.parent.parent) if (folder / "suite.json").exists()), None
    )


def suite_of(path: Path) -> dict[str, Any]:
    folder = suite_folder(path)
    return {} if folder is None else read_json(folder / "suite.json")


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


def read_json(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path} is no JSON ({error}); restore it, or leave the run out") from None
    if not isinstance(found, dict):
        raise ValueError(f"{path} is no JSON object; restore it, or leave the run out")
    return found
