"""What checkpoints of earlier versions say, in the words of this one; their settings are in :mod:`rota.settings`.

Version 0.1 did not save every decision since the last ``tell``. Before mixtures were part of a decision, two of them
were known by their names to everything that made batches.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping

from rota.types import MIXED, MIXED_HIGH_RESOURCE, Arm, Decision, Mixture, State


def mixture_named(arm: Arm, sizes: Mapping[Arm, int], low_resource: Collection[Arm]) -> Mixture | None:
    """The mixture that a decision or a stream of this name has if it was saved without one; None for an arm.

    ``sizes`` are the training sentences of all arms; both mixtures have their proportions.
    """
    if arm == MIXED:
        return Mixture(dict(sizes), "sentence", fixed=True)
    if arm == MIXED_HIGH_RESOURCE:
        high_resource = {name: size for name, size in sizes.items() if name not in low_resource}
        return Mixture(high_resource, "sentence", fixed=True)
    return None


def plays_and_losses(
    decision: Decision | None, state: State, decide_every: int
) -> tuple[list[tuple[Decision, int]], dict[Arm, tuple[float, int]]]:
    """From the updates by arm, the sum of all training losses and the decision in progress, as version 0.1 has them."""
    played = Counter[Arm](state["played"])
    mean = state["train_loss"] / max(1, played.total())
    losses = {arm: (mean * updates, updates) for arm, updates in played.items()}
    if decision is None or not played:
        return [], losses
    latest = state["step"] % decide_every or decide_every
    before = [
        (Decision(arm, why="not recorded"), updates - latest * (arm == decision.arm)) for arm, updates in played.items()
    ]
    return [*(play for play in before if play[1]), (decision, latest)], losses
