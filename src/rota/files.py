"""Files that are whole or not there, JSON that says what is wrong with it, hashes and locks. No torch.

Use these instead of writing them again:

- a small file: :func:`write_atomically`, :func:`write_json`; one that is written in parts: :func:`open_atomically`;
  a whole folder: :func:`folder_atomically`
- a JSON object: :func:`read_json`; one that may be missing or unfinished: :func:`read_json_if_whole`; other JSON:
  :func:`parse_json`; an error about any damaged file: :func:`damaged`
- the SHA-256 of a file: :func:`sha256_of`, :func:`short_hash`; a short name for settings: :func:`fingerprint`
- one process at a time: :func:`locked`; whether another one is at work: :func:`is_locked`
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, Any, Final

from filelock import FileLock, Timeout

CHECK: Final = "check"
_EIGHT: Final = re.compile("[0-9a-f]{8}")
EDITED: Final = 'its check value is not that of its content; if you edited it on purpose, delete its line "check"'


def write_atomically(path: Path, text: str) -> None:
    """The file holds either its old or its new text, never a part; it is on the disk afterwards."""
    partial = _partial(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        with partial.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
    except BaseException:
        partial.unlink(missing_ok=True)
        raise
    partial.replace(path)


def write_json(path: Path, content: Any, *, checked: bool = False) -> None:
    """Atomically, in the form that all of our JSON files for people have.

    ``checked``: the last key of an object is a check value, by which :func:`read_json` notices any other content.
    """
    if checked:
        content = {**content, CHECK: check_value(content)}
    write_atomically(path, json.dumps(content, indent=1, ensure_ascii=False) + "\n")


def check_value(content: Mapping[str, Any]) -> str:
    """A CRC-32 of an object as JSON, whatever the order and the layout in which it is written."""
    plain = json.loads(json.dumps(content))  # as it will be read: keys are texts there
    return f"{zlib.crc32(json.dumps(plain, sort_keys=True).encode()):08x}"


@contextmanager
def open_atomically(*paths: Path) -> Iterator[list[IO[bytes]]]:
    """Files that appear under their names when the block ends well, and otherwise not at all.

    Until then they are named ``<name>.<process id>.part``, so that no two processes write to the same file.
    """
    parts = [path.with_name(f"{path.name}.{os.getpid()}.part") for path in paths]
    try:
        with ExitStack() as stack:
            for part in parts:
                part.parent.mkdir(parents=True, exist_ok=True)
            yield [stack.enter_context(part.open("wb")) for part in parts]
    except BaseException:
        for part in parts:
            part.unlink(missing_ok=True)
        raise
    for part, path in zip(parts, paths, strict=True):
        part.replace(path)


@contextmanager
def folder_atomically(folder: Path) -> Iterator[Path]:
    """A new folder to fill; when the block ends well it takes the place of ``folder``, with everything on the disk.

    At every moment the old or the new folder is there whole, if need be under a name that begins with a dot: the next
    call for the same folder puts it back. What an error leaves unfinished is removed: a full disk would stay full.
    """
    partial, old = _partial(folder), folder.with_name(f".{folder.name}.old")
    if old.exists() and not folder.exists():
        old.rename(folder)  # a process was killed between the two renames below
    for left in (partial, old):
        shutil.rmtree(left, ignore_errors=True)
    partial.mkdir(parents=True)
    try:
        yield partial
        for path in (*partial.rglob("*"), partial):
            _sync(path)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise
    if folder.exists():
        folder.rename(old)
    partial.rename(folder)
    _sync(folder.parent)
    shutil.rmtree(old, ignore_errors=True)


def _partial(path: Path) -> Path:
    return path.with_name(f".{path.name}.partial")


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def read_json(path: Path, *keys: str, remedy: str) -> dict[str, Any]:
    """The JSON object in a file, without its check value; it must have the keys, such as ``data.sizes``.

    A missing file is a FileNotFoundError. Anything else that is wrong is a ValueError with the ``remedy``. Files of
    earlier versions have no check value.
    """
    try:
        content = parse_json(path.read_bytes())
    except ValueError as error:
        raise damaged(path, error, remedy) from None
    if not isinstance(content, dict):
        raise damaged(path, "not a JSON object", remedy)
    if misspelt_check(content):
        raise damaged(path, f"its last key should be {CHECK}", remedy)
    stated = content.pop(CHECK, None)
    if stated is not None and stated != check_value(content):
        raise damaged(path, EDITED, remedy)
    for key in keys:
        found: Any = content
        for part in key.split("."):
            if not isinstance(found, dict) or part not in found:
                raise damaged(path, f"it has no {key}", remedy)
            found = found[part]
    return content


def parse_json(text: bytes | str) -> Any:
    """What a JSON text says; a ValueError also where it is nested deeper than the parser can follow."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def misspelt_check(content: Mapping[str, Any]) -> bool:
    """Whether the last key of an object looks like a check value under another name: one bit of it was changed."""
    key, value = next(reversed(dict(content).items()), ("", None))
    return key != CHECK and len(key) == len(CHECK) and isinstance(value, str) and bool(_EIGHT.fullmatch(value))


def read_json_if_whole(path: Path) -> dict[str, Any] | None:
    """The JSON object in a file; None if it is missing or not one, for files that can be made again."""
    try:
        return read_json(path, remedy="make it again")
    except (FileNotFoundError, ValueError):
        return None


def damaged(place: Path | str, error: Exception | str, remedy: str) -> ValueError:
    """What to raise about a file that was cut, or that another program wrote to."""
    why = error.msg if isinstance(error, json.JSONDecodeError) else error
    return ValueError(f"{place} is damaged ({why}); {remedy}")


def sha256_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def short_hash(content: bytes | Path) -> str:
    """The first 16 digits of the SHA-256 of a file or of some bytes: enough to notice a change."""
    return (sha256_of(content) if isinstance(content, Path) else hashlib.sha256(content).hexdigest())[:16]


def fingerprint(content: Any) -> str:
    """16 hexadecimal digits that differ for different content, which is anything that JSON can hold."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]


@contextmanager
def locked(
    path: Path, *, refusal: str | None = None, waiting: Callable[[], object] = lambda: None, keep: bool = True
) -> Iterator[None]:
    """One process at a time is inside; ``path`` is the lock file, which is made with its folder.

    With a ``refusal`` the others get that as a ValueError; without one they wait, and ``waiting`` is called once when
    that begins. The kernel releases the lock of a process that is killed. ``keep=False`` removes the lock file at the
    end. A file system without locks is an OSError.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        raise ValueError(
            f"{path.parent} cannot be a folder, since there is a file of that name; choose another"
        ) from None
    lock = FileLock(path)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        if refusal is not None:
            raise ValueError(refusal) from None
        waiting()
        lock.acquire()
    try:
        yield
    finally:
        if not keep:
            path.unlink(missing_ok=True)  # while it is locked; a process that waits for this file locks a new one
        lock.release()


def is_locked(path: Path) -> bool:
    """Whether a process holds the lock just now."""
    if not path.exists():
        return False
    try:
        with FileLock(path).acquire(timeout=0):
            return False
    except Timeout:
        return True
