"""The base of every component's small config: frozen, strict about keys, kind about mistakes."""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from types import NoneType, UnionType
from typing import Annotated, Any, Final, Union, get_args, get_origin

from pydantic import BaseModel, BeforeValidator, ConfigDict, PlainSerializer, PlainValidator, ValidationError
from pydantic_core import ErrorDetails


class Settings(BaseModel):
    """Frozen settings of one component; an unknown key is an error that names the nearest known one."""

    model_config = ConfigDict(frozen=True, extra="forbid", protected_namespaces=())


def where_used(model: BaseModel, written: dict[str, Any], *names: str) -> dict[str, Any]:
    """What is written of a model, without these later settings where they have their default.

    So what is written of a config that does not use them, and its fingerprint, stay what they were.
    """
    fields = type(model).model_fields
    unused = {name for name in names if getattr(model, name) == fields[name].default}
    return {name: value for name, value in written.items() if name not in unused}


class ConfigError(ValueError):
    """A mistake in a config: one line that names the place, the value and the remedy."""

    def __init__(self, message: str) -> None:
        line = " ".join(message.split())
        # A whole file may stand where a word was expected.
        super().__init__(line if len(line) <= 800 else f"{line[:500]} ... {line[-250:]}")


_COUNT = re.compile(r"(\d+(?:\.\d+)?)\s*([km]?)", re.IGNORECASE)
_FACTOR = {"": 1, "k": 1_000, "m": 1_000_000}


def parse_count(value: Any) -> Any:
    """``"16k"`` to 16000, ``"1.5M"`` to 1500000; what is not text passes through."""
    if not isinstance(value, str):
        return value
    match = _COUNT.fullmatch(value.strip().replace("_", "").replace(",", ""))
    if match is None:
        raise ValueError(f"{value!r} is not a count; write for example 500, 16k or 1.5M")
    return _whole(float(match[1]) * _FACTOR[match[2].lower()], value)


def _whole(number: float, written: str) -> int:
    if not math.isfinite(number):
        raise ValueError(f"{short(written)} is too large a number")
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
        raise ValueError(f"{text!r} is not a duration; write steps such as 16k, or a share from 0% to 100%")
    return percent / 100


def parse_duration(value: Any) -> Duration:
    """``16k`` or ``10%``, as a config has it."""
    if isinstance(value, Duration):
        return value
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise ValueError(f"{value!r} is not a duration; write steps such as 16k, or a share such as 10%")
    return Duration(value)


def written_duration(value: Duration) -> int | str:
    """As one writes it in YAML."""
    return str(value) if value.is_share else int(value.amount)


DurationField = Annotated[Duration, PlainValidator(parse_duration), PlainSerializer(written_duration)]
"""A field of type :class:`Duration`; serialised as it is written in YAML."""


class MistakeInsideError(ValueError):
    """A validator that checked its value with a model of its own choice found a mistake in it."""

    def __init__(self, error: ValidationError, model: type[BaseModel]) -> None:
        super().__init__(explain(error, model))
        self.error, self.model = error, model


def explain(error: ValidationError, model: type[BaseModel], within: str = "") -> str:
    """The first mistake of a validation as one line: where, what, and what would have been right.

    ``within`` is the place of the model itself.
    """
    first, *others = _same_mistake(error.errors(include_url=False), model)
    owner, place = _owner(model, first["loc"])
    place = ".".join(filter(None, (within, place)))
    inside = first.get("ctx", {}).get("error")
    if isinstance(inside, MistakeInsideError):
        return explain(inside.error, inside.model, place)
    if first["type"] == "extra_forbidden":
        known = [field.alias or name for name, field in owner.model_fields.items()]
        return f"unknown key {place!r}{_nearest(str(first['loc'][-1]), known)}"
    if first["type"] == "missing":
        missing = str(first["loc"][-1])
        examples = next(f.examples for name, f in owner.model_fields.items() if missing in (name, f.alias))
        return f"{place!r} is missing" + (f"; write for example {examples[0]}" if examples else "")
    if first["type"] == "union_tag_invalid":
        context = first["ctx"]
        known = [name.strip("' ") for name in context["expected_tags"].split(",")]
        return f"{place}: unknown {context['discriminator']} {context['tag']!r}{_nearest(context['tag'], known)}"
    if first["type"] == "union_tag_not_found":
        key = first["ctx"]["discriminator"].strip("'")
        return f"'{place}.{key}' is missing"
    if others:
        allowed = ", or ".join(_plain(found["msg"]).removeprefix("Input should be ") for found in (first, *others))
        return f"{place}: {short(first['input'])} is not understood; it should be {allowed}"
    message = _plain(first["msg"])
    # A component's own message about all its settings names those that matter.
    own = first["type"] == "value_error" and isinstance(first["input"], Mapping)
    value = "" if own or repr(first["input"]) in message else f" (it is {short(first['input'])})"
    return f"{place}: {message}{value}" if place else message


