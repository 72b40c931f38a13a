"""A comparison of two systems as a table on the terminal, in LaTeX and as CSV."""

from __future__ import annotations

import csv
import io
import statistics
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from rich.console import Group
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from rota.evaluation.comparison import Compared, Comparison, Row

ALPHA = 0.05
NAME = 13
"""Columns that the names of languages get at least, as many as ``high-resource`` has."""

LATEX_SPECIAL = {sign: f"\\{sign}" for sign in "&%$#_{}"} | {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}"}


def comparison_table(found: Comparison, width: int = 100) -> Group:
    """The systems, the table, what was tested, the signatures; without its last columns where they do not fit."""
    rows = [cells(row, found.metric) for row in found.rows]
    widths = [max(map(len, column)) for column in zip(headers(found), *rows, strict=True)]
    shown = _columns_that_fit(widths, width, fewest=6)
    table = Table(box=None, padding=(0, 1), show_edge=False)
    table.add_column("language", overflow="fold")  # a truncated name may be that of another
    for header, needed in list(zip(headers(found), widths, strict=True))[1:shown]:
        table.add_column(header, justify="right", no_wrap=True, min_width=needed)
    for row, written in zip(found.rows, rows, strict=True):
        if row.is_group and row.name == found.averages[0]:
            table.add_section()
        table.add_row(*written[:shown], style="bold" if row.is_group else "")
    title = Text("\n".join(systems(found)), style="bold")
    lines = [
        line for line in caption(found) if not line.startswith(tuple(f"{name}:" for name in headers(found)[shown:]))
    ]
    if shown < len(widths):
        lines.append(f"Not shown in {width} columns, but in --csv: {', '.join(headers(found)[shown:])}.")
    return Group(title, table, Text("\n".join(lines)), Text("\n".join(found.signatures), style="dim"))


def _columns_that_fit(widths: Sequence[int], room: int, fewest: int) -> int:
    """How many columns; long names of languages may take several lines instead."""
    shown = len(widths)
    while shown > fewest and min(NAME, widths[0]) + sum(widths[1:shown]) + 2 * shown > room:
        shown -= 1
    return shown


def headers(found: Comparison) -> list[str]:
    if _has_seeds(found):
        return ["language", "A", "B", "B - A", "95 % (seeds)", "p t", "p flip", "95 % (sent.)"]
    return ["language", "A", "B", "B - A", "95 % interval", "p", "p ar"]


def cells(row: Row, metric: str) -> list[str]:
    """One row as it is printed; ``*`` marks a difference that is significant after Holm's correction."""
    star = "*" if row.p_holm is not None and row.p_holm < ALPHA else " "
    name = row.name + (" (low)" if row.low_resource else "")
    digits = _digits(metric)
    difference = f"{row.difference:+.{digits}f}{star}"
    sentences = _interval(row.bootstrap.interval, digits)
    if row.seeds is None:
        scores = (f"{scores[0]:.{digits}f}" for scores in (row.baseline, row.system))
        return [name, *scores, difference, sentences, _p(row.bootstrap.p), _p(row.p_randomisation)]
    rounded = 3 if metric == "loss" else 1
    means = (f"{_mean(scores):.{rounded}f} ± {_sd(scores):.{rounded}f}" for scores in (row.baseline, row.system))
    p_values = (_p(row.seeds.p_t), _p(row.seeds.p_permutation))
    return [name, *means, difference, _interval(row.seeds.interval, digits), *p_values, sentences]


def _digits(metric: str) -> int:
    return 3 if metric == "loss" else 2


def systems(found: Comparison) -> list[str]:
    """Which runs A and B are, and which of their models."""
    return [f"{letter}: {_describe(side)}" for letter, side in (("A", found.baseline), ("B", found.system))]


def caption(found: Comparison) -> list[str]:
    """What was tested, how often it was resampled, and what the marks mean."""
    from rota.evaluation.metrics import LABELS

    languages = len(found.sentences)
    fewest, most = min(found.sentences.values()), max(found.sentences.values())
    size = f"{most:,} sentences each" if fewest == most else f"{fewest:,} to {most:,} sentences"
    label = "Cross-entropy (nats per token, less is better)" if found.metric == "loss" else LABELS[found.metric]
    lines = [f"{label} on the {found.split} sets of {languages} languages, {size}."]
    lines += _seed_caption(found) if _has_seeds(found) else _run_caption(found)
    return [*lines, *(f"Note: {note}." for note in found.notes)]


