"""The arrays of a checkpoint as safetensors files, and the rest of its state as one JSON tree. Imports torch."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from rota.files import damaged
from rota.runs.records import REMEDY
from rota.types import State

ARRAY, TENSOR = "__array__", "__tensor__"


def write_arrays(state: State, part: str, folder: Path) -> State:
    """The tree without its arrays, which go to one file for each top-level entry that has any."""
    tree: State = {}
    for key, value in state.items():
        arrays: dict[str, np.ndarray[Any, Any]] = {}
        file = f"{part}.{key}.safetensors"
        tree[key] = _strip(value, file, "", arrays)
        if arrays:
            with system_errors(folder / file):
                save_file(arrays, folder / file)
    return tree


@contextmanager
def system_errors(path: Path) -> Iterator[None]:
    """An error of the system, such as a full disk, is an OSError here too, where safetensors has one of its own."""
    try:
        yield
    except SafetensorError as error:
        number = re.search(r"\(os error (\d+)\)", str(error))
        if number is None:
            raise
        raise OSError(int(number[1]), os.strerror(int(number[1])), str(path)) from None


def read_arrays(tree: State, part: str, folder: Path) -> State:
    """The state of a part as it was saved."""
    files = {path.name: load_file(path) for path in folder.glob(f"{part}.*.safetensors")}
    try:
        state: State = _restore(tree, files)
    except KeyError as error:
        raise damaged(folder, f"it has no {error.args[0]}", REMEDY) from None
    return state


def read_tensors(path: Path) -> dict[str, torch.Tensor]:
    """All tensors of one file by name."""
    return {name: torch.from_numpy(array) for name, array in load_file(path).items()}


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
