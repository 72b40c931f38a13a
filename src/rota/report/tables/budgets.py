"""How soon, how much and at what cost: convergence, equal budgets, time."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rota.report.numbers.contrasts import Estimate, default_of
from rota.report.numbers.measures import LOW, lowest_loss_step
from rota.report.numbers.printed import STEPS
from rota.report.study import ABLATED, MAIN_TABLES, Row, RunRecords, Study
from rota.report.tables.scores import NO_RUN, name_cells
from rota.report.tables.table import Cell, Table

Measure = Callable[[RunRecords], float | None]


def convergence_tables(study: Study) -> list[Table]:
    """The paper's table of best checkpoints, and the same for the settings of DQN."""
    rows = {"convergence": ("Steps to the best model", study.of_tables(*MAIN_TABLES))}
    default = default_of(study, "dqn")
    if default is not None and study.of_tables("dqn"):
        rows["dqn-convergence"] = (
            "DQN with other settings: steps to the best model",
            [default, *study.of_tables("dqn")],
        )
    return [convergence_table(name, title, found) for name, (title, found) in rows.items()]


def convergence_table(name: str, title: str, rows: Sequence[Row]) -> Table:
    caption = (
        "The step of the best model: by the selection on dev translations of rota evaluate --select, and by the lowest "
        "dev loss of the low-resource languages. Mean \N{PLUS-MINUS SIGN} standard deviation over seeds, and as a "
        "share of the run. The paper's steps are of its 150,000."
    )
    columns = (
        "schedule",
        "warm-up",
        "seeds",
        "best by selection",
        "of the run",
        "lowest dev loss",
        "of the run",
        "paper",
    )
    measures = {"selected_step": selected_step, "lowest_loss_step": _lowest_step}
    lines, data = [], []
    for row in rows:
        steps = max(run.steps for run in row.runs.values())
        cells = []
        for measure in measures.values():
            found = over_seeds(row, measure)
            cells += [Cell(_whole(found)), Cell(NO_RUN.text if found is None else f"{found.mean / steps:.0%}")]
        lines.append([*name_cells(row), Cell(str(len(row.finished))), *cells, _paper_step(row)])
        data += [_by_seed(row, name, measure) for name, measure in measures.items()]
    return Table(name, title, caption, columns, lines, data=[line for found in data for line in found])


def _lowest_step(run: RunRecords) -> int | None:
    return lowest_loss_step(run, LOW)


def selected_step(run: RunRecords) -> int | None:
    return None if run.selection is None else int(run.selection["best"]["step"])


def _paper_step(row: Row) -> Cell:
    printed = row.printed
    if printed is None or printed.best_step is None:
        return Cell("")
    return Cell(f"{printed.best_step:,} ({printed.best_step / STEPS:.0%})")


def over_seeds(row: Row, measure: Measure) -> Estimate | None:
    found = {seed: measure(run) for seed, run in row.finished.items()}
    known = {seed: float(value) for seed, value in found.items() if value is not None}
    return Estimate(known) if known else None


def _by_seed(row: Row, name: str, measure: Measure) -> list[dict[str, object]]:
    return [
        {"row": row.name, "seed": seed, "measure": name, "value": "" if value is None else value}
        for seed, run in row.finished.items()
        for value in [measure(run)]
    ]


def _whole(found: Estimate | None) -> str:
    if found is None:
        return NO_RUN.text
    return f"{found.mean:,.0f}" + ("" if found.sd is None else f" \N{PLUS-MINUS SIGN} {found.sd:,.0f}")


def budget_table(study: Study, baseline: Row) -> Table:
    """Equal budgets are equal numbers of updates of equally large batches."""
    caption = (
        "Budgets are equal where the updates and the real target tokens seen agree; batches hold whole sentences, so "
        f"tokens agree to about a percent. Relative: tokens over those of {baseline.title}."
    )
    rows = study.of_tables(*MAIN_TABLES, *ABLATED)
    base = over_seeds(baseline, _tokens)
    lines, data = [], []
    for row in rows:
        tokens, updates = over_seeds(row, _tokens), over_seeds(row, lambda run: run.history.updates)
        relative = NO_RUN.text if tokens is None or base is None else f"{tokens.mean / base.mean:.3f}"
        cells = [Cell(_whole(updates)), Cell(_whole(tokens)), Cell(relative)]
        lines.append([*name_cells(row), Cell(str(len(row.finished))), *cells])
        data += _by_seed(row, "updates", lambda run: run.history.updates) + _by_seed(row, "target_tokens", _tokens)
    columns = ("schedule", "warm-up", "seeds", "updates", "target tokens", "relative")
    return Table("budgets", "Equal budgets", caption, columns, lines, data=data)


