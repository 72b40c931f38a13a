"""Append-only run records: one JSON object a line. Figures and tables are made from these files alone."""

from __future__ import annotations

import gzip
import json
import os
import zlib
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, Final

from rota.files import damaged

Entry = dict[str, Any]

REMEDY: Final = "copy it again, or delete the run and train it again"
"""What to do about a damaged file of a run."""


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
        raise damaged(path, error, REMEDY) from None


def _entry(line: bytes, path: Path, number: int) -> Entry:
    try:
        entry = json.loads(line)
    except ValueError as error:
        raise damaged(f"{path}, line {number}", error, REMEDY) from None
    if not isinstance(entry, dict):
        raise damaged(f"{path}, line {number}", "not a JSON object", REMEDY)
    return entry


def last_entry(path: Path, block: int = 65_536) -> Entry | None:
    """The last whole line that can be read, for a display; only the end of the file is looked at."""
    for line in reversed(_end_of(path, block).split(b"\n")[:-1]):
        with suppress(ValueError):  # read_record says what is wrong with a line
            entry: Entry = json.loads(line)
            return entry
    return None


def last_lines(path: Path, block: int = 8_192) -> Iterator[str]:
    """The lines at the end of a log that are not blank, the last one first."""
    lines = _end_of(path, block).decode("utf-8", errors="replace").splitlines()
    yield from (line.strip() for line in reversed(lines) if line.strip())


def _end_of(path: Path, block: int) -> bytes:
    """The last bytes of a file that another process may be writing; nothing if there is no such file."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - block))
            return file.read()
    except FileNotFoundError:
        return b""
