"""What one run saw and how it ended: by arm, and in two lines with what to do next."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final

from rota.goal import goal_mean, is_alike
from rota.report.numbers.advice import trend
from rota.report.sentences import plural
from rota.report.study import StudyRun
from rota.runs import Run
from rota.runs.arms import arm_lines, dev_sets_of
from rota.types import Arm

NAMED: Final = 4
"""Arms that fit into a line; of more, the first and the last are named."""


@dataclass(frozen=True)
class ArmTotals:
    """What a run did with one arm up to its last validation; None where it did not record that."""

    arm: Arm
    tokens: int  # real target tokens
    share: float  # of all tokens
    epochs: float | None
    dev_loss: float | None  # of its language, nats per token
    lowest: float | None
    lowest_step: int | None
    scores: Mapping[str, float]  # of sampled dev sentences: bleu, chrf
    depth: int = 0  # in a list by language, where ``arm`` may be a language or a source: 0, and its arms below it

    @property
    def words(self) -> str:
        return f"{self.arm} {self.share:.0%}" + (
            "" if self.epochs is None else f" ({in_epochs(self.epochs, self.tokens)} epochs)"
        )


def in_epochs(epochs: float, tokens: int) -> str:
    """With one digit; of a large corpus a run may see little, which is not nothing, even if records round it to 0."""
    return "<0.1" if tokens and epochs < 0.05 else f"{epochs:.1f}"


def arm_totals(run: StudyRun) -> list[ArmTotals]:
    """In the order of the corpus."""
    last = run.validations[-1] if run.validations else {}
    counted: Mapping[Arm, int] = last.get("tokens") or run.history.tokens  # earlier versions wrote no totals
    total = max(1, sum(counted.values()))
    found = []
    for arm in run.arms:
        language = run.language_of(arm)
        losses = [(entry["dev_loss"][language], entry["step"]) for entry in run.validations]
        lowest, step = min(losses) if losses else (None, None)
        found.append(
            ArmTotals(
                arm,
                counted.get(arm, 0),
                counted.get(arm, 0) / total,
                run.epochs.get(arm),
                losses[-1][0] if losses else None,
                lowest,
                step,
                {name: last[name][language] for name in ("bleu", "chrf") if name in last},
            )
        )
    return found


def shares_over_time(run: Run) -> dict[Arm, list[float]]:
    """Each arm's share of the target tokens from one validation to the next, the first from the start of the run.

    The lists are empty for a run whose validations did not count tokens, as in earlier versions.
    """
    totals = [entry["tokens"] for entry in run.read("validations") if "tokens" in entry]
    seen = [{arm: int(total.get(arm, 0)) for arm in run.arms} for total in ({}, *totals)]
    spans = [{arm: after[arm] - before[arm] for arm in after} for before, after in pairwise(seen)]
    spans = [span for span in spans if sum(span.values())]
    return {arm: [span[arm] / sum(span.values()) for span in spans] for arm in run.arms}


def totals_by_language(run: StudyRun) -> list[ArmTotals]:
    """The most trained language first, and its arms below it if it has several.

    A language has the sums of its arms, and the dev loss if it has one dev set: its arms then have none of their own.
    """
    of = {each.arm: each for each in arm_totals(run)}
    lines = arm_lines(run, {arm: each.tokens for arm, each in of.items()})
    measured = dev_sets_of(lines, {arm: run.language_of(arm) for arm in of})
    found = []
    for line in lines:
        some = [of[arm] for arm in line.arms]
        total = some[0] if len(some) == 1 else _sum_of(some)
        if line not in measured:
            total = replace(total, dev_loss=None, lowest=None, lowest_step=None, scores={})
        found.append(replace(total, arm=line.name, depth=line.depth))
    return found


def _sum_of(some: Sequence[ArmTotals]) -> ArmTotals:
    """Together; dev losses are those of the first."""
    tokens, share = sum(each.tokens for each in some), sum(each.share for each in some)
    return replace(some[0], tokens=tokens, share=share, epochs=epochs_of(some))


def epochs_of(arms: Sequence[ArmTotals]) -> float | None:
    """How often their texts were gone through as one text: tokens of all arms, divided by those of their texts."""
    trained = [each for each in arms if each.epochs]
    text = sum(each.tokens / each.epochs for each in trained if each.epochs)
    if len(trained) < len(arms) or not text:  # the length of a text that was not trained on is not known
        return None
    return sum(each.tokens for each in arms) / text


def what_it_saw(run: StudyRun) -> str:
    """Tokens, the arms that had most and least of them, and the goal's dev loss; to stand after "trained on"."""
    totals = sorted(arm_totals(run), key=lambda each: -each.tokens)
    tokens = sum(each.tokens for each in totals)
    return f"{tokens:,} target tokens: {_named(totals)}; {dev_loss_words(run)}"


def _named(totals: Sequence[ArmTotals]) -> str:
    if len(totals) <= NAMED:
        return ", ".join(each.words for each in totals)
    return f"most of {totals[0].words}, least of {totals[-1].words}, of {len(totals)} arms"


def dev_loss_words(run: StudyRun) -> str:
    if not run.validations:
        return "no validation"
    losses = [(goal_mean(entry["dev_loss"], run.goal), entry["step"]) for entry in run.validations]
    (last, _), (lowest, step) = losses[-1], min(losses)
    kind = "mean dev loss" if is_alike(run.goal, run.sizes) else "the goal's dev loss"
    there = "its lowest" if last == lowest else f"lowest {lowest:.3f} at step {step:,}"
    return f"{kind} {last:.3f}, {there}"


def what_next(run: StudyRun, program: str = "rota") -> str:
    """The commands that follow training, and why, from the trend of the dev loss and the alarms."""
    alarms = f" and its {plural(len(run.alarms), 'alarm')}" if run.alarms else ""
    return f"next: {how_to_score(run, program)}; to look at the run{alarms}: {program} report {shlex.quote(str(run))}"


def how_to_score(run: StudyRun, program: str = "rota") -> str:
    """Which model to score, or to train the run longer first."""
    found = trend(run.validations, run.goal)
    evaluate = f"{program} evaluate {shlex.quote(str(run))}"
    if found is None or found.direction == "level":
        return evaluate
    if found.direction == "falling":
        return (
            f"train longer (--steps {2 * run.steps}), because the dev loss was still falling, or score it: {evaluate}"
        )
    return f"{evaluate} --select loss, because the dev loss rose after step {found.best_step:,}"
