"""What the records of one run say about its arms: effect on the goal, epochs, learned by heart, taken from the source.

The effect is, to first order, how far an update on an arm lowers the goal's dev loss: the dot product of its gradient
with that of the dev loss, in units of the root mean square of all such products. A run has it if its teacher measured
gradients (``alignment`` or ``gradient_products`` in ``observations.jsonl``).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from math import sqrt
from typing import Any, Final, Literal, NamedTuple

import numpy as np

from rota.goal import Goal, goal_mean
from rota.report.numbers.helping import help_maps
from rota.report.study import StudyRun
from rota.runs.records import Entry
from rota.statistics import holm, student_t_within
from rota.types import Arm

Sure = Literal["clear", "likely", "unclear"]
"""Below 0.05 after Holm's correction for all arms of the run; below 0.05 for this arm alone; neither."""

SPANS: Final = 10
"""Parts of the run between which the error of an effect is estimated: updates near each other share a direction."""

POOLED: Final = 3
"""Spot checks that are taken together."""

ALPHA: Final = 0.05


class Effect(NamedTuple):
    """Of an arm's updates on the goal's dev loss: above 0 they lower it."""

    mean: float
    error: float
    updates: int
    p: float  # two-sided, against 0
    sure: Sure
    halves: tuple[float | None, float | None]  # the means of the first and the second half of what was measured

    @property
    def turned(self) -> bool:
        """Whether the two halves disagree about the sign, both by more than their error."""
        first, second = self.halves
        certain = min(abs(half or 0.0) for half in self.halves) > sqrt(2) * self.error
        return first is not None and second is not None and first * second < 0 and certain

    @property
    def faded(self) -> bool:
        """Whether it helped in the first half and hardly in the second."""
        first, second = self.halves
        return first is not None and second is not None and not self.turned and self.mean > 0 and 3 * second < first


@dataclass(frozen=True)
class ArmFacts:
    """What is known of one arm; None where the run did not record it. Losses and gains are nats per token."""

    arm: Arm
    language: Arm  # or the dev set that it is measured by
    weight: float  # of that language in the goal
    pairs: int
    share: float  # of the tokens trained on
    epochs: float | None
    effect: Effect | None
    source_gain: float | None  # on training sentences, at the last checks
    train_loss: float | None  # of the same sentences
    dev_loss: float | None  # calibrated, at the last validation
    alarms: tuple[str, ...]  # kinds

    @property
    def gap(self) -> float | None:
        """Dev loss minus the loss on training sentences."""
        return None if self.train_loss is None or self.dev_loss is None else self.dev_loss - self.train_loss

    @property
    def by_heart(self) -> bool:
        return not {"by-heart", "maintenance"}.isdisjoint(self.alarms)

    @property
    def unaligned(self) -> bool:
        """The student finds next to nothing of the source in the target."""
        return not {"unaligned", "closed"}.isdisjoint(self.alarms)

    def as_json(self) -> dict[str, Any]:
        effect = None if self.effect is None else {**self.effect._asdict(), "halves": list(self.effect.halves)}
        return {**asdict(self), "effect": effect, "gap": self.gap, "alarms": list(self.alarms)}


class Trend(NamedTuple):
    """The goal's dev loss over the last third of the validations, along the line that fits best."""

    first: int  # step
    last: int
    change: float  # nats per token; below 0 it fell
    error: float
    best_step: int
    best: float
    final: float

    @property
    def direction(self) -> Literal["falling", "rising", "level"]:
        if abs(self.change) <= max(2 * self.error, 0.01):
            return "level"
        return "falling" if self.change < 0 else "rising"


class Helper(NamedTuple):
    """The arm of another language whose updates lower the dev loss of a language of the goal most, if one does."""

    language: Arm
    arm: Arm
    mean: float
    error: float


class Forgotten(NamedTuple):
    """A language of which an alarm said that it is being forgotten, with its dev losses in nats per token."""

    language: Arm  # or the dev set
    lowest: float
    last: float


