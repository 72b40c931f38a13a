"""The detector of a language that is forgotten: it is measured, not trained on any more, and its dev loss rises.

For runs that start from a model that has learned before, and for languages that a config only measures. Elsewhere
schedules leave languages out for a phase because their config says so.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from rota.training.alarms.base import Detector
from rota.types import Alarm, Arm, Decision, State

RISE: Final = 0.1
"""Nats per token above its lowest loss: what counts as forgotten. Validations are always on the same sentences."""

IN_A_ROW: Final = 2
"""Validations that must be so far above it, without training in between."""


class Forgetting(Detector):
    """``language_of`` gives the language of each arm. The lowest loss may be that before the first update."""

    name = "forgetting"

    def __init__(self, language_of: Mapping[Arm, Arm] | None = None) -> None:
        self._language_of = language_of or {}
        self._lowest: dict[Arm, tuple[int, float]] = {}  # step and dev loss
        self._worse: dict[Arm, int] = {}  # validations in a row
        self._seen: dict[Arm, int] = {}  # at the last validation
        self._now: Mapping[Arm, int] = {}  # after the last update

    def updated(self, step: int, decision: Decision, loss: float, seen: Mapping[Arm, int]) -> tuple[()]:  # noqa: ARG002
        self._now = seen
        return ()

    def validated(self, step: int, dev_loss: Mapping[Arm, float]) -> Iterator[Alarm]:
        trained = {self._language_of.get(arm, arm) for arm, now in self._now.items() if now > self._seen.get(arm, 0)}
        self._seen = dict(self._now)
        for language, loss in dev_loss.items():
            began, lowest = self._lowest.get(language, (step, loss))
            if loss <= lowest:
                self._lowest[language] = began, lowest = step, loss
            risen = language not in trained and loss > lowest + RISE
            self._worse[language] = self._worse.get(language, 0) + 1 if risen else 0
            if self._worse[language] >= IN_A_ROW:
                losses = f"its dev loss has risen from {lowest:.3f} at step {began:,} to {loss:.3f}"
                remedy = "if it matters, train on some of its text too, freeze more, or lower the learning rate"
                yield Alarm(step, self.name, language, f"{language} is being forgotten: {losses}; {remedy}.")

    def state_dict(self) -> State:
        lowest = {language: list(found) for language, found in self._lowest.items()}
        return {"lowest": lowest, "worse": dict(self._worse), "seen": dict(self._seen), "now": dict(self._now)}

    def load_state_dict(self, state: State) -> None:
        self._lowest = {language: (step, loss) for language, (step, loss) in state["lowest"].items()}
        self._worse, self._seen, self._now = dict(state["worse"]), dict(state["seen"]), dict(state["now"])
