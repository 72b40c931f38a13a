"""What one run saw and how it ended: by arm, and in two lines with what to do next."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from rota.goal import goal_mean, is_alike
from rota.report.numbers.advice import trend
from rota.report.sentences import plural
from rota.report.study import StudyRun
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

    @property
    def words(self) -> str:
        return f"{self.arm} {self.share:.0%}" + ("" if self.epochs is None else f" ({self.epochs:.1f} epochs)")


def arm_totals(run: StudyRun) -> list[ArmTotals]:
    """In the order of the corpus."""
    last = run.validations[-1] if run.validations else {}
    counted: Mapping[Arm, int] = last.get("tokens") or run.history.tokens  # earlier versions wrote no totals
    checked = run.spot_checks[-1]["epochs"] if run.spot_checks else {}
    epochs: Mapping[Arm, float] = last.get("epochs") or checked
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
                epochs.get(arm),
                losses[-1][0] if losses else None,
                lowest,
                step,
                {name: last[name][language] for name in ("bleu", "chrf") if name in last},
            )
        )
    return found


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
    return f"next: {how_to_score(run, program)}; to look at the run{alarms}: {program} report {run}"


def how_to_score(run: StudyRun, program: str = "rota") -> str:
    """Which model to score, or to train the run longer first."""
    found = trend(run.validations, run.goal)
    evaluate = f"{program} evaluate {run}"
    if found is None or found.direction == "level":
        return evaluate
    if found.direction == "falling":
        return (
            f"train longer (--steps {2 * run.steps}), because the dev loss was still falling, or score it: {evaluate}"
        )
    return f"{evaluate} --select loss, because the dev loss rose after step {found.best_step:,}"