@dataclass(frozen=True)
class Facts:
    """All of it; ``arms`` in the order of the run."""

    run: str
    teacher: str
    updates: int
    finished: bool
    goal: Goal
    arms: tuple[ArmFacts, ...]
    trend: Trend | None
    measured: int  # products of gradients; 0 if none were recorded
    checks: int  # spot checks
    helpers: tuple[Helper, ...] = ()  # by language, if the run has a map of who helps whom
    forgotten: tuple[Forgotten, ...] = ()

    @property
    def has_effects(self) -> bool:
        return any(each.effect is not None for each in self.arms)


def read_facts(run: StudyRun) -> Facts:
    """Raises if the folder has no records of updates."""
    if not run.history.updates:
        raise ValueError(f"{run} has no records of updates (steps.jsonl); train it first")
    products = list(goal_products(run.observations, run.goal))
    found = effects(products, list(run.arms))
    return Facts(
        str(run),
        str(run.teacher["name"]),
        run.history.updates,
        run.finished,
        run.goal,
        tuple(_arm_facts(run, arm, found.get(arm)) for arm in run.arms),
        trend(run.validations, run.goal),
        sum(each.updates for each in products),
        len(run.spot_checks),
        tuple(_helpers(run)),
        tuple(_forgotten(run)),
    )


def _forgotten(run: StudyRun) -> Iterator[Forgotten]:
    for language in dict.fromkeys(alarm["arm"] for alarm in run.alarms if alarm["kind"] == "forgetting"):
        losses = [entry["dev_loss"][language] for entry in run.validations if language in entry["dev_loss"]]
        if losses and losses[-1] > min(losses):
            yield Forgotten(language, min(losses), losses[-1])


def _helpers(run: StudyRun) -> Iterator[Helper]:
    """The best is the best of many, so its p value is multiplied by the number of arms that it was chosen from."""
    for found in help_maps(run.observations, list(run.arms), 1, run.language_of):
        for column, language in enumerate(found.languages):
            others = [row for row, own in enumerate(found.own) if own != language and found.updates[row] >= 2]
            if not others or language not in run.goal:
                continue
            means = found.means[:, column]
            best = max(others, key=means.__getitem__)
            mean, error = float(means[best]), float(found.errors[best, column])
            p = 1 - student_t_within(abs(mean) / error, round(found.updates[best]) - 1) if error else 1.0
            if mean > 0 and p * len(others) < ALPHA:
                yield Helper(language, found.arms[best], mean, error)


def _arm_facts(run: StudyRun, arm: Arm, effect: Effect | None) -> ArmFacts:
    language, checks = run.language_of(arm), run.spot_checks
    last: Entry = run.validations[-1] if run.validations else {"dev_loss": {}}
    losses: Mapping[Arm, float] = last["calibrated_loss" if "calibrated_loss" in last else "dev_loss"]
    return ArmFacts(
        arm,
        language,
        run.goal.get(language, 0.0),
        run.arms[arm],
        run.history.overall.get(arm, 0.0),
        run.epochs.get(arm),
        effect,
        _recent(checks, "source_gain", arm),
        _recent(checks, "train_loss", arm),
        losses.get(language),
        tuple(dict.fromkeys(alarm["kind"] for alarm in run.alarms if alarm["arm"] == arm)),
    )


def _recent(checks: Sequence[Entry], name: str, arm: Arm) -> float | None:
    """The mean of the last values; a check need not have every arm."""
    values = [check[name][arm][0] for check in checks if arm in check[name]][-POOLED:]
    return sum(values) / len(values) if values else None


class Product(NamedTuple):
    """Sums of the dot products of an arm's gradients with the direction of the goal, up to one observation."""

    step: int
    arm: Arm
    total: float
    squares: float
    updates: int


