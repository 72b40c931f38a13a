"""An arm that is learned by heart: its dev loss no longer falls, the loss on its own training sentences still does."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np

from rota.measures import Estimate
from rota.training.alarms.base import Detector
from rota.training.spot_checks import SpotCheck
from rota.types import Alarm, Arm, State

EPOCHS: Final = 1.0  # before that, sampled training sentences are mostly ones that were not seen yet
PATIENCE: Final = 3  # checks without a better dev loss
BETTER: Final = 0.005  # nats per token: what counts as better
FELL: Final = 0.05  # nats per token, and twice its error: how far the training loss must have fallen meanwhile
POOLED: Final = 3  # checks that are taken together


class Sampled(NamedTuple):
    """The loss on sampled training sentences of an arm at one check."""

    step: int
    loss: float
    error: float


class ByHeart(Detector):
    """The rule of the teacher ``caps``, for any teacher: generalisation has stopped while memorisation goes on."""

    name = "by-heart"

    def __init__(self, language_of: Mapping[Arm, Arm] | None = None) -> None:
        self._language_of = language_of or {}  # the dev loss of an arm is that of its language
        self._dev: dict[Arm, list[tuple[int, float]]] = {}  # step and calibrated dev loss of each check
        self._train: dict[Arm, list[Sampled]] = {}  # from the first epoch's end on

    def checked(self, step: int, check: SpotCheck) -> Iterable[Alarm]:
        for arm, dev_loss in check.dev_loss.items():
            self._dev.setdefault(arm, []).append((step, dev_loss))
        for arm, loss in check.train_loss.items():
            if check.epochs[arm] >= EPOCHS:
                self._train.setdefault(arm, []).append(Sampled(step, *loss))
        return list(self._alarms(step, check))

    def _alarms(self, step: int, check: SpotCheck) -> Iterator[Alarm]:
        for arm in check.train_loss:
            dev, train = self._dev.get(self._language_of.get(arm, arm), []), self._train.get(arm, [])
            since = stopped_at([loss for _, loss in dev])
            if not train or since is None:
                continue
            began = dev[since][0]
            before = [sampled for sampled in train if sampled.step <= began][-POOLED:]
            after = [sampled for sampled in train if sampled.step > began][-POOLED:]
            if before and after:
                was, now = pooled(before), pooled(after)
                error = (was.error**2 + now.error**2) ** 0.5
                gap = dev[-1][1] - now.value
                if was.value - now.value > max(FELL, 2 * error) and gap > 0:
                    yield Alarm(step, "by-heart", arm, _text(arm, began, gap, check.epochs[arm]))

    def state_dict(self) -> State:
        dev = {arm: [list(pair) for pair in pairs] for arm, pairs in self._dev.items()}
        return {"dev": dev, "train": {arm: [list(each) for each in losses] for arm, losses in self._train.items()}}

    def load_state_dict(self, state: State) -> None:
        self._dev = {arm: [(step, loss) for step, loss in pairs] for arm, pairs in state["dev"].items()}
        self._train = {arm: [Sampled(*each) for each in losses] for arm, losses in state["train"].items()}


def stopped_at(losses: Sequence[float]) -> int | None:
    """Which check had the best loss, if the last ones have not been better than all before them; else None."""
    if len(losses) <= PATIENCE:
        return None
    best = int(np.argmin(losses[:-PATIENCE]))
    return None if min(losses[-PATIENCE:]) < losses[best] - BETTER else best


def pooled(losses: Sequence[Sampled]) -> Estimate:
    """The mean loss of several checks, which have about as many tokens each."""
    count = len(losses)
    return Estimate(sum(each.loss for each in losses) / count, sum(each.error**2 for each in losses) ** 0.5 / count)


def _text(arm: Arm, since: int, gap: float, epochs: float) -> str:
    said = f"{arm}: learned by heart since step {since:,} (gap {gap:.1f} nats), {epochs:.0f} epochs"
    return f"{said}; its dev loss no longer falls: give it a smaller share, or more text"