def _tokens(run: RunRecords) -> int:
    return sum(run.history.tokens.values())


PHASES = ("updates", "observations", "validations", "batches")


def phase_seconds(run: RunRecords) -> dict[str, float]:
    """Wall seconds of every phase of a run, and ``rest``: checkpoints, records, display."""
    seconds = dict.fromkeys(PHASES, 0.0)
    for entry in run.timings:
        for phase, spent in entry["phases"].items():
            seconds[phase] = seconds.get(phase, 0.0) + spent
    return {**seconds, "rest": max(0.0, total_seconds(run, "wall") - sum(seconds.values()))}


def total_seconds(run: RunRecords, clock: str) -> float:
    return float(sum(entry[clock] for entry in run.timings))


def cost_table(study: Study, baseline: Row) -> Table:
    """Time of training by phase; translating for selection is not part of it."""
    caption = (
        "Minutes of training, mean over seeds: on the wall, of the processors, and on the wall by phase (observations: "
        f"what the teacher has measured, and its own computing). Relative: processor time over that of "
        f"{baseline.title}. Times depend on what else the machine did; the ratio of processor times does so the least."
    )
    columns = ("schedule", "warm-up", "seeds", "wall", "processor", "relative", *PHASES, "rest")
    base = over_seeds(baseline, lambda run: total_seconds(run, "cpu") or None)
    lines, data = [], []
    for row in study.of_tables(*MAIN_TABLES, *ABLATED):
        wall, cpu = (over_seeds(row, _clock(name)) for name in ("wall", "cpu"))
        relative = NO_RUN.text if cpu is None or base is None else f"{cpu.mean / base.mean:.2f}"
        phases = [Cell(_minutes(over_seeds(row, _phase(name)))) for name in (*PHASES, "rest")]
        head = [*name_cells(row), Cell(str(len(row.finished)))]
        lines.append([*head, Cell(_minutes(wall)), Cell(_minutes(cpu)), Cell(relative), *phases])
        for name, measure in _cost_measures().items():
            data += _by_seed(row, name, measure)
    return Table("cost", "What it cost", caption, columns, lines, data=data)


def _cost_measures() -> dict[str, Measure]:
    clocks = {f"{name}_seconds": _clock(name) for name in ("wall", "cpu")}
    return clocks | {f"{name}_seconds": _phase(name) for name in (*PHASES, "rest")}


def _clock(name: str) -> Measure:
    return lambda run: total_seconds(run, name) if run.timings else None


def _phase(name: str) -> Measure:
    return lambda run: phase_seconds(run).get(name, 0.0) if run.timings else None


def _minutes(found: Estimate | None) -> str:
    return NO_RUN.text if found is None else f"{found.mean / 60:.1f}"


def data_table(study: Study) -> Table:
    """The counterpart of the paper's table of the corpus."""
    run = study.any_run
    total = sum(run.sizes.values())
    measured = run.about.get("measured", {})
    tested = {entry["language"]: entry["sentences"] for entry in run.evals if "sentences" in entry}
    lines, data = [], []
    for arm, size in run.sizes.items():
        group = "low-resource" if arm in run.low_resource else "high-resource"
        sets = [measured.get(name, {}).get(arm) for name in ("teacher_sentences", "selection_sentences")]
        counts = [*sets, tested.get(arm)]
        cells = [Cell(NO_RUN.text if count is None else f"{count:,}") for count in counts]
        lines.append([Cell(arm), Cell(group), Cell(f"{size:,}"), Cell(f"{size / total:.1%}"), *cells])
        names = ("dev_teacher", "dev_selection", "test")
        data.append({"language": arm, "group": group, "train": size, **dict(zip(names, counts, strict=True))})
    caption = (
        "Sentences. One half of a dev set is for the teacher, the other one for dev losses and for choosing models."
    )
    columns = ("language", "group", "train", "share", "dev: teacher", "dev: selection", "test")
    return Table("data", "The corpus", caption, columns, lines, data=data)
