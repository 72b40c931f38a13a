"""An arm whose text is not a translation: the student takes nothing from its sources while it learns to use others'."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from statistics import median, stdev
from typing import Final, NamedTuple

from rota.measures import Estimate
from rota.training.alarms.base import Detector
from rota.training.spot_checks import SpotCheck
from rota.types import Alarm, Arm, State

POOLED: Final = 6  # checks that are taken together
GROWN: Final = 0.15  # nats per token that the other arms must have reached
PART: Final = 0.1  # of what the others have: less than this, error included, is next to nothing
IN_A_ROW: Final = 3  # checks


class Look(NamedTuple):
    """One arm at one check."""

    seen: int  # target tokens of the arm since step 0
    gain: float
    error: float


class Unaligned(Detector):
    """Compares the source gain of each arm with what the other arms had after as many tokens of their own.

    Otherwise a small or hardly sampled language would look like one with mixed-up lines.
    """

    name = "unaligned"

    def __init__(self) -> None:
        self._looks: dict[Arm, list[Look]] = {}
        self._suspect: dict[Arm, int] = {}  # checks in a row

    def checked(self, step: int, check: SpotCheck) -> Iterable[Alarm]:
        for arm, gain in check.source_gain.items():
            self._looks.setdefault(arm, []).append(Look(check.seen[arm], *gain))
        return list(self._alarms(step, check.source_gain))

    def _alarms(self, step: int, arms: Iterable[Arm]) -> Iterator[Alarm]:
        for arm in arms:
            looks = self._looks[arm]
            usual = self._usual(arm, looks[-1].seen)
            gain = pooled(looks[-POOLED:])
            enough = len(looks) >= POOLED and usual is not None and usual >= GROWN
            nothing = enough and usual is not None and gain.value + 2 * gain.error < PART * usual
            self._suspect[arm] = self._suspect.get(arm, 0) + 1 if nothing else 0
            if self._suspect[arm] >= IN_A_ROW:
                yield Alarm(step, "unaligned", arm, _text(arm, gain, usual or 0.0))

    def _usual(self, arm: Arm, seen: int) -> float | None:
        """The median gain of the other arms when they had seen as many tokens of their own; None if none had."""
        others = {other: [look for look in looks if look.seen <= seen] for other, looks in self._looks.items()}
        gains = [pooled(looks[-POOLED:]).value for other, looks in others.items() if other != arm and len(looks) > 1]
        return median(gains) if gains else None

    def state_dict(self) -> State:
        looks = {arm: [list(look) for look in looks] for arm, looks in self._looks.items()}
        return {"looks": looks, "suspect": dict(self._suspect)}

    def load_state_dict(self, state: State) -> None:
        self._looks = {arm: [Look(*look) for look in looks] for arm, looks in state["looks"].items()}
        self._suspect = dict(state["suspect"])


def pooled(looks: Sequence[Look]) -> Estimate:
    """The mean gain of several checks, which have about as many tokens each.

    Its error is that within the checks or that between them, whichever is larger: of two or three sentences, the
    first may be small by chance.
    """
    count = len(looks)
    within = sum(look.error**2 for look in looks) ** 0.5 / count
    between = stdev(look.gain for look in looks) / count**0.5 if count > 1 else 0.0
    return Estimate(sum(look.gain for look in looks) / count, max(within, between))


def _text(arm: Arm, gain: Estimate, usual: float) -> str:
    """With the numbers that led to it."""
    numbers = f"{gain.value:.3f} ± {gain.error:.3f} nats per token, others {usual:.2f}"
    return f"{arm}: the student finds next to nothing of the source in the target ({numbers}); are its lines aligned?"
