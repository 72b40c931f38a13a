"""What a run is to be good at: weights of the languages, which sum to 1.

A config says ``goal: gl``, ``goal: [gl, be]``, ``goal: low-resource`` or ``goal: {gl: 2, be: 1}``; by default all
languages count alike. Rewards on the joint dev batch, mean dev losses, the selection of checkpoints and the headline of
a report follow it.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Final

from pydantic import AfterValidator, BeforeValidator

from rota.types import Arm, Route

ALL: Final = "all"
GROUPS: Final = (ALL, "low-resource", "high-resource")

Goal = Mapping[Arm, float]
"""Weights by language, which sum to 1; a language that is missing does not count."""


Setting = str | Mapping[str, float] | Sequence[str]
"""As it is written: a group of languages, one language, several alike, or weights of any sum."""


def _possible(goal: str | dict[str, float]) -> str | dict[str, float]:
    if isinstance(goal, Mapping):
        for language, weight in goal.items():
            if not (math.isfinite(weight) and weight > 0):
                raise ValueError(f"the weight of {language!r} is {weight}; weights are numbers above 0")
        if not goal:
            raise ValueError("no language has a weight; write for example goal: {gl: 2, be: 1}")
    return goal


def _alike(goal: Any) -> Any:
    """``[gl, be]`` is ``{gl: 1, be: 1}``."""
    if not (isinstance(goal, list | tuple) and all(isinstance(language, str) for language in goal)):
        return goal
    twice = next((language for language in goal if goal.count(language) > 1), None)
    if twice is not None:
        weights = f"write weights, for example goal: {{{twice}: 2, ...}}"
        raise ValueError(f"{twice!r} is listed twice; remove one, or {weights}")
    return dict.fromkeys(goal, 1.0)


GoalSetting = Annotated[str | dict[str, float], BeforeValidator(_alike), AfterValidator(_possible)]
"""A group of languages, one language, several alike, or a mapping from languages to weights of any sum."""


def resolve(
    setting: Setting,
    languages: Sequence[Arm],
    low_resource: Collection[Arm] = (),
    routes: Mapping[Arm, Route] | None = None,
    remedy: str = "set data.low_resource, or name languages",
) -> Goal:
    """The weights asked for, in the order of ``languages``; refuses unknown languages and weights that are not above 0.

    Where dev sets have other names than languages, ``routes`` says what they translate. The weight of a language is
    then divided among its sets. ``remedy``: what to do if nothing belongs to the group that the goal names.
    """
    checked = _possible(_alike(setting))
    wanted = _by_set(_wanted(checked, languages, low_resource), languages, routes or {})
    for language in wanted:
        if language not in languages:
            names = [*GROUPS, *languages] if isinstance(checked, str) else languages
            close = difflib.get_close_matches(language, names, n=1, cutoff=0.5)
            guess = f"did you mean {close[0]!r}? " if close else ""
            raise ValueError(f"unknown language {language!r} in the goal; {guess}the corpus has {', '.join(languages)}")
    if not wanted:
        raise ValueError(f"goal: {setting}: the corpus has no such language; {remedy}")
    total = math.fsum(wanted.values())
    return {language: wanted[language] / total for language in languages if language in wanted}


def remedy_once_prepared(setting: Setting, sizes: Mapping[Arm, int], folder: Path) -> str:
    """For a group that turned out to be empty when the training pairs had been counted, which cost time."""
    trained = sorted((name for name, size in sizes.items() if size), key=sizes.__getitem__)
    counted = f"{trained[0]!r} has {sizes[trained[0]]:,} training pairs, {trained[-1]!r} {sizes[trained[-1]]:,}"
    named = f"name languages, for example goal: {trained[-1 if setting == 'high-resource' else 0]}"
    kept = f"the data in {folder} are kept and need not be prepared again"
    return f"{counted}; {named}; {kept}, unless you change data.low_resource"


def _wanted(setting: str | Mapping[str, float], languages: Sequence[Arm], low: Collection[Arm]) -> Mapping[Arm, float]:
    if not isinstance(setting, str):
        return setting
    if setting == ALL:
        return dict.fromkeys(languages, 1.0)
    if setting in GROUPS:
        return {language: 1.0 for language in languages if (language in low) == (setting == "low-resource")}
    return {setting: 1.0}


def _by_set(wanted: Mapping[str, float], sets: Sequence[Arm], routes: Mapping[Arm, Route]) -> Mapping[Arm, float]:
    found: dict[Arm, float] = {}
    for name, weight in wanted.items():
        own = [each for each in sets if each in routes and name in (routes[each].source, routes[each].target)]
        for each in [name] if name in sets or not own else own:
            found[each] = found.get(each, 0.0) + (weight if each == name else weight / len(own))
    return found


def is_alike(goal: Goal, languages: Collection[Any]) -> bool:
    """Whether all languages count the same: the default, with which everything is computed as without a goal."""
    return len(goal) == len(languages) and len(set(goal.values())) <= 1


def goal_mean(values: Mapping[Arm, float], goal: Goal) -> float:
    """The mean of values by language as the goal weighs them."""
    if values.keys() <= goal.keys() and len(set(goal.values())) == 1:
        return sum(values.values()) / len(values)  # not by weights: the bits of earlier records stay
    return math.fsum(weight * values[language] for language, weight in goal.items())
