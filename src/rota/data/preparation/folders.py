"""The folder of prepared data: whether it holds what a recipe asks for, and how a new one takes its place."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Mapping
from pathlib import Path

from rota.data.corpora.download import alone_in
from rota.data.preparation.units import Partial, Recipe
from rota.data.store import MANIFEST, InputFile, Manifest, Store
from rota.files import is_locked
from rota.settings import ConfigError

logger = logging.getLogger(__name__)


def is_prepared(folder: Path) -> bool:
    return (folder / MANIFEST).is_file()


def open_unchanged(folder: Path, recipe: Recipe) -> Store:
    manifest = Manifest.load(folder)
    change = recipe.change_since(manifest.settings) or _changed_input(manifest.inputs)
    if change is not None:
        raise ConfigError(
            f"{folder} was prepared differently: {change}; use --again to replace it, or another data.folder"
        )
    return Store.open(folder)


def _changed_input(inputs: Mapping[str, InputFile]) -> str | None:
    """Of the files that the data were made from; the config still names the same ones, since no setting changed."""
    gone = [name for name in inputs if not Path(name).is_file()]
    if gone:
        # Prepared data do not need their text: they may have been copied to another machine.
        others = f" (so are {len(gone) - 1} other files)" if len(gone) > 1 else ""
        logger.warning("%s is gone%s: cannot tell whether it changed since the data were prepared", gone[0], others)
    for name in (name for name in inputs if name not in gone):
        if not inputs[name].is_still(Path(name)):
            return f"the content of {name} changed"
    return None


def require_replaceable(folder: Path) -> None:
    """Only prepared data, or nothing, may be replaced: a mistyped path must not cost anyone their files."""
    if not folder.exists() or is_prepared(folder):
        return
    if not folder.is_dir() or any(folder.iterdir()):
        raise ConfigError(f"{folder} exists and is not prepared data; choose another folder, or remove it yourself")


def move(ready: Path, folder: Path) -> None:
    replaced = beside(folder, "replaced")
    remove(replaced)
    if folder.exists():
        folder.rename(replaced)
    ready.rename(folder)
    remove(replaced)


def beside(folder: Path, what: str) -> Path:
    return folder.with_name(f".{folder.name}.{what}")


def remove(folder: Path) -> None:
    if folder.exists():
        shutil.rmtree(folder)


def remove_leftovers(folder: Path, recipe: Recipe) -> None:
    """What a process left beside the folder that was killed after the folder was ready, or while it was replaced.

    Unfinished work for other data is kept: ``--again`` with another config was interrupted, and resumes from there.
    """
    partial, replaced, lock = (beside(folder, what) for what in ("partial", "replaced", "lock"))
    if not any(path.exists() for path in (partial, replaced, lock)) or is_locked(lock):
        return
    with alone_in(folder):  # which removes the lock file at its end
        if Partial(partial, recipe).is_own():
            shutil.rmtree(partial, ignore_errors=True)
        shutil.rmtree(replaced, ignore_errors=True)
