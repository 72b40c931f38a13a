"""Tables of all rows at once: Dunnett's comparison in the pooled model, equal processor time, regret over corpora."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rota.report.numbers.contrasts import NO_VALUE, Estimate, contrast, estimate
from rota.report.numbers.measures import BLEU, CHRF, FINAL_LOSS, GROUPS, LATE_LOSS, MACRO, TEST_LOSS, Metric, measured
from rota.report.numbers.pooled import (
    at_time,
    loss_curve,
    pooled,
    regret_over,
    spread_of_regrets,
    step_curve,
    time_budget,
)
from rota.report.study import Row, Study
from rota.report.tables.scores import mean_and_sd, name_cells
from rota.report.tables.table import Cell, Table
from rota.statistics import PooledContrast, Regret, SeedComparison, paired_seeds

ENDPOINTS = (FINAL_LOSS, LATE_LOSS, TEST_LOSS, CHRF, BLEU)


def pooled_tables(study: Study, baseline: Row) -> list[Table]:
    """One for each endpoint, over all languages; none where fewer than two seeds were run."""
    tables = [pooled_table(study.main, baseline, metric) for metric in ENDPOINTS if metric in measured(study)]
    return [table for table in tables if table is not None]


def pooled_table(rows: Sequence[Row], baseline: Row, metric: Metric) -> Table | None:
    shared, own = (pooled(rows, baseline, metric, MACRO, own=own) for own in (False, True))
    if not shared:
        return None
    better = "above" if metric.higher_is_better else "below"
    caption = f"Means over all languages, in {metric.unit}; {better} zero is better."
    note = (
        f"Each schedule minus {baseline.title} in one model of all runs (value = schedule + seed + noise). Intervals "
        "hold for all rows at once with probability 0.95, and p is adjusted for the number of rows (Dunnett). Own "
        "variance: every learned schedule has noise of its own size, the static ones share theirs. Last, unadjusted, "
        "the paired t test of the two schedules alone."
    )
    columns = ("schedule", "warm-up", "seeds", "difference", "df", "p", "own variance", "df", "p", "p paired t")
    lines, data = [], []
    for row in rows:
        if row.name not in shared:
            continue
        found, paired = estimate(row, metric, MACRO), contrast(row, baseline, metric, MACRO)
        cells = [cell for each in (shared, own) for cell in _contrast_cells(each.get(row.name), metric)]
        seeds = Cell(str(0 if found is None else found.n))
        lines.append([*name_cells(row), seeds, *cells, Cell(NO_VALUE if paired is None else p_text(paired.p_t))])
        data.append(
            _contrast_data(row, baseline, metric, {"pooled": shared[row.name], "own": own.get(row.name)}, paired)
        )
    title = f"Pooled comparison with {baseline.title} (Dunnett): {metric.label}"
    return Table(f"pooled-{metric.name}", title, caption, columns, lines, note, data=data)


def _contrast_cells(found: PooledContrast | None, metric: Metric) -> list[Cell]:
    if found is None:
        return [Cell(NO_VALUE)] * 3
    low, high = map(metric.signed, found.interval)
    return [
        Cell(f"{metric.signed(found.difference)} [{low}, {high}]"),
        Cell(f"{found.freedom:.1f}"),
        Cell(p_text(found.p)),
    ]


def p_text(value: float) -> str:
    return "<0.001" if value < 0.0005 else f"{value:.3f}"


def _contrast_data(
    row: Row,
    baseline: Row,
    metric: Metric,
    contrasts: Mapping[str, PooledContrast | None],
    paired: SeedComparison | None,
) -> dict[str, object]:
    line: dict[str, object] = {"row": row.name, "baseline": baseline.name, "metric": metric.name, "scope": MACRO}
    for name, found in contrasts.items():
        if found is not None:
            line |= {f"{name}_difference": found.difference, f"{name}_error": found.error, f"{name}_df": found.freedom}
            line |= {f"{name}_low": found.interval[0], f"{name}_high": found.interval[1], f"{name}_p": found.p}
    return line | {"paired_p_t": "" if paired is None else paired.p_t}


def equal_time_tables(study: Study, baseline: Row) -> list[Table]:
    """Dev losses where every run had used as much processor time as the cheapest one in all; or none."""
    rows = [row for row in study.main if row.finished]
    budget = time_budget(rows, MACRO)
    if budget is None or len(rows) < 2 or max(len(row.finished) for row in rows) < 2:
        return []
    found = {row.name: {scope: _at(row, scope, budget) for scope in GROUPS} for row in rows}
    base = found.get(baseline.name, {}).get(MACRO)
    lines, data = [], []
    for row in rows:
        steps = at_time(row, {seed: step_curve(run) for seed, run in row.finished.items()}, budget)
        losses = found[row.name]
        cells = [Cell(_written(losses[scope])) for scope in GROUPS]
        updates = Cell(NO_VALUE if steps is None else f"{steps.mean:,.0f}")
        difference = Cell("" if row is baseline else _difference(losses[MACRO], base))
        lines.append([*name_cells(row), Cell(str(len(row.finished))), updates, *cells, difference])
        data += [
            {"row": row.name, "seed": seed, "cpu_seconds": budget, "scope": scope, "dev_loss": value}
            for scope, each in losses.items()
            for seed, value in ({} if each is None else each.by_seed).items()
        ]
    caption = (
        f"Dev loss when a run had used {budget / 60:.1f} minutes of processor time, all that the cheapest run took; "
        "interpolated between validations. Mean \N{PLUS-MINUS SIGN} standard deviation over seeds, and the paired "
        f"difference from {baseline.title} with its 95 % interval. A run that is slower is read before "
        "its end, at another point of its learning-rate schedule."
    )
    columns = ("schedule", "warm-up", "seeds", "updates", *GROUPS, "difference")
    return [Table("equal-time", "At equal processor time: dev loss", caption, columns, lines, data=data)]


def _at(row: Row, scope: str, budget: float) -> Estimate | None:
    return at_time(row, {seed: loss_curve(run, scope) for seed, run in row.finished.items()}, budget)


def _written(found: Estimate | None) -> str:
    return NO_VALUE if found is None else mean_and_sd(found, FINAL_LOSS)


def _difference(ours: Estimate | None, theirs: Estimate | None) -> str:
    common = [] if ours is None or theirs is None else [seed for seed in ours.by_seed if seed in theirs.by_seed]
    if ours is None or theirs is None or len(common) < 2:
        return NO_VALUE
    found = paired_seeds([theirs.by_seed[seed] for seed in common], [ours.by_seed[seed] for seed in common])
    low, high = map(FINAL_LOSS.signed, found.interval)
    return f"{FINAL_LOSS.signed(found.mean)} [{low}, {high}]"


def regret_tables(studies: Mapping[str, Study], metrics: Sequence[Metric] = ENDPOINTS) -> list[Table]:
    """One for each metric: how far each row is behind the best row of every corpus."""
    tables = []
    for metric in metrics:
        found = regret_over(studies, metric, MACRO)
        if found:
            tables.append(_regret_table(studies, metric, found))
    return tables


def _regret_table(studies: Mapping[str, Study], metric: Metric, found: Mapping[str, Regret]) -> Table:
    rows = next(iter(studies.values())).rows
    lines, data = [], []
    for name, regret in sorted(found.items(), key=lambda item: item[1].mean):
        low, high = map(metric.written, regret.interval)
        cells = [Cell(metric.written(regret.by_corpus[study])) for study in studies]
        lines.append(
            [Cell(name), Cell(rows[name].label), Cell(f"{metric.written(regret.mean)} [{low}, {high}]"), *cells]
        )
        line: dict[str, object] = {"row": name, "metric": metric.name, "regret": regret.mean}
        line |= {"low": regret.interval[0], "high": regret.interval[1]}
        data.append(line | {f"regret_{study}": value for study, value in regret.by_corpus.items()})
    caption = (
        f"How far each schedule is behind the best one of every corpus, in {metric.unit}, over all languages: the mean "
        f"over the corpora with a 95 % interval {spread_of_regrets(found)}, then each corpus. 0 is the best."
    )
    columns = ("row", "schedule", "regret", *studies)
    return Table(
        f"regret-{metric.name}",
        f"Regret over {len(studies)} corpora: {metric.label}",
        caption,
        columns,
        lines,
        data=data,
    )
