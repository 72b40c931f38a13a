"""What a run, or each schedule, trained on: by language, direction and source where these have several arms."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from rota.report.ending import ArmTotals, arm_totals, epochs_of
from rota.report.numbers.contrasts import NO_VALUE
from rota.report.study import Row, Study, StudyRun
from rota.report.tables.table import Cell, Table
from rota.runs.arms import ArmLine, arm_lines, is_grouped, languages_of, source_of
from rota.types import Arm

NEST = "\N{EN DASH} "
"""Before an arm below its language, as in the table of the corpus."""

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
                epochs_of(found),
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
        "language": lambda arm: languages_of(run, arm),
        "direction": lambda arm: f"{run.route(arm).source}-{run.route(arm).target}",
        "source": lambda arm: source_of(run, arm),
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


def arm_share_table(study: Study, rows: Sequence[Row]) -> Table | None:
    """What each schedule trained on: a line for every language, those of its arms below it; None where there are none.

    A page of languages with one arm each has the table of epochs instead.
    """
    lines, shown = arm_lines(study.any_run), [row for row in rows if row.finished]
    if not is_grouped(lines) or not shown:
        return None
    pairs = study.any_run.arms
    totals = {row.name: {seed: _by_arm(run) for seed, run in row.finished.items()} for row in shown}
    cells, data = [], []
    for line in lines:
        size = sum(pairs[arm] for arm in line.arms)
        named = Cell(f"{NEST * line.depth}{line.name}", alone=line.name)
        found = [{seed: _share_and_epochs(line, of) for seed, of in totals[row.name].items()} for row in shown]
        written = [Cell(_mean_of(list(each.values()))) for each in found]
        cells.append([named, Cell(f"{size:,}"), Cell(f"{size / sum(pairs.values()):.1%}"), *written])
        for row, by_seed in zip(shown, found, strict=True):
            for seed, (share, epochs) in by_seed.items():
                about = {"row": row.name, "seed": seed, "line": line.name, "arms": len(line.arms)}
                data.append({**about, "share": share, "epochs": epochs})
    caption = (
        "Share of the target tokens, mean over the finished runs, and in brackets how often the text was gone through. "
        "A language has the sums of its arms, which stand below it."
    )
    columns = ("language or arm", "pairs", "of the corpus", *(row.short for row in shown))
    title = "What each schedule trained on, by language"
    return Table("arm-shares", title, caption, columns, cells, text_columns=1, data=data)


def _by_arm(run: StudyRun) -> dict[Arm, ArmTotals]:
    return {each.arm: each for each in arm_totals(run)}


def _share_and_epochs(line: ArmLine, totals: Mapping[Arm, ArmTotals]) -> tuple[float, float | None]:
    some = [totals[arm] for arm in line.arms]
    return sum(each.share for each in some), some[0].epochs if len(some) == 1 else epochs_of(some)


def _mean_of(found: Sequence[tuple[float, float | None]]) -> str:
    shares, epochs = [share for share, _ in found], [epochs for _, epochs in found if epochs is not None]
    share = f"{sum(shares) / len(shares):.1%}"
    return f"{share} ({sum(epochs) / len(epochs):.1f})" if epochs else share
