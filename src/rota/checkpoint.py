"""Checkpoints: atomic, complete, checksummed. Arrays are safetensors, the rest is JSON; nothing is unpickled.

A checkpoint of step 200 is the folder ``200/``: ``state.json`` holds the tree of every part, each top-level
entry of a part that has arrays is a file of its own (``student.network.safetensors``), and ``checkpoint.json``, written
last, lists the files with their checksums. Older checkpoints are thinned: they lose the optimiser's moments.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.numpy import load_file, save_file

from rota.records import write_atomically
from rota.types import Checkpointable, State

logger = logging.getLogger(__name__)

FORMAT = 1
MANIFEST = "checkpoint.json"
TREE = "state.json"
WEIGHTS = "student.network.safetensors"
MOMENTS = "student.optimiser.safetensors"  # two thirds of a checkpoint, needed by nobody but a run that goes on
ARRAY, TENSOR = "__array__", "__tensor__"


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """One saved step of a run."""

    step: int
    folder: Path
    complete: bool  # everything needed to resume; False: without the moments of the optimiser

    def load(self) -> dict[str, State]:
        """The state of every part, by name."""
        if not self.complete:
            raise ValueError(f"{self.folder} is not complete any more; training resumes from a newer checkpoint")
        return {part: self.load_part(part) for part in self._tree()}

    def load_part(self, part: str) -> State:
        """The state of one part, such as the teacher: in thinned checkpoints all but ``student`` are whole."""
        tree = self._tree()
        if part not in tree:
            raise ValueError(f"{self.folder} has no part {part!r}; it has {', '.join(tree)}")
        files = {path.name: load_file(path) for path in self.folder.glob(f"{part}.*.safetensors")}
        state: State = _restore(tree[part], files)
        return state

    def _tree(self) -> dict[str, State]:
        tree: dict[str, State] = json.loads((self.folder / TREE).read_text(encoding="utf-8"))
        return tree

    def network(self) -> dict[str, torch.Tensor]:
        """The network's tensors by name: all that translating needs."""
        return {name: torch.from_numpy(array) for name, array in load_file(self.folder / WEIGHTS).items()}


class Checkpoints:
    """The checkpoints of one run, oldest first; the last ``keep`` are complete, older ones have lost the moments."""

    def __init__(self, folder: Path, keep: int = 2) -> None:
        if keep < 1:
            raise ValueError(f"keep is {keep}; at least 1 complete checkpoint must stay")
        self.folder = folder
        self.keep = keep

    def save(self, step: int, parts: Mapping[str, Checkpointable], *, drop: Iterable[int] = ()) -> Path:
        """Write all parts, then make the folder appear at once under its final name; ``drop`` others after that."""
        partial = self.folder / f".{step}.partial"
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        tree = {name: _extract(part.state_dict(), name, partial) for name, part in parts.items()}
        (partial / TREE).write_text(json.dumps(tree), encoding="utf-8")
        files = {path.name: _checksum(path) for path in sorted(partial.iterdir())}
        _write_manifest(partial, step, files, complete=True)
        for path in (*partial.iterdir(), partial):
            _sync(path)
        final = self.folder / str(step)
        shutil.rmtree(final, ignore_errors=True)  # a damaged one, or the same again after a resume
        partial.rename(final)
        _sync(self.folder)
        self.drop(drop)
        self._thin()
        return final

    def list(self) -> list[Checkpoint]:
        """All checkpoints that are whole as far as their manifests tell, by step."""
        if not self.folder.is_dir():
            return []
        steps = sorted(int(path.name) for path in self.folder.iterdir() if path.name.isdigit())
        return [found for step in steps if (found := _inspect(self.folder / str(step))) is not None]

    def newest(self) -> Checkpoint | None:
        """The newest complete checkpoint whose checksums hold; damaged ones are reported and passed over.

        None if nothing was saved yet. Where all are damaged that is an error: starting again would lose the run.
        """
        for checkpoint in reversed(self.list()):
            if checkpoint.complete and (damage := damaged_file(checkpoint)) is None:
                return checkpoint
            if checkpoint.complete:
                logger.warning("checkpoint %s is damaged (%s); using the one before", checkpoint.folder, damage)
        if self.folder.is_dir() and any(path.name.isdigit() for path in self.folder.iterdir()):
            raise ValueError(f"{self.folder} has no intact complete checkpoint; delete the run's folder to start again")
        return None

    def drop(self, steps: Iterable[int]) -> None:
        """Remove the checkpoints of these steps, if they are there."""
        for step in steps:
            shutil.rmtree(self.folder / str(step), ignore_errors=True)

    def _thin(self) -> None:
        complete = [checkpoint for checkpoint in self.list() if checkpoint.complete]
        for checkpoint in complete[: -self.keep]:
            files = {name: checksum for name, checksum in _files(checkpoint.folder).items() if name != MOMENTS}
            _write_manifest(checkpoint.folder, checkpoint.step, files, complete=False)
            (checkpoint.folder / MOMENTS).unlink(missing_ok=True)


