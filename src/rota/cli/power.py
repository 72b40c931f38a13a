"""What ``rota compare --dry-run`` says of a plan: the smallest differences that it can detect."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Group
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from rota.experiments.suite import Suite
    from rota.plan import Plan
    from rota.report.numbers.planned import Detectable
    from rota.report.study import Study


def check_plan(suite: Suite) -> None:
    """The report would refuse an unknown endpoint too, but only after everything is trained."""
    from rota.report.numbers.planned import check_endpoints

    if suite.resolved_plan is not None:
        check_endpoints(suite.resolved_plan)


def power_view(plan: Plan, folder: Path, own: Mapping[str, Collection[int]], *, asked: bool) -> Group:
    """A line for each planned test. ``asked``: the folder was named, so that it must hold runs.

    ``own``: of the rows that have seeds of their own.
    """
    from rota.report.numbers.planned import detectable

    found = detectable(plan, _studies(folder, asked=asked), own)
    table = Table(box=None, padding=(0, 1), show_edge=False)
    names = [_name(each) for each in found]
    table.add_column("test", overflow="fold")  # a truncated name may be that of another
    known = any(each.spread is not None for each in found)
    for column in ("seeds", "interest", *(("noise", "detects", "corrected", "needs") if known else ())):
        table.add_column(column, justify="right", no_wrap=True, min_width=len(column))
    for name, each in zip(names, found, strict=True):
        numbers = [*map(_number, (each.spread, each.alone, each.corrected)), _needs(each)]
        table.add_row(name, str(each.seeds), _number(each.interest), *(numbers if known else []))
    title = Text(f"The plan, {len(found)} {'test' if len(found) == 1 else 'tests'}:", style="bold")
    return Group(Text(), title, table, Text(_explained(folder, known=known)))


def _studies(folder: Path, *, asked: bool) -> dict[str, Study]:
    """By corpus; under the name of the folder if it is of one. None if it has no runs yet."""
    from rota.report.folders import corpora_of, run_folders
    from rota.report.study import read_study

    if not asked and not folder.is_dir():
        return {}
    parts = {name: folder / name for name in corpora_of(folder)} or {folder.name: folder}
    there = {name: path for name, path in parts.items() if path.is_dir() and run_folders(path)}
    if asked and not there:
        raise ValueError(f"no runs in {folder}, whose noise is asked for; give run folders or the folder of a suite")
    return {name: read_study([path]) for name, path in there.items()}


def _name(each: Detectable) -> str:
    """``against-tuning, debian, test-loss``."""
    corpora = each.test.corpora
    where = f", {corpora[0]}" if len(corpora) == 1 else f", {len(corpora)} corpora" if corpora else ""
    return f"{each.test.name}{where}, {each.test.endpoint}{', time' if each.test.contrast.at == 'time' else ''}"


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.3g}"


def _needs(each: Detectable) -> str:
    from rota.report.numbers.planned import MOST_SEEDS

    if each.spread is None or each.interest is None:
        return ""
    return f"> {MOST_SEEDS}" if each.enough is None else str(each.enough)


def _explained(folder: Path, *, known: bool) -> str:
    if not known:
        return f"What it can detect is not known: {folder} has no finished runs with these endpoints; give --noise."
    return (
        f"Noise: standard deviation of the difference of two runs with one seed, from {folder}. Detects: the smallest "
        "true difference found with probability 0.8 at 5 %, and corrected for the number of tests. Needs: seeds for "
        "the difference of interest, corrected."
    )
