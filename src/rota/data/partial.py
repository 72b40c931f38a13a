"""The folder of a preparation that is not finished: what was asked for, and which units of it are done."""

from __future__ import annotations

import json
import logging
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Final, Literal

from rota.data.corpus import Split
from rota.data.manifest import InputFile
from rota.data.recipe import Recipe, changed_setting
from rota.data.store import text_names
from rota.types import Arm

logger = logging.getLogger(__name__)

FORMAT: Final = 1  # of the folder; raise it when units or their results change
_RECIPE: Final = "recipe.json"


@dataclass(frozen=True)
class Unit:
    """Something to do, and the name under which its result lies in the partial folder."""

    stage: Literal["clean", "encode"]
    split: Split
    arm: Arm
    piece: int = 0  # of the cleaned text; to encode

    @property
    def name(self) -> str:
        return f"{self.stage}.{self.split}.{self.arm}" + (f".{self.piece}" if self.stage == "encode" else "")

    def __str__(self) -> str:
        return f"the {self.split} text of {self.arm!r}"


Result = dict[str, Any]
"""What is known of a unit that is done: counts, places in its files, and the sizes of those."""


class Partial:
    """A unit is done when its small JSON is there, which comes last."""

    def __init__(self, folder: Path, recipe: Recipe) -> None:
        self.folder = folder
        self._recipe = recipe

    def open(self, files: Sequence[Path]) -> dict[str, InputFile]:
        """The inputs as they were when the preparation began: now, or before an interruption.

        What was done before counts if recipe and inputs are still the same; otherwise the folder is emptied.
        """
        found = self._read_recipe()
        change = "no recipe" if found is None else self._change(found, files)
        if found is not None and change is None:
            logger.info("going on with the interrupted preparation in %s", self.folder)
            self._sweep()
            return _inputs(found)
        if found is not None:
            logger.info("preparing anew what was interrupted: %s", change)
        return self._start(files)

    def _read_recipe(self) -> dict[str, Any] | None:
        try:
            content: dict[str, Any] = json.loads((self.folder / _RECIPE).read_text(encoding="utf-8"))
        except (FileNotFoundError, ValueError):
            return None
        return content

    def _change(self, found: dict[str, Any], files: Sequence[Path]) -> str | None:
        if found["format"] != FORMAT:
            return "another version of Rota began it"
        inputs = _inputs(found)
        if list(inputs) != [str(path) for path in files]:
            return "the corpus has other files"
        changed = (f"the content of {name} changed" for name, known in inputs.items() if not known.is_still(Path(name)))
        return changed_setting(found["settings"], self._recipe.as_settings()) or next(changed, None)

    def _sweep(self) -> None:
        """Removes what a killed process left half written."""
        for path in self.folder.rglob("*.part"):
            path.unlink(missing_ok=True)

    def _start(self, files: Sequence[Path]) -> dict[str, InputFile]:
        if self.folder.exists():
            shutil.rmtree(self.folder)
        self.folder.mkdir()
        inputs = {str(path): InputFile.of(path) for path in files}  # before anything of them is read
        content: dict[str, Any] = {"format": FORMAT, "settings": self._recipe.as_settings()}
        content["inputs"] = {name: known.model_dump(mode="json") for name, known in inputs.items()}
        with written(self.folder / _RECIPE) as (file,):
            file.write(json.dumps(content, ensure_ascii=False).encode())
        return inputs

    def text(self, unit: Unit) -> tuple[Path, Path]:
        """Source and target text of a unit's language and split, cleaned."""
        source, target = text_names(unit.split, unit.arm, self._recipe.corpus.target)
        return self.folder / source, self.folder / target

    def encoded(self, unit: Unit) -> Path:
        return self.folder / "encoded" / unit.name

    def empty_folder(self, name: str) -> Path:
        folder = self.folder / name
        if folder.exists():
            shutil.rmtree(folder)
        folder.mkdir()
        return folder

    def result(self, unit: Unit) -> Result | None:
        """What the unit left; ``None`` if it is not done, or if a file it speaks of is not as it says."""
        try:
            found: Result = json.loads((self.folder / "done" / unit.name).read_text(encoding="utf-8"))
            intact = all((self.folder / name).stat().st_size == size for name, size in found["files"].items())
        except (FileNotFoundError, ValueError):
            return None
        return found if intact else None

    def finish(self, unit: Unit, files: tuple[Path, ...], result: Result) -> None:
        sizes = {path.relative_to(self.folder).as_posix(): path.stat().st_size for path in files}
        with written(self.folder / "done" / unit.name) as (file,):
            file.write(json.dumps(result | {"files": sizes}).encode())


def _inputs(content: dict[str, Any]) -> dict[str, InputFile]:
    return {name: InputFile.model_validate(known) for name, known in content["inputs"].items()}


@contextmanager
def written(*paths: Path) -> Iterator[list[IO[bytes]]]:
    """Files that appear under their names when the block ends well, and otherwise not at all."""
    # Nobody else writes under this name, not even a process that outlives its parent for a moment.
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