def goal_products(observations: Iterable[Entry], goal: Goal) -> Iterator[Product]:
    """What align recorded at its updates, or what other teachers measured from time to time."""
    for entry in observations:
        for arm, sums in entry.get("alignment", {}).items():
            yield Product(entry["step"], arm, *sums[:3])
        for arm, value in entry.get("gradient_products", {}).items():
            found = _of_goal(value, goal) if isinstance(value, Mapping) else value
            if found is not None:
                yield Product(entry["step"], arm, found, found**2, 1)


def _of_goal(by_language: Mapping[Arm, float], goal: Goal) -> float | None:
    known = {language: weight for language, weight in goal.items() if language in by_language}
    total = sum(known.values())
    return goal_mean(by_language, {name: weight / total for name, weight in known.items()}) if total else None


def effects(products: Sequence[Product], arms: Sequence[Arm]) -> dict[Arm, Effect]:
    """By arm, of those with two spans of the run or more; fewer have no error that could be trusted."""
    updates = sum(each.updates for each in products)
    squares = sum(each.squares for each in products)
    if not updates or not squares:
        return {}
    first, last = products[0].step, products[-1].step
    borders = np.linspace(first, last + 1, SPANS + 1)[1:]
    unit = sqrt(squares / updates)
    sums: dict[Arm, Any] = {arm: np.zeros((SPANS, 2)) for arm in arms}  # by span: products, updates
    within: dict[Arm, float] = dict.fromkeys(arms, 0.0)
    for each in products:
        if each.arm in sums:
            span = int(np.searchsorted(borders, each.step, side="right"))
            sums[each.arm][span] += (each.total / unit, each.updates)
            within[each.arm] += each.squares / unit**2
    raw = {arm: _effect(spans, within[arm]) for arm, spans in sums.items() if (spans[:, 1] > 0).sum() > 1}
    corrected = holm({arm: effect.p for arm, effect in raw.items()})
    return {arm: effect._replace(sure=_sure(effect.p, corrected[arm])) for arm, effect in raw.items()}


def _effect(spans: Any, squares: float) -> Effect:
    """The error between spans or that within them, whichever is larger."""
    used = spans[spans[:, 1] > 0]
    count, updates = len(used), float(used[:, 1].sum())
    mean = float(used[:, 0].sum() / updates)
    between = sqrt(float(((used[:, 0] - mean * used[:, 1]) ** 2).sum()) * count / (count - 1)) / updates
    error = max(between, sqrt(max(squares / updates - mean**2, 0.0) / updates))
    p = 1 - student_t_within(abs(mean) / error, count - 1) if error else float(mean == 0)
    middle = SPANS // 2
    return Effect(mean, error, round(updates), p, "unclear", (_mean(spans[:middle]), _mean(spans[middle:])))


def _mean(spans: Any) -> float | None:
    updates = float(spans[:, 1].sum())
    return float(spans[:, 0].sum()) / updates if updates else None


def _sure(p: float, corrected: float) -> Sure:
    return "clear" if corrected < ALPHA else "likely" if p < ALPHA else "unclear"


def trend(validations: Sequence[Entry], goal: Goal) -> Trend | None:
    """None with fewer than six validations: there is no line through two points that has an error."""
    if len(validations) < 6:
        return None
    losses = [goal_mean(entry["dev_loss"], goal) for entry in validations]
    late = max(4, len(losses) // 3)
    steps = np.array([entry["step"] for entry in validations[-late:]], dtype=float)
    values, centred = np.array(losses[-late:]), steps - steps.mean()
    slope = float((centred * values).sum() / (centred**2).sum())
    rest = values - values.mean() - slope * centred
    error = sqrt(float((rest**2).sum()) / (late - 2) / float((centred**2).sum()))
    span, best = float(steps[-1] - steps[0]), int(np.argmin(losses))
    ends = int(steps[0]), int(steps[-1])
    return Trend(*ends, slope * span, error * span, int(validations[best]["step"]), losses[best], losses[-1])
