"""The table of the planned contrasts, and what stands before it: whether the runs began under this plan."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

from rota.plan import Plan, PlannedContrast, WrittenPlan
from rota.report.numbers.contrasts import ALPHA, NO_VALUE
from rota.report.numbers.planned import PlannedResult
from rota.report.sentences import and_list, plural
from rota.report.study import Study, StudyRun, own_seeds, short_labels
from rota.report.tables.pooled import p_text
from rota.report.tables.table import Cell, Table

NAMED: Final = 2
"""At most so many corpora are named in a line of the table."""


def planned_table(results: Sequence[PlannedResult], studies: Mapping[str, Study], *, several: bool) -> Table:
    """One line for each test of the plan; ``several``: the suite has several corpora."""
    best_of = any(len(each.test.contrast.references) > 1 for each in results)
    caption = (
        "Means over the planned seeds, paired by seed, with 95 % intervals; p is two-sided, then adjusted by Holm's "
        f"method for the {plural(len(results), 'planned test')}. Interest: the smallest difference that would matter."
    )
    if best_of:
        caption += (
            " Against the best of several rows: ahead only if ahead of each of them, behind with p and interval "
            "corrected for their number; in brackets, the best by its mean."
        )
    place = ("corpus",) if several else ()
    columns = ("contrast", *place, "endpoint", "difference", "verdict", "p (Holm)", "p", "interest", "seeds")
    lines = [_line(each, studies, several=several) for each in results]
    data = [_data(each) for each in results]
    text_columns = 3 if several else 2
    return Table("planned", "The planned tests", caption, columns, lines, text_columns=text_columns, data=data)


def _line(each: PlannedResult, studies: Mapping[str, Study], *, several: bool) -> list[Cell]:
    found = each.found
    corpora = each.test.corpora
    where = _where(corpora) if len(corpora) <= NAMED else f"mean of {len(corpora)}"  # the table would not fit a screen
    place = [Cell(where)] if several else []
    seeds = f"{0 if found is None else found.seeds} of {each.planned}"
    interest = NO_VALUE if each.interest is None else f"{each.interest:g}"
    best = f" ({', '.join(_label(row, studies) for row in each.best.values())})" if each.best else ""
    both = (each.p_holm, None if found is None else found.p)
    p = [NO_VALUE if value is None else p_text(value) for value in both]
    texts = [_endpoint(each), _difference(each), each.verdict, *p, interest, seeds]
    return [Cell(f"{each.test.name}{best}"), *place, *map(Cell, texts)]


def _difference(each: PlannedResult) -> str:
    if each.found is None:
        return NO_VALUE
    low, high = map(each.metric.signed, each.found.interval)
    return f"{each.metric.signed(each.found.mean)} [{low}, {high}]"


def planned_headlines(results: Sequence[PlannedResult]) -> list[str]:
    """One line for each test, for a terminal."""
    lines = []
    for each in results:
        where = f", {_where(each.test.corpora)}" if each.test.corpora else ""
        p = "" if each.p_holm is None else f", p = {p_text(each.p_holm)} after Holm"
        lines.append(f"planned: {each.test.name}{where}, {_endpoint(each)}: {_difference(each)}{p}: {each.verdict}.")
    return lines


def _endpoint(each: PlannedResult) -> str:
    if each.by_costs and each.budget:
        updates = {f"{time:,.0f}" for time in each.budget.values()}
        return f"{each.metric.label} at the cost of {and_list(sorted(updates))} updates"
    minutes = " and ".join(f"{seconds / 60:.1f}" for seconds in each.budget.values())
    return f"{each.metric.label} at {minutes} min" if minutes else each.metric.label


def _where(corpora: Sequence[str]) -> str:
    return and_list(corpora) if corpora else ""


def plan_points(plan: Plan, studies: Mapping[str, Study]) -> list[str]:
    """What each contrast is: ``price: DQN minus the best of Temperature 2 and Temperature 5, after equal time``."""
    points = [f"{name}: {_what(contrast, studies)}." for name, contrast in plan.contrasts.items()]
    if plan.costs and any(contrast.at == "time" for contrast in plan.contrasts.values()):
        costs = and_list([f"{_label(row, studies)} costs {cost:g}" for row, cost in plan.costs.items()])
        points.append(f"Time is counted in updates: with what a teacher measures, one of {costs}, others 1.")
    return points


def _what(contrast: PlannedContrast, studies: Mapping[str, Study]) -> str:
    names = [_label(row, studies) for row in contrast.references]
    reference = names[0] if len(names) == 1 else f"the best of {and_list(names)}"
    group = {"all": "", "goal": ", as the goal weighs languages"}
    extra = group.get(contrast.languages, f", {contrast.languages} languages")
    extra += ", after equal time" if contrast.at == "time" else ""
    extra += ", mean over the corpora" if contrast.together else ""
    return f"{_label(contrast.row, studies)} minus {reference}{extra}"


def _label(row: str, studies: Mapping[str, Study]) -> str:
    study = next((study for study in studies.values() if row in study.rows), None)
    return row if study is None else short_labels(study)[row]


def _data(each: PlannedResult) -> dict[str, object]:
    contrast, found = each.test.contrast, each.found
    line: dict[str, object] = {
        "contrast": each.test.name,
        "row": contrast.row,
        "minus": " ".join(contrast.references),
        "corpora": " ".join(each.test.corpora),
        "endpoint": each.test.endpoint,
        "at": contrast.at,
        "languages": contrast.languages,
        "seeds_planned": each.planned,
    }
    if found is not None:
        line |= {"seeds": found.seeds, "best": found.best, "difference": found.mean}
        line |= {"low": found.interval[0], "high": found.interval[1], "p": found.p, "p_holm": each.p_holm}
    return line | {"interest": "" if each.interest is None else each.interest, "verdict": each.verdict}


def plan_sentences(written: WrittenPlan, studies: Mapping[str, Study], results: Sequence[PlannedResult]) -> list[str]:
    """What the plan is, whether the runs began under it, and how much of it is there."""
    plan, runs = written.plan, _planned_runs(written, studies)
    began = Counter(str(run.about.get("plan") or "") for run in runs)
    ours = began.pop(written.fingerprint, 0)
    without = began.pop("", 0)
    lead = (
        f"The plan names {plural(len(plan.contrasts), 'contrast')} "
        f"({plural(len(results), 'test')} at {ALPHA * 100:.0f} % in all) and {_seeds(plan, studies)}. "
    )
    if not runs:
        return [f"{lead}None of its runs is there yet."]
    if ours == len(runs):
        kept = f"All {plural(ours, 'run')} of it began under this very plan (fingerprint {written.fingerprint})."
    else:
        parts = [f"{number} under another plan ({fingerprint})" for fingerprint, number in sorted(began.items())]
        parts += [f"{without} without a plan"] if without else []
        kept = (
            f"Of its {plural(len(runs), 'run')}, {ours} began under this plan (fingerprint {written.fingerprint}), "
            f"but {and_list(parts)}: the tests below were not all planned before the runs."
        )
    sentences = [lead + kept]
    if any(each.found is None or each.found.seeds < each.planned for each in results):
        sentences.append(
            "Not all planned runs have finished: this is an interim look, and p does not allow for further ones."
        )
    return [*sentences, "Whatever is not in this table was not planned; it is marked as exploratory."]


def _seeds(plan: Plan, studies: Mapping[str, Study]) -> str:
    """``8 seeds, of which the suite gives DQN 4``: the plan's fingerprint does not cover what a row has of its own."""
    own, planned = own_seeds(studies.values()), plan.seeds or ()
    named = dict.fromkeys(row for contrast in plan.contrasts.values() for row in contrast.rows)
    counts = {row: len(plan.seeds_of([row], own)) for row in named}
    fewer = [f"{_label(row, studies)} {count}" for row, count in counts.items() if count < len(planned)]
    return plural(len(planned), "seed") + (f", of which the suite gives {and_list(fewer)}" if fewer else "")


def _planned_runs(written: WrittenPlan, studies: Mapping[str, Study]) -> list[StudyRun]:
    """The runs that the plan is about, as far as they have begun."""
    own = own_seeds(studies.values())
    wanted = {
        (corpus, row)
        for test in written.plan.tests()
        for corpus in (test.corpora or tuple(studies)[:1])
        for row in test.contrast.rows
    }
    return [
        run
        for corpus, study in studies.items()
        for name, row in study.rows.items()
        if (corpus, name) in wanted
        for seed, run in row.runs.items()
        if seed in written.plan.seeds_of([name], own)
    ]
