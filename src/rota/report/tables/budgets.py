"""Tables of what was spent: steps to the best model, equal budgets, time; and of the corpus."""

from __future__ import annotations

from collections.abc import Sequence

from rota.report.numbers.contrasts import NO_VALUE, Estimate, over_seeds
from rota.report.numbers.cost import PHASES, Spending, by_seed, clock, phase, tokens, updates
from rota.report.numbers.measures import LOW, lowest_loss_step
from rota.report.numbers.printed import STEPS, printed_row
from rota.report.study import Row, Study, StudyRun
from rota.report.tables.scores import name_cells
from rota.report.tables.table import Cell, Table
from rota.types import Arm


def convergence_tables(study: Study) -> list[Table]:
    """The paper's table of best checkpoints, and the same for every teacher whose settings were varied."""
    tables = [convergence_table("convergence", "Steps to the best model", study.main)]
    for teacher, changed in study.ablations.items():
        default = study.default_of(teacher)
        if default is not None:
            title = f"{default.label} with other settings: steps to the best model"
            tables.append(convergence_table(f"{teacher}-convergence", title, [default, *changed]))
    return tables


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
            cells += [Cell(_whole(found)), Cell(NO_VALUE if found is None else f"{found.mean / steps:.0%}")]
        lines.append([*name_cells(row), Cell(str(len(row.finished))), *cells, _paper_step(row)])
        data += [by_seed(row, name, measure) for name, measure in measures.items()]
    return Table(name, title, caption, columns, lines, data=[line for found in data for line in found])


def _lowest_step(run: StudyRun) -> int | None:
    return lowest_loss_step(run, LOW)


def selected_step(run: StudyRun) -> int | None:
    found = run.selection("best.step")
    return None if found is None else int(found["best"]["step"])


def _paper_step(row: Row) -> Cell:
    printed = printed_row(row)
    if printed is None or printed.best_step is None:
        return Cell("")
    return Cell(f"{printed.best_step:,} ({printed.best_step / STEPS:.0%})")


def _whole(found: Estimate | None) -> str:
    if found is None:
        return NO_VALUE
    return f"{found.mean:,.0f}" + ("" if found.sd is None else f" \N{PLUS-MINUS SIGN} {found.sd:,.0f}")


def epoch_table(rows: Sequence[Row], languages: Sequence[str]) -> Table:
    """How often each language's text was repeated; without rows if no run recorded it."""
    caption = "How often the training text of each language was gone through by the end of the run; mean over seeds."
    lines, data = [], []
    for row in rows:
        ends = {seed: run.epochs for seed, run in row.finished.items() if run.epochs}
        if not ends:
            continue
        found = {arm: [epochs[arm] for epochs in ends.values() if arm in epochs] for arm in languages}
        cells = [Cell(f"{sum(each) / len(each):.1f}" if each else NO_VALUE) for each in found.values()]
        lines.append([*name_cells(row), Cell(str(len(ends))), *cells])
        data += [
            {"row": row.name, "seed": seed, "measure": f"epochs of {arm}", "value": epochs.get(arm, "")}
            for seed, epochs in ends.items()
            for arm in languages
        ]
    columns = ("schedule", "warm-up", "seeds", *languages)
    return Table("epochs", "Epochs of each language", caption, columns, lines, data=data)


def budget_table(study: Study, baseline: Row) -> Table:
    """Equal budgets are equal numbers of updates of equally large batches."""
    caption = (
        "Budgets are equal where the updates and the real target tokens seen agree; batches hold whole sentences, so "
        f"tokens agree to about a percent. Relative: tokens over those of {baseline.title}."
    )
    rows = study.with_runs
    base = over_seeds(baseline, tokens)
    lines, data = [], []
    for row in rows:
        seen, made = over_seeds(row, tokens), over_seeds(row, updates)
        relative = NO_VALUE if seen is None or base is None else f"{seen.mean / base.mean:.3f}"
        cells = [Cell(_whole(made)), Cell(_whole(seen)), Cell(relative)]
        lines.append([*name_cells(row), Cell(str(len(row.finished))), *cells])
        data += by_seed(row, "updates", updates) + by_seed(row, "target_tokens", tokens)
    columns = ("schedule", "warm-up", "seeds", "updates", "target tokens", "relative")
    return Table("budgets", "Equal budgets", caption, columns, lines, data=data)


def cost_table(study: Study, baseline: Row) -> Table:
    """Time of training by phase; translating for selection is not part of it."""
    caption = (
        "Minutes of training, mean over seeds: on the wall, of the processors, and on the wall by phase (observations: "
        f"what the teacher has measured, and its own computing). Relative: processor time over that of "
        f"{baseline.title}. Times depend on what else the machine did; the ratio of processor times does so the least."
    )
    columns = ("schedule", "warm-up", "seeds", "wall", "processor", "relative", *PHASES)
    base = over_seeds(baseline, clock("cpu"))
    lines, data = [], []
    for row in study.with_runs:
        wall, cpu = (over_seeds(row, clock(name)) for name in ("wall", "cpu"))
        relative = NO_VALUE if cpu is None or base is None else f"{cpu.mean / base.mean:.2f}"
        phases = [Cell(_minutes(over_seeds(row, phase(name)))) for name in PHASES]
        head = [*name_cells(row), Cell(str(len(row.finished)))]
        lines.append([*head, Cell(_minutes(wall)), Cell(_minutes(cpu)), Cell(relative), *phases])
        for name, measure in _cost_measures().items():
            data += by_seed(row, name, measure)
    return Table("cost", "What it cost", caption, columns, lines, data=data)


def _cost_measures() -> dict[str, Spending]:
    clocks = {f"{name}_seconds": clock(name) for name in ("wall", "cpu")}
    return clocks | {f"{name}_seconds": phase(name) for name in PHASES}


def _minutes(found: Estimate | None) -> str:
    return NO_VALUE if found is None else f"{found.mean / 60:.1f}"


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
        cells = [Cell(NO_VALUE if count is None else f"{count:,}") for count in counts]
        lines.append([Cell(arm), Cell(group), Cell(f"{size:,}"), Cell(f"{size / total:.1%}"), *cells])
        names = ("dev_teacher", "dev_selection", "test")
        data.append({"language": arm, "group": group, "train": size, **dict(zip(names, counts, strict=True))})
        for part, pairs in _arms_of(run, arm).items():
            nothing = [Cell("")] * len(counts)
            share = Cell(f"{pairs / total:.1%}")
            lines.append([Cell(f"\N{EN DASH} {part}"), Cell(f"arm of {arm}"), Cell(f"{pairs:,}"), share, *nothing])
            data.append({"language": part, "group": f"arm of {arm}", "train": pairs, **dict.fromkeys(names)})
    caption = (
        "Sentences. One half of a dev set is for the teacher, the other one for dev losses and for choosing models."
    )
    columns = ("language", "group", "train", "share", "dev: teacher", "dev: selection", "test")
    return Table("data", "The corpus", caption, columns, lines, data=data)


def _arms_of(run: StudyRun, language: Arm) -> dict[Arm, int]:
    """Training pairs of the arms of a language that has others than itself."""
    arms = {arm: size for arm, size in run.arms.items() if run.language_of(arm) == language}
    return {} if list(arms) == [language] else arms
