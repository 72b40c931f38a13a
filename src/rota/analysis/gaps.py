"""What a reader must know before comparing: runs that are missing, unfinished, not scored or scored differently."""

from __future__ import annotations

from rota.analysis.alike import BUDGET, settings
from rota.analysis.contrasts import default_of
from rota.analysis.folders import record_path
from rota.analysis.measures import BLEU, CHRF, COMET, Metric, chosen_scores, how_evaluated, values
from rota.analysis.printed import nearest_row
from rota.analysis.runs import ABLATED, Row, RunRecords, Study
from rota.analysis.summary import and_list


def missing(study: Study, baseline: Row) -> list[str]:
    """Runs that a suite asked for and that are not there, unfinished or not scored; what was not made equally."""
    gaps = [*_absent(study)]
    for row in study.rows.values():
        for run in row.runs.values():
            gaps += _unfinished(row, run)
    scored = [*_unscored(study), *_differently_scored(study)]
    return [*gaps, *_without_default(study), *_unprinted(study), *scored, *_unequal(study, baseline)]


def _absent(study: Study) -> list[str]:
    never = [row.title for row in study.rows.values() if not row.runs]
    gaps = [f"Not run: {and_list(never)}."] if never else []
    for row in study.rows.values():
        lacking = [str(seed) for seed in study.seeds if row.runs and seed not in row.runs]
        if lacking:
            gaps.append(f"{row.title}: no run with seed {and_list(lacking)}.")
    return gaps


def _unfinished(row: Row, run: RunRecords) -> list[str]:
    if run.finished:
        return []
    done = f"{run.history.updates:,} of {run.steps:,} steps"
    if not record_path(run.folder, "steps.jsonl").exists():
        done = "no steps.jsonl, so it has not begun or its record was lost"
    return [f"{row.title}, seed {run.seed}: {done}; it counts in no table, its curves are drawn as far as they go."]


def _without_default(study: Study) -> list[str]:
    """Ablations of a teacher that was not run as it is by default: compared with anything else they would mislead."""
    return [
        f"{and_list([row.title for row in rows])}: in no table of scores, because the teacher {teacher} was not "
        f"run as it is by default; rota compare --rows {teacher} adds that."
        for teacher in ABLATED
        for rows in [study.of_tables(teacher)]
        if rows and default_of(study, teacher) is None
    ]


def _unprinted(study: Study) -> list[str]:
    return [
        f"{row.title}: the row {row.name!r} of suite.json has paper: {row.paper!r}, which is no row of the paper; its "
        f"numbers are left out. The nearest is {nearest_row(row.paper)!r}."
        for row in study.rows.values()
        if row.paper is not None and row.printed is None
    ]


def _unscored(study: Study) -> list[str]:
    """A mean over fewer seeds than others has to be told. COMET is an extra: missed only where some runs have it."""
    finished = [run for run in study.runs if run.finished]
    lacking: dict[tuple[str, ...], list[str]] = {}
    for metric in (CHRF, BLEU, COMET):
        without = [run for run in finished if not values(run, metric)]
        if without and not (metric is COMET and len(without) == len(finished)):
            names = tuple(f"{study.rows[run.row].title} seed {run.seed}" for run in without)
            lacking.setdefault(("any run",) if len(without) == len(finished) else names, []).append(metric.label)
    return [f"No {and_list(labels)} of {and_list(names)}; rota evaluate adds it." for names, labels in lacking.items()]


def _differently_scored(study: Study) -> list[str]:
    return [
        f"{metric.label} of {and_list(names)} comes from another selection, number of checkpoints or search than that "
        "of the others."
        for metric in (CHRF, BLEU, COMET)
        for names in [_odd_ones(study, metric)]
        if names
    ]


def _odd_ones(study: Study, metric: Metric) -> list[str]:
    """Runs whose scores were made otherwise than those of most."""
    ways: dict[tuple[object, ...], list[str]] = {}
    for run in study.runs:
        scores = chosen_scores(run, metric) if run.finished else []
        if scores:
            ways.setdefault(how_evaluated(scores[0]), []).append(f"{study.rows[run.row].title} seed {run.seed}")
    return [name for names in sorted(ways.values(), key=len)[:-1] for name in names]


def _unequal(study: Study, baseline: Row) -> list[str]:
    """Rows with another budget or model than the baseline, those with the same one in one sentence."""
    found: dict[str, list[str]] = {}
    for row in study.rows.values():
        changed = _changed_budget(row, baseline)
        if changed:
            found.setdefault("; ".join(changed), []).append(row.title)
    return [
        f"{and_list(titles)}: {changed} as {baseline.title}; differences from it are not of schedules alone."
        for changed, titles in found.items()
    ]


def _changed_budget(row: Row, baseline: Row) -> list[str]:
    if not row.runs:
        return []
    ours, theirs = (settings(next(iter(found.runs.values())).about) for found in (row, baseline))
    known = [key for key in BUDGET if key in ours and key in theirs]
    return [_in_words(BUDGET[key], ours[key], theirs[key]) for key in known if ours[key] != theirs[key]]


def _in_words(name: str, ours: int | str, theirs: int | str) -> str:
    if isinstance(ours, int) and isinstance(theirs, int):
        return f"{ours:,} {name}, not {theirs:,}"
    return f"{name} {ours}, not {theirs}"
