"""The page of a single run: what it saw, how every language fared, what was noticed, what it cost."""

from __future__ import annotations

import numpy as np

from rota.goal import goal_mean, is_alike
from rota.report.advice import advise
from rota.report.ending import ArmTotals, arm_totals, how_to_score, in_epochs, what_it_saw
from rota.report.figures.advice import advice_figure
from rota.report.figures.drawing import GRID, INK, Picture, canvas, finish, legend_below, line_colours, step_axis
from rota.report.figures.shares import evolution
from rota.report.numbers.advice import Facts, read_facts
from rota.report.numbers.contrasts import NO_VALUE
from rota.report.numbers.cost import PHASES, clock, phase
from rota.report.numbers.measures import BLEU, CHRF, COMET, GOAL, GROUPS, TEST_LOSS, values
from rota.report.page import Section
from rota.report.sentences import plural
from rota.report.study import Row, StudyRun
from rota.report.tables.groups import group_table
from rota.report.tables.table import Cell, Table

COLOURED = 12
"""Languages that a reader can tell apart by the colour of a line."""


def saw_section(row: Row, run: StudyRun) -> Section:
    """What is read first: two sentences, the table of arms, dev losses and shares over time."""
    if not run.history.updates:
        return Section("summary", "What it saw", [f"{run} has no records of updates yet."])
    done = f"Trained {plural(run.history.updates, 'update')} of {run.steps:,} on {what_it_saw(run)}."
    sentences = [done, *_why_it_stopped(run)]
    if run.finished and run.scores is None:
        sentences.append(f"Next: {how_to_score(run)}.")
    pictures = [*_present(language_losses(run)), evolution(row)]
    groups = group_table(run)
    tables = [arm_table(run), *([] if groups is None else [groups])]
    return Section("summary", "What it saw", sentences, pictures=pictures, tables=tables)


def _present(picture: Picture | None) -> list[Picture]:
    return [] if picture is None else [picture]


def _why_it_stopped(run: StudyRun) -> list[str]:
    stop = run.stop
    return [] if stop is None else [f"It stopped early at step {stop['step']:,}: {stop['text']}."]


def arm_table(run: StudyRun) -> Table:
    """One line for each arm; dev scores and test scores where the run has them."""
    totals, total_pairs = arm_totals(run), max(1, sum(run.arms.values()))
    scored = sorted({name for each in totals for name in each.scores})
    labels = {"bleu": "dev BLEU", "chrf": "dev chrF"}
    head = ("arm", "pairs", "of the corpus", "tokens", "share", "epochs", "dev loss", "lowest", "at step")
    lines, data = [], []
    for each in totals:
        pairs = run.arms[each.arm]
        cells = [
            each.arm,
            f"{pairs:,}",
            f"{pairs / total_pairs:.1%}",
            f"{each.tokens:,}",
            f"{each.share:.1%}",
            NO_VALUE if each.epochs is None else in_epochs(each.epochs, each.tokens),
            _written(each.dev_loss, 3),
            _written(each.lowest, 3),
            NO_VALUE if each.lowest_step is None else f"{each.lowest_step:,}",
            *(_written(each.scores.get(name), 1) for name in scored),
        ]
        lines.append([Cell(text) for text in cells])
        data.append(_full(each, pairs))
    caption = (
        "What the run trained on, and the dev loss of each language in nats per token. Epochs: how often the text of "
        "an arm was gone through."
    )
    columns = (*head, *(labels[name] for name in scored))
    return Table("arms", "Every arm", caption, columns, lines, text_columns=1, data=data)


def _written(value: float | None, digits: int) -> str:
    return NO_VALUE if value is None else f"{value:.{digits}f}"


def _full(each: ArmTotals, pairs: int) -> dict[str, object]:
    known = {"arm": each.arm, "pairs": pairs, "tokens": each.tokens, "share": each.share, "epochs": each.epochs}
    losses = {"dev_loss": each.dev_loss, "lowest_dev_loss": each.lowest, "lowest_step": each.lowest_step}
    return {**known, **losses, **{f"dev_{name}": value for name, value in each.scores.items()}}


