"""Teachers of users: ``teacher: {name: my_module:MyConfig}`` finds the config class in a module of theirs."""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, TypeGuard

from pydantic import ValidationError, ValidatorFunctionWrapHandler

from rota.settings import explain
from rota.teachers.base import TeacherConfig


def own_or_known(value: Any, known: ValidatorFunctionWrapHandler) -> Any:
    """A teacher named ``module:Class`` is checked by that class, any other by the registry's union."""
    name = value.get("name") if isinstance(value, Mapping) else getattr(value, "name", None)
    if not isinstance(name, str) or ":" not in name:
        return known(value)
    kind = find_config(name)
    if isinstance(value, TeacherConfig) and type(value) is not kind:
        there = f"{type(value).__module__}:{type(value).__qualname__}"
        raise ValueError(f"the name {name!r} is not that of its class; write name: {there}")
    try:
        return kind.model_validate(value)
    except ValidationError as error:
        raise ValueError(explain(error, kind)) from None


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
        message = " ".join(str(error).split())
        raise ValueError(f"importing {name!r} failed: {type(error).__name__}: {message}; mend that module") from error
