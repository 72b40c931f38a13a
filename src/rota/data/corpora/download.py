"""Fetching one large file: by one process at a time, resumable, checked against the checksum of its first download."""

from __future__ import annotations

import http.client
import logging
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

from rota.files import locked, sha256_of

logger = logging.getLogger(__name__)

Progress = Callable[[int, int | None], None]
"""Called with the bytes that have arrived and the bytes of the whole file, if the server says."""

_CHUNK: Final = 1 << 20
_LOG_EVERY: Final = 32 << 20


class DownloadError(ValueError):
    """The file could not be fetched; what has arrived is kept, and another attempt resumes from there."""


class _CutShortError(Exception):
    """The connection ended before the file did."""


@contextmanager
def alone_in(path: Path) -> Iterator[None]:
    """Waits until no other process is making the same file or folder, which need not exist yet.

    The lock is a hidden file beside it. A process that is killed leaves the file but not the lock.
    """

    def tell() -> None:
        logger.warning("%s is being prepared by another process; waiting for it", path)

    path.parent.mkdir(parents=True, exist_ok=True)
    lock = path.with_name(f".{path.name}.lock")
    with ExitStack() as stack:
        try:
            stack.enter_context(locked(lock, waiting=tell, keep=False))
        except OSError as error:
            remedy = "set data.folder (of downloads: ROTA_CACHE) to a folder whose files can be written and locked"
            raise ValueError(f"{lock} cannot be locked ({error.strerror}); {remedy}") from None
        yield


def download(
    url: str,
    path: Path,
    *,
    progress: Progress | None = None,
    attempts: int = 5,
    timeout: float = 60,
    proxy: str | None = None,
) -> None:
    """Fetches ``url`` to ``path`` by way of ``path.part``; an interrupted download is resumed, now or at the next call.

    The server's validator (ETag or date) is kept beside the part, so that halves of two versions are never joined.
    ``proxy``: ``None`` for that of the environment.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(path.name + ".part")
    reason = ""
    for _ in range(attempts):
        try:
            _fetch(url, part, progress or _log_progress(path.name), timeout, proxy)
        except urllib.error.HTTPError as error:
            error.close()
            if error.code != http.HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
                raise DownloadError(f"{url} answers {error.code} {error.reason}; get the file elsewhere") from None
            part.unlink(missing_ok=True)
        except (_CutShortError, OSError, http.client.HTTPException) as error:
            reason = str(getattr(error, "reason", error))
            logger.warning("download of %s interrupted: %s", path.name, reason)
        else:
            part.replace(path)
            _validator_file(part).unlink(missing_ok=True)
            return
    raise DownloadError(f"cannot fetch {url} ({reason}); run the command again to resume, or get the file elsewhere")


def _fetch(url: str, part: Path, progress: Progress, timeout: float, proxy: str | None) -> None:
    request = urllib.request.Request(url, headers=_resume_headers(part))
    through = None if proxy is None else urllib.request.build_opener(urllib.request.ProxyHandler({request.type: proxy}))
    with (through.open if through else urllib.request.urlopen)(request, timeout=timeout) as response:
        resumed = response.status == http.HTTPStatus.PARTIAL_CONTENT
        done = part.stat().st_size if resumed else 0
        _validator_file(part).write_text(response.headers.get("ETag") or response.headers.get("Last-Modified") or "")
        length = response.headers.get("Content-Length")
        total = None if length is None else done + int(length)
        with part.open("ab" if resumed else "wb") as file:
            while chunk := response.read(_CHUNK):
                file.write(chunk)
                done += len(chunk)
                progress(done, total)
    if total is not None and done < total:
        raise _CutShortError(f"{done} of {total} bytes arrived")


def _resume_headers(part: Path) -> dict[str, str]:
    """Asks for the rest only if the server still has the very same file; otherwise for all of it."""
    if not part.is_file() or not _validator_file(part).is_file():
        return {}
    validator = _validator_file(part).read_text()
    return {"Range": f"bytes={part.stat().st_size}-", "If-Range": validator} if validator else {}


def _validator_file(part: Path) -> Path:
    return part.with_name(part.name + ".validator")


def _log_progress(name: str) -> Progress:
    due = _LOG_EVERY

    def progress(done: int, total: int | None) -> None:
        nonlocal due
        if done >= due:
            due = done + _LOG_EVERY
            logger.info("%s: %d MB%s", name, done >> 20, "" if total is None else f" of {total >> 20} MB")

    return progress


def record_checksum(path: Path) -> None:
    """Writes the SHA-256 of a file beside it, in the format of sha256sum."""
    checksum_file(path).write_text(f"{sha256_of(path)}  {path.name}\n")


def verify_checksum(path: Path) -> None:
    """Raises if the file is not the one whose checksum was recorded."""
    recorded = checksum_file(path).read_text().split()[0]
    if sha256_of(path) != recorded:
        remedy = f"delete it and {checksum_file(path).name} to fetch it again"
        raise ValueError(f"{path} has changed since its first download (sha256 was {recorded[:12]}...); {remedy}")


def checksum_file(path: Path) -> Path:
    return path.with_name(path.name + ".sha256")