def language_losses(run: StudyRun) -> Picture | None:
    """The dev loss of every language and, thick, what the goal makes of them."""
    if len(run.validations) < 2:
        return None
    steps = [entry["step"] for entry in run.validations]
    languages = list(run.validations[-1]["dev_loss"])
    coloured = len(languages) <= COLOURED
    colours = line_colours(languages)
    kind = "mean" if is_alike(run.goal, run.sizes) else "goal"
    with canvas(3.1 + 0.11 * (len(languages) if coloured else 0)) as (figure, [axes]):
        for language in languages:
            losses = [entry["dev_loss"][language] for entry in run.validations]
            dash = "--" if language in run.low_resource else "-"
            look = {"color": colours[language], "label": language} if coloured else {"color": GRID}
            axes.plot(steps, losses, linewidth=1.1, linestyle=dash, **look)
        mean = [goal_mean(entry["dev_loss"], run.goal) for entry in run.validations]
        axes.plot(steps, mean, color=INK, linewidth=2.0, label=kind)
        lowest = int(np.argmin(mean))
        axes.plot(steps[lowest], mean[lowest], color=INK, marker="o", markersize=5)
        axes.set_ylabel("dev loss (nats per token)")
        step_axis(axes)
        legend_below(figure, axes, columns=4)
        faint = "" if coloured else f" Grey: the {len(languages)} languages."
        low = " Dashed: low-resource languages." if run.low_resource else ""
        caption = f"Dev loss of every language, and thick their {kind}, with a dot where it was lowest.{low}{faint}"
        ends = ", ".join(f"{name} {loss:.3f}" for name, loss in run.validations[-1]["dev_loss"].items())
        alt = f"Curves; at the end: {kind} {mean[-1]:.3f}, {ends}"
        return finish(figure, name="dev-loss-languages", title="Dev loss of every language", caption=caption, alt=alt)


def advice_section(run: StudyRun) -> Section:
    """What the records mean, as ``rota advise`` says it."""
    if not run.history.updates:
        return Section("advice", "What the records show")
    facts: Facts = read_facts(run)
    found = advise(facts)
    points = [finding.text for finding in found.findings if finding.kind != "trend"]
    if not points:
        return Section("advice", "What the records show")
    pictures = [advice_figure(facts)] if facts.has_effects else []  # else the table of arms has all of it
    return Section("advice", "What the records show", found.certainty, points, pictures=pictures)


def score_section(run: StudyRun) -> Section:
    """Test scores of every language and their means, one line each."""
    by_metric = {metric: values(run, metric) for metric in (BLEU, CHRF, COMET, TEST_LOSS)}
    found = {metric: scores for metric, scores in by_metric.items() if scores}
    if not found:
        return Section("scores", "Scores")
    scopes = [scope for scope in (*run.sizes, *GROUPS, GOAL) if any(scope in scores for scores in found.values())]
    lines = [
        [Cell(scope), *(Cell(metric.written(found[metric][scope])) for metric in found)]
        for scope in scopes
        if all(scope in scores for scores in found.values())
    ]
    data = [
        {"language": scope, **{metric.name: scores.get(scope) for metric, scores in found.items()}} for scope in scopes
    ]
    columns = ("language", *(metric.label for metric in found))
    caption = "Of the test set; then means over languages, each of which counts the same."
    table = Table("scores", "Test scores", caption, columns, lines, text_columns=1, data=data)
    return Section("scores", "Scores", tables=[table])


def cost_section(run: StudyRun) -> Section:
    """Where the time went, in one sentence: a bar alone compares with nothing."""
    wall, cpu = clock("wall")(run), clock("cpu")(run)
    if wall is None:
        return Section("costs", "What it cost")
    parts = [f"{name} {(phase(name)(run) or 0.0) / wall:.0%}" for name in PHASES]
    spent = f"Training took {wall / 60:.1f} minutes on the wall, {(cpu or 0.0) / 60:.1f} of processor time"
    return Section("costs", "What it cost", [f"{spent}. Of the time on the wall: {', '.join(parts)}."])
