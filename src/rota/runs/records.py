"""Append-only run records: one JSON object a line. Figures and tables are made from these files alone.

Every line ends with a check value, a CRC-32 of the line and of the check value before it, so that a digit that was
changed and a line that was taken out are both noticed. Lines of version 0.1 have none; they may only come first. Every
entry that is read has what :mod:`rota.runs.entries` says of its record.
"""

from __future__ import annotations

import gzip
import json
import lzma
import os
import re
import zlib
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, Final, cast

from rota.files import CHECK, damaged, misspelt_check, parse_json
from rota.runs.entries import Known, fault

Entry = dict[str, Any]

REMEDY: Final = "copy it again, or delete the run and train it again"
"""What to do about a damaged file of a run."""


class Record:
    """One file of entries, each with a ``step``; a run that resumes cuts it back to its checkpoint."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file: IO[bytes] | None = None
        self._check = 0  # the check value of the last line
        self.lines = 0  # in the file, as soon as it was cut back or written to

    def write(self, entry: Mapping[str, Any]) -> None:
        if self._file is None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self.truncate()
            self._file = self.path.open("ab")
        body = json.dumps(entry, ensure_ascii=False, allow_nan=False).encode()
        self._check = zlib.crc32(body, self._check)
        self._file.write(b'%s, "check": "%08x"}\n' % (body[:-1], self._check))
        self.lines += 1

    def flush(self) -> None:
        """Everything written is on the disk afterwards; called before a checkpoint relies on it."""
        if self._file is not None:
            self._file.flush()
            os.fsync(self._file.fileno())

    def truncate(self, step: int | None = None) -> int | None:
        """Drop every entry after ``step``, if given, and a last line that was never finished.

        Returns the step of the last entry that is left; None if nothing is left, or no step was given.
        """
        self.close()
        self._check = self.lines = 0
        if not self.path.exists():
            return None
        keep, last, lines = 0, None, Lines(self.path)
        with self.path.open("rb") as file:
            for line in file:
                if not lines.is_whole(line):
                    break
                if step is not None:
                    of_line = lines.step(line)
                    if of_line > step:
                        break
                    last = of_line
                keep += len(line)
                self.lines += 1
                self._check = _stated(line) or 0
        if keep < self.path.stat().st_size:
            os.truncate(self.path, keep)
        return last

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


def forms_of(path: Path) -> list[Path]:
    """The names under which a record may lie: plain, as it is published, and as earlier versions published it."""
    return [path, *(path.with_name(f"{path.name}{suffix}") for suffix in (".xz", ".gz"))]


def read_record(path: Path, known: Known | None = None) -> Iterator[Entry]:
    """Entries of a record, plain or compressed; a last line still being written is left out."""
    if not path.exists():
        return
    lines = Lines(path, known)
    for line in _raw_lines(path):
        if lines.is_whole(line):
            yield lines.entry(line)


def damage_in(path: Path, known: Known | None = None) -> Iterator[str]:
    """Everything that is wrong with a record: one message for each damaged line."""
    lines = Lines(path, known)
    try:
        for line in _raw_lines(path):
            try:
                if lines.is_whole(line):
                    lines.entry(line)
            except ValueError as error:
                yield str(error)
                lines.go_on_after(line)
    except ValueError as error:  # of a compressed file: what follows cannot be read
        yield str(error)


def has_checks(path: Path) -> bool:
    """Whether the lines of a record have check values; those of version 0.1 have none, nor has an empty one."""
    last = b""
    for line in _raw_lines(path):
        last = line if line.endswith(b"\n") else last
    return _stated(last) is not None


def open_record(path: Path) -> IO[bytes]:
    """For reading, in any of its forms."""
    if path.suffix == ".xz":
        return lzma.open(path)
    return cast(IO[bytes], gzip.open(path)) if path.suffix == ".gz" else path.open("rb")


def _raw_lines(path: Path) -> Iterator[bytes]:
    try:
        with open_record(path) as file:
            for line in file:
                yield line
                if not line.endswith(b"\n"):
                    return  # the end of the file, if only for now: its rest, once written, would look like a line
    except (EOFError, gzip.BadGzipFile, zlib.error, lzma.LZMAError) as error:
        raise damaged(path, error, REMEDY) from None


_CHECKED = re.compile(rb', "check": "([0-9a-f]{8})"}\n$')
_NO_END = re.compile(rb', "check": "[0-9a-f]{8}"}[^\n]$')


def _stated(line: bytes) -> int | None:
    """The check value that a line states."""
    found = _CHECKED.search(line, max(0, len(line) - 32))
    return None if found is None else int(found[1], 16)


def name_of(path: Path) -> str:
    """The name of a record by its file: ``steps`` of ``steps.jsonl.xz``."""
    return path.name.partition(".")[0]


def cut_off(found: int, saved: int, step: int) -> str | None:
    """What is wrong with a record of so many lines up to a checkpoint, which had ``saved`` of them; None if nothing."""
    if found >= saved:
        return None
    return f"it has {found:,} lines up to step {step:,}, and had {saved:,} when the checkpoint of that step was saved"


def untimed(last: int | None, validated: int | None) -> str:
    """The times are written after each validation, and nothing says how many entries they have."""
    return f"it ends with step {last or 0:,}, and there is a validation of step {validated:,}"


class Lines:
    """Reads the lines of a record, in order from the first, and refuses one that is not as it was written."""

    def __init__(self, path: Path, known: Known | None = None) -> None:
        self.path, self._name, self._known = path, name_of(path), known
        self._number, self._check = 0, 0
        self._has_checks = False

    def is_whole(self, line: bytes) -> bool:
        """Whether the next line has its end; the last one may be in the middle of being written."""
        self._number += 1
        if _NO_END.search(line, max(0, len(line) - 32)):
            raise self._damaged("it does not end where its check value does")
        return line.endswith(b"\n")

    def go_on_after(self, line: bytes) -> None:
        """What a damaged line states as its check value counts for the next one, which may be right."""
        stated = _stated(line)
        if stated is not None:
            self._check, self._has_checks = stated, True

    def entry(self, line: bytes) -> Entry:
        """What the line says that :meth:`is_whole` was asked about."""
        try:
            entry = parse_json(line)
        except ValueError as error:
            raise self._damaged(error) from None
        if not isinstance(entry, dict):
            raise self._damaged("not a JSON object")
        stated = _stated(line)
        if stated is None and (CHECK in entry or misspelt_check(entry)):
            raise self._damaged("its check value was changed")
        if stated is None and self._has_checks:
            raise self._damaged("it has no check value, and the line before has one")
        if stated is not None:
            body = _CHECKED.sub(b"}", line)
            if zlib.crc32(body, self._check) != stated:
                raise self._damaged("its check value is not that of its content, or a line before it is missing")
            self._check, self._has_checks = stated, True
            del entry["check"]
            return entry
        wrong = fault(self._name, entry, self._known)
        if wrong is not None:
            raise self._damaged(wrong)
        return entry

    def step(self, line: bytes) -> int:
        """The step of the line that :meth:`is_whole` was asked about."""
        found = self.entry(line).get("step")
        if not isinstance(found, int):
            raise self._damaged("it has no step")
        return found

    def _damaged(self, why: Exception | str) -> ValueError:
        return damaged(f"{self.path}, line {self._number}", why, REMEDY)


def last_entry(path: Path, block: int = 65_536) -> Entry | None:
    """The last whole line that can be read, for a display; only the end of the file is looked at."""
    for line in reversed(_end_of(path, block).split(b"\n")[:-1]):
        with suppress(ValueError):  # read_record says what is wrong with a line
            entry: Entry = parse_json(line)
            if isinstance(entry, dict) and fault(name_of(path), entry) is None:
                entry.pop("check", None)
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
