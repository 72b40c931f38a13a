"""Which schedule to use, in words, after a study: what its runs show, and what they cannot tell."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from rota.report.numbers.contrasts import ALPHA, FEWEST_SEEDS, contrast, excludes_zero, holm_p, written_difference
from rota.report.numbers.measures import FINAL_LOSS, TEST_LOSS, Metric, headline_scope, values
from rota.report.numbers.planned import MOST_SEEDS
from rota.report.sentences import HEADLINES, and_list, plural
from rota.report.study import Row, Study
from rota.statistics import SeedComparison, seeds_to_detect


class Verdict(NamedTuple):
    """The schedules that were compared with the reference, and what is shown about them after Holm's correction."""

    reference: Row
    metric: Metric
    scope: str
    compared: Mapping[str, SeedComparison]  # by row, those with enough seeds
    p_values: Mapping[str, float]  # of these, corrected
    better: Sequence[Row]  # the best first
    worse: Sequence[Row]  # the worst last
    titles: Mapping[str, str]


def recommendation(study: Study, baseline: Row) -> list[str]:
    """Sentences; the first one is the answer."""
    rows = [row for row in study.main if row.finished and not row.replays]  # a repetition needs the run that it repeats
    if len(rows) < 2:
        return ["There is nothing to recommend yet: it takes finished runs of two schedules."]
    found = judge(rows, _simplest(rows, baseline), _endpoint(rows), headline_scope(study))
    if not found.compared:
        few = max(len(row.finished) for row in rows)
        return [
            f"Cannot tell yet: with {plural(few, 'seed')} a difference may be chance. Use {found.reference.title}; "
            f"with {FEWEST_SEEDS} seeds or more this page says whether another one is better."
        ]
    answer = _use_the_best(found) if found.better else _cannot_tell(found)
    return [*answer, *_avoid(found), *_other_metrics(found, _leader(found, rows)), _limits(study)]


def judge(rows: Sequence[Row], reference: Row, metric: Metric, scope: str) -> Verdict:
    """Every row against the reference, by a paired t test over seeds."""
    found = {row.name: contrast(row, reference, metric, scope) for row in rows}
    compared = {name: each for name, each in found.items() if each is not None and each.seeds >= FEWEST_SEEDS}
    tested = [row for row in rows if row.name in compared]
    p_values = holm_p(tested, reference, metric, scope)
    shown = [row for row in tested if p_values[row.name] < ALPHA and excludes_zero(compared[row.name])]
    sign = 1 if metric.higher_is_better else -1
    ranked = sorted(shown, key=lambda row: -sign * compared[row.name].mean)
    better = [row for row in ranked if sign * compared[row.name].mean > 0]
    worse = [row for row in ranked if row not in better]
    titles = {row.name: row.title for row in rows}
    return Verdict(reference, metric, scope, compared, p_values, better, worse, titles)


def _simplest(rows: Sequence[Row], baseline: Row) -> Row:
    """The baseline, if nothing in it is learned; else a schedule of which that is true, if there is one."""
    named = [row for row in rows if row.name == baseline.name] + [row for row in rows if row.teacher == "uniform"]
    return next((row for row in (*named, *rows) if not row.learned), rows[0])


def _endpoint(rows: Sequence[Row]) -> Metric:
    """The test loss, if all finished runs have it; else the dev loss."""
    scored = all(values(run, TEST_LOSS) for row in rows for run in row.finished.values())
    return TEST_LOSS if scored else FINAL_LOSS


def _use_the_best(found: Verdict) -> list[str]:
    best, others = found.better[0], found.better[1:]
    seeds, p = found.compared[best.name].seeds, found.p_values[best.name]
    evidence = f"{plural(seeds, 'seed')}, p {p:.2g} after Holm's correction for {_count(found)}"
    sentences = [
        f"Use {best.title}: its {found.metric.label} minus that of {found.reference.title} is "
        f"{_difference(best, found)} {found.metric.unit} ({evidence})."
    ]
    equal = [row for row in others if not _clearly_behind(row, best, found)]
    if equal:
        simple = next((row for row in (best, *equal) if not row.learned), None)
        rather = f"; the simplest of them is {simple.title}" if simple is not None and best.learned else ""
        are = "is also shown to be better" if len(equal) == 1 else "are also shown to be better"
        sentences.append(f"{and_list([row.title for row in equal])} {are}, and cannot be told apart from it{rather}.")
    return sentences


