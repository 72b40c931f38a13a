"""The demo: prepare, train, translate and score a small corpus in a few minutes, and what to try next."""

from __future__ import annotations

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
    return parse_config({"name": teacher, "teacher": teacher, **values}, origin="rota demo")


def _check_teacher(name: str) -> None:
    """A teacher that has settings without a default cannot be given by name alone."""
    fields = TEACHERS[name].model_fields if name in TEACHERS else {}
    needed = [key for key, field in fields.items() if field.is_required()]
    if needed:
        lacks = f"--teacher {name} needs teacher.{needed[0]}, for which the demo has no option"
        raise ValueError(f"{lacks}; write it in a config and use rota train, or choose another teacher")


def run_demo(corpus: str, teacher: str, folder: Path, steps: int | None = None) -> None:
    """Prepare, train, evaluate, show; every part that is done already is skipped."""
    config = demo_config(corpus, teacher, folder, steps)
    views.console.rule(f"1. The {corpus} corpus")
    try:
        with views.ProgressBar() as progress:
            store = api.prepare(config, progress=progress)
    except CatalogueUnavailable as error:
        views.say(f"{error}\nUsing the generated languages instead: their scores say nothing about real ones.")
        return run_demo("synthetic", teacher, folder, steps)
    views.console.print(views.data_table(store))
    run = folder / corpus / teacher
    views.console.rule(f"2. Training with the {teacher} schedule")
    shorter = "" if steps is None else f" --steps {steps}"
    command = f"{views.program()} demo --corpus {corpus} --folder {folder}{shorter} --teacher"
    loop = train_with_display(config, run, until=None, again=f"{command} {teacher}")
    if not loop.is_over:
        return None
    views.console.rule("3. Translating the test sets")
    evaluation = evaluate_with_display(run, metrics="bleu,chrf")
    _show_results(run, store, evaluation, config, command)
    return None


def _show_results(run: Path, store: Store, evaluation: Evaluation, config: RunConfig, command: str) -> None:
    views.console.print(views.score_table(evaluation, f"{run}, step {evaluation.step:,}, test"))
    views.console.print(views.sample_table(_samples(store, evaluation)))
    picture = plot_shares(run, run / "shares.png")
    other = "proportional" if config.teacher.name == "uniform" else "uniform"
    program, language = views.program(), store.languages[0]
    views.console.print(
        f"\nWhat it trained on is drawn in {picture}.\n"
        "Try next:\n"
        f"  {command} {other}   the same with another schedule\n"
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
