"""A whole report: tables, figures and a page, from the records of runs and from nothing else."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from rota.plan import WrittenPlan, find_plan
from rota.report.figures.drawing import Look, Picture, schedule_looks
from rota.report.figures.helping import help_figure
from rota.report.figures.results import (
    cost_figure,
    dev_score_figure,
    difference_figure,
    loss_figure,
    pareto_figure,
    source_gain_figure,
)
from rota.report.figures.shares import evolution, proportions
from rota.report.figures.teachers import (
    epsilon_figure,
    how_to_probe,
    q_network_figures,
    scores_figure,
    signal_figure,
)
from rota.report.folders import Progress, check_folder
from rota.report.numbers.measures import HIGH, LOW, MACRO, headline_scope, measured, scope_title
from rota.report.numbers.planned import PlannedResult, planned_results
from rota.report.page import MADE_BY, Section, files_of, write_report
from rota.report.recommend import recommendation
from rota.report.sentences import (
    HEADLINES,
    alarms_raised,
    headlines,
    how_made,
    missing,
    plural,
    stopped_early,
    what_was_run,
)
from rota.report.single import advice_section, cost_section, saw_section, score_section
from rota.report.study import MAIN_TABLES, Row, Study, read_study
from rota.report.tables.budgets import budget_table, convergence_tables, cost_table, data_table, epoch_table
from rota.report.tables.groups import arm_share_table
from rota.report.tables.planned import plan_points, plan_sentences, planned_headlines, planned_table
from rota.report.tables.pooled import equal_time_tables, pooled_tables
from rota.report.tables.scores import ablation_tables, average_tables, language_tables
from rota.runs import Run


@dataclass(frozen=True)
class Report:
    """Where a report was written, and what it says first."""

    page: Path
    baseline: str
    summary: list[str]
    missing: list[str]
    tables: list[str]
    figures: list[str]
    recommendation: Sequence[str] = ()
    parts: Sequence[Report] = ()  # one for each corpus, where there are several

    @property
    def lines(self) -> list[str]:
        """What ``rota report`` says at its end."""
        count = f"{plural(len(self.tables), 'table')} and {plural(len(self.figures), 'figure')}"
        compared = f", compared with {self.baseline}" if self.baseline else ""
        return [*self.summary, *self.missing, *self.recommendation, f"{count}{compared}: {self.page}"]

    @property
    def files(self) -> set[Path]:
        """All files of the report."""
        own = {self.page, self.page.with_name("report.md"), *files_of(self.page)}
        return own.union(*(part.files for part in self.parts))


def make_report(
    paths: Sequence[Path],
    out: Path,
    *,
    title: str | None = None,
    baseline: str | None = None,
    progress: Progress = lambda *_: None,
    planned_above: bool = False,
) -> Report:
    """Write ``index.html``, ``report.md``, ``tables/`` (md, tex, csv) and ``figures/`` (png) for runs or suites.

    Tables and figures that an earlier report left in ``out``, and that this one does not have, are removed.
    ``planned_above``: the planned contrasts stand on a page about several corpora, of which these runs are one.
    """
    check_folder(out, "--out")
    study = read_study(paths, progress)
    if baseline is None and len(paths) == 1 and Run(paths[0]).exists:
        return _report_of_run(study, out, title)
    against = study.baseline(baseline)
    sections = make_sections(study, against, progress)
    plan = find_plan(paths[0]) if len(paths) == 1 else None
    said: list[str] = []
    if plan is not None:
        results = planned_results(plan.plan, {"": study})
        said = planned_headlines(results)
        sections = [planned_section(plan, {"": study}, results), *exploratory(sections)]
    elif planned_above:
        sections = exploratory(sections)
    title = title or f"Training schedules: {', '.join(path.resolve().name for path in paths)}"
    names = write_report(out, title, what_was_run(study), sections)
    summary = [*said, *headlines(study, against)]
    return Report(
        out / "index.html", against.title, summary, missing(study, against), *names, recommendation(study, against)
    )


def _report_of_run(study: Study, out: Path, title: str | None) -> Report:
    """The page of one run: there is nothing to compare it with."""
    run = study.any_run
    row, scope = study.rows[run.row], headline_scope(study)
    scores = _present([dev_score_figure([row], looks_of(study), scope, scope_title(study, scope))])
    sections = [
        saw_section(row, run),
        Section("dev-scores", "Dev translations during training", pictures=scores),
        Section("alarms", "What training noticed", points=[f"Step {a['step']:,}: {a['text']}" for a in run.alarms]),
        advice_section(run),
        score_section(run),
        _teachers(study),
        cost_section(run),
        _making(study),
    ]
    about = f"Teacher {run.teacher['name']}, seed {run.seed}. {what_was_run(study)}"
    folder = run.folder.resolve()
    name = f"{folder.parent.name}, {folder.name}" if folder.name == f"seed-{run.seed}" else folder.name
    names = write_report(out, title or f"Run {name}", about, sections)
    return Report(out / "index.html", "", list(sections[0].sentences), [], *names)


FACTS = ("missing", "costs", "making")
"""Sections that say what was done, not what came out."""


def exploratory(sections: Sequence[Section]) -> list[Section]:
    """All that show results, marked as not planned."""
    return [found if found.name in FACTS else replace(found, exploratory=True) for found in sections]


def planned_section(
    plan: WrittenPlan, studies: Mapping[str, Study], results: Sequence[PlannedResult], *, several: bool = False
) -> Section:
    """The planned contrasts, first on every page of a study that has a plan."""
    tables = [planned_table(results, studies, several=several)]
    points = plan_points(plan.plan, studies)
    return Section("planned", "Planned contrasts", plan_sentences(plan, studies, results), points, tables=tables)


def make_sections(study: Study, baseline: Row, progress: Progress = lambda *_: None) -> list[Section]:
    makers: list[Callable[[], Section]] = [
        lambda: _summary(study, baseline),
        lambda: Section("missing", "What is missing", points=missing(study, baseline)),
        lambda: Section("alarms", "What training noticed", points=alarms_raised(study)),
        lambda: _averages(study, baseline),
        lambda: _pooled(study, baseline),
        lambda: _curves(study, baseline),
        lambda: Section("languages", "Every language", tables=language_tables(study, baseline)),
        lambda: Section("convergence", "Speed of convergence", tables=convergence_tables(study)),
        lambda: Section("ablations", "Other settings of the learned teachers", tables=ablation_tables(study)),
        lambda: _schedules(study),
        lambda: _teachers(study),
        lambda: _costs(study, baseline),
        lambda: Section("recommendation", "Which schedule to use", recommendation(study, baseline)),
        lambda: _making(study),
    ]
    sections = []
    for done, make in enumerate(makers, start=1):
        sections.append(make())
        progress("tables and figures", done, len(makers))
    return sections


def _present(pictures: Sequence[Picture | None]) -> list[Picture]:
    return [picture for picture in pictures if picture is not None]


def _summary(study: Study, baseline: Row) -> Section:
    points = headlines(study, baseline)
    over = (
        "over all languages, each of which counts the same"
        if headline_scope(study) == MACRO
        else "over languages as the goal of the runs weighs them"
    )
    lead = (
        f"Each schedule is compared with {baseline.title} under the same seeds, {over}. "
        "Differences are means over seeds with their 95 % intervals; losses are nats per "
        "token (less is better), chrF and BLEU are points (more is better)."
    )
    if not points:
        lead = (
            "There is nothing to compare yet: it takes a finished run of two schedules, and two seeds for an interval."
        )
    rows, looks = study.main, looks_of(study)
    pictures = [difference_figure(rows, baseline, metric, looks) for metric in HEADLINES]
    return Section("summary", "Summary", [lead], points, pictures=_present(pictures))


def _averages(study: Study, baseline: Row) -> Section:
    rows = study.main
    shown = [metric for metric in HEADLINES if metric in measured(study)]
    pictures = _present([pareto_figure(rows, metric, looks_of(study)) for metric in shown])
    return Section("averages", "Averages and differences", pictures=pictures, tables=average_tables(study, baseline))


def _pooled(study: Study, baseline: Row) -> Section:
    tables = [*pooled_tables(study, baseline), *equal_time_tables(study, baseline)]
    return Section("pooled", "All schedules at once, and at equal time", tables=tables)


def looks_of(study: Study) -> dict[str, Look]:
    """A schedule looks the same in all figures; those of the main tables come first."""
    changed = [row for row in study.with_runs if row.table not in MAIN_TABLES]
    return schedule_looks([row.name for row in (*study.main, *changed)])


def _curves(study: Study, baseline: Row) -> Section:
    """All schedules for every group of languages; controls and ablations for all languages, beside what they vary."""
    looks, main = looks_of(study), study.of_tables("main", "other")
    pictures = [loss_figure(main, baseline, group, looks) for group in (MACRO, LOW, HIGH)]
    controls = study.of_tables("control")
    parts = [("control", "controls", controls, [study.control_of(row) for row in controls])]
    for teacher, rows in study.ablations.items():
        default = study.default_of(teacher)
        parts.append((teacher, f"settings of {teacher if default is None else default.label}", rows, [default]))
    for part, about, rows, varied in parts:
        beside = [row for row in (baseline, *varied) if row is not None and row not in rows]
        if rows:
            both = [*dict.fromkeys(beside), *rows]
            pictures.append(loss_figure(both, baseline, MACRO, looks, part=part, about=about))
    scope = headline_scope(study)
    pictures.append(dev_score_figure(main, looks, scope, scope_title(study, scope)))
    pictures.append(source_gain_figure(main, looks))
    return Section("curves", "Dev loss during training", points=stopped_early(study), pictures=_present(pictures))


def _schedules(study: Study) -> Section:
    rows = study.main
    pictures = [proportions(study, rows), *(evolution(row) for row in rows if row.learned)]
    by_language = arm_share_table(study, rows)
    epochs = epoch_table(rows, list(study.any_run.sizes))
    tables = [by_language] if by_language is not None else [epochs] if epochs.rows else []
    return Section("schedules", "What the schedules did", pictures=pictures, tables=tables)


def _teachers(study: Study) -> Section:
    rows = [row for row in study.main if row.learned]
    pictures = [
        epsilon_figure(rows, looks_of(study)),
        signal_figure(rows, looks_of(study)),
        *(scores_figure(row) for row in rows),
    ]
    maps = [*_present([help_figure(row) for row in rows])]
    maps += [picture for row in rows for picture in q_network_figures(row)]
    sentences, commands = [], []
    unprobed = _unprobed(study)
    if unprobed is not None:
        sentences = [
            f"The Q network of {unprobed.title} has not been probed. These commands do, then make the report again:"
        ]
        commands = how_to_probe(unprobed.runs[min(unprobed.runs)])
    return Section(
        "teachers", "What the learned teachers did", sentences, commands=commands, pictures=[*_present(pictures), *maps]
    )


def _unprobed(study: Study) -> Row | None:
    """The default row of the first teacher with a Q network, if none of its runs has been probed."""
    rows = [row for row in study.of_tables("main", "other") if row.first.has_q_network]
    default = study.default_of(rows[0].teacher) if rows else None
    return default if default is not None and not any(run.probes() for run in default.runs.values()) else None


def _costs(study: Study, baseline: Row) -> Section:
    pictures = _present([cost_figure(study.main)])
    tables = [budget_table(study, baseline), cost_table(study, baseline)]
    return Section("costs", "Budgets and cost", pictures=pictures, tables=tables)


def _making(study: Study) -> Section:
    lead = (
        f"{MADE_BY} Every number stands at full precision in the CSV under its table. "
        "Standard deviations are over seeds, n \N{MINUS SIGN} 1 in the denominator; intervals are paired by seed."
    )
    return Section("making", "How this was made", [lead], how_made(study), tables=[data_table(study)])
