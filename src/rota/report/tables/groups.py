"""What a run trained on, summed up by language, direction and source where these have several arms."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from rota.report.ending import ArmTotals, arm_totals
from rota.report.numbers.contrasts import NO_VALUE
from rota.report.study import StudyRun
from rota.report.tables.table import Cell, Table
from rota.types import Arm

Groups = Mapping[str, list[Arm]]
"""The arms of each group."""


def group_table(run: StudyRun) -> Table | None:
    """One line for each group of arms; None where every arm is a language of its own."""
    totals = {each.arm: each for each in arm_totals(run)}
    total_pairs = max(1, sum(run.arms.values()))
    lines, data = [], []
    for kind, groups in arm_groups(run).items():
        for name, arms in groups.items():
            pairs, found = sum(run.arms[arm] for arm in arms), [totals[arm] for arm in arms]
            tokens, share, epochs = (
                sum(each.tokens for each in found),
                sum(each.share for each in found),
                _epochs(found),
            )
            written = [f"{len(arms)}", f"{pairs:,}", f"{pairs / total_pairs:.1%}", f"{tokens:,}", f"{share:.1%}"]
            end = NO_VALUE if epochs is None else f"{epochs:.1f}"
            lines.append([Cell(text) for text in (kind, name, *written, end)])
            counted = {"arms": len(arms), "pairs": pairs, "tokens": tokens, "share": share, "epochs": epochs}
            data.append({"grouped_by": kind, "group": name, **counted})
    if not lines:
        return None
    caption = "The same arms together. Each grouping has all of them. Epochs: how often the texts of a group were gone "
    caption += "through, as one text."
    columns = ("by", "group", "arms", "pairs", "of the corpus", "tokens", "share", "epochs")
    return Table("arm-groups", "Arms by language and source", caption, columns, lines, data=data)


def arm_groups(run: StudyRun) -> dict[str, Groups]:
    """By language, by direction and by source; only groupings that put several arms together."""
    ways: dict[str, Callable[[Arm], str]] = {
        "language": lambda arm: _languages(run, arm),
        "direction": lambda arm: f"{run.route(arm).source}-{run.route(arm).target}",
        "source": lambda arm: _source(run, arm),
    }
    found: dict[str, Groups] = {}
    for kind, key in ways.items():
        groups: dict[str, list[Arm]] = {}
        for arm in run.arms:
            groups.setdefault(key(arm), []).append(arm)
        known = [list(other.values()) for other in found.values()]
        if len(groups) < len(run.arms) and list(groups.values()) not in known:
            found[kind] = groups
    return found


def _languages(run: StudyRun, arm: Arm) -> str:
    """The language that an arm translates from or into, beside the common one; of a pair of others, both."""
    route, pivot = run.route(arm), run.setting("config.data").get("target", "en")
    return " and ".join(sorted({route.source, route.target} - {pivot}))


def _source(run: StudyRun, arm: Arm) -> str:
    """The source of the config that an arm is text of, in any direction; else the language's own text."""
    route = run.route(arm)
    name = arm.removeprefix(f"{route.source}-{route.target}.")
    sources = run.setting("config.data").get("sources") or {}
    of = [source for source in sources if name == source or name.startswith(f"{source}.")]
    return max(of, key=len) if of else f"own text of {_languages(run, arm)}"


def _epochs(arms: Sequence[ArmTotals]) -> float | None:
    """Tokens of all arms, divided by those of their texts."""
    trained = [each for each in arms if each.epochs]
    text = sum(each.tokens / each.epochs for each in trained if each.epochs)
    if len(trained) < len(arms) or not text:  # the length of a text that was not trained on is not known
        return None
    return sum(each.tokens for each in arms) / text
