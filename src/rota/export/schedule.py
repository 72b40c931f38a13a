"""What a run was trained on, for other toolkits: OpusTrainer's stages, weights of corpora, or a table.

Other toolkits count sentences and Rota counts target tokens, so tokens are divided by the mean length of an arm's
training sentences, which the prepared data know.
"""

from __future__ import annotations

import csv
import io
import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Final

import numpy as np

from rota.data.store import Manifest
from rota.runs import Entry, Run
from rota.types import Arm

logger = logging.getLogger(__name__)

LINES: Final = 100
"""Lines that OpusTrainer reads at once by default: shares are whole parts of that."""

LONGER: Final = 1.5
"""A stage that would be longer than this, times what is due, is put off: its part is joined with the next one."""

FORMATS: Final = ("opustrainer", "csv", "weights")


@dataclass(frozen=True)
class Part:
    """Some consecutive updates of a run. An update on several arms counts for each by its share of the tokens."""

    first: int  # update, counted from 1
    last: int
    updates: Mapping[Arm, float]
    tokens: Mapping[Arm, int]  # target tokens
    sentences: Mapping[Arm, float]  # about


@dataclass(frozen=True)
class Schedule:
    """What a run was trained on, part by part."""

    run: Run
    parts: Sequence[Part]
    counts_sentences: bool  # if not, the prepared data are gone, and tokens stand for sentences

    @property
    def arms(self) -> dict[Arm, int]:
        """Training sentences of each arm."""
        return self.run.arms

    @property
    def updates(self) -> int:
        return self.parts[-1].last

    def sentences(self) -> dict[Arm, float]:
        """Of the whole run."""
        return {arm: sum(part.sentences[arm] for part in self.parts) for arm in self.arms}


def read_schedule(run: Run, windows: int = 20) -> Schedule:
    """From the records of a run, in parts of equally many updates."""
    arms, lengths = run.arms, _lengths(run)
    entries = list(run.read("steps"))
    if not entries:
        raise ValueError(f"{run} has no records of updates (steps.jsonl); train it first")
    bounds = np.unique(np.linspace(0, len(entries), min(windows, len(entries)) + 1).round().astype(int)).tolist()
    parts = []
    for start, stop in pairwise(bounds):
        tokens, updates = Counter[Arm](), dict.fromkeys(arms, 0.0)
        for entry in entries[start:stop]:
            found = _tokens(entry)
            tokens.update(found)
            total = sum(found.values())
            for arm, count in found.items():
                updates[arm] += count / total
        sentences = {arm: tokens[arm] / lengths.get(arm, 1.0) for arm in arms}
        parts.append(Part(start + 1, stop, updates, {arm: tokens[arm] for arm in arms}, sentences))
    return Schedule(run, parts, bool(lengths))


def _tokens(entry: Entry) -> dict[Arm, int]:
    return entry.get("tokens_by_language") or {entry["arm"]: entry["tokens"]}


def _lengths(run: Run) -> dict[Arm, float]:
    """Target tokens of a training sentence, on average, by arm; empty if the prepared data are not there any more."""
    data = run.about["data"]
    folder = Path(data.get("folder", ""))
    try:
        manifest = Manifest.load(folder)
    except (ValueError, OSError):
        manifest = None
    if manifest is None or manifest.fingerprint != data.get("fingerprint"):
        logger.warning("the data of %s are not in %s any more: tokens are counted instead of sentences", run, folder)
        return {}
    extents = manifest.splits["train"]
    return {arm: extents[arm].target_tokens / extents[arm].sentences for arm in run.arms}


def write_schedule(schedule: Schedule, to: str, paths: str | None = None) -> str:
    """The text of a file in one of the ``FORMATS``; ``paths`` says where the text of each arm is, with ``{arm}``."""
    if to == "opustrainer":
        if not schedule.counts_sentences:
            why = f"the prepared data of {schedule.run} are gone, and with them the lengths of its sentences"
            raise ValueError(f"{why}; prepare them again with its config, or use --to weights")
        return opustrainer(schedule, _checked(paths or "{arm}.tsv", "{arm}"))
    if to == "weights":
        return weights(schedule, _checked(paths or "{arm}.{side}", "{arm}", "{side}"))
    if to == "csv":
        if paths is not None:
            raise ValueError("--paths is for --to opustrainer and --to weights; a table has no paths, leave it out")
        return table(schedule)
    raise ValueError(f"--to is {to!r}; it is one of {', '.join(FORMATS)}")


def _checked(paths: str, *needed: str) -> str:
    for name in needed:
        if name not in paths:
            raise ValueError(f"--paths is {paths!r} and has no {name}; write for example corpora/{'.'.join(needed)}.gz")
    return paths


def table(schedule: Schedule) -> str:
    """One row for each part and arm."""
    text = io.StringIO()
    rows = csv.writer(text, lineterminator="\n")
    rows.writerow(["first", "last", "arm", "updates", "tokens", "share_of_tokens", "sentences", "share_of_sentences"])
    for part in schedule.parts:
        tokens, sentences = sum(part.tokens.values()), sum(part.sentences.values())
        for arm in schedule.arms:
            updates, share = f"{part.updates[arm]:.2f}".removesuffix(".00"), f"{part.tokens[arm] / tokens:.4f}"
            more = [round(part.sentences[arm]), f"{part.sentences[arm] / sentences:.4f}"]
            known = more if schedule.counts_sentences else ["", ""]
            rows.writerow([part.first, part.last, arm, updates, part.tokens[arm], share, *known])
    return text.getvalue()


