"""The demo: prepare a small corpus, train one schedule on it or two, translate, score and report in a few minutes."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

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
from rota.experiments.jobs import Job, plan
from rota.experiments.suite import Suite
from rota.report.assemble import looks_of
from rota.report.figures.helping import help_figure
from rota.report.figures.results import loss_figure, source_gain_figure
from rota.report.figures.shares import evolution, plot_shares
from rota.report.numbers.measures import GROUPS, MACRO
from rota.report.page import MADE_BY, Section, write_report
from rota.report.sentences import alarms_raised, what_was_run
from rota.report.study import read_study
from rota.report.tables.table import Cell
from rota.report.tables.table import Table as PageTable
from rota.teachers import TEACHERS

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


def demo_suite(corpus: str, teachers: Sequence[str], folder: Path, steps: int | None = None) -> Suite:
    """A row for each teacher, one seed; who helps whom is measured where a teacher can.

    Two runs have half of the updates each, so that they take as long as one.
    """
    if corpus not in CORPORA:
        raise ValueError(f"--corpus is {corpus!r}; it is one of {', '.join(CORPORA)}")
    base = {name: dict(part) for name, part in CORPORA[corpus].items()}
    base["data"]["folder"] = str(folder / corpus / "data")
    base["evaluation"] = {"metrics": ["bleu", "chrf"]}
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
    views.console.rule("3. Translations and scores")
    evaluations = {job.row: evaluate_with_display(job.folder) for job in jobs}
    _show_results({job.row: job.folder for job in jobs}, store, evaluations, out / "report", command)
    return None


def _opening(names: Sequence[str], steps: int) -> str:
    what = (
        "One model learns to translate several languages, and a teacher decides again and again what it trains on next."
    )
    if len(names) == 1:
        return f"{what} The demo trains {steps:,} updates with the teacher {names[0]}."
    return (
        f"{what} The demo trains two models at the same time, {steps:,} updates each: "
        f"one with the teacher {names[0]}, one with {names[1]}, to compare."
    )


def _train(suite: Suite, jobs: Sequence[Job], out: Path, again: str) -> bool:
    """Two runs at the same time under the table of a suite, one under its own display; whether all are trained."""
    if len(jobs) == 1:
        return train_with_display(jobs[0].config, jobs[0].folder, until=None, again=again).is_over
    threads = max(1, cores() // len(jobs))
    run_suite(suite, jobs, out, start=starter("local", threads), at_once=len(jobs), again=again)
    return True


def _show_results(
    runs: Mapping[str, Path], store: Store, evaluations: Mapping[str, Evaluation], out: Path, command: str
) -> None:
    teacher, *others = runs
    run = runs[teacher]
    scores, samples = _scores(evaluations), _samples(store, evaluations)
    views.console.print(_score_table(scores, list(evaluations)))
    if others:
        views.say(ONE_SEED)
    views.console.print("\nSome translations:", _sample_table(samples))
    picture = plot_shares(run, run / "shares.png")
    page = _write_page(runs, scores, samples, out)
    program, language = views.program(), store.languages[0]
    other = "temperature" if "proportional" in runs else "proportional"
    views.console.print(
        f"\nWhat it trained on is drawn in {picture}.\n"
        f"Look at {page} in a browser: curves, shares over time, who helps whom.\n"
        "Try next:\n"
        f"  {command} --teacher {teacher} --beside {other}   another schedule to compare with\n"
        f"  {program} translate {shlex.quote(str(run))} --language {language}   translate your own sentences\n"
        f"  {program} teachers   all schedules and their parameters\n"
        "docs/tutorial.md shows how to train on your own parallel text.",
        soft_wrap=True,
    )


ONE_SEED: Final = (
    "One seed each: a point of BLEU or two between them says nothing. rota compare asks with several seeds."
)

Scores = Mapping[str, Sequence[float]]
"""By language and group of languages: BLEU of every run, then chrF of every run."""


def _scores(evaluations: Mapping[str, Evaluation]) -> Scores:
    first = next(iter(evaluations.values()))
    columns = [(each, metric) for metric in ("bleu", "chrf") for each in evaluations.values()]
    languages = {
        arm + (" (low)" if arm in first.low_resource else ""): [each.values(metric)[arm] for each, metric in columns]
        for arm in first.scores
    }
    groups = {group: [each.averages(metric)[group] for each, metric in columns] for group in first.averages("bleu")}
    return languages | groups


def _score_table(scores: Scores, runs: Sequence[str]) -> Table:
    """The scores of all runs beside each other, by language and on average."""
    table = Table(box=None, padding=(0, 2), show_edge=False)
    table.add_column("language", overflow="fold")
    for metric in ("BLEU", "chrF"):
        for name in runs:
            table.add_column(f"{metric}\n{name}", justify="right")
    for name, found in scores.items():
        table.add_row(name, *(f"{score:.1f}" for score in found), style="bold" if name in GROUPS else "")
    return table


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


def _write_page(runs: Mapping[str, Path], scores: Scores, samples: Sequence[Sample], out: Path) -> Path:
    """What was seen, on a page small enough to be looked at; rota report makes a longer one."""
    study = read_study([run.parent for run in runs.values()])
    rows = [study.rows[name] for name in runs]
    looks, steps = looks_of(study), study.any_run.steps
    written = [[Cell(name), *(Cell(f"{score:.1f}") for score in found)] for name, found in scores.items()]
    columns = ("language", *(f"{metric}, {name}" for metric in ("BLEU", "chrF") for name in runs))
    caption = "Of the test sets; then means over languages, each of which counts the same."
    score_table = PageTable("scores", "Test scores", caption, columns, written, text_columns=1)
    lines = [[Cell(text) for text in sample.values()] for sample in samples]
    sample_table = PageTable(
        "samples", "One sentence of each", "", tuple(samples[0]), lines, text_columns=len(samples[0])
    )
    maps = [help_figure(row) for row in rows]
    curves = [loss_figure(rows, rows[-1], MACRO, looks), source_gain_figure(rows, looks)]
    whole = f"{views.program()} report {' '.join(str(run.parent) for run in runs.values())}"
    sections = [
        Section(
            "summary",
            "What came out",
            [_opening(list(runs), steps), *([ONE_SEED] if len(runs) > 1 else [])],
            tables=[score_table],
        ),
        Section("shares", "What each of them trained on", pictures=[evolution(row) for row in rows]),
        Section("alarms", "What training noticed", points=alarms_raised(study)),
        Section("map", "Who helps whom", pictures=[picture for picture in maps if picture is not None]),
        Section("curves", "How they learned", pictures=[picture for picture in curves if picture is not None]),
        Section("samples", "Translations", tables=[sample_table]),
        Section("making", "How this was made", [f"{MADE_BY} The whole report, with every language:"], commands=[whole]),
    ]
    write_report(out, "The demo", what_was_run(study), sections)
    return out / "index.html"
