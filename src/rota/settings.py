"""The base of every component's small config: frozen, strict about keys, kind about mistakes."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, PlainSerializer, PlainValidator, ValidationError


class Settings(BaseModel):
    """Frozen settings of one component; an unknown key is an error that names the nearest known one."""

    model_config = ConfigDict(frozen=True, extra="forbid", protected_namespaces=())


class ConfigError(ValueError):
    """A mistake in a config: one line that names the place, the value and the remedy."""


_COUNT = re.compile(r"(\d+(?:\.\d+)?)\s*([km]?)", re.IGNORECASE)
_FACTOR = {"": 1, "k": 1_000, "m": 1_000_000}


def parse_count(value: Any) -> Any:
    """``"16k"`` to 16000, ``"1.5M"`` to 1500000; whatever is no such text passes through."""
    if not isinstance(value, str):
        return value
    match = _COUNT.fullmatch(value.strip().replace("_", "").replace(",", ""))
    if match is None:
        raise ValueError(f"{value!r} is no count; write for example 500, 16k or 1.5M")
    return _whole(float(match[1]) * _FACTOR[match[2].lower()], value)


def _whole(number: float, written: str) -> int:
    if abs(number - round(number)) > 1e-6:
        raise ValueError(f"{written!r} is not a whole number")
    return round(number)


Count = Annotated[int, BeforeValidator(parse_count)]
"""A whole number that may be written ``16k`` or ``1.5M``."""


class Duration:
    """A number of steps, or a share of the run: ``Duration("16k")``, ``Duration("10%")``."""

    __slots__ = ("amount", "is_share")

    def __init__(self, written: str | float) -> None:
        text = str(written).strip()
        self.is_share = text.endswith("%")
        self.amount = _share(text) if self.is_share else parse_count(text)

    def steps(self, total: int) -> int:
        """The number of steps in a run of ``total`` steps."""
        return round(self.amount * total) if self.is_share else int(self.amount)

    def __str__(self) -> str:
        return f"{self.amount * 100:g}%" if self.is_share else str(self.amount)

    def __repr__(self) -> str:
        return f"Duration({str(self)!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Duration) and str(self) == str(other)

    def __hash__(self) -> int:
        return hash(str(self))


def _share(text: str) -> float:
    try:
        percent = float(text.removesuffix("%"))
    except ValueError:
        percent = -1.0
    if not 0 <= percent <= 100:
        raise ValueError(f"{text!r} is no duration; write steps such as 16k, or a share from 0% to 100%")
    return percent / 100


def _duration(value: Any) -> Duration:
    if isinstance(value, Duration):
        return value
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise ValueError(f"{value!r} is no duration; write steps such as 16k, or a share such as 10%")
    return Duration(value)


def _written(value: Duration) -> int | str:
    return str(value) if value.is_share else int(value.amount)


DurationField = Annotated[Duration, PlainValidator(_duration), PlainSerializer(_written)]
"""A field of type :class:`Duration`; serialised as it is written in YAML."""


def explain(error: ValidationError, model: type[BaseModel]) -> str:
    """The first mistake of a validation as one line: where, what, and what would have been right."""
    errors = error.errors(include_url=False)
    first = next((found for found in errors if found["type"] == "extra_forbidden"), errors[0])  # often the cause
    loc = [str(part) for part in first["loc"]]
    owner, place = _owner(model, loc)
    if first["type"] == "extra_forbidden":
        return f"unknown key {place!r}{_nearest(loc[-1], list(owner.model_fields))}"
    if first["type"] == "missing":
        return f"{place!r} is missing"
    if first["type"] == "union_tag_invalid":
        context = first["ctx"]
        known = [name.strip("' ") for name in context["expected_tags"].split(",")]
        return f"{place}: unknown {context['discriminator']} {context['tag']!r}{_nearest(context['tag'], known)}"
    message = first["msg"].removeprefix("Value error, ")
    value = "" if repr(first["input"]) in message else f" (it is {_short(first['input'])})"
    return f"{place}: {message}{value}" if place else message


def _owner(model: type[BaseModel], loc: list[str]) -> tuple[type[BaseModel], str]:
    """The model that holds the last part of a location, and the location as the user wrote it."""
    place: list[str] = []
    candidates, owner = [model], model
    for part in loc:
        variant = next((found for found in candidates if len(candidates) > 1 and _tag(found) == part), None)
        if variant is not None:
            candidates = [variant]  # pydantic puts the name of the chosen variant into the location
            continue
        place.append(part)
        owner = next((found for found in candidates if part in found.model_fields), next(iter(candidates), owner))
        field = owner.model_fields.get(part)
        candidates = [] if field is None else list(_models(field.annotation))
    return owner, ".".join(place)


def _tag(model: type[BaseModel]) -> str | None:
    field = model.model_fields.get("name")
    return None if field is None or field.default is None else str(field.default)


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _models(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for argument in getattr(annotation, "__args__", ()):
        yield from _models(argument)


def _nearest(key: str, known: list[str]) -> str:
    close = difflib.get_close_matches(key, known, n=1, cutoff=0.5)
    return f"; did you mean {close[0]!r}?" if close else f"; known here: {', '.join(known)}"
