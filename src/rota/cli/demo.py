"""The demo: a small corpus under two schedules, or one; what the teacher did, scores and translations, in minutes."""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any, Final

from rich.console import Group
from rich.table import Table

from rota import api
from rota.cli import views
from rota.cli.runs import train_with_display
from rota.cli.scores import evaluate_with_display
from rota.cli.studies import run_suite, starter
from rota.data.corpora.gettext import CatalogueUnavailable
from rota.data.preparation.workers import cores
from rota.data.store import Store
from rota.evaluation.evaluate import Evaluation
from rota.evaluation.translator import read_lines
from rota.experiments.board import COLUMNS, Board
from rota.experiments.jobs import Job, plan
from rota.experiments.suite import Suite
from rota.report.assemble import looks_of
from rota.report.ending import shares_over_time
from rota.report.figures.helping import help_figure
from rota.report.figures.results import loss_figure, source_gain_figure
from rota.report.figures.shares import evolution, in_family_order, plot_shares
from rota.report.numbers.helping import effects_on_others, help_maps
from rota.report.numbers.measures import GROUPS, MACRO
from rota.report.page import MADE_BY, Section, write_report
from rota.report.sentences import alarms_raised, and_list, what_was_run
from rota.report.study import Row, Study, StudyRun, read_study
from rota.report.tables.table import Cell
from rota.report.tables.table import Table as PageTable
from rota.runs import Run
from rota.teachers import TEACHERS
from rota.types import Arm

CORPORA: dict[str, dict[str, Any]] = {
    # Tuned on the uniform schedule for 2 cores.
    "catalogues": {
        "data": {"corpus": "catalogues", "subwords": {"size": "4k"}},
        "student": {
            "preset": "tiny",
            "dropout": 0.1,
            "learning_rate": {"peak": 0.004, "decay": "linear"},
            "lr_warmup": "15%",
        },
        "training": {"steps": 1700, "tokens": 1000, "checkpoint_every": "10%", "validate_every": "5%"},
    },
    "synthetic": {
        "data": {"corpus": "synthetic", "subwords": {"size": 1500}},
        "student": {
            "preset": "tiny",
            "dropout": 0.1,
            "learning_rate": {"peak": 0.002},
            "lr_warmup": "10%",
        },
        "training": {"steps": 1150, "tokens": 700, "checkpoint_every": "10%", "validate_every": "5%"},
    },
}


METRICS: Final = {"bleu": "BLEU", "chrf": "chrF", "loss": "loss"}
"""Of the test sets, with their names in tables."""

Shares = Mapping[Arm, Sequence[float]]
"""Of the target tokens, by arm, over time."""


def demo_suite(corpus: str, teachers: Sequence[str], folder: Path, steps: int | None = None) -> Suite:
    """A row for each teacher, one seed; who helps whom is measured where a teacher can.

    Two runs have half of the updates each, so that they take as long as one.
    """
    if corpus not in CORPORA:
        raise ValueError(f"--corpus is {corpus!r}; it is one of {', '.join(CORPORA)}")
    base = {name: dict(part) for name, part in CORPORA[corpus].items()}
    base["data"]["folder"] = str(folder / corpus / "data")
    base["evaluation"] = {"metrics": list(METRICS)}
    base["training"]["steps"] = steps or base["training"]["steps"] // len(teachers)
    rows = {name: {"teacher": _teacher(name)} for name in teachers}
    return Suite.model_validate({"name": "demo", "base": base, "rows": rows})


def _teacher(name: str) -> dict[str, Any]:
    """A teacher that has settings without a default cannot be given by name alone."""
    if name not in TEACHERS:
        raise ValueError(f"--teacher or --beside is {name!r}, which is not a schedule; rota teachers lists them")
    fields = TEACHERS[name].model_fields
    needed = [key for key, field in fields.items() if field.is_required()]
    if needed:
        lacks = f"--teacher {name} needs teacher.{needed[0]}, for which the demo has no option"
        raise ValueError(f"{lacks}; write it in a config and use rota train, or choose another teacher")
    return {"name": name} | ({"map": True} if "map" in fields else {})


