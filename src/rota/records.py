"""Append-only run records: one JSON object a line. Figures and tables are made from these files alone."""

from __future__ import annotations

import gzip
import json
import os
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any

Entry = dict[str, Any]


class Record:
    """One file of entries, each with a ``step``; a run that resumes cuts it back to its checkpoint."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file: IO[str] | None = None

    def write(self, entry: Mapping[str, Any]) -> None:
        if self._file is None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self.truncate()
            self._file = self.path.open("a", encoding="utf-8")
        self._file.write(json.dumps(entry, ensure_ascii=False, allow_nan=False) + "\n")

    def flush(self) -> None:
        """Everything written is on the disk afterwards; called before a checkpoint relies on it."""
        if self._file is not None:
            self._file.flush()
            os.fsync(self._file.fileno())

    def truncate(self, step: int | None = None) -> None:
        """Drop every entry after ``step``, if given, and a last line that was never finished."""
        self.close()
        if not self.path.exists():
            return
        keep = 0
        with self.path.open("rb") as file:
            for number, line in enumerate(file, start=1):
                if not line.endswith(b"\n") or (step is not None and _entry(line, self.path, number)["step"] > step):
                    break
                keep += len(line)
        if keep < self.path.stat().st_size:
            os.truncate(self.path, keep)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


def read_record(path: Path) -> Iterator[Entry]:
    """Entries of a record, plain or gzipped; a last line still being written is left out."""
    if not path.exists():
        return
    try:
        with gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb") as file:
            for number, line in enumerate(file, start=1):
                if line.endswith(b"\n"):
                    yield _entry(line, path, number)
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise damaged(path, error) from None


def _entry(line: bytes, path: Path, number: int) -> Entry:
    try:
        entry = json.loads(line)
    except ValueError as error:
        raise damaged(f"{path}, line {number}", error) from None
    if not isinstance(entry, dict):
        raise damaged(f"{path}, line {number}", "no JSON object")
    return entry


def read_object(path: Path, *keys: str) -> Entry:
    """The JSON object in a file of a run; it must have the keys, such as ``data.sizes``."""
    try:
        content = json.loads(path.read_bytes())
    except ValueError as error:
        raise damaged(path, error) from None
    for key in keys:
        found = content
        for part in key.split("."):
            if not isinstance(found, dict) or part not in found:
                raise damaged(path, f"it has no {key}")
            found = found[part]
    return dict(content)


def damaged(place: Path | str, error: Exception | str) -> ValueError:
    """What to raise about a file that was cut, or written to by somebody else."""
    why = error.msg if isinstance(error, json.JSONDecodeError) else error
    return ValueError(f"{place} is damaged ({why}); copy it again, or delete the run and train it again")


def write_atomically(path: Path, text: str) -> None:
    """The file holds either its old or its new text, never a part."""
    partial = path.with_name(f".{path.name}.partial")
    path.parent.mkdir(parents=True, exist_ok=True)
    with partial.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    partial.replace(path)
