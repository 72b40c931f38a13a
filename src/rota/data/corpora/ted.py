"""The TED talks of Qi et al. (2018): one table per split, a column per language."""

from __future__ import annotations

import gzip
import logging
import tarfile
import tempfile
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path, PurePosixPath
from typing import Final

from rota.data.corpora.download import (
    DownloadError,
    Progress,
    alone_in,
    checksum_file,
    download,
    record_checksum,
    verify_checksum,
)
from rota.data.corpora.parallel import (
    SPLITS,
    Corpus,
    Pair,
    ParallelText,
    Split,
    check_known,
    decode_lines,
    not_empty,
    read_tsv,
    tidy,
)
from rota.types import Arm

logger = logging.getLogger(__name__)

URL: Final = "http://phontron.com/data/ted_talks.tar.gz"
LANGUAGES: Final[tuple[Arm, ...]] = ("az", "be", "gl", "sk", "tr", "ru", "pt", "cs")
LOW_RESOURCE: Final[tuple[Arm, ...]] = ("az", "be", "gl", "sk")
TABLES: Final[dict[str, Split]] = {f"all_talks_{split}.tsv": split for split in SPLITS}
MISSING: Final = "__NULL__"
FORMAT: Final = 1  # of the cached text; raise it when the reading changes
_TALK: Final = "talk_name"  # the one column that is not a language
_CHUNK: Final = 1 << 20
_GZIP_MAGIC: Final = b"\x1f\x8b"


@dataclass(frozen=True)
class _Table:
    """One of the three files, open."""

    name: str  # for messages
    split: Split
    lines: Iterable[bytes]


def ted_corpus(
    languages: Sequence[Arm], cache: Path, path: Path | None = None, *, target: str = "en", url: str = URL
) -> Corpus:
    """The corpus from a local archive or folder at ``path``, or from the web; pairs are kept as TSV in ``cache``."""
    source = _local(path) if path is not None else fetch(cache, url)
    folder = cache / f"ted8-{_fingerprint(source)}"
    names = {
        language: {split: folder / f"{split}.{language}-{target}.tsv" for split in SPLITS} for language in languages
    }
    missing = [language for language in languages if not all(file.is_file() for file in names[language].values())]
    if missing:
        logger.info("reading %s from %s", ", ".join(missing), source)
        _extract(source, missing, target, folder)
    given = () if path is None else _files_of(path)  # a fetched archive is held to its checksum instead
    return {arm: {split: _cached(file, given) for split, file in files.items()} for arm, files in names.items()}


def _cached(file: Path, given: tuple[Path, ...]) -> ParallelText:
    return ParallelText(f"ted8 {file.name}", (file, *given), lambda: not_empty(read_tsv(file), (file,)))


def fetch(cache: Path, url: str = URL, progress: Progress | None = None) -> Path:
    """The archive in ``cache``; downloaded if it is not there, checked against its first download if it is."""
    archive = cache / "ted_talks.tar.gz"
    with alone_in(archive):
        if not (archive.is_file() and checksum_file(archive).is_file()):
            _download(archive, url, progress)
        if checksum_file(archive).is_file():
            verify_checksum(archive)
        else:
            record_checksum(archive)
    return archive


def _download(archive: Path, url: str, progress: Progress | None) -> None:
    arrived = archive.with_name("ted_talks.download")
    download(url, arrived, progress=progress)
    # Hosts answer for files they no longer have with a page that says so, status 200.
    with arrived.open("rb") as file:
        if file.read(2) != _GZIP_MAGIC:
            arrived.unlink()
            remedy = "get ted_talks.tar.gz elsewhere and set data.path to it"
            raise DownloadError(f"{url} no longer sends a gzip archive; {remedy}")
    arrived.replace(archive)