def run_demo(corpus: str, teacher: str, folder: Path, steps: int | None = None, beside: str = "none") -> None:
    """Prepare, train one run or two at the same time, evaluate, show; every part that is done already is skipped."""
    names = [teacher] if beside in ("none", teacher) else [teacher, beside]
    # Two runs are shorter than one, so they have a folder of their own.
    suite, out = demo_suite(corpus, names, folder, steps), folder / corpus
    out = out if len(names) == 1 else out / "-beside-".join(names)
    jobs = plan(suite, out, rows=names)
    views.say(_opening(names, jobs[0].config.training.steps))
    views.console.rule(f"1. The {corpus} corpus")
    try:
        with views.ProgressBar() as progress:
            store = api.prepare(jobs[0].config, progress=progress)
    except CatalogueUnavailable as error:
        views.say(f"{error}\nUsing the generated languages instead: their scores say nothing about real ones.")
        return run_demo("synthetic", teacher, folder, steps, beside)
    views.console.print(views.data_table(store))
    shorter = [] if steps is None else ["--steps", str(steps)]
    command = f"{views.program()} " + shlex.join(["demo", "--corpus", corpus, "--folder", str(folder), *shorter])
    views.console.rule(f"2. Training with {' and with '.join(names)}")
    if not _train(suite, jobs, out, f"{command} --teacher {teacher} --beside {beside}"):
        return None
    views.console.rule(f"3. What {teacher} did")
    # Of two runs the scores are there already: a bar would be over before it is seen.
    score = evaluate_with_display if len(jobs) == 1 else api.evaluate
    evaluations = {job.row: score(job.folder, metrics=list(METRICS)) for job in jobs}
    _show_results({job.row: job.folder for job in jobs}, store, evaluations, out / "report", command)
    return None


def _opening(names: Sequence[str], steps: int) -> str:
    what = (
        "One model learns to translate several languages, and a teacher decides again and again what it trains on next."
    )
    if len(names) == 1:
        return f"{what} The demo trains {steps:,} updates with the teacher {names[0]}."
    return (
        f"{what} The demo trains two models at the same time, {steps:,} updates each, equal but for the schedule: "
        f"one with the teacher {names[0]}, one with {names[1]}, to compare."
    )


