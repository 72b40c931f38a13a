"""From what a config says under ``teacher`` to the config class: the registry, installed packages, users' modules.

``teacher: {name: tscl}`` is in the registry; ``teacher: {name: my_module:MyConfig}`` finds a class in a module of the
user's; any other name is looked for among the entry points ``rota.teachers`` of installed packages.
"""

from __future__ import annotations

import difflib
import importlib
import inspect
import sys
from collections.abc import Mapping
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from types import ModuleType
from typing import Any, TypeGuard

from pydantic import ValidationError

from rota.settings import MistakeInsideError
from rota.teachers.base import TeacherConfig

ENTRY_POINTS = "rota.teachers"


def look_up(value: Any, registry: Mapping[str, type[TeacherConfig]]) -> TeacherConfig:
    """The checked config of the teacher that ``value`` names."""
    if isinstance(value, str):
        value = {"name": value}
    if isinstance(value, TeacherConfig):
        return _checked_instance(value, registry)
    if not isinstance(value, Mapping):
        raise ValueError(f"{value!r} is not a teacher; write a name such as uniform, or a mapping with a name")
    if "name" not in value:
        raise ValueError("'name' is missing; write for example name: uniform")
    name = value["name"]
    if not isinstance(name, str):
        raise ValueError(f"the name {name!r} is not a text; write for example name: uniform")
    kind = find_kind(name, registry)
    try:
        return kind.model_validate(value)
    except ValidationError as error:
        raise MistakeInsideError(error, kind) from None


def _checked_instance(config: TeacherConfig, registry: Mapping[str, type[TeacherConfig]]) -> TeacherConfig:
    """A config object is taken as it is, if its name leads back to its class: ``run.json`` holds only the name."""
    name = str(getattr(config, "name", ""))
    if type(config) is not find_kind(name, registry):
        there = f"{type(config).__module__}:{type(config).__qualname__}"
        raise ValueError(f"the name {name!r} is not that of its class; write name: {there}")
    return config


def find_kind(name: str, registry: Mapping[str, type[TeacherConfig]]) -> type[TeacherConfig]:
    """The config class of a name."""
    if name in registry:
        return registry[name]
    if ":" in name:
        return find_config(name)
    installed = {point.name: point for point in entry_points(group=ENTRY_POINTS)}
    if name in installed:
        return _installed(installed[name])
    known = [*registry, *installed]
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    hint = f"did you mean {close[0]!r}?" if close else f"there are {', '.join(known)}"
    raise ValueError(f"unknown name {name!r}; {hint}")


def _installed(point: EntryPoint) -> type[TeacherConfig]:
    try:
        found = point.load()
    except Exception as error:
        raise ValueError(f"importing {point.value!r} failed: {_one_line(error)}; reinstall that package") from error
    if not _is_config(found) or inspect.isabstract(found):
        raise ValueError(f"the entry point {point.name!r} leads to {point.value!r}, which is not a teacher's config")
    return found


def find_config(name: str) -> type[TeacherConfig]:
    """The config class that ``module:Class`` names; the module is imported, from the current folder if need be."""
    module_name, _, class_name = name.partition(":")
    module = _import(module_name)
    found = getattr(module, class_name, None)
    if not _is_config(found):
        here = [key for key, thing in vars(module).items() if _is_config(thing) and thing.__module__ == module_name]
        known = f"it has {', '.join(here)}" if here else "derive one from rota.teachers.TeacherConfig"
        raise ValueError(f"module {module_name!r} has no teacher config {class_name!r}; {known}")
    if inspect.isabstract(found):
        raise ValueError(f"{name!r} has no method 'build'; write one that returns the teacher")
    if "name" not in found.model_fields:
        raise ValueError(f"{name!r} has no field 'name'; write in its class: name: str = {name!r}")
    return found


def _is_config(thing: Any) -> TypeGuard[type[TeacherConfig]]:
    return isinstance(thing, type) and issubclass(thing, TeacherConfig)


def _import(name: str) -> ModuleType:
    folder = str(Path.cwd())
    if folder not in sys.path:
        sys.path.append(folder)  # an installed program does not look into the current folder by itself
    try:
        return importlib.import_module(name)
    except Exception as error:
        if isinstance(error, ModuleNotFoundError) and f"{name}.".startswith(f"{error.name}."):
            remedy = "run Rota in the folder that holds it, or add that folder to PYTHONPATH"
            raise ValueError(f"no module {name!r}; {remedy}") from None
        raise ValueError(f"importing {name!r} failed: {_one_line(error)}; mend that module") from error


def _one_line(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())}"
