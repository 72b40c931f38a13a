"""The paper's tables of scores with seeds, intervals and the paper's own numbers: languages, averages, differences."""

from __future__ import annotations

from collections.abc import Sequence

from rota.report.numbers.contrasts import (
    NO_VALUE,
    Estimate,
    by_pairs,
    contrast,
    estimate,
    holm_p,
    marks,
    written_difference,
)
from rota.report.numbers.measures import (
    ACCURACY,
    BEST_LOSS,
    CALIBRATED_LOSS,
    GROUPS,
    HIGH,
    LATE_LOSS,
    LOW,
    MACRO,
    Metric,
    headline_scope,
    measured,
    scope_title,
)
from rota.report.numbers.printed import printed_row
from rota.report.study import Row, Study
from rota.report.tables.table import Cell, Table

MARKS = (
    "Mean \N{PLUS-MINUS SIGN} standard deviation over seeds. + better, \N{MINUS SIGN} worse than {baseline}: the 95 % "
    "interval of the paired difference excludes zero; ++ and \N{MINUS SIGN}\N{MINUS SIGN}: also after Holm's "
    "correction over the rows of the column."
)
PAPER = "The paper's own number (small, or in brackets) is from its corpus, model and number of steps."


def average_tables(study: Study, baseline: Row) -> list[Table]:
    """Averages for the goal, if there is one, and over all languages, then the differences of every metric."""
    rows, metrics = study.main, measured(study)
    if not metrics:
        return []
    scope = headline_scope(study)
    goal = [] if scope == MACRO else [averages_table(rows, baseline, metrics, scope, scope_title(study, scope))]
    averages = [*goal, averages_table(rows, baseline, metrics)]
    return [*averages, *(differences_table(rows, baseline, metric) for metric in metrics)]


def language_tables(study: Study, baseline: Row) -> list[Table]:
    """Every language of both groups, one table for each metric."""
    rows, metrics = study.main, _by_language(measured(study))
    groups = {LOW: study.any_run.low_resource, HIGH: study.any_run.high_resource}
    return [
        language_table(study, rows, baseline, metric, group)
        for group, languages in groups.items()
        for metric in metrics
        if languages
    ]


def ablation_tables(study: Study) -> list[Table]:
    """The low-resource languages under changed settings of a teacher, compared with its own default."""
    tables = []
    for teacher, changed in study.ablations.items():
        default = study.default_of(teacher)
        if default is not None:
            tables += [
                language_table(study, [default, *changed], default, metric, LOW, ablation=teacher)
                for metric in _by_language(measured(study))
            ]
    return tables


def _by_language(metrics: Sequence[Metric]) -> list[Metric]:
    """Other readings of the validations are shown for groups alone: of one language it is the same story once more."""
    return [metric for metric in metrics if metric not in (LATE_LOSS, BEST_LOSS, CALIBRATED_LOSS, ACCURACY)]


def averages_table(
    rows: Sequence[Row], baseline: Row, metrics: Sequence[Metric], scope: str = MACRO, goal: str = ""
) -> Table:
    columns = [(metric, scope) for metric in metrics]
    weights = f"as {goal} weighs them" if goal else "each counting the same"
    caption = (
        f"Means over {'languages' if goal else 'all languages'}, {weights}. Dev losses are nats per token on sentences "
        "that no teacher sees: at the last step, as the mean of the last five validations, and at their lowest. "
        "Calibrated: the lowest over softmax temperatures; it and the token accuracy are means of the last five too. "
        "The test loss is that of the model that is scored."
    )
    names = tuple(metric.label for metric in metrics)
    name, title = ("goal", "Averages for the goal") if goal else ("averages", "Averages over all languages")
    return _table(name, title, caption, rows, baseline, columns, names)


def language_table(
    study: Study, rows: Sequence[Row], baseline: Row, metric: Metric, group: str, *, ablation: str = ""
) -> Table:
    run = study.any_run
    languages = run.low_resource if group == LOW else run.high_resource
    columns = [(metric, scope) for scope in (*languages, group)]
    title = f"{group.capitalize()} languages: {metric.label}"
    if ablation:
        title = f"{baseline.label} with other settings: {metric.label}, {group} languages"
    better = "more" if metric.higher_is_better else "less"
    caption = f"In {metric.unit}; {better} is better."
    name = "-".join(filter(None, (ablation, group, metric.name)))
    return _table(name, title, caption, rows, baseline, columns, (*languages, "mean"))


