"""The demo: prepare a small corpus, train two schedules side by side, translate, score and report in a few minutes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

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
from rota.report.figures.shares import plot_shares
from rota.report.several import report_on
from rota.teachers import TEACHERS

CORPORA: dict[str, dict[str, Any]] = {
    # Tuned on the uniform schedule for 2 cores, one for each of two runs.
    "catalogues": {
        "data": {"corpus": "catalogues", "subwords": {"size": "4k"}},
        "student": {
            "preset": "tiny",
            "dropout": 0.1,
            "learning_rate": {"peak": 0.004, "decay": "linear"},
            "lr_warmup": "15%",
        },
        "training": {"steps": 1200, "tokens": 1000, "checkpoint_every": "10%", "validate_every": "5%"},
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
    """A row for each teacher, one seed; who helps whom is measured where a teacher can."""
    if corpus not in CORPORA:
        raise ValueError(f"--corpus is {corpus!r}; it is one of {', '.join(CORPORA)}")
    base = {name: dict(part) for name, part in CORPORA[corpus].items()}
    base["data"]["folder"] = str(folder / corpus / "data")
    base["evaluation"] = {"metrics": ["bleu", "chrf"]}
    if steps is not None:
        base["training"]["steps"] = steps
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
    suite, out = demo_suite(corpus, names, folder, steps), folder / corpus
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
    shorter = "" if steps is None else f" --steps {steps}"
    command = f"{views.program()} demo --corpus {corpus} --folder {folder}{shorter}"
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
    views.console.print(_score_table(evaluations))
    if others:
        views.say(
            "One seed each: a point of BLEU or two between them says nothing. rota compare asks with several seeds."
        )
    views.console.print("\nSome translations:", _samples(store, evaluations))
    picture = plot_shares(run, run / "shares.png")
    with views.ProgressBar() as progress:
        report_on([run.parent for run in runs.values()], out, title="The demo", progress=progress)
    program, language = views.program(), store.languages[0]
    other = "temperature" if "proportional" in runs else "proportional"
    views.console.print(
        f"\nWhat it trained on is drawn in {picture}.\n"
        f"Look at {out / 'index.html'} in a browser: curves, shares over time, who helps whom.\n"
        "Try next:\n"
        f"  {command} --teacher {teacher} --beside {other}   another schedule to compare with\n"
        f"  {program} translate {run} --language {language}   translate your own sentences\n"
        f"  {program} teachers   all schedules and their parameters\n"
        "docs/tutorial.md shows how to train on your own parallel text.",
        soft_wrap=True,
    )


def _score_table(evaluations: Mapping[str, Evaluation]) -> Table:
    """The scores of all runs beside each other, by language and on average."""
    table = Table(box=None, padding=(0, 2), show_edge=False)
    table.add_column("language", overflow="fold")
    for metric in ("BLEU", "chrF"):
        for name in evaluations:
            table.add_column(f"{metric}\n{name}", justify="right")
    first = next(iter(evaluations.values()))
    names = {arm: arm + (" (low)" if arm in first.low_resource else "") for arm in first.scores}
    groups = list(first.averages("bleu"))
    for name in (*names, *groups):
        found = [
            (each.averages(metric) if name in groups else each.values(metric))[name]
            for metric in ("bleu", "chrf")
            for each in evaluations.values()
        ]
        row = [names.get(name, name), *(f"{score:.1f}" for score in found)]
        table.add_row(*row, style="bold" if name in groups else "")
        if name == list(names)[-1]:
            table.add_section()
    return table


def _samples(store: Store, evaluations: Mapping[str, Evaluation]) -> Table:
    """The sentence after a third of some test sets: neither chosen by hand nor the alphabetically first."""
    table = Table(box=None, padding=(0, 2), show_edge=False, show_header=False)
    for style in ("", "dim", ""):
        table.add_column(overflow="fold", style=style)
    for arm in (store.low_resource or store.languages)[:4]:
        pairs = store.text("test", arm)
        index = len(pairs) // 3
        source, reference = pairs[index]
        translations = {name: read_lines(found.translations[arm])[index] for name, found in evaluations.items()}
        lines = {"source": source, "reference": reference, **translations}
        for number, (name, text) in enumerate(lines.items()):
            table.add_row(arm if number == 0 else "", name, text)
    return table
