"""What came out, in sentences made from the numbers, and what a reader must know before comparing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rota.report.numbers.contrasts import (
    FEWEST_SEEDS,
    NO_VALUE,
    contrast,
    excludes_zero,
    pooled_detectable,
    written_difference,
)
from rota.report.numbers.measures import (
    BLEU,
    CHRF,
    COMET,
    FINAL_LOSS,
    GOAL,
    LOW,
    TEST_LOSS,
    Metric,
    headline_scope,
    how_scored,
    scope_title,
    values,
)
from rota.report.numbers.printed import nearest_row, printed_row
from rota.report.study import BUDGET, Row, Study, StudyRun, settings

HEADLINES = (FINAL_LOSS, TEST_LOSS, CHRF, BLEU)


def plural(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def and_list(words: Sequence[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


def what_was_run(study: Study) -> str:
    """One sentence on corpus, model, steps, rows and seeds; a range where runs differ."""
    finished = [run for run in study.runs if run.finished]
    configs = [run.about["config"] for run in finished or study.runs]
    data, corpus = study.any_run.about["data"], configs[0]["data"].get("corpus")
    presets = sorted({config["student"]["preset"] for config in configs})
    kind = "direction" if len(study.any_run.targets) > 1 else "language"
    text = (
        f"{plural(sum(bool(row.runs) for row in study.rows.values()), 'schedule')}, "
        f"{plural(len(finished), 'finished run')} "
        f"of {_range([config['training']['steps'] for config in configs])} updates "
        f"of {_range([_tokens_of_an_update(config['training']) for config in configs])} target tokens; "
        f"preset{'' if len(presets) == 1 else 's'} {and_list(presets)}; {plural(len(data['sizes']), kind)} "
        f"with {sum(data['sizes'].values()):,} training pairs"
    )
    stopped = sum(run.stop is not None for run in finished)
    if stopped:
        text += f"; {plural(stopped, 'run')} stopped early"
    return f"{text} ({corpus})." if corpus else f"{text}."


def _tokens_of_an_update(training: Mapping[str, int]) -> int:
    return training["tokens"] * training.get("accumulate", 1)


def _range(numbers: Sequence[int]) -> str:
    low, high = min(numbers), max(numbers)
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"


def headlines(study: Study, baseline: Row) -> list[str]:
    """One sentence for each schedule against the baseline, then how to read them all."""
    rows = [row for row in study.main if row.name != baseline.name]
    scope = headline_scope(study)
    sentences = [sentence for row in rows for sentence in _headline(row, baseline, scope)]
    scopes = {each: scope_title(study, each) for each in (scope, LOW)}
    about = [f"The differences in this list are those of {scopes[scope]}."] if sentences and scope == GOAL else []
    return [*about, *sentences, *_seen_over_all(rows, baseline, scope), *_clear_differences(rows, baseline, scopes)]


def _headline(row: Row, baseline: Row, scope: str) -> list[str]:
    """Mean over all languages, or that of the goal, by metric: difference, interval, and what could have been seen."""
    parts, seen, pairs = [], [], []
    for metric in HEADLINES:
        text = written_difference(row, baseline, metric, scope)
        found = contrast(row, baseline, metric, scope)
        if text != NO_VALUE:
            parts.append(f"{metric.label} {text}")
        if found is not None:
            pairs.append(found.seeds)
            seen.append(f"{metric.written(found.smallest_detectable)} ({metric.label})")
    if not parts:
        return []
    text = f"{row.title} minus {baseline.title}: {'; '.join(parts)}"
    if not seen:
        return [f"{text}."]
    seeds = f"{min(pairs)} to {max(pairs)} seeds" if len(set(pairs)) > 1 else f"{pairs[0]} seeds"
    if max(pairs) < FEWEST_SEEDS:
        return [f"{text}; {seeds}, too few for a verdict."]
    return [f"{text}; {seeds}. The study could have seen {and_list(seen)}."]


def _seen_over_all(rows: Sequence[Row], baseline: Row, scope: str) -> list[str]:
    """What the study could have seen, once for all rows: with three seeds the figure of one row is mostly chance."""
    found = {metric: pooled_detectable(rows, baseline, metric, scope) for metric in HEADLINES}
    known = {metric: pooled for metric, pooled in found.items() if pooled is not None}
    if not known:
        return []
    seen = and_list([f"{metric.written(size)} ({metric.label})" for metric, (_, size) in known.items()])
    counts = _range([pairs for pairs, _ in known.values()])
    return [f"Over all rows together the study could have seen {seen} with {counts} seeds a row."]


def _clear_differences(rows: Sequence[Row], baseline: Row, scopes: Mapping[str, str]) -> list[str]:
    """Which intervals exclude zero, and how many would do so by chance."""
    found = [_clear(rows, baseline, metric, *scope) for scope in scopes.items() for metric in HEADLINES]
    sentences = [sentence for sentence in found if sentence]
    if sentences:
        sentences.append("One in 20 such intervals excludes zero by chance; the marks ++ in the tables allow for that.")
    return sentences


def _clear(rows: Sequence[Row], baseline: Row, metric: Metric, scope: str, name: str) -> str:
    compared = {row.short: contrast(row, baseline, metric, scope) for row in rows}
    tested = {row: found for row, found in compared.items() if found is not None and found.seeds >= FEWEST_SEEDS}
    if not tested:
        return ""
    clear = {row: (found.mean > 0) == metric.higher_is_better for row, found in tested.items() if excludes_zero(found)}
    sides = {
        side: [row for row, better in clear.items() if better == (side == "better")] for side in ("better", "worse")
    }
    which = [f"{side}: {', '.join(names)}" for side, names in sides.items() if names]
    count = f"intervals that exclude zero: {len(clear)} of {len(tested)}"
    return f"{metric.label}, {name}: {'; '.join([count, *which])}."


def how_made(study: Study) -> list[str]:
    """Versions, hardware and the signatures of all scores."""
    hardware = {_hardware(run) for run in study.runs}
    versions = {", ".join(f"{name} {number}" for name, number in run.about["versions"].items()) for run in study.runs}
    lines = [f"Machine: {text}." for text in sorted(hardware)]
    lines += [f"Versions: {text}." for text in sorted(versions)]
    signatures = {(entry["metric"], entry["signature"]) for run in study.runs for entry in run.evals}
    lines += [f"{metric}: {signature}" for metric, signature in sorted(signatures)]
    lines += _stems(study)
    return [*lines, *sorted({_model_scored(run) for run in study.runs if run.finished} - {""})]


def _stems(study: Study) -> list[str]:
    """Which rows began from a shared checkpoint, and where runs of one seed did not begin from the same one."""
    begun: dict[int, dict[str, list[str]]] = {}
    for run in study.runs:
        found = run.about.get("stem") or {}
        if found:
            by_seed = begun.setdefault(run.seed, {})
            by_seed.setdefault(str(found.get("checkpoint")), []).append(study.rows[run.row].title)
    if not begun:
        return []
    rows = list(dict.fromkeys(row for by_seed in begun.values() for names in by_seed.values() for row in names))
    several = [str(seed) for seed, by_seed in sorted(begun.items()) if len(by_seed) > 1]
    lines = [
        f"{and_list(rows)} began where their common warm-up ended, from one checkpoint for each seed; the time of the "
        "warm-up counts for every run."
    ]
    return [*lines, f"But runs of seed {and_list(several)} began from different checkpoints."] if several else lines


def _hardware(run: StudyRun) -> str:
    about = run.about["hardware"]
    return f"{about['machine']}, {plural(about['cores'], 'core')}, {plural(about['threads'], 'thread')} a run"


def _model_scored(run: StudyRun) -> str:
    if run.scores is None:
        return ""
    model, count = run.scores.model, len(run.scores.model.steps)
    search = ", ".join(
        f"{name.replace('_', ' ')} {value if isinstance(value, str) else f'{value:g}'}"
        for name, value in run.scores.search.items()
    )
    if not model.select:
        scored = "the model of the last step" if count == 1 else f"{model.combine} of the last {count} checkpoints"
        return f"Scored: {scored}; {search}."
    by = "dev loss" if model.select == "loss" else f"{model.select} dev BLEU"
    return f"Scored: {model.combine} of {plural(count, 'checkpoint')}, chosen by {by}; {search}."


def stopped_early(study: Study) -> list[str]:
    """Which runs ended before their last update, and why."""
    return [
        f"{row.title}, seed {run.seed}: stopped early at step {int(run.stop['step']):,} of {run.steps:,}; "
        f"{run.stop['text']}."
        for row in study.rows.values()
        for run in row.runs.values()
        if run.stop is not None
    ]


MANY_ALARMS = 25


def alarms_raised(study: Study) -> list[str]:
    """The alarms of all runs, one point each; of very many, the first ones and how many more there are."""
    raised = [
        f"{row.title}, seed {run.seed}, step {alarm['step']:,}: {alarm['text']}"
        for row in study.rows.values()
        for run in row.runs.values()
        for alarm in run.alarms
    ]
    more = len(raised) - MANY_ALARMS
    rest = [f"{plural(more, 'more alarm')} in alarms.jsonl of the runs."] if more > 0 else []
    return [*raised[:MANY_ALARMS], *rest]


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


def _unfinished(row: Row, run: StudyRun) -> list[str]:
    if run.finished:
        return []
    done = f"{run.history.updates:,} of {run.steps:,} steps"
    if run.find_record("steps") is None:
        done = f"no {run.record_path('steps').name}, so it has not begun or its record was lost"
    return [f"{row.title}, seed {run.seed}: {done}; it counts in no table, its curves are drawn as far as they go."]


def _without_default(study: Study) -> list[str]:
    """Ablations of a teacher that was not run as it is by default: comparing them with any other row would mislead."""
    return [
        f"{and_list([row.title for row in rows])}: in no table of scores, because the teacher {teacher} was not "
        f"run as it is by default; rota compare --rows {teacher} adds that."
        for teacher, rows in study.ablations.items()
        if study.default_of(teacher) is None
    ]


def _unprinted(study: Study) -> list[str]:
    return [
        f"{row.title}: the row {row.name!r} of suite.json has paper: {row.paper!r}, which is not a row of the paper; "
        f"its numbers are left out. The nearest is {nearest_row(row.paper)!r}."
        for row in study.rows.values()
        if row.paper is not None and printed_row(row) is None
    ]


def _unscored(study: Study) -> list[str]:
    """Runs without a score: means are then over fewer seeds. Some are optional: missed only if other runs have them."""
    finished = [run for run in study.runs if run.finished]
    lacking: dict[tuple[str, ...], list[str]] = {}
    for metric in (CHRF, BLEU, TEST_LOSS, COMET):
        without = [run for run in finished if not values(run, metric)]
        if without and not (metric in (TEST_LOSS, COMET) and len(without) == len(finished)):
            names = tuple(f"{study.rows[run.row].title} seed {run.seed}" for run in without)
            lacking.setdefault(("any run",) if len(without) == len(finished) else names, []).append(metric.label)
    return [f"No {and_list(labels)} of {and_list(names)}; rota evaluate adds it." for names, labels in lacking.items()]


def _differently_scored(study: Study) -> list[str]:
    return [
        f"{metric.label} of {and_list(names)} comes from another selection, number of checkpoints or search than that "
        "of the others."
        for metric in (TEST_LOSS, CHRF, BLEU, COMET)
        for names in [_odd_ones(study, metric)]
        if names
    ]


def _odd_ones(study: Study, metric: Metric) -> list[str]:
    """Runs whose scores were made in another way than those of most runs."""
    ways: dict[tuple[object, ...], list[str]] = {}
    for run in study.runs:
        scores = run.scores if run.finished else None
        if scores is not None and values(run, metric):
            ways.setdefault(how_scored(scores), []).append(f"{study.rows[run.row].title} seed {run.seed}")
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