def _same_mistake(errors: list[ErrorDetails], model: type[BaseModel]) -> list[ErrorDetails]:
    """The first mistake as pydantic sees it: once, or once for each of the forms that a value may have.

    Of those, the form that the value came nearest to: a list with a wrong item is not a misspelt name.
    """
    unknown = [found for found in errors if found["type"] == "extra_forbidden"]
    if unknown:
        return unknown[:1]  # often the cause of the others
    places = [_owner(model, found["loc"])[1] for found in errors]
    inside = [place for place in places if f"{place}.".startswith(f"{places[0]}.")]
    near = max(inside, key=lambda place: place.count("."))
    return [found for found, place in zip(errors, places, strict=True) if place == near]


_FORMS = (
    (re.compile("^Value error, "), ""),
    (re.compile("a valid tuple"), "a list"),
    (re.compile("Input is not a valid path for <class '[^']*'>"), "Input should be a path"),
    (re.compile(r"a valid dictionary( or instance of \w+| or object to extract fields from)?"), "a mapping"),
)


def _plain(message: str) -> str:
    """Pydantic's message with the words of YAML."""
    for python, plain in _FORMS:
        message = python.sub(plain, message)
    return message


# What pydantic adds to a location for each form of a union, and for a key; the user wrote none of it.
_FORM = re.compile(r"(literal|tuple|list|dict|union|nullable|function-\w+|constrained-\w+)\[.*\]|str|int|float|bool")
_KEY = "[key]"


def _owner(model: type[BaseModel], loc: Sequence[str | int]) -> tuple[type[BaseModel], str]:
    """The model that holds the last part of a location, and the location as the user wrote it."""
    place: list[str] = []
    candidates, owner, forms = [model], model, False
    for part in map(str, loc):
        if part == _KEY or (forms and _FORM.fullmatch(part)):
            continue
        variant = next((found for found in candidates if len(candidates) > 1 and _tag(found) == part), None)
        if variant is not None:
            candidates = [variant]  # pydantic puts the name of the chosen variant into the location
            continue
        place.append(part)
        owner = next((found for found in candidates if part in found.model_fields), next(iter(candidates), owner))
        field = owner.model_fields.get(part)
        candidates = [] if field is None else list(_models(field.annotation))
        forms = (forms and field is None) or (field is not None and _has_union(field.annotation))
    return owner, ".".join(place)


def _tag(model: type[BaseModel]) -> str | None:
    field = model.model_fields.get("name")
    return None if field is None or field.default is None else str(field.default)


def short(value: Any) -> str:
    """A value as it is shown in a message."""
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _models(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for argument in getattr(annotation, "__args__", ()):
        yield from _models(argument)


def _has_union(annotation: Any) -> bool:
    arguments = get_args(annotation)
    own = get_origin(annotation) in (Union, UnionType) and len(set(arguments) - {NoneType}) > 1
    return own or any(map(_has_union, arguments))


def _nearest(key: str, known: list[str]) -> str:
    close = difflib.get_close_matches(key, known, n=1, cutoff=0.5)
    return f"; did you mean {close[0]!r}?" if close else f"; known here: {', '.join(known)}"


FREE: Final = frozenset(
    {
        *("name", "data.folder", "student.compile", "student.device", "student.piece_tokens", "teacher.run"),
        *(
            "training.keep",
            "training.spot_checks",
            "training.dev_sentences",
            "training.tensorboard",
            "training.threads",
        ),
        *(f"training.early_stopping.{name}" for name in ("on", "patience", "smallest_change")),
    }
)
"""Settings that may differ between two parts of a run.

They do not change what is computed, but for rounding and, of some, the masks of dropout. The folder of a replayed run
may have moved; the teacher itself refuses another run in it.
"""


BEFORE: Final[Mapping[str, Any]] = {
    "training.dev_division": "alternate",
    "training.mixed_batches": "by-length",
    "training.guard": False,
    "teacher.split_at_warmup": False,
    "teacher.state_sentences": "first",
}
"""Settings that are younger than some runs, with what those runs did, where that is not the default now.

A run whose ``run.json`` lacks one of them was begun before it existed, and keeps to this value.
"""

_OWNERS: Final = {
    "teacher.split_at_warmup": ("replay-shuffled",),
    "teacher.state_sentences": ("dqn", "kumar"),
}
"""The teachers that have the setting; others are written without it."""


def with_earlier(dumped: Mapping[str, Any]) -> dict[str, Any]:
    """A config as ``run.json`` has it, with what the run did where it lacks a setting of ``BEFORE``."""
    filled = {key: dict(value) if isinstance(value, dict) else value for key, value in dumped.items()}
    for key, value in BEFORE.items():
        section, name = key.split(".")
        part = filled.get(section)
        if isinstance(part, dict) and (key not in _OWNERS or part.get("name") in _OWNERS[key]):
            part.setdefault(name, value)
    return filled


def without_earlier(dumped: Mapping[str, Any]) -> dict[str, Any]:
    """The reverse: without settings that are as they were before they existed, so that fingerprints stay the same."""
    kept = {key: dict(value) if isinstance(value, dict) else value for key, value in dumped.items()}
    for key, value in BEFORE.items():
        section, name = key.split(".")
        if kept[section].get(name) == value:
            del kept[section][name]
    return kept


def leaves(tree: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """A dumped config as one level, such as ``student.device``."""
    found: dict[str, Any] = {}
    for key, value in tree.items():
        found |= leaves(value, f"{prefix}{key}.") if isinstance(value, dict) else {f"{prefix}{key}": value}
    return found