def _train(suite: Suite, jobs: Sequence[Job], out: Path, again: str) -> bool:
    """Two runs at the same time under the table of a suite, one under its own display; whether all are trained."""
    if len(jobs) == 1:
        return train_with_display(jobs[0].config, jobs[0].folder, until=None, again=again).is_over
    threads = max(1, cores() // len(jobs))
    run_suite(suite, jobs, out, start=starter("local", threads), at_once=len(jobs), again=again, shown_on=SharesBoard)
    return True


class SharesBoard(Board):
    """The table of a suite and, below it, what the first run trains on, until it is done."""

    def render(self) -> Group:
        begun = [entry.job for entry in self.entries[:1] if entry.job.run.exists and not entry.over]
        shares = {job.row: shares_over_time(job.run) for job in begun}
        below = [share_table(row, found) for row, found in shares.items() if any(found.values())]
        return Group(super().render(), *below)


MARKS: Final = " ▁▂▃▄▅▆▇█"


def share_table(name: str, shares: Shares, others: Mapping[str, Shares] | None = None) -> Table:
    """By language: a mark for each part of the run, as high as its share; the shares at first, lately, elsewhere."""
    highest = max(max(spans) for spans in shares.values())
    table = Table(box=None, padding=(0, 2), show_edge=False)
    table.add_column("language", overflow="fold")
    table.add_column(f"{name}: share over time", no_wrap=True)
    for title in ("at first", "lately", *(others or {})):
        table.add_column(title, justify="right")
    for arm, spans in shares.items():
        marks = "".join(MARKS[math.ceil((len(MARKS) - 1) * share / highest)] for share in spans)
        means = [*_ends(spans), *(fmean(each[arm]) for each in (others or {}).values())]
        table.add_row(arm, marks, *(f"{mean:.1%}" for mean in means))
    return table


def _ends(spans: Sequence[float]) -> tuple[float, float]:
    """Means of the first and of the last quarter."""
    quarter = max(1, len(spans) // 4)
    return fmean(spans[:quarter]), fmean(spans[-quarter:])


def what_it_did(row: Row) -> list[str]:
    """Sentences on the teacher of a row's first run: where its shares moved, and whose text helped whom."""
    run = row.runs[min(row.runs)]
    return [*_where_it_moved(row.name, shares_over_time(run)), *_who_helped_whom(run)]


def _where_it_moved(title: str, shares: Shares) -> list[str]:
    ends = {arm: _ends(spans) for arm, spans in shares.items() if spans}
    ranked = sorted(ends, key=lambda arm: ends[arm][1] - ends[arm][0])
    if not ranked or ends[ranked[-1]] == ends[ranked[0]]:
        return []
    less, more = (f"{arm} ({ends[arm][0]:.0%} to {ends[arm][1]:.0%} of the tokens)" for arm in (ranked[0], ranked[-1]))
    return [f"From its first quarter to its last, {title} moved most towards {more} and away from {less}."]


def _who_helped_whom(run: StudyRun) -> list[str]:
    maps = help_maps(run.observations, in_family_order(run), 2, run.language_of)
    effects = effects_on_others(maps[-1]) if maps else []
    helped = _grouped("helped", [(arm, language) for effect, arm, language in effects[:3] if effect > 0])
    hurt = _grouped("hurt", [(arm, language) for effect, arm, language in effects[:-3:-1] if effect < 0])
    if not helped and not hurt:
        return []
    return [f"Text of one language changes others. In the second half, most of all: {'; '.join(helped + hurt)}."]


def _grouped(verb: str, pairs: Sequence[tuple[Arm, Arm]]) -> list[str]:
    arms = dict.fromkeys(arm for arm, _ in pairs)
    return [f"{arm} {verb} {and_list([language for each, language in pairs if each == arm])}" for arm in arms]


def _show_results(
    runs: Mapping[str, Path], store: Store, evaluations: Mapping[str, Evaluation], out: Path, command: str
) -> None:
    teacher, *others = runs
    run = runs[teacher]
    study = read_study([each.parent for each in runs.values()])
    shares = {name: shares_over_time(Run(folder)) for name, folder in runs.items()}
    did = what_it_did(study.rows[teacher])
    views.console.print(share_table(teacher, shares[teacher], {name: shares[name] for name in others}))
    for sentence in did:
        views.say(sentence)
    views.console.rule("4. Scores and translations")
    scores, samples = _scores(evaluations), _samples(store, evaluations)
    views.console.print(_score_table(scores, list(evaluations)))
    views.say(LOSSES)
    if others:
        views.say(ONE_SEED)
    views.console.print("\nSome translations:", _sample_table(samples))
    picture = plot_shares(run, run / "shares.png")
    page = _write_page(study, list(runs), did, scores, samples, out)
    program, language = views.program(), store.languages[0]
    other = "temperature" if "proportional" in runs else "proportional"
    views.console.print(
        f"\nWhat {teacher} trained on is drawn in {picture}.\n"
        f"Look at {page} in a browser: shares over time, who helps whom, curves.\n"
        "Try next:\n"
        f"  {command} --teacher {teacher} --beside {other}   another schedule to compare with\n"
        f"  {program} translate {shlex.quote(str(run))} --language {language}   translate your own sentences\n"
        f"  {program} teachers   all schedules and their parameters\n"
        "docs/tutorial.md shows how to train on your own parallel text.",
        soft_wrap=True,
    )


WINDOWS: Final = 20
"""Of the pictures of shares over time: enough to see them move, few enough for some forty choices in each."""

ONE_SEED: Final = (
    "One seed each: a point of BLEU or two between them says nothing. rota compare asks with several seeds."
)

LOSSES: Final = (
    "Loss: nats per token of the human translations, less is better; it tells small differences apart sooner."
)

Scores = Mapping[str, Sequence[float]]
"""By language and group of languages: BLEU of every run, then chrF and loss of every run."""


def _scores(evaluations: Mapping[str, Evaluation]) -> Scores:
    first = next(iter(evaluations.values()))
    columns = [(each, metric) for metric in METRICS for each in evaluations.values()]
    languages = {
        arm + (" (low)" if arm in first.low_resource else ""): [each.values(metric)[arm] for each, metric in columns]
        for arm in first.scores
    }
    groups = {group: [each.averages(metric)[group] for each, metric in columns] for group in first.averages("bleu")}
    return languages | groups


def _score_table(scores: Scores, runs: Sequence[str]) -> Table:
    """The scores of all runs beside each other, by language and on average; close together if the names are long."""
    widths = [max(map(len, scores)), *(max(len(name), len("00.0")) for name in runs for _ in METRICS)]
    padding = 2 if sum(widths) + 4 * len(widths) <= COLUMNS else 1
    table = Table(box=None, padding=(0, padding), collapse_padding=padding == 1, show_edge=False)
    table.add_column("language", overflow="fold")
    for metric in METRICS.values():
        for name in runs:
            table.add_column(f"{metric}\n{name}", justify="right")
    for name, found in scores.items():
        table.add_row(name, *_written(found), style="bold" if name in GROUPS else "")
    return table


def _written(scores: Sequence[float]) -> list[str]:
    """Losses, which come last, need more digits."""
    points = len(scores) // len(METRICS) * (len(METRICS) - 1)
    return [f"{score:.1f}" if place < points else f"{score:.2f}" for place, score in enumerate(scores)]


Sample = Mapping[str, str]
"""``language``, ``source`` and ``reference`` of a sentence, and its translation by the name of each run."""


def _samples(store: Store, evaluations: Mapping[str, Evaluation]) -> Sequence[Sample]:
    """The sentence after a third of some test sets: neither chosen by hand nor the alphabetically first."""
    samples = []
    for arm in (store.low_resource or store.languages)[:4]:
        pairs = store.text("test", arm)
        index = len(pairs) // 3
        source, reference = pairs[index]
        translations = {name: read_lines(found.translations[arm])[index] for name, found in evaluations.items()}
        samples.append({"language": arm, "source": source, "reference": reference, **translations})
    return samples


def _sample_table(samples: Sequence[Sample]) -> Table:
    table = Table(box=None, padding=(0, 2), show_edge=False, show_header=False)
    for style in ("", "dim", ""):
        table.add_column(overflow="fold", style=style)
    for sample in samples:
        language, *lines = sample.items()
        for number, (name, text) in enumerate(lines):
            table.add_row("" if number else language[1], name, text)
    return table


def _write_page(
    study: Study, names: Sequence[str], did: Sequence[str], scores: Scores, samples: Sequence[Sample], out: Path
) -> Path:
    """What was seen, on a page small enough to be looked at; rota report makes a longer one."""
    rows = [study.rows[name] for name in names]
    looks = looks_of(study)
    written = [[Cell(name), *map(Cell, _written(found))] for name, found in scores.items()]
    columns = ("language", *(f"{metric}, {name}" for metric in METRICS.values() for name in names))
    caption = f"Of the test sets; then means over languages, each of which counts the same. {LOSSES}"
    score_table = PageTable("scores", "Test scores", caption, columns, written, text_columns=1)
    lines = [[Cell(text) for text in sample.values()] for sample in samples]
    sample_table = PageTable(
        "samples", "One sentence of each", "", tuple(samples[0]), lines, text_columns=len(samples[0])
    )
    maps = [help_figure(row) for row in rows]
    curves = [loss_figure(rows, rows[-1], MACRO, looks), source_gain_figure(rows, looks)]
    whole = f"{views.program()} report {' '.join(str(row.runs[min(row.runs)].folder.parent) for row in rows)}"
    several = [ONE_SEED] if len(rows) > 1 else []
    sections = [
        Section("teacher", f"What {names[0]} did", [_opening(names, study.any_run.steps)], did),
        Section("shares", "What each of them trained on", pictures=[evolution(row, WINDOWS) for row in rows]),
        Section("map", "Who helps whom", pictures=[picture for picture in maps if picture is not None]),
        Section("summary", "What came out", several, tables=[score_table]),
        Section("samples", "Translations", tables=[sample_table]),
        Section("curves", "How they learned", pictures=[picture for picture in curves if picture is not None]),
        Section("alarms", "What training noticed", points=alarms_raised(study)),
        Section("making", "How this was made", [f"{MADE_BY} The whole report, with every language:"], commands=[whole]),
    ]
    write_report(out, "The demo", what_was_run(study), sections)
    return out / "index.html"
