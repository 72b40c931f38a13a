"""What a prepared data folder says of itself, and how it notices that something changed."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any, Final

from pydantic import ValidationError

from rota.data.corpus import Split
from rota.settings import Settings, explain
from rota.types import Arm

FORMAT: Final = 1
MANIFEST: Final = "manifest.json"

Counts = dict[Arm, dict[Split, dict[str, int]]]
"""Pairs per language, split and reason of the cleaning; ``"kept"`` among the reasons."""


class Extent(Settings):
    """Where one language lies in the arrays of a split."""

    start: int  # its first sentence
    sentences: int
    source_tokens: int  # tags and ends of sentences included
    target_tokens: int


class StoredFile(Settings):
    """A file of the folder itself."""

    bytes: int
    sha256: str


class InputFile(StoredFile):
    """A file the data were made from, as it was then."""

    modified: int  # nanoseconds since 1970
    place: str = ""  # where it lay, all links followed; empty if that was not recorded

    @classmethod
    def of(cls, path: Path) -> InputFile:
        status = path.stat()
        place = str(path.resolve())
        return cls(bytes=status.st_size, sha256=sha256_of(path), modified=status.st_mtime_ns, place=place)

    def is_still(self, path: Path) -> bool:
        """Whether the file has the same content; read only if its size is the same, and its date or place is not."""
        status = path.stat()
        if status.st_size != self.bytes:
            return False
        untouched = status.st_mtime_ns == self.modified and str(path.resolve()) == self.place
        return untouched or sha256_of(path) == self.sha256


class Manifest(Settings):
    """The content of ``manifest.json``."""

    format: int = FORMAT
    languages: tuple[Arm, ...]
    low_resource: tuple[Arm, ...]
    target: str
    vocabulary: int
    splits: dict[Split, dict[Arm, Extent]]
    cleaning: Counts
    settings: dict[str, Any]
    inputs: dict[str, InputFile]  # by the path that the config names, or that of the cache
    files: dict[str, StoredFile]  # by path inside the folder

    @property
    def fingerprint(self) -> str:
        """Names the data: equal for equal arrays, texts and languages, wherever and whenever they were prepared."""
        content = self.model_dump(mode="json", include={"format", "languages", "low_resource", "target", "files"})
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]

    def save(self, folder: Path) -> None:
        content = self.model_dump(mode="json") | {"fingerprint": self.fingerprint}
        (folder / MANIFEST).write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")

    @classmethod
    def load(cls, folder: Path) -> Manifest:
        path = folder / MANIFEST
        content = _read_json(path)
        if content.get("format") != FORMAT:
            theirs = f"{path} has format {content.get('format')!r}, this version of Rota reads {FORMAT}"
            raise ValueError(f"{theirs}; prepare the data again, or use the version that made them")
        fingerprint = content.pop("fingerprint", None)
        try:
            manifest = cls.model_validate(content)
        except ValidationError as error:
            raise ValueError(f"{path} is damaged ({explain(error, cls)}); {PREPARE_AGAIN}") from None
        if manifest.fingerprint != fingerprint:
            raise ValueError(f"{path} is damaged (its fingerprint is not {fingerprint!r}); {PREPARE_AGAIN}")
        return manifest


PREPARE_AGAIN: Final = "prepare the data again with --again"


def _read_json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        raise ValueError(f"{path.parent} holds no prepared data (no {path.name}); run rota prepare first") from None
    except ValueError as error:
        raise ValueError(f"{path} is damaged ({error}); {PREPARE_AGAIN}") from None
    if not isinstance(content, dict):
        raise ValueError(f"{path} is damaged (no JSON object); {PREPARE_AGAIN}")
    return content


def sha256_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