def weights(schedule: Schedule, paths: str) -> str:
    """The section ``data`` of a config of Eole or OpenNMT-py: the shares of the whole run, in whole numbers."""
    whole = in_parts(schedule.sentences(), LINES, least=1)
    unit = "sentences" if schedule.counts_sentences else "target tokens (its prepared data are gone)"
    lines = [_title(schedule), f"# Shares of {unit}. Add transforms, and the text to validate on.", "data:"]
    for arm in schedule.arms:
        if not whole[arm]:
            lines.append(f"  # {arm} was never trained on")
            continue
        source, target = (paths.replace("{arm}", arm).replace("{side}", side) for side in ("src", "tgt"))
        lines += [f'  "{arm}":', f'    path_src: "{source}"', f'    path_tgt: "{target}"', f"    weight: {whole[arm]}"]
    return "\n".join(lines) + "\n"


@dataclass(frozen=True)
class Stage:
    """So many of 100 lines of each arm, until one of them has been read so many times."""

    lines: Mapping[Arm, int]
    until: Arm
    epochs: int


def stages(schedule: Schedule) -> list[Stage]:
    """A stage ends after whole epochs of one arm: what it gives too much or too little, the next one makes up for.

    Parts in which no arm comes near a whole epoch are joined with the next ones.
    """
    owed = dict.fromkeys(schedule.arms, 0.0)  # sentences, by which OpusTrainer is behind the run so far
    found: list[Stage] = []
    for number, part in enumerate(schedule.parts):
        owed = {arm: owed[arm] + part.sentences[arm] for arm in owed}
        wanted = sum(max(0.0, sentences) for sentences in owed.values())
        if not wanted:  # the stage before was so much longer
            continue
        stage, read = _stage(owed, schedule.arms)
        only = not found and number == len(schedule.parts) - 1
        if read > LONGER * wanted and not only:
            continue
        found.append(stage)
        owed = {arm: owed[arm] - read * stage.lines[arm] / LINES for arm in owed}
    return found


def _stage(owed: Mapping[Arm, float], sizes: Mapping[Arm, int]) -> tuple[Stage, float]:
    """The stage that comes nearest to what is owed, and how many lines it reads."""
    wanted = {arm: max(0.0, sentences) for arm, sentences in owed.items()}
    total = sum(wanted.values())
    lines = in_parts(wanted, LINES)
    best: tuple[float, Stage, float] | None = None
    for arm, count in lines.items():
        if count:
            epoch = sizes[arm] * LINES / count  # lines of all arms meanwhile
            epochs = max(1, round(total / epoch))
            if best is None or abs(epochs * epoch - total) < best[0]:
                best = abs(epochs * epoch - total), Stage(lines, arm, epochs), epochs * epoch
    assert best is not None, "100 lines are divided among the arms"
    return best[1:]


def opustrainer(schedule: Schedule, paths: str) -> str:
    """A config of OpusTrainer without its ``trainer``: data sets, stages, and the run's seed."""
    found = stages(schedule)
    names = [f"part{number}" for number in range(1, len(found) + 1)]
    total = f"{sum(schedule.sentences().values()):,.0f}"
    lines = [
        _title(schedule),
        f"# About {total} sentences; a stage ends with an epoch of one data set, the last perhaps after the run did.",
        "# Each data set is a file with source, tab, target. Use: opustrainer-train -c FILE PROGRAM",
        "datasets:",
    ]
    lines += [f'  "{arm}": "{paths.replace("{arm}", arm)}"' for arm in schedule.arms]
    lines += ["stages:", *(f"  - {name}" for name in names)]
    for name, stage in zip(names, found, strict=True):
        lines += [f"{name}:", *(f"  - {arm} {_weight(count)}" for arm, count in stage.lines.items() if count)]
        lines.append(f"  - until {stage.until} {stage.epochs}")
    return "\n".join([*lines, f"seed: {schedule.run.seed}", "num_fields: 2"]) + "\n"


def _weight(count: int) -> str:
    """Of 100 lines. OpusTrainer cuts off: int(100 * 0.29) is 28, so that 0.29 is written as 0.2901."""
    plain = f"{count / LINES:g}"
    return plain if int(LINES * float(plain)) == count else f"{plain}01"


def in_parts(amounts: Mapping[Arm, float], parts: int, *, least: int = 0) -> dict[Arm, int]:
    """Whole numbers in these proportions that sum to ``parts``: what is lost by cutting off goes to the largest rests.

    ``least``: what every arm with an amount above 0 has in any case; the sum may then be larger.
    """
    total = sum(amounts.values())
    exact = {arm: parts * amount / total for arm, amount in amounts.items()}
    whole = {arm: int(share) for arm, share in exact.items()}
    rest = sorted(exact, key=lambda arm: whole[arm] - exact[arm])[: parts - sum(whole.values())]
    for arm in rest:
        whole[arm] += 1
    return {arm: max(count, least) if amounts[arm] > 0 else count for arm, count in whole.items()}


def _title(schedule: Schedule) -> str:
    run, planned = schedule.run, schedule.run.steps
    name, of = run.setting("config.teacher.name"), "" if schedule.updates >= planned else f" of {planned:,}"
    return f"# What the teacher {name} trained on in {schedule.updates:,}{of} updates; written by rota schedule {run}"
