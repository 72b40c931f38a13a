"""Everything the commands print: tables, progress bars, messages."""

from __future__ import annotations

import logging
import os
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from datetime import timedelta
from inspect import cleandoc
from pathlib import Path
from textwrap import wrap
from types import TracebackType
from typing import TYPE_CHECKING

from rich.console import Console, Group
from rich.logging import RichHandler
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bars
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from rota.data.store import Store
    from rota.evaluation.evaluate import Evaluation
    from rota.evaluation.selection import Selection
    from rota.report.ending import ArmTotals
    from rota.report.numbers.helping import HelpMap
    from rota.simulation.simulate import SimulationResult
    from rota.teachers import TeacherConfig
    from rota.teachers.curricula.base import CurriculumConfig
    from rota.teachers.dqn.policy import PolicyProbe

# Users' text is printed through this: "[/b]" in a sentence or a path is not markup.
console = Console(markup=False, emoji=False, highlight=False)

Progress = Callable[[str, int, int | None], None]
"""Called as ``progress(stage, done, total)``; the total is ``None`` while it is not known."""

HARDLY = 1.0
"""A dev BLEU below which it is chance that decides between checkpoints."""

MOST_DROPPED = 3
"""Arms that are named with a reason for which pairs were dropped."""

MANY_LEAKS = 0.1
"""Share of the training pairs above which a remedy is named for those whose English is held out elsewhere."""

MANY = 24
"""Arms that a table of a run shows."""

LINE_SECONDS = 30.0
"""Between two lines of progress where there is no terminal: in a file, a pipe, the log of a cluster."""


def program() -> str:
    """How the user can call this program again: by its name, if the shell finds it."""
    if shutil.which("rota"):
        return "rota"
    module = Path(sys.argv[0]).name == "__main__.py"
    return f"{os.path.relpath(sys.executable)} -m rota" if module else os.path.relpath(sys.argv[0])


def say(message: str) -> None:
    """One message, not wrapped: a command in it can be copied."""
    console.print(message, soft_wrap=True)


def log_to_console() -> None:
    """Log messages go through the console, so that they do not break a live display."""
    handler = RichHandler(console=console, show_path=False, show_time=False, show_level=False)
    logging.basicConfig(level=logging.INFO, format="%(message)s", force=True, handlers=[handler])


class ProgressBar:
    """A context manager to call inside itself: a bar for each stage, or, without a terminal, a line now and then."""

    def __enter__(self) -> ProgressBar:
        self._open: AbstractContextManager[Progress] = _bars() if console.is_terminal else _lines()
        self._report = self._open.__enter__()
        return self

    def __call__(self, stage: str, done: int, total: int | None) -> None:
        self._report(stage, done, total)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._open.__exit__(kind, error, trace)


