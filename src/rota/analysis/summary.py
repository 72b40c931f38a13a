"""What came out, in sentences made from the numbers: no claim without its interval."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rota.analysis.contrasts import FEWEST_SEEDS, contrast, excludes_zero, pooled_detectable
from rota.analysis.measures import BLEU, CHRF, FINAL_LOSS, LOW, MACRO, Metric, chosen_scores
from rota.analysis.runs import MAIN_TABLES, Row, RunRecords, Study
from rota.analysis.score_tables import NO_RUN, difference

HEADLINES = (FINAL_LOSS, CHRF, BLEU)


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
    text = (
        f"{plural(sum(bool(row.runs) for row in study.rows.values()), 'schedule')}, "
        f"{plural(len(finished), 'finished run')} "
        f"of {_range([config['training']['steps'] for config in configs])} updates "
        f"of {_range([_tokens_of_an_update(config['training']) for config in configs])} target tokens; "
        f"preset{'' if len(presets) == 1 else 's'} {and_list(presets)}; {plural(len(data['sizes']), 'language')} "
        f"with {sum(data['sizes'].values()):,} training pairs"
    )
    return f"{text} ({corpus})." if corpus else f"{text}."


def _tokens_of_an_update(training: Mapping[str, int]) -> int:
    return training["tokens"] * training.get("accumulate", 1)


def _range(numbers: Sequence[int]) -> str:
    low, high = min(numbers), max(numbers)
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"


def headlines(study: Study, baseline: Row) -> list[str]:
    """One sentence for each schedule against the baseline, then how to read them all."""
    rows = [row for row in study.of_tables(*MAIN_TABLES) if row.name != baseline.name]
    sentences = [sentence for row in rows for sentence in _headline(row, baseline)]
    return [*sentences, *_seen_over_all(rows, baseline), *_clear_differences(rows, baseline)]


def _headline(row: Row, baseline: Row) -> list[str]:
    """Mean over all languages, by metric: difference, interval, and what could have been seen."""
    parts, seen, pairs = [], [], []
    for metric in HEADLINES:
        text = difference(row, baseline, metric, MACRO)
        found = contrast(row, baseline, metric, MACRO)
        if text != NO_RUN.text:
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


def _seen_over_all(rows: Sequence[Row], baseline: Row) -> list[str]:
    """What the study could have seen, once for all rows: of three seeds the figure of one row is mostly chance."""
    found = {metric: pooled_detectable(rows, baseline, metric, MACRO) for metric in HEADLINES}
    known = {metric: pooled for metric, pooled in found.items() if pooled is not None}
    if not known:
        return []
    seen = and_list([f"{metric.written(size)} ({metric.label})" for metric, (_, size) in known.items()])
    counts = _range([pairs for pairs, _ in known.values()])
    return [f"Over all rows together the study could have seen {seen} with {counts} seeds a row."]


def _clear_differences(rows: Sequence[Row], baseline: Row) -> list[str]:
    """Which intervals exclude zero, and how many would do so by chance."""
    scopes = ((MACRO, "all languages"), (LOW, "low-resource languages"))
    found = [_clear(rows, baseline, metric, *scope) for scope in scopes for metric in HEADLINES]
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
    return [*lines, *sorted({_model_scored(run) for run in study.runs if run.finished} - {""})]


def _hardware(run: RunRecords) -> str:
    about = run.about["hardware"]
    return f"{about['machine']}, {plural(about['cores'], 'core')}, {plural(about['threads'], 'thread')} a run"


def _model_scored(run: RunRecords) -> str:
    scores = chosen_scores(run, CHRF) or chosen_scores(run, BLEU)
    if not scores:
        return ""
    entry = scores[0]
    search = ", ".join(f"{name.replace('_', ' ')} {value:g}" for name, value in entry["search"].items())
    count = len(entry.get("steps") or [entry["step"]])
    if not entry.get("select"):
        model = "the model of the last step" if count == 1 else f"{entry['combine']} of the last {count} checkpoints"
        return f"Scored: {model}; {search}."
    by = "dev loss" if entry["select"] == "loss" else f"{entry['select']} dev BLEU"
    return f"Scored: {entry['combine']} of {plural(count, 'checkpoint')}, chosen by {by}; {search}."
