"""Human translations of program texts, from the gettext catalogues that four Python packages ship."""

from __future__ import annotations

import hashlib
import logging
import re
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rota.data.catalogue_split import Strings, clean_message, key_of, split_strings
from rota.data.corpus import SPLITS, Corpus, ParallelText, Split, read_tsv
from rota.data.po_files import Message, read_mo, read_po
from rota.types import Arm

logger = logging.getLogger(__name__)

LANGUAGES: Final[tuple[Arm, ...]] = ("az", "be", "gl", "sk", "tr", "ru", "pt", "cs")
# European Portuguese is pt_PT, or pt where a package tells it from pt_BR; Brazilian is another language here.
LOCALES: Final[Mapping[Arm, tuple[str, ...]]] = {code: (code,) for code in LANGUAGES} | {"pt": ("pt_PT", "pt")}
FORMAT: Final = 2  # of the cached text; raise it when the selection or the split changes
_DOWNLOAD_SECONDS: Final = 900
_CATALOGUE = re.compile(r"(?:.*/)?locale/(?P<locale>[^/]+)/LC_MESSAGES/[^/]+\.(?:po|mo)")


class CatalogueUnavailable(ValueError):  # noqa: N818 (it tells a state of the world, not a bug)
    """The packages could not be fetched; the synthetic corpus needs no network."""


@dataclass(frozen=True)
class Wheel:
    """A package to read, pinned to the bytes."""

    requirement: str
    file: str
    sha256: str
    languages: tuple[Arm, ...] = LANGUAGES


# In the order of preference: the first translation of an English string is the one that counts.
WHEELS: Final = (
    Wheel(
        "Django==5.2.19",
        "django-5.2.19-py3-none-any.whl",
        "5965d974a5218a2b68a11dd1276434707f23886525c23f0598eccedaf4f4ca00",
    ),
    Wheel(
        "wagtail==8.0.1",
        "wagtail-8.0.1-py3-none-any.whl",
        "1e6ad5c7891a54efce1400e168298b5a2cc343b642cee89c31bf5ec30c98b26c",
    ),
    Wheel(
        "Weblate==4.4.2",
        "Weblate-4.4.2-py3-none-any.whl",
        "6b90b038eed53f33cd278d241468849c77d05fa0967e3a97bda48aee07edce85",
    ),
    # Gramps speaks the low-resource languages too; leaving it out there keeps the natural imbalance.
    Wheel(
        "gramps==6.0.8",
        "gramps-6.0.8-py3-none-any.whl",
        "56f03bcb643320eb9f9892d4c3f8bbe7c4c4d2e4c71e56f598584af24561ec1c",
        ("tr", "ru", "pt", "cs"),
    ),
)


def catalogue_corpus(cache: Path, wheels: Sequence[Wheel] = WHEELS) -> Corpus:
    """The corpus as two-column files in ``cache``; fetches and reads the packages the first time only."""
    folder = cache / "catalogues"
    text = folder / f"text-{FORMAT}"
    if not text.is_dir():
        folder.mkdir(parents=True, exist_ok=True)
        fetch(folder, wheels)
        _write(text, split_strings(read_strings(folder, wheels)))
    return {arm: {split: _cached(text / f"{split}.{arm}.tsv") for split in SPLITS} for arm in LANGUAGES}


def _cached(path: Path) -> ParallelText:
    return ParallelText(f"catalogues {path.name}", (path,), lambda: read_tsv(path))


def fetch(folder: Path, wheels: Sequence[Wheel] = WHEELS) -> None:
    """Downloads with pip the wheels that ``folder`` does not have, whole or not at all."""
    missing = [wheel for wheel in wheels if not _is_right(folder / wheel.file, wheel)]
    if not missing:
        return
    logger.info("fetching %s with pip into %s", ", ".join(wheel.requirement for wheel in missing), folder)
    with tempfile.TemporaryDirectory(dir=folder, prefix="download-") as name:
        _pip_download(missing, Path(name))
        for wheel in missing:
            _move(Path(name), wheel, folder)


def _is_right(path: Path, wheel: Wheel) -> bool:
    return path.is_file() and hashlib.sha256(path.read_bytes()).hexdigest() == wheel.sha256


def _pip_download(wheels: Sequence[Wheel], folder: Path) -> None:
    options = ["--no-deps", "--only-binary=:all:", "--disable-pip-version-check", "--quiet", "--retries", "1"]
    command = [sys.executable, "-m", "pip", "download", *options, "--dest", str(folder)]
    try:
        done = subprocess.run(
            [*command, *(wheel.requirement for wheel in wheels)],
            capture_output=True,
            text=True,
            check=False,
            timeout=_DOWNLOAD_SECONDS,
        )
    except subprocess.TimeoutExpired:
        raise CatalogueUnavailable(_advice(f"pip took longer than {_DOWNLOAD_SECONDS} s")) from None
    if done.returncode != 0:
        lines = [line for line in done.stderr.splitlines() if line.strip()]
        raise CatalogueUnavailable(_advice(lines[-1].strip() if lines else "pip gave no reason"))


def _advice(reason: str) -> str:
    return f"cannot fetch the packages of the catalogues corpus ({reason}); connect to a registry or use synthetic"


def _move(download: Path, wheel: Wheel, folder: Path) -> None:
    found = [path for path in download.iterdir() if path.name.casefold() == wheel.file.casefold()]
    if not found:
        raise CatalogueUnavailable(_advice(f"pip gave no {wheel.file}"))
    if not _is_right(found[0], wheel):
        raise CatalogueUnavailable(_advice(f"{wheel.file} does not have the pinned sha256 {wheel.sha256[:12]}..."))
    found[0].replace(folder / wheel.file)


def read_strings(folder: Path, wheels: Sequence[Wheel] = WHEELS) -> Strings:
    """Usable translations of each language by the key of their English; the first package and file count."""
    strings: dict[Arm, dict[str, tuple[str, str]]] = {arm: {} for arm in LANGUAGES}
    for wheel in wheels:
        with zipfile.ZipFile(folder / wheel.file) as archive:
            for arm in wheel.languages:
                for english, translation in _messages(archive, LOCALES[arm]):
                    pair = clean_message(arm, english, translation)
                    if pair is not None:
                        strings[arm].setdefault(key_of(pair[1]), pair)
    return strings


def _messages(archive: zipfile.ZipFile, locales: tuple[str, ...]) -> Iterator[Message]:
    """All messages of the first locale, then those of the next; ``.po`` goes before the ``.mo`` made of it."""
    names = sorted(archive.namelist())
    for locale in locales:
        own = [name for name in names if (match := _CATALOGUE.fullmatch(name)) and match["locale"] == locale]
        for name in own:
            if name.endswith(".po"):
                yield from read_po(archive.read(name))
            elif name.removesuffix(".mo") + ".po" not in own:
                yield from read_mo(archive.read(name))


def _write(text: Path, corpus: Mapping[Arm, Mapping[Split, list[tuple[str, str]]]]) -> None:
    """All files appear at once under ``text``, or none."""
    with tempfile.TemporaryDirectory(dir=text.parent, prefix="text-") as name:
        ready = Path(name) / "ready"
        ready.mkdir()
        for arm, splits in corpus.items():
            for split, pairs in splits.items():
                lines = "".join(f"{source}\t{english}\n" for source, english in pairs)
                (ready / f"{split}.{arm}.tsv").write_text(lines, encoding="utf-8", newline="\n")
        try:
            ready.rename(text)
        except OSError:
            if not text.is_dir():  # otherwise another process was quicker, with the same text
                raise
