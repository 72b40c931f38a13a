"""Parts of a config as they are written in YAML: put together, and their placeholders filled in."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

Values = dict[str, Any]
"""A config or a part of it, as plain values, not checked yet."""


def merged(base: Mapping[str, Any], changes: Mapping[str, Any]) -> Values:
    """The base with the changes on top, mappings key by key; a teacher is replaced as a whole."""
    result = copy.deepcopy(dict(base))
    for key, value in changes.items():
        below = result.get(key)
        if key != "teacher" and isinstance(below, dict) and isinstance(value, Mapping):
            result[key] = merged(below, value)
        else:
            result[key] = copy.deepcopy(value)
    return result


def filled(values: Values, places: Mapping[str, str]) -> Values:
    """Every text with its placeholders filled in; other braces, as in a pattern of files, stay."""
    result: Values = _filled(values, places)
    return result


def _filled(value: Any, places: Mapping[str, str]) -> Any:
    if isinstance(value, str):
        for place, text in places.items():
            value = value.replace(place, text)
        return value
    if isinstance(value, Mapping):
        return {key: _filled(inner, places) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_filled(inner, places) for inner in value]
    return value
