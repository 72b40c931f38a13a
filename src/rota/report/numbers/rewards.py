"""How much a learned teacher could learn: the signal and the noise in its rewards."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import NamedTuple

import numpy as np

from rota.report.study import StudyRun
from rota.types import Arm, FloatArray

WINDOWS = 10
"""The rewards of a run shrink as it goes on, so they are compared within tenths of it."""


class Reward(NamedTuple):
    """What one tell was worth for an arm, in the teacher's own unit; positive is good."""

    step: int
    arm: Arm
    reward: float


def rewards(run: StudyRun) -> list[Reward]:
    """As the teacher made them, in order; for a run of version 0.1, which did not record them, gains of its losses."""
    if are_derived(run):
        return _gains(run)
    return [Reward(entry["step"], arm, reward) for entry in run.rewards for arm, reward in entry["rewards"].items()]


def are_derived(run: StudyRun) -> bool:
    return run.version.startswith("0.1.") and bool(run.observations) and not run.rewards


def _gains(run: StudyRun) -> list[Reward]:
    """How far the loss that the teacher was told went down (nats per token), whatever rule the teacher had.

    A joint loss is compared with the joint loss before; the loss of a language with its own last one.
    """
    found: list[Reward] = []
    before: dict[str, float] = {}
    for entry in run.observations:
        joint, arm = entry.get("joint_loss"), entry["arm"]
        loss = entry.get("dev_loss", {}).get(arm) if joint is None else joint
        key = arm if joint is None else ""
        if loss is not None and key in before:
            found.append(Reward(entry["step"], arm, before[key] - loss))
        if loss is not None:
            before[key] = loss
    return found


def signal_to_noise(by_arm: Mapping[Arm, Sequence[float]]) -> float | None:
    """Standard deviation between the arms' true mean rewards over that of one reward around its arm's mean.

    The one-way analysis of variance with random effects; None where no arm has two rewards or there is one arm only.
    0: the means differ no more than chance would make them. At 1/10 it takes some 1,600 rewards of each of two arms
    whose means lie one such standard deviation apart to tell which is better (5 % level, power 0.8).
    """
    groups = [np.asarray(found, dtype=float) for found in by_arm.values() if len(found)]
    total, arms = sum(map(len, groups)), len(groups)
    if arms < 2 or total <= arms:
        return None
    within = sum(float(((group - group.mean()) ** 2).sum()) for group in groups) / (total - arms)
    grand = sum(float(group.sum()) for group in groups) / total
    between = sum(len(group) * (float(group.mean()) - grand) ** 2 for group in groups) / (arms - 1)
    size = (total - sum(len(group) ** 2 for group in groups) / total) / (arms - 1)
    if within == 0:
        return None
    return float(np.sqrt(max(0.0, (between - within) / size) / within))


def signal_by_window(run: StudyRun, windows: int = WINDOWS) -> FloatArray:
    """Signal-to-noise ratio in each tenth of the run; ``nan`` where there are too few rewards."""
    return _ratios(_in_windows(run, windows))


def signal_by_chance(run: StudyRun, windows: int = WINDOWS, draws: int = 20) -> FloatArray:
    """The same if the arm made no difference: the rewards of each window dealt anew, mean over ``draws``.

    Not 0, because a ratio cannot be negative: what chance adds in one window is not taken away in another.
    """
    rng = np.random.default_rng(0)
    found = _in_windows(run, windows)
    ratios = [_ratios([_dealt_anew(by_arm, rng) for by_arm in found]) for _ in range(draws)]
    mean: FloatArray = np.stack(ratios).mean(axis=0)
    return mean


def _in_windows(run: StudyRun, windows: int) -> list[dict[Arm, list[float]]]:
    found: list[dict[Arm, list[float]]] = [defaultdict(list) for _ in range(windows)]
    for step, arm, reward in rewards(run):
        found[min((step - 1) * windows // run.steps, windows - 1)][arm].append(reward)
    return found


def _ratios(found: Sequence[Mapping[Arm, Sequence[float]]]) -> FloatArray:
    ratios = [signal_to_noise(by_arm) for by_arm in found]
    return np.array([np.nan if ratio is None else ratio for ratio in ratios])


def _dealt_anew(by_arm: Mapping[Arm, Sequence[float]], rng: np.random.Generator) -> dict[Arm, list[float]]:
    """Each arm gets as many rewards as it has, drawn from those of all."""
    pool = iter(rng.permutation([reward for found in by_arm.values() for reward in found]).tolist())
    return {arm: list(islice(pool, len(found))) for arm, found in by_arm.items()}