def _local(path: Path) -> Path:
    if not path.exists():
        raise ValueError(f"no file or folder {path}; set data.path to ted_talks.tar.gz or the folder it unpacks to")
    for name in TABLES if path.is_dir() else ():
        if not (path / name).is_file():
            raise ValueError(f"no file {name} in {path}; set data.path to the folder that ted_talks.tar.gz unpacks to")
    return path


def _fingerprint(source: Path) -> str:
    files = _files_of(source)
    facts = [FORMAT, *((str(file.resolve()), file.stat().st_size, file.stat().st_mtime_ns) for file in files)]
    return blake2b(repr(facts).encode(), digest_size=6).hexdigest()


def _files_of(source: Path) -> tuple[Path, ...]:
    return tuple(source / name for name in TABLES) if source.is_dir() else (source,)


def _extract(source: Path, languages: Sequence[Arm], target: str, folder: Path) -> None:
    """Writes the pairs of each language; a language is complete in ``folder`` or will be written again."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder, prefix="reading-") as name:
        try:
            found = _write_tables(source, languages, target, Path(name))
        except (tarfile.TarError, EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise ValueError(f"{source} is damaged or not a tar.gz ({error}); fetch it again") from None
        for file, split in TABLES.items():
            if split not in found:
                raise ValueError(f"no file {file} in {source}; this is not the archive of Qi et al. (2018)")
        for path in Path(name).iterdir():
            path.replace(folder / path.name)


def _write_tables(source: Path, languages: Sequence[Arm], target: str, folder: Path) -> set[Split]:
    found: set[Split] = set()
    for table in _folder_tables(source) if source.is_dir() else _archive_tables(source):
        _write_pairs(table, languages, target, folder)
        found.add(table.split)
    return found


def _folder_tables(folder: Path) -> Iterator[_Table]:
    for name, split in TABLES.items():
        with (folder / name).open("rb") as lines:
            yield _Table(str(folder / name), split, lines)


def _archive_tables(archive: Path) -> Iterator[_Table]:
    """The three tables, read as they stream by: nothing is unpacked, so no member can be written anywhere."""
    # tarfile's own decompression ("r|gz") takes a truncated file for a complete one; gzip's does not.
    with gzip.open(archive) as unpacked, tarfile.open(fileobj=unpacked, mode="r|") as members:
        for member in members:
            split = TABLES.get(PurePosixPath(member.name).name)
            lines = members.extractfile(member) if split and member.isfile() else None
            if split and lines is not None:
                yield _Table(f"{archive}: {member.name}", split, lines)
        while unpacked.read(_CHUNK):  # to the very end, where the checksum is
            pass


def _write_pairs(table: _Table, languages: Sequence[Arm], target: str, folder: Path) -> None:
    rows = _rows(table)
    columns = next(rows, [])
    for language in (*languages, target):
        check_known(language, (column for column in columns if column != _TALK), f"language in {table.name}:")
    english = columns.index(target)
    with ExitStack() as stack:
        outputs = []
        for language in languages:
            path = folder / f"{table.split}.{language}-{target}.tsv"
            file = stack.enter_context(path.open("w", encoding="utf-8", newline="\n"))
            outputs.append((file, columns.index(language)))
        for row in rows:
            for file, source in outputs:
                if pair := _pair(row[source], row[english]):
                    file.write(f"{pair[0]}\t{pair[1]}\n")


def _rows(table: _Table) -> Iterator[list[str]]:
    """The header and all rows, none shorter than the header; quotation marks are ordinary characters."""
    width = 0
    for number, line in enumerate(decode_lines(table.lines, table.name), start=1):
        row = line.removesuffix("\r").split("\t")
        width = width or len(row)
        if len(row) < width:
            raise ValueError(f"{table.name}, line {number}: {len(row)} columns, not {width}; fetch the file again")
        yield row


def _pair(source: str, english: str) -> Pair | None:
    """``None`` for a row in which anything is missing: the rest of such a row does not correspond."""
    if MISSING in source or MISSING in english:
        return None
    source, english = tidy(source), tidy(english)
    return (source, english) if source and english else None