def damaged_file(checkpoint: Checkpoint) -> str | None:
    """The name of the first file that is missing or differs from its checksum; None if all is well."""
    for name, checksum in _files(checkpoint.folder).items():
        path = checkpoint.folder / name
        if not path.exists() or _checksum(path) != checksum:
            return name
    return None


def _files(folder: Path) -> dict[str, str]:
    """Checksums by file name, as written when the checkpoint was saved."""
    files: dict[str, str] = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))["files"]
    return files


def _inspect(folder: Path) -> Checkpoint | None:
    try:
        manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        if manifest["format"] != FORMAT:
            raise ValueError(f"{folder} has checkpoint format {manifest['format']}; this version reads {FORMAT}")
        return Checkpoint(manifest["step"], folder, manifest["complete"])
    except (OSError, json.JSONDecodeError, KeyError, UnicodeDecodeError):
        logger.warning("checkpoint %s is damaged (%s); it is passed over", folder, MANIFEST)
        return None


def _write_manifest(folder: Path, step: int, files: Mapping[str, str], *, complete: bool) -> None:
    manifest = {"format": FORMAT, "step": step, "complete": complete, "files": files}
    write_atomically(folder / MANIFEST, json.dumps(manifest, indent=1))


def _extract(state: State, part: str, folder: Path) -> State:
    """The tree without its arrays, which go to one file for each top-level entry that has any."""
    tree: State = {}
    for key, value in state.items():
        arrays: dict[str, np.ndarray[Any, Any]] = {}
        file = f"{part}.{key}.safetensors"
        tree[key] = _strip(value, file, "", arrays)
        if arrays:
            save_file(arrays, folder / file)
    return tree


def _strip(value: Any, file: str, path: str, arrays: dict[str, np.ndarray[Any, Any]]) -> Any:
    if isinstance(value, torch.Tensor):
        path = path or "value"
        arrays[path] = value.detach().cpu().contiguous().numpy()
        return {TENSOR: [file, path]}
    if isinstance(value, np.ndarray):
        path = path or "value"
        arrays[path] = value.copy()  # contiguous, whatever it was a view of
        return {ARRAY: [file, path]}
    if isinstance(value, Mapping):
        return {
            str(key): _strip(inner, file, f"{path}/{key}" if path else str(key), arrays) for key, inner in value.items()
        }
    if isinstance(value, list | tuple):
        return [_strip(inner, file, f"{path}/{index}", arrays) for index, inner in enumerate(value)]
    if isinstance(value, np.generic):
        return value.item()
    return value


def _restore(value: Any, files: Mapping[str, Mapping[str, np.ndarray[Any, Any]]]) -> Any:
    if isinstance(value, list):
        return [_restore(inner, files) for inner in value]
    if not isinstance(value, dict):
        return value
    if TENSOR in value:
        file, path = value[TENSOR]
        return torch.from_numpy(files[file][path])
    if ARRAY in value:
        file, path = value[ARRAY]
        return files[file][path]
    return {key: _restore(inner, files) for key, inner in value.items()}


def _checksum(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
