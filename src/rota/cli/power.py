"""What ``rota compare --dry-run`` says of a plan: the smallest differences that it can detect."""

from __future__ import annotations

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


def power_view(plan: Plan, folder: Path, *, asked: bool) -> Group:
    """A line for each planned test. ``asked``: the folder was named, so that it must hold runs."""
    from rota.report.numbers.planned import detectable

    earlier = _studies(folder, asked=asked)
    found = detectable(plan, earlier)
    table = Table(box=None, padding=(0, 2), show_edge=False)
    several = any(each.test.corpora for each in found)
    for name in ("contrast", *(["corpus"] if several else []), "endpoint", "at"):
        table.add_column(name, no_wrap=True)
    for name in ("seeds", "noise", "detects", "corrected", "interest", "needs"):
        table.add_column(name, justify="right", no_wrap=True)
    for each in found:
        place = [_corpus(each)] if several else []
        names = [each.test.name, *place, each.test.endpoint, each.test.contrast.at]
        numbers = map(_number, (each.spread, each.alone, each.corrected, each.interest))
        table.add_row(*names, str(each.seeds), *numbers, _needs(each))
    title = Text(f"The plan, {len(found)} {'test' if len(found) == 1 else 'tests'}:", style="bold")
    return Group(Text(), title, table, Text(_explained(found, folder)))


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


def _corpus(each: Detectable) -> str:
    return each.test.corpora[0] if len(each.test.corpora) == 1 else f"{len(each.test.corpora)} together"


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.3g}"


def _needs(each: Detectable) -> str:
    from rota.report.numbers.planned import MOST_SEEDS

    if each.spread is None or each.interest is None:
        return ""
    return f"> {MOST_SEEDS}" if each.enough is None else str(each.enough)


def _explained(found: list[Detectable], folder: Path) -> str:
    if all(each.spread is None for each in found):
        return f"What it can detect is not known: {folder} has no finished runs with these endpoints; give --noise."
    return (
        f"Noise: standard deviation of the difference of two runs with one seed, from {folder}. Detects: the smallest "
        "true difference found with probability 0.8 at 5 %, alone and corrected for the number of tests. Needs: seeds "
        "for the difference of interest, corrected."
    )