def _run_caption(found: Comparison) -> list[str]:
    return [
        f"95 % interval, p: {found.resamples:,} paired bootstrap resamples of the sentences, two-sided.",
        f"p ar: paired approximate randomisation, {found.trials:,} trials, two-sided.",
        _marks("p ar", found),
    ]


def _marks(p: str, found: Comparison) -> str:
    corrected = f"after Holm's correction for {len(found.sentences)} languages; averages are not corrected."
    return f"* {p} below {ALPHA} {corrected}"


def _seed_caption(found: Comparison) -> list[str]:
    seeds = found.rows[-1].seeds
    assert seeds is not None
    return [
        f"Mean ± standard deviation over {seeds.seeds} seeds. 95 % (seeds) and p t: paired t test over the seeds.",
        f"p flip: exact sign-flip test; with {seeds.seeds} seeds it cannot be below {_p(seeds.smallest_p)}.",
        f"95 % (sent.): {found.resamples:,} paired bootstrap resamples of the sentences, these models given.",
        _marks("p t", found),
        f"With this spread over seeds the t test finds a true {found.rows[-1].name} difference of "
        f"{seeds.smallest_detectable:.{_digits(found.metric)}f} with probability 0.8.",
    ]


def _has_seeds(found: Comparison) -> bool:
    return found.rows[0].seeds is not None


def _describe(runs: Sequence[Compared]) -> str:
    if len(runs) == 1:
        return f"{runs[0].folder}, {runs[0].model}"
    parents = {run.folder.parent for run in runs}
    where = str(parents.pop()) if len(parents) == 1 else ", ".join(str(run.folder) for run in runs)
    kinds = "; ".join(sorted({run.model.kind for run in runs}))
    return f"{where}, seeds {', '.join(str(run.seed) for run in runs)} ({kinds})"


def _p(value: float) -> str:
    return "<0.001" if value < 0.0005 else f"{value:.3f}"


def _interval(ends: tuple[float, float], digits: int) -> str:
    return f"{ends[0]:+.{digits}f} to {ends[1]:+.{digits}f}"


def _mean(scores: Iterable[float]) -> float:
    return statistics.fmean(scores)


def _sd(scores: Iterable[float]) -> float:
    return statistics.stdev(float(score) for score in scores)


def comparison_csv(found: Comparison) -> str:
    """All figures at full precision, one line for each language and average; empty where a test was not made."""
    file = io.StringIO()
    rows = [_values(row, found) for row in found.rows]
    writer = csv.DictWriter(file, rows[0].keys(), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return file.getvalue()


def _values(row: Row, found: Comparison) -> dict[str, object]:
    several, low, high = row.seeds, *row.bootstrap.interval
    return {
        "name": row.name,
        "kind": "average" if row.is_group else "low-resource" if row.low_resource else "high-resource",
        "metric": found.metric,
        "sentences": found.sentences.get(row.name, ""),
        "seeds": len(row.baseline),
        "baseline": _mean(row.baseline),
        "system": _mean(row.system),
        "baseline_sd": _sd(row.baseline) if several else "",
        "system_sd": _sd(row.system) if several else "",
        "difference": row.difference,
        "sentences_low": low,
        "sentences_high": high,
        "p_bootstrap": row.bootstrap.p,
        "p_randomisation": row.p_randomisation,
        "seeds_low": several.interval[0] if several else "",
        "seeds_high": several.interval[1] if several else "",
        "p_t": several.p_t if several else "",
        "p_sign_flip": several.p_permutation if several else "",
        "smallest_detectable": several.smallest_detectable if several else "",
        "p_holm": "" if row.p_holm is None else row.p_holm,
    }


def comparison_latex(found: Comparison) -> str:
    """A table environment in booktabs style; the signatures are comments, for the appendix."""
    head = headers(found)
    lines = [f"% {line}" for line in (*systems(found), *found.signatures)]
    lines += [r"\begin{table}", r"\centering", rf"\begin{{tabular}}{{l{'r' * (len(head) - 1)}}}", r"\toprule"]
    lines += [_latex_row(head), r"\midrule"]
    for row in found.rows:
        if row.is_group and row.name == found.averages[0]:
            lines.append(r"\midrule")
        lines.append(_latex_row(cells(row, found.metric)))
    text = " ".join(_latex(line) for line in (*systems(found), *caption(found)))
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}", rf"\caption{{{text}}}", r"\end{table}", ""])


def _latex_row(row: Sequence[str]) -> str:
    return " & ".join(_latex(cell.strip()) for cell in row) + r" \\"


def _latex(text: str) -> str:
    escaped = "".join(LATEX_SPECIAL.get(sign, sign) for sign in text)
    return escaped.replace("±", r"$\pm$").replace("<", "$<$")
