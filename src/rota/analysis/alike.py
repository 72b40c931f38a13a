"""Which runs may be seeds of one row: those with the same settings, wherever and whenever they were trained."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from itertools import accumulate
from typing import Any

from rota.settings import FREE, leaves

SECTIONS = ("training", "student", "teacher")
"""Which make a run what it is, the budget first. How it was evaluated afterwards does not; the data are compared as
they were prepared."""

BUDGET = {
    "training.steps": "updates",
    "training.tokens": "target tokens in a batch",
    "training.accumulate": "batches in an update",
    "student.preset": "preset",
}
"""Settings that must agree before a difference between two rows is one between schedules."""


def settings(about: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a run as its ``run.json`` has them, without its seed and where it was trained."""
    parts = leaves({name: about["config"][name] for name in SECTIONS})
    return {key: _without_seed(value, about["seed"]) for key, value in parts.items() if not _may_differ(key)}


def _may_differ(key: str) -> bool:
    """Also the run that is replayed by a teacher within another one: each seed replays its own."""
    return key in FREE or (key.startswith("teacher.") and key.endswith(".run"))


def _without_seed(value: Any, seed: int) -> Any:
    """A suite fills the seed into texts, such as ``runs/dqn/seed-2``."""
    return re.sub(rf"(seed[-_.]?){seed}\b", r"\1{seed}", value) if isinstance(value, str) else value


def written(about: Mapping[str, Any]) -> str:
    """The same for two runs that differ in their seed alone. Unset ones are left out: a later version may have more."""
    told = {key: value for key, value in settings(about).items() if value is not None}
    return json.dumps([told, about["data"]["fingerprint"]], sort_keys=True)


def first_difference(one: Mapping[str, Any], other: Mapping[str, Any]) -> tuple[str, Any, Any] | None:
    """The first setting, with both values, by which two runs cannot be seeds of one row; None if there is none."""
    ours, theirs = settings(one), settings(other)
    for key in dict.fromkeys((*ours, *theirs)):
        if ours.get(key) != theirs.get(key) and _asked(key, ours) and _asked(key, theirs):
            return key, ours.get(key), theirs.get(key)
    return None


def _asked(key: str, found: Mapping[str, Any]) -> bool:
    """Whether a run has a setting, or one that switches it off (``teacher.warmup``); an older version may have none."""
    return any(above in found for above in accumulate(key.split("."), "{}.{}".format))