@contextmanager
def _bars() -> Iterator[Progress]:
    columns = (TextColumn("{task.description:<24}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Bars(*columns, console=console) as bars:
        tasks: dict[str, int] = {}

        def report(stage: str, done: int, total: int | None) -> None:
            if stage not in tasks:
                tasks[stage] = int(bars.add_task(stage, total=total))
            bars.update(bars.task_ids[tasks[stage]], completed=done, total=total)

        yield report
        for task in bars.tasks:
            bars.update(task.id, total=task.completed or 1, completed=task.completed or 1)


@contextmanager
def _lines() -> Iterator[Progress]:
    """Printed by a thread: a stage may take minutes without a report. Short work prints nothing."""
    began, over = time.monotonic(), threading.Event()
    latest: list[str] = []

    def report(stage: str, done: int, total: int | None) -> None:
        counted = f": {done:,}" if done or total else ""  # work that cannot be counted has only its stage
        latest[:] = [stage + counted + (f" of {total:,}" if total else "")]

    def print_lines() -> None:
        while not over.wait(LINE_SECONDS):
            for line in latest:
                say(f"{line}, {timedelta(seconds=round(time.monotonic() - began))} so far")

    thread = threading.Thread(target=print_lines, daemon=True)
    thread.start()
    try:
        yield report
    finally:
        over.set()
        thread.join()


def data_table(store: Store) -> Group:
    """Pairs of each language, and of its arms if it has several; then why pairs were dropped from train."""
    counts = store.manifest.cleaning
    dropped = {arm: _dropped(splits["train"]) for arm, splits in counts.items() if "train" in splits}
    table = _named_rows("language", "train", "dev", "test", *(["dropped"] if any(dropped.values()) else []))
    for name in store.languages:
        arms = [arm for arm, language in store.language_of.items() if language == name]
        low = " (low)" if name in store.low_resource else ""
        held_out = [f"{counts[name][split]['kept']:,}" for split in ("dev", "test")]
        gone = [f"{sum(sum(dropped[arm].values()) for arm in arms):,}"] if any(dropped.values()) else []
        table.add_row(name + low, f"{store.language_sizes[name]:,}", *held_out, *gone)
        for arm in arms if arms != [name] else []:
            of_arm = [f"{sum(dropped[arm].values()):,}"] if gone else []
            table.add_row(f"  {arm}", f"{store.sizes[arm]:,}", "", "", *of_arm)
    titled = _titled(f"{store.folder}: {store.manifest.vocabulary:,} subwords", table)
    reasons = [_reasons_table(dropped)] if any(dropped.values()) else []
    notes = [*_mess_lines(store), *_leak_lines(dropped, sum(store.sizes.values()))]
    return Group(titled, *reasons, *(Text(line, style="yellow") for line in notes))


def _leak_lines(dropped: Mapping[str, Mapping[str, int]], kept: int) -> list[str]:
    """What to do if much of the text is in the dev or test set of another language."""
    from rota.data.preparation.cleaning import LEAK

    leaked = sum(counts.get(LEAK, 0) for counts in dropped.values())
    if leaked <= MANY_LEAKS * (kept + leaked):
        return []
    return [
        f"{leaked / (kept + leaked):.0%} of the training pairs have English that is in a dev or test set. If the "
        "languages translate the same text, hold out the same lines in all of them."
    ]


def _dropped(counts: Mapping[str, int]) -> dict[str, int]:
    """Pairs by the reason of the cleaning."""
    return {reason: count for reason, count in counts.items() if reason != "kept" and count}


def _reasons_table(dropped: Mapping[str, Mapping[str, int]]) -> Table:
    """For each reason the pairs of all arms together, and the arms that lost most."""
    reasons = sorted({reason for counts in dropped.values() for reason in counts})
    table = _table()
    for name in ("dropped because of", "pairs", "most of them in"):
        table.add_column(name, justify="right" if name == "pairs" else "left", style="dim")
    for reason in reasons:
        by_arm = sorted(((counts.get(reason, 0), arm) for arm, counts in dropped.items()), key=lambda each: -each[0])
        most = ", ".join(f"{arm} {count:,}" for count, arm in by_arm[:MOST_DROPPED] if count)
        table.add_row(reason, f"{sum(count for count, _ in by_arm):,}", most)
    return table


def _mess_lines(store: Store) -> Iterator[str]:
    """What ``data.mess`` did to each language."""
    for arm, kinds in store.manifest.mess.items():
        counts = ", ".join(f"{count:,} {kind}" for kind, count in kinds.items())
        yield f"degraded on purpose (data.mess): {counts} of the {store.sizes[arm]:,} training pairs of {arm}"


def arm_table(totals: Sequence[ArmTotals]) -> Table:
    """What a run did with each arm, those of a language below it, in the order given; of very many, the first 24."""
    from rota.report.ending import in_epochs

    grouped = any(each.depth for each in totals)
    table = _named_rows("language", "tokens", "share", "epochs", "dev loss", "lowest")
    missing = "" if grouped else "-"  # a language stands for the dev loss of its arms, or they for it
    for each in totals[:MANY]:
        losses = [missing if loss is None else f"{loss:.3f}" for loss in (each.dev_loss, each.lowest)]
        epochs = "-" if each.epochs is None else in_epochs(each.epochs, each.tokens)
        table.add_row("  " * each.depth + each.arm, f"{each.tokens:,}", f"{each.share:.1%}", epochs, *losses)
    if len(totals) > MANY:
        table.add_row(f"and {len(totals) - MANY} more", *[""] * 5, style="dim")
    return table


def score_table(evaluation: Evaluation, title: str) -> Group:
    """BLEU, chrF and what else was scored by language, then the averages."""
    from rota.evaluation.metrics import DIGITS, LABELS

    metrics = [found.metric for found in next(iter(evaluation.scores.values()))]
    table = _named_rows("language", *(LABELS.get(metric, metric) for metric in metrics))
    for arm in evaluation.scores:
        low = " (low)" if arm in evaluation.low_resource else ""
        table.add_row(arm + low, *(f"{evaluation.values(metric)[arm]:.{DIGITS.get(metric, 1)}f}" for metric in metrics))
    table.add_section()
    for group in evaluation.averages(metrics[0]):
        means = [f"{evaluation.averages(metric)[group]:.{DIGITS.get(metric, 1)}f}" for metric in metrics]
        table.add_row(group, *means, style="bold")
    return _titled(title, table)


def model_name(evaluation: Evaluation) -> str:
    """Which checkpoints translated, and how they were chosen."""
    steps = [f"{step:,}" for step in evaluation.model.steps]
    if evaluation.model.combine == "moving-average":
        steps = [f"{steps[-1]}, moving average"]
    together = {"average": "average of steps", "ensemble": "ensemble of steps"}.get(evaluation.model.combine)
    name = f"step {steps[-1]}" if together is None or len(steps) == 1 else f"{together} {', '.join(steps)}"
    return name if evaluation.select is None else f"{name} (best {evaluation.select})"


def window_table(selection: Selection) -> Group:
    """Dev BLEU and dev loss of every window of checkpoints; an asterisk marks the best one."""
    window, windows, select = selection.best, selection.windows, selection.select
    table = _table(gap=1)
    for name in ("last step", *window.averages, "dev loss", ""):
        table.add_column(name, justify="right")
    for each in windows:
        loss = "-" if each.loss is None else f"{each.loss:.3f}"
        scores = [f"{value:.2f}" for value in each.averages.values()]
        table.add_row(f"{each.step:,}", *scores, loss, "*" if each is window else "", style=_bold(each is window))
    combine, size = selection.config.combine, len(window.steps)
    single = "moving averages" if combine == "moving-average" else "single checkpoints"
    made = f"{combine} of {size} checkpoints" if size > 1 else single
    measured = "dev loss" if select == "loss" else f"{select} dev BLEU"
    notes = [_dev_sizes(selection)]
    if len(windows) == 1 and size > 1:
        notes.append(
            "the only window, so nothing was chosen: --combine last chooses among single checkpoints; a smaller"
            " training.checkpoint_every saves more of them"
        )
    if select != "loss" and window.averages[select] < HARDLY:
        notes.append(f"a dev BLEU below {HARDLY:g} says little about which is best; --select loss goes by the dev loss")
    return Group(_titled(f"{made}, by {measured}", table), *(Text(note, style="dim") for note in notes))


def _dev_sizes(selection: Selection) -> str:
    if not selection.sentences:
        return "dev losses as recorded in training (validations.jsonl)"
    counts = ", ".join(f"{arm} {count:,}" for arm, count in selection.sentences.items())
    seen = "the teacher saw them too" if selection.teacher_share == 1 else "the teacher saw none of them"
    return f"dev sentences (beam {selection.config.selecting.beam}; {seen}): {counts}"


def _bold(wanted: bool) -> str:
    return "bold" if wanted else ""


def signatures(evaluation: Evaluation) -> str:
    first = next(iter(evaluation.scores.values()))
    return "\n".join(f"{found.metric}: {found.signature}" for found in first)


def teacher_list(configs: Mapping[str, type[TeacherConfig | CurriculumConfig]]) -> Text:
    """One line for each teacher, by family, in 80 columns; above them what to use when in doubt."""
    from rota.teachers.card import ADVICE, FAMILIES

    cards = {name: config.card for name, config in configs.items() if config.card is not None}
    width = max(18, *map(len, cards))
    head = f"{'':<{width}} {'':25} {'observes':<10} {'750':>5} {'8,000':>5} source"
    lines = [
        *wrap(ADVICE, 80),
        "",
        "The numbers: share of a run's time, with updates of 750 and of 8,000 tokens.",
        head,
    ]
    text = Text("\n".join(lines))
    for family, title in FAMILIES.items():
        members = {name: card for name, card in cards.items() if card.family == family}
        text.append(f"\n{title}" if members else "", style="bold")
        for name, card in members.items():
            small, large = card.cost
            text.append(f"\n{name:<{width}}", style="cyan")
            text.append(f" {card.line:<25} {card.observes:<10} {small:>5} {large:>5} {card.source}")
    return text


def teacher_table(name: str, config: type[TeacherConfig | CurriculumConfig]) -> Group:
    """What a teacher or a curriculum does, where it comes from, and its parameters with defaults."""
    from rota.teachers import TeacherConfig
    from rota.teachers.card import FAMILIES

    table = _table()
    for column in ("parameter", "default", "meaning"):
        table.add_column(column, style="cyan" if column == "parameter" else "")
    replaced = _replaced_defaults(config)
    for parameter, field in config.model_fields.items():
        left_out = config.left_out() if issubclass(config, TeacherConfig) else ()
        if parameter not in ("name", *left_out):
            default = "(required)" if field.is_required() else _written(field.get_default(call_default_factory=True))
            default += " *" if parameter in replaced else ""
            table.add_row(f"  {parameter}", default, field.description or "")
    titled = _titled(f"{name}: {cleandoc(config.__doc__ or '')}", table)
    if replaced:
        note = "* for a run of the paper's length; variant scaled, the default, replaces it to suit the run, unless set"
        titled = Group(*titled.renderables, Text(note))
    if config.card is None:
        return titled
    card, (small, large) = config.card, config.card.cost
    said = [
        f"family    {FAMILIES[card.family]}",
        f"observes  {card.observes}",
        f"takes     {_taken(small, large)}",
        f"source    {card.reference}",
    ]
    return Group(*titled.renderables[:1], Text("\n".join(said)), *titled.renderables[1:])


def _replaced_defaults(config: type[TeacherConfig | CurriculumConfig]) -> set[str]:
    """The settings of a learned teacher of the paper that a shorter run has otherwise; here one of 1,500 updates."""
    from rota.teachers.base import LearnedConfig, fit

    if not issubclass(config, LearnedConfig) or any(field.is_required() for field in config.model_fields.values()):
        return set()
    plain = config.model_validate({})
    written = plain.model_dump(mode="json")
    return {name for name, value in fit(plain, steps=1500, tokens=4000).items() if value != written[name]}


def _taken(small: str, large: str) -> str:
    said = ["less than 0.05%" if cost == "0" else cost for cost in (small, large)]
    return f"{said[0]} of a run's time with updates of 750 tokens, {said[1]} with 8,000"


def _written(value: object) -> str:
    """A default as one would write it in a config."""
    from rota.settings import Settings
    from rota.teachers import TeacherConfig, WarmupConfig

    if isinstance(value, WarmupConfig):
        return str(value.until)
    if isinstance(value, TeacherConfig):
        return str(getattr(value, "name", ""))
    if isinstance(value, Settings):
        return "{" + ", ".join(f"{key}: {inner}" for key, inner in value.model_dump(mode="json").items()) + "}"
    if isinstance(value, tuple):
        return str(list(value))
    return "null" if value is None else str(value)


def simulation_table(results: Mapping[str, SimulationResult], title: str) -> Group:
    """Final loss and share of the updates by language, one column for each teacher, the best one first."""
    ranked = dict(sorted(results.items(), key=lambda item: item[1].macro_loss))
    arms = list(next(iter(ranked.values())).shares)
    columns = {
        name: [
            *(Text(f"{result.final_losses[arm]:.3f} {result.shares[arm]:4.0%}") for arm in arms),
            Text(f"{result.macro_loss:.3f}     ", style="bold"),
        ]
        for name, result in ranked.items()
    }
    return _side_by_side(title, "loss, share", [*arms, "mean"], columns)


def policy_table(probe: PolicyProbe) -> Group:
    """Row: the language whose losses were amplified; columns: softmax of the Q value of each choice."""
    values = zip(*probe.matrix, strict=True)
    columns = {
        arm: [Text(f"{value:.2f}") for value in column]
        for arm, column in zip(probe.arms or probe.languages, values, strict=True)
    }
    title = f"Q network ({probe.network}) at step {probe.step}, losses of one language x {probe.factor:g}"
    return _side_by_side(title, "amplified", list(probe.languages), columns)


def help_table(found: HelpMap) -> Group:
    """Row: the arm trained on; columns: how far its updates help the dev set of each language. Faint: not certain."""
    columns = {}
    for column, language in enumerate(found.languages):
        cells = []
        for row, value in enumerate(found.means[:, column]):
            known = bool(value == value)  # not nan
            style = "" if not known or found.sure[row, column] else "dim"
            cells.append(Text(f"{value:+.2f}" if known else "-", style=style))
        columns[language] = cells
    title = f"who helps (+) or hurts (-) whose dev loss, steps {found.first:,} to {found.last:,}"
    return _side_by_side(title, "training on", list(found.arms), columns)


def _side_by_side(title: str, corner: str, rows: Sequence[str], columns: Mapping[str, Sequence[Text]]) -> Group:
    """Columns under their names; those that do not fit the width follow in another table with the same rows."""
    room = console.width - max(map(len, [corner, *rows])) - 2
    tables = []
    widths = {name: max(len(name), *(len(cell) for cell in cells)) + 2 for name, cells in columns.items()}
    for names in _blocks(widths, room):
        table = _named_rows(corner, *names, gap=1)
        for place, row in enumerate(rows):
            table.add_row(row, *(columns[name][place] for name in names))
        tables.append(table)
    return Group(Text(title, style="bold"), *tables)


def _blocks(widths: Mapping[str, int], room: int) -> list[list[str]]:
    """Names in their order, as many together as fit; one at least."""
    blocks: list[list[str]] = []
    left = 0
    for name, width in widths.items():
        if not blocks or width > left:
            blocks.append([])
            left = room
        blocks[-1].append(name)
        left -= width
    return blocks


def _table(gap: int = 2) -> Table:
    return Table(box=None, padding=(0, gap), show_edge=False)


def _named_rows(corner: str, *columns: str, gap: int = 2) -> Table:
    """Names on the left, of which a long one takes several lines: a truncated one may be that of another; numbers."""
    table = _table(gap)
    table.add_column(corner, overflow="fold")
    for name in columns:
        table.add_column(name, justify="right", no_wrap=True)
    return table


def _titled(title: str, table: Table) -> Group:
    """The title above the table, not squeezed into the width of its columns."""
    return Group(Text(title, style="bold"), table)
