"""The demo: prepare, train, translate, score and report on a small corpus in a few minutes, and what to try next."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rota import api
from rota.cli import views
from rota.cli.runs import train_with_display
from rota.cli.scores import evaluate_with_display
from rota.config import RunConfig, parse_config
from rota.data.corpora.gettext import CatalogueUnavailable
from rota.data.store import Store
from rota.evaluation.evaluate import Evaluation
from rota.evaluation.translator import read_lines
from rota.report.figures.shares import plot_shares
from rota.report.several import report_on
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


def demo_config(corpus: str, teacher: str, folder: Path, steps: int | None = None) -> RunConfig:
    if corpus not in CORPORA:
        raise ValueError(f"--corpus is {corpus!r}; it is one of {', '.join(CORPORA)}")
    _check_teacher(teacher)
    values = {name: dict(part) for name, part in CORPORA[corpus].items()}
    values["data"]["folder"] = str(folder / corpus / "data")
    if steps is not None:
        values["training"]["steps"] = steps
    drawn = {"map": True} if "map" in TEACHERS[teacher].model_fields else {}
    return parse_config({"name": teacher, "teacher": {"name": teacher, **drawn}, **values}, origin="rota demo")


def _check_teacher(name: str) -> None:
    """A teacher that has settings without a default cannot be given by name alone."""
    if name not in TEACHERS:
        raise ValueError(f"--teacher or --beside is {name!r}, which is not a schedule; rota teachers lists them")
    fields = TEACHERS[name].model_fields
    needed = [key for key, field in fields.items() if field.is_required()]
    if needed:
        lacks = f"--teacher {name} needs teacher.{needed[0]}, for which the demo has no option"
        raise ValueError(f"{lacks}; write it in a config and use rota train, or choose another teacher")


def run_demo(corpus: str, teacher: str, folder: Path, steps: int | None = None, beside: str = "none") -> None:
    """Prepare, train once or twice, evaluate, show; every part that is done already is skipped."""
    names = [teacher] if beside in ("none", teacher) else [teacher, beside]
    configs = {name: demo_config(corpus, name, folder, steps) for name in names}
    config = configs[teacher]
    twice = f", then once more with the schedule {beside}, as long, to compare" if len(names) > 1 else ""
    views.say(
        "One model learns to translate several languages, and a teacher decides again and again which of them it trains"
        f" on next. The demo trains {config.training.steps:,} updates with the teacher {teacher}{twice}."
    )
    views.console.rule(f"1. The {corpus} corpus")
    try:
        with views.ProgressBar() as progress:
            store = api.prepare(config, progress=progress)
    except CatalogueUnavailable as error:
        views.say(f"{error}\nUsing the generated languages instead: their scores say nothing about real ones.")
        return run_demo("synthetic", teacher, folder, steps, beside)
    views.console.print(views.data_table(store))
    shorter = "" if steps is None else f" --steps {steps}"
    command = f"{views.program()} demo --corpus {corpus} --folder {folder}{shorter}"
    runs = {name: folder / corpus / name for name in names}
    for number, name in enumerate(names, 2):
        views.console.rule(f"{number}. Training with the {name} schedule")
        again = f"{command} --teacher {teacher} --beside {beside}"
        loop = train_with_display(configs[name], runs[name], until=None, again=again)
        if not loop.is_over:
            return None
    views.console.rule(f"{len(names) + 2}. Translating the test sets")
    evaluations = {name: evaluate_with_display(run, metrics="bleu,chrf") for name, run in runs.items()}
    _show_results(runs, store, evaluations, folder / corpus / "report", command)
    return None


def _show_results(
    runs: Mapping[str, Path], store: Store, evaluations: Mapping[str, Evaluation], out: Path, command: str
) -> None:
    teacher, *others = runs
    run = runs[teacher]
    for name, evaluation in evaluations.items():
        views.console.print(views.score_table(evaluation, f"{runs[name]}, step {evaluation.step:,}, test"))
    if others:
        views.say(
            "One seed each: a point of BLEU or two between them says nothing. rota compare asks with several seeds."
        )
    views.console.print(views.sample_table(_samples(store, evaluations[teacher])))
    picture = plot_shares(run, run / "shares.png")
    with views.ProgressBar() as progress:
        report_on(list(runs.values()), out, title="The demo", progress=progress)
    program, language = views.program(), store.languages[0]
    other = "proportional" if "uniform" in runs else "uniform"
    views.console.print(
        f"\nWhat it trained on is drawn in {picture}.\n"
        f"Look at {out / 'index.html'} in a browser: curves, shares over time, who helps whom.\n"
        "Try next:\n"
        f"  {command} --teacher {teacher} --beside {other}   the same, and another schedule to compare\n"
        f"  {program} translate {run} --language {language}   translate your own sentences\n"
        f"  {program} teachers   all schedules and their parameters\n"
        "docs/tutorial.md shows how to train on your own parallel text.",
        soft_wrap=True,
    )


def _samples(store: Store, evaluation: Evaluation) -> list[dict[str, str]]:
    """The middle sentences of some test sets: neither chosen by hand nor the alphabetically first."""
    samples = []
    for arm in (store.low_resource or store.languages)[:4]:
        pairs = store.text("test", arm)
        translations = read_lines(evaluation.translations[arm])
        for index in (len(pairs) // 3, 2 * len(pairs) // 3):
            source, reference = pairs[index]
            found = {"language": arm, "source": source, "translation": translations[index], "reference": reference}
            samples.append(found)
    return samples
