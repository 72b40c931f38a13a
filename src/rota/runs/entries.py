"""What an entry of each record must have, so that those who read it need not ask: kinds of values, and known arms.

A check value says that a line is as it was written. Lines of version 0.1 have none, nor has a line whose check value
somebody deleted: of those only their form can tell.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final

from rota.types import Arm

Kind = Callable[[Any], bool]
"""Whether a value is of this kind."""

LARGEST: Final = 1e100
"""No float32 is larger, and sums and squares of such numbers are still finite."""


@dataclass(frozen=True)
class Known:
    """The names that a run has."""

    arms: Collection[Arm]
    languages: Collection[Arm]


def fault(record: str, entry: Mapping[str, Any], known: Known | None = None) -> str | None:
    """What is wrong with an entry of the record of this name, such as ``steps``; None if nothing is.

    Records of other names, and keys that are not known here, may hold anything. What only runs of Rota's own loop have
    is asked for if ``known`` says that it is one: a custom loop may not know its losses and tokens.
    """
    if record not in _SHAPES:
        return None
    needed, possible = _SHAPES[record]
    for key, (kind, article) in needed.items():
        if key not in entry and (known is None and key in _OWN_LOOP.get(record, ())):
            continue
        if key not in entry:
            return f"it has no {key}"
        if not kind(entry[key]):
            return f"its {key} is not {article}"
    for key, value in entry.items():
        if key in possible and not possible[key][0](value):
            return f"its {key} is not {possible[key][1]}"
    return None if known is None else _unknown(record, entry, known)


def _unknown(record: str, entry: Mapping[str, Any], known: Known) -> str | None:
    if record == "steps":
        for arm in entry.get("tokens_by_language") or [entry["arm"]]:
            if arm not in known.arms:
                return f"it is of {arm!r}, and the arms of the run are {', '.join(known.arms)}"
    if record == "validations":
        for language in known.languages:
            if language not in entry["dev_loss"]:
                return f"its dev_loss has no {language!r}"
    return None


def is_number(value: Any) -> bool:
    return type(value) in (int, float) and -LARGEST <= value <= LARGEST


def is_whole(value: Any) -> bool:
    return type(value) is int and 0 <= value < 2**53


def is_text(value: Any) -> bool:
    """Half of a surrogate pair is none: it could not be printed."""
    return type(value) is str and (value.isascii() or not any("\ud800" <= sign <= "\udfff" for sign in value))


def by_name(kind: Kind) -> Kind:
    """An object with values of one kind."""
    return lambda value: type(value) is dict and all(is_text(key) and kind(inner) for key, inner in value.items())


def _either(*kinds: Kind) -> Kind:
    return lambda value: any(kind(value) for kind in kinds)


def _list_of(kind: Kind, least: int = 0) -> Kind:
    return lambda value: type(value) is list and len(value) >= least and all(map(kind, value))


def _is_pair(value: Any) -> bool:
    return type(value) is list and len(value) == 2 and is_number(value[0]) and is_number(value[1])


def _is_update(value: Any) -> bool:
    return is_whole(value) and value > 0


def _are_counts(value: Any) -> bool:
    return by_name(is_whole)(value) and (not value or sum(value.values()) > 0)


def _none(value: Any) -> bool:
    return value is None


def _is_combine(value: Any) -> bool:
    return value in ("last", "average", "ensemble", "moving-average")


_Rule = tuple[Kind, str]

_NUMBER: Final[_Rule] = (is_number, "a number")
_WHOLE: Final[_Rule] = (is_whole, "a whole number")
_UPDATE: Final[_Rule] = (_is_update, "a whole number above 0")
_TEXT: Final[_Rule] = (is_text, "a text")
_NUMBERS: Final[_Rule] = (by_name(is_number), "an object of numbers")
_COUNTS: Final[_Rule] = (_are_counts, "an object of counts")
_PAIRS: Final[_Rule] = (by_name(_is_pair), "an object of pairs of numbers")
_TEXT_OR_NONE: Final[_Rule] = (_either(is_text, _none), "a text or null")
_TEXTS: Final[_Rule] = (by_name(is_text), "an object of texts")
_SEARCH: Final[_Rule] = (by_name(_either(is_number, is_text, _none, lambda value: value is True)), "an object")

_OWN_LOOP: Final[Mapping[str, tuple[str, ...]]] = {"steps": ("loss", "tokens"), "observations": ("arm",)}

_SHAPES: Final[Mapping[str, tuple[Mapping[str, _Rule], Mapping[str, _Rule]]]] = {
    "steps": (
        {"step": _UPDATE, "arm": _TEXT, "why": _TEXT, "loss": _NUMBER, "tokens": _UPDATE},
        {"tokens_by_language": _COUNTS, "probability": _NUMBER, "epsilon": _NUMBER, "scores": _NUMBERS},
    ),
    "observations": (
        {"step": _WHOLE, "arm": _TEXT},
        {
            "dev_loss": (by_name(_either(is_number, _list_of(is_number, 1))), "an object of numbers"),
            "joint_loss": _NUMBER,
            "joint_gain": _NUMBER,
            "source_gain": _PAIRS,
            "alignment": (by_name(_list_of(_either(is_number, by_name(_list_of(is_number))), 3)), "an object of sums"),
        },
    ),
    "rewards": ({"step": _WHOLE, "rewards": _NUMBERS}, {}),
    "validations": (
        {"step": _WHOLE, "dev_loss": _NUMBERS},
        {
            **dict.fromkeys(("calibrated_loss", "temperature", "accuracy", "epochs", "bleu", "chrf"), _NUMBERS),
            "tokens": (by_name(is_whole), "an object of counts"),
            "average": (by_name(by_name(is_number)), "an object of numbers by language"),
        },
    ),
    "timings": ({"step": _WHOLE, "wall": _NUMBER, "cpu": _NUMBER, "phases": _NUMBERS}, {}),
    "spot_checks": (
        {"step": _WHOLE, "source_gain": _PAIRS, "train_loss": _PAIRS, "dev_source_gain": _PAIRS, "epochs": _NUMBERS},
        {},
    ),
    "alarms": ({"step": _WHOLE, "kind": _TEXT, "arm": _TEXT_OR_NONE, "text": _TEXT}, {}),
    "stops": ({"step": _WHOLE, "why": _TEXT}, {"text": _TEXT, "on": _TEXT, "best": _NUMBER, "best_step": _WHOLE}),
    "evals": (
        {
            "step": _WHOLE,
            "split": _TEXT,
            "search": _SEARCH,
            "language": _TEXT,
            "metric": _TEXT,
            "score": _NUMBER,
            "signature": _TEXT,
        },
        {
            "steps": (_list_of(is_whole, 1), "a list of steps"),
            "combine": (_is_combine, "a way to combine checkpoints"),
            "select": _TEXT_OR_NONE,
            "hashes": _TEXTS,
            **dict.fromkeys(("translations", "sentence_scores"), _TEXT),
            **dict.fromkeys(("sentences", "tokens"), _WHOLE),
            **dict.fromkeys(("accuracy", "calibrated", "temperature"), _NUMBER),
        },
    ),
    "translations": ({"file": _TEXT, "hash": _TEXT}, {"weights": _TEXT, "source": _TEXT}),
    "phases": (
        {"phase": _TEXT, "seconds": _NUMBER, "code": (_either(is_number, _none), "a number")},
        {},
    ),
}