def _table(
    name: str,
    title: str,
    caption: str,
    rows: Sequence[Row],
    baseline: Row,
    columns: Sequence[tuple[Metric, str]],
    names: tuple[str, ...],
) -> Table:
    found = {column: marks(rows, baseline, *column) for column in columns}
    lines = []
    for row in rows:
        cells = [estimate_cell(row, *column, mark=found[column].get(row.name, "")) for column in columns]
        lines.append([*name_cells(row), Cell(_seeds(row, columns)), *cells])
    data = numbers(rows, baseline, columns)
    if any(cell.paper for line in lines for cell in line):
        caption = f"{caption} {PAPER}"
    note = MARKS.format(baseline=baseline.title)
    return Table(name, title, caption, ("schedule", "warm-up", "seeds", *names), lines, note, data=data)


def name_cells(row: Row) -> list[Cell]:
    """The first two columns, schedule and warm-up; two rows may differ in the warm-up alone."""
    return [Cell(row.label, alone=row.short), Cell(row.warmup)]


def _seeds(row: Row, columns: Sequence[tuple[Metric, str]]) -> str:
    """How many seeds the means of a row are over; a range where some runs lack a score."""
    counts = sorted({0 if found is None else found.n for found in (estimate(row, *column) for column in columns)})
    return str(counts[0]) if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"


def estimate_cell(row: Row, metric: Metric, scope: str, *, mark: str = "") -> Cell:
    printed = printed_row(row)
    value = None if printed is None else printed.scores.get(metric.name, {}).get(scope)
    paper = "" if value is None else f"{value:.2f}"
    found = estimate(row, metric, scope)
    return Cell(NO_VALUE if found is None else mean_and_sd(found, metric), mark, paper)


def mean_and_sd(found: Estimate, metric: Metric) -> str:
    spread = "" if found.sd is None else f" \N{PLUS-MINUS SIGN} {metric.written(found.sd)}"
    return metric.written(found.mean) + spread


def differences_table(rows: Sequence[Row], baseline: Row, metric: Metric) -> Table:
    """Row minus baseline for every group, with intervals and with what could have been seen."""
    note = (
        f"Differences are each schedule minus {baseline.title}, paired by seed, with the 95 % interval (Student's t); "
        "beside them the smallest true difference that the study would have seen with probability 0.8."
    )
    caption = f"In {metric.unit}; {'above' if metric.higher_is_better else 'below'} zero is better."
    columns = ["schedule", "warm-up", "pairs"]
    for group in GROUPS:
        columns += [group, "could see"]
    others = [row for row in rows if row.name != baseline.name]
    lines = [_differences(row, baseline, metric) for row in others]
    data = numbers(others, baseline, [(metric, group) for group in GROUPS])
    title = f"Differences from {baseline.title}: {metric.label}"
    return Table(f"differences-{metric.name}", title, caption, tuple(columns), lines, note, data=data)


def _differences(row: Row, baseline: Row, metric: Metric) -> list[Cell]:
    cells, pairs = [], 0
    for group in GROUPS:
        pairs = max(pairs, len(by_pairs(row, baseline, metric, group)))
        cells += [
            Cell(written_difference(row, baseline, metric, group)),
            Cell(_could_see(row, baseline, metric, group)),
        ]
    return [*name_cells(row), Cell(str(pairs)), *cells]


def _could_see(row: Row, baseline: Row, metric: Metric, scope: str) -> str:
    found = contrast(row, baseline, metric, scope)
    return NO_VALUE if found is None else metric.written(found.smallest_detectable)


def numbers(rows: Sequence[Row], baseline: Row, columns: Sequence[tuple[Metric, str]]) -> list[dict[str, object]]:
    """Everything known of every number of a table, for CSV: one value a line."""
    adjusted = {column: holm_p(rows, baseline, *column) for column in columns}
    return [
        {**_numbers(row, baseline, *column), "p_holm": adjusted[column].get(row.name, "")}
        for row in rows
        for column in columns
    ]


def _numbers(row: Row, baseline: Row, metric: Metric, scope: str) -> dict[str, object]:
    """Empty where a number does not exist."""
    found, compared, printed = estimate(row, metric, scope), contrast(row, baseline, metric, scope), printed_row(row)
    line: dict[str, object] = {"row": row.name, "schedule": row.label, "warmup": row.warmup}
    line |= {"metric": metric.name, "scope": scope, "seeds": 0 if found is None else found.n}
    line |= {"mean": "", "sd": "", "baseline": baseline.name, "pairs": 0, "difference": ""}
    line |= {"low": "", "high": "", "p_t": "", "p_holm": "", "p_sign_flip": "", "could_see": "", "paper": ""}
    if found is not None:
        line |= {"mean": found.mean, "sd": "" if found.sd is None else found.sd}
    if compared is not None:
        line |= {"pairs": compared.seeds, "difference": compared.mean}
        line |= {"low": compared.interval[0], "high": compared.interval[1], "p_t": compared.p_t}
        line |= {"p_sign_flip": compared.p_permutation, "could_see": compared.smallest_detectable}
    if printed is not None:
        line["paper"] = printed.scores.get(metric.name, {}).get(scope, "")
    return line
