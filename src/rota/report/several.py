"""A report on several corpora: the plan that spans them, the regret of every schedule, and a page for each corpus."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from rota.plan import WrittenPlan, find_plan
from rota.report.assemble import Report, make_report, planned_section
from rota.report.figures.drawing import Picture
from rota.report.figures.regret import regret_figure
from rota.report.folders import Progress, check_folder, corpora_of, run_folders
from rota.report.numbers.measures import MACRO
from rota.report.numbers.planned import planned_results
from rota.report.numbers.pooled import regret_over
from rota.report.page import MADE_BY, Section, write_report
from rota.report.sentences import and_list, what_was_run
from rota.report.study import Study, read_study, short_labels
from rota.report.tables.planned import planned_headlines
from rota.report.tables.pooled import ENDPOINTS, regret_tables


def report_on(
    paths: Sequence[Path],
    out: Path,
    *,
    title: str | None = None,
    baseline: str | None = None,
    regret: bool = False,
    progress: Progress = lambda *_: None,
) -> Report:
    """What ``rota report`` makes of some folders: of one study, or of several corpora."""
    if regret and baseline is not None:
        raise ValueError("--baseline has no meaning with --regret, which compares with the best row of each corpus")
    if regret:
        return make_regret_report(paths, out, title=title, progress=progress)
    if len(paths) == 1 and corpora_of(paths[0]):
        return make_corpora_report(paths[0], out, title=title, baseline=baseline, progress=progress)
    return make_report(paths, out, title=title, baseline=baseline, progress=progress)


def make_regret_report(
    paths: Sequence[Path], out: Path, *, title: str | None = None, progress: Progress = lambda *_: None
) -> Report:
    """Several studies on different corpora: how far each schedule is behind the best of every corpus.

    Each path is one study, or a suite with several corpora. It takes schedules that all of them have.
    """
    check_folder(out, "--out")
    folders = [found for path in paths for found in _studies_in(path)]
    if len(folders) < 2:
        raise ValueError("regret is over several corpora; give the folder of a suite for each")
    studies = {folder.resolve().name: read_study([folder], progress) for folder in folders}
    if len(studies) < len(folders):
        raise ValueError(f"two of {', '.join(map(str, folders))} have the same name; rename one folder")
    section = _regret_section(studies)
    if section.empty:
        raise ValueError(f"no schedule has finished runs of common seeds in all of {', '.join(studies)}")
    title = title or f"Regret over {', '.join(studies)}"
    names = write_report(out, title, _about(studies), [section, _making()])
    return Report(out / "index.html", "the best schedule of each corpus", [], [], *names)


def make_corpora_report(
    path: Path,
    out: Path,
    *,
    title: str | None = None,
    baseline: str | None = None,
    progress: Progress = lambda *_: None,
) -> Report:
    """A suite with several corpora: its planned contrasts and its regret, and a whole report on each corpus."""
    check_folder(out, "--out")
    there = [corpus for corpus in corpora_of(path) if (path / corpus).is_dir() and run_folders(path / corpus)]
    if not there:
        raise ValueError(f"no runs in {path}; give run folders or the folder of a suite")
    studies = {corpus: read_study([path / corpus], progress) for corpus in there}
    plan = find_plan(path)
    reports = {
        corpus: make_report(
            [path / corpus],
            out / corpus,
            title=f"{path.resolve().name}: {corpus}",
            baseline=baseline,
            progress=progress,
            planned_above=plan is not None,
        )
        for corpus in there
    }
    results = [] if plan is None else planned_results(plan.plan, studies)
    sections = [] if plan is None else [planned_section(plan, studies, results, several=True)]
    sections.append(_regret_section(studies, plan))
    advice = [f"{corpus}: {report.recommendation[0]}" for corpus, report in reports.items() if report.recommendation]
    lead = "A report on every corpus by itself:"
    pages = Section("corpora", "Each corpus", [lead], advice, links=[(n, n) for n in there])
    absent = [corpus for corpus in corpora_of(path) if corpus not in there]
    gaps = [f"No runs on {and_list(absent)}."] if absent else []
    gaps += [f"{corpus}: {gap}" for corpus, report in reports.items() for gap in report.missing]
    sections += [pages, Section("missing", "What is missing", points=gaps), _making()]
    names = write_report(out, title or f"Training schedules: {path.resolve().name}", _about(studies), sections)
    against = {report.baseline for report in reports.values()}
    said = planned_headlines(results)
    parts = list(reports.values())
    return Report(out / "index.html", and_list(sorted(against)), said, gaps, *names, advice, parts)


def _studies_in(path: Path) -> list[Path]:
    return [path / corpus for corpus in corpora_of(path) if (path / corpus).is_dir()] or [path]


def _about(studies: Mapping[str, Study]) -> str:
    return " ".join(f"{name}: {what_was_run(study)}" for name, study in studies.items())


def _regret_section(studies: Mapping[str, Study], plan: WrittenPlan | None = None) -> Section:
    """The figures, which show every corpus, then the same in numbers; nothing where no schedule is everywhere.

    What a plan compares comes first.
    """
    if len(studies) < 2:
        return Section("regret", "Regret")
    labels = short_labels(next(iter(studies.values())))
    planned = plan.plan.endpoint if plan is not None else ()
    metrics = sorted(ENDPOINTS, key=lambda metric: metric.name not in planned)
    pictures: list[Picture] = []
    for metric in metrics:
        picture = regret_figure(regret_over(studies, metric, MACRO), labels, metric)
        pictures += [] if picture is None else [picture]
    lead = (
        f"Over {and_list(list(studies))}, for the schedules that all of them have: a schedule that is never the best "
        "may be the one that is never bad."
    )
    tables = regret_tables(studies, metrics)
    exploratory = plan is not None
    return Section(
        "regret", "Regret", [lead] if tables else [], pictures=pictures, tables=tables, exploratory=exploratory
    )


def _making() -> Section:
    return Section("making", "How this was made", [MADE_BY])
