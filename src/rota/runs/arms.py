"""The arms of a run by language and by source: the order in which tables and figures list them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from rota.runs.run import Run
from rota.types import Arm


class ArmLine(NamedTuple):
    """A line of a list of arms: one of them, or the arms that a language or a source has together."""

    depth: int  # 0: a language; 1: one of its arms or sources; 2: an arm of such a source
    name: str
    arms: tuple[Arm, ...]

    @property
    def indented(self) -> str:
        """The name, with the arms of a language under it."""
        return "  " * self.depth + self.name


def is_grouped(lines: Iterable[ArmLine]) -> bool:
    """Whether a language has several arms; where none has, a list of arms is one of languages."""
    return any(len(line.arms) > 1 for line in lines)


def arm_lines(run: Run, weights: Mapping[Arm, float] | None = None) -> list[ArmLine]:
    """Every language with its arms below it; a language with one arm is that arm.

    Arms of one source are together if the language has others. The largest by ``weights`` come first, otherwise all is
    in the order of the corpus.
    """
    lines: list[ArmLine] = []
    for language, arms in _ranked(_grouped(run.arms, lambda arm: languages_of(run, arm)), weights):
        if len(arms) == 1:
            lines.append(ArmLine(0, arms[0], arms))
            continue
        lines.append(ArmLine(0, language, arms))
        sources = _ranked(_grouped(arms, lambda arm: source_of(run, arm)), weights)
        for source, some in sources:
            depth = 1
            if len(some) > 1 and len(sources) > 1:
                lines.append(ArmLine(1, source, some))
                depth = 2
            lines += [ArmLine(depth, arm, (arm,)) for arm, _ in _ranked({arm: (arm,) for arm in some}, weights)]
    return lines


def dev_sets_of(lines: Iterable[ArmLine], language_of: Mapping[Arm, Arm]) -> dict[ArmLine, Arm]:
    """The dev set of every line whose arms have one in common, unless a line above it has that one already."""
    found: dict[ArmLine, Arm] = {}
    shown: set[Arm] = set()
    for line in lines:
        sets = {language_of[arm] for arm in line.arms}
        if len(sets) == 1 and not shown.issuperset(line.arms):
            found[line] = sets.pop()
            shown.update(line.arms)
    return found


def languages_of(run: Run, arm: Arm) -> str:
    """The language that an arm translates from or into, beside the common one; of a pair of others, both."""
    route, pivot = run.route(arm), run.setting("config.data").get("target", "en")
    return " and ".join(sorted({route.source, route.target} - {pivot}))


def source_of(run: Run, arm: Arm) -> str:
    """The source of the config that an arm is text of, in any direction; else the language's own text."""
    route = run.route(arm)
    name = arm.removeprefix(f"{route.source}-{route.target}.")
    sources = run.setting("config.data").get("sources") or {}
    of = [source for source in sources if name == source or name.startswith(f"{source}.")]
    return max(of, key=len) if of else f"own text of {languages_of(run, arm)}"


def _grouped(arms: Iterable[Arm], key: Callable[[Arm], str]) -> dict[str, tuple[Arm, ...]]:
    groups: dict[str, tuple[Arm, ...]] = {}
    for arm in arms:
        groups[key(arm)] = (*groups.get(key(arm), ()), arm)
    return groups


def _ranked(
    groups: Mapping[str, tuple[Arm, ...]], weights: Mapping[Arm, float] | None
) -> list[tuple[str, tuple[Arm, ...]]]:
    if weights is None:
        return list(groups.items())
    return sorted(groups.items(), key=lambda group: -sum(weights[arm] for arm in group[1]))
