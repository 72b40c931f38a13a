"""One process at a time: a lock beside a folder, which the kernel releases however its holder ends."""

from __future__ import annotations

import fcntl
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

logger = logging.getLogger(__name__)


@contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """Waits until no other process is inside for the same folder, which need not exist; its parent is made.

    The lock is a hidden file beside the folder. A holder that is killed leaves the file but not the lock.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    path = folder.with_name(f".{folder.name}.lock")
    file = _acquire(path, folder)
    try:
        yield
    finally:
        path.unlink(missing_ok=True)  # while it is still locked: nobody else's file can be at this path
        file.close()


def _acquire(path: Path, folder: Path) -> TextIO:
    told = False
    while True:
        file = path.open("a")
        try:
            if not _lock_at_once(file):
                if not told:
                    logger.warning("%s is being prepared by another process; waiting for it", folder)
                    told = True
                fcntl.flock(file, fcntl.LOCK_EX)
        except BaseException as error:
            file.close()
            if isinstance(error, OSError):
                remedy = "set data.folder (of downloads: ROTA_CACHE) to a file system that has locks"
                raise ValueError(f"{path} cannot be locked ({error.strerror}); {remedy}") from None
            raise
        if _is_at(file, path):
            return file
        file.close()  # the holder before us removed it: what we locked is no longer the file that others open


def _lock_at_once(file: TextIO) -> bool:
    """Whether nobody else had it."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _is_at(file: TextIO, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except FileNotFoundError:
        return False