def _clearly_behind(row: Row, best: Row, found: Verdict) -> bool:
    difference = contrast(row, best, found.metric, found.scope)
    return difference is not None and excludes_zero(difference)


def _cannot_tell(found: Verdict) -> list[str]:
    reference, metric = found.reference, found.metric
    sign = 1 if metric.higher_is_better else -1
    name, leader = max(found.compared.items(), key=lambda item: sign * item[1].mean)
    first = (
        f"Cannot tell which is best: no other schedule is shown to be better than {reference.title} "
        f"({len(found.compared)} compared, by {metric.label}). Use {reference.title}: there is no reason yet to prefer "
        "another."
    )
    if sign * leader.mean <= 0:
        return [first, "No other schedule was even ahead of it on average."]
    low, high = map(metric.signed, leader.interval)
    seen = f"{metric.signed(leader.mean)} [{low}, {high}] {metric.unit}"
    spread = pooled_spread(list(found.compared.values()))
    needed = seeds_to_detect(abs(leader.mean), spread, most=MOST_SEEDS, alpha=ALPHA / len(found.compared))
    more = "" if needed is None else f", {max(0, needed - leader.seeds):,} more than there are"
    count = f"more than {MOST_SEEDS} seeds" if needed is None else f"about {plural(needed, 'seed')}"
    return [
        first,
        f"The one furthest ahead is {found.titles[name]}: {seen}. If that is its true size, it would take {count} to "
        f"show it with probability 0.8{more}.",
    ]


def pooled_spread(compared: Sequence[SeedComparison]) -> float:
    """Standard deviation of a difference between two runs of one seed, over all rows."""
    freedom = sum(each.seeds - 1 for each in compared)
    return math.sqrt(sum((each.seeds - 1) * each.spread**2 for each in compared) / freedom)


def _leader(found: Verdict, rows: Sequence[Row]) -> Row:
    """The row with the best mean difference, shown or not."""
    sign = 1 if found.metric.higher_is_better else -1
    best = max(found.compared, key=lambda name: sign * found.compared[name].mean)
    return next(row for row in rows if row.name == best)


def _other_metrics(found: Verdict, leader: Row) -> list[str]:
    """Where another number says the opposite of the leader, by an interval that excludes zero."""
    ahead = (found.compared[leader.name].mean > 0) == found.metric.higher_is_better
    against = []
    for metric in HEADLINES if ahead else ():
        other = contrast(leader, found.reference, metric, found.scope)
        if other is not None and excludes_zero(other) and (other.mean > 0) != metric.higher_is_better:
            against.append(f"{metric.label} {written_difference(leader, found.reference, metric, found.scope)}")
    if not against:
        return []
    return [
        f"But other numbers of {leader.title} are worse than those of {found.reference.title}: {'; '.join(against)}."
    ]


def _avoid(found: Verdict) -> list[str]:
    if not found.worse:
        return []
    named = [f"{row.title} ({_difference(row, found)})" for row in reversed(found.worse)]
    return [f"Shown to be worse than {found.reference.title}: {and_list(named)}."]


def _difference(row: Row, found: Verdict) -> str:
    return written_difference(row, found.reference, found.metric, found.scope)


def _count(found: Verdict) -> str:
    return plural(len(found.compared), "other schedule")


def _limits(study: Study) -> str:
    config = study.any_run.about["config"]
    named = config["data"].get("corpus")
    corpus = f"the corpus {named}" if named and named != "files" else "this text"
    size = f"preset {config['student']['preset']} and {config['training']['steps']:,} updates"
    return f"This is about {corpus}, {size}: other text, a larger model or a longer run may decide otherwise."
