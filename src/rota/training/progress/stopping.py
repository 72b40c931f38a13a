"""When to end a run before its last update: the goal's dev loss, BLEU or chrF no longer gets better.

The rule sees validations only, so it costs nothing. A run that it ends is finished: reports and suites count it, and
``stops.jsonl`` says why.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal

from pydantic import Field

from rota.goal import Goal, goal_mean
from rota.settings import Settings
from rota.types import Arm, State

Criterion = Literal["loss", "bleu", "chrf"]

HARDLY: Final = 1.0
"""Below this best BLEU or chrF no validation counts as waiting: a student that starts from nothing has 0 at first."""

WORDS: Final[Mapping[Criterion, str]] = {"loss": "dev loss", "bleu": "dev BLEU", "chrf": "dev chrF"}


class EarlyStopping(Settings):
    """Ends a run when ``patience`` validations in a row have not been better than the best by ``smallest_change``."""

    on: Criterion = Field("loss", description="the goal's dev loss, or BLEU or chrF of dev_sentences")
    patience: int = Field(5, ge=1, description="validations without a better value")
    smallest_change: float = Field(0.0, ge=0, description="nats per token, or points, that count as better")


class Stopping:
    """Remembers the best value; part of a checkpoint, so that a run that resumes stops where the whole one does."""

    def __init__(self, config: EarlyStopping, goal: Goal) -> None:
        self.config, self.goal = config, goal
        self.best: float | None = None
        self.best_step = 0
        self.waited = 0  # validations since then

    def validated(self, step: int, values: Mapping[Arm, float]) -> None:
        """``values``: the criterion by language."""
        value = goal_mean(values, self.goal)
        gain = 0.0 if self.best is None else (self.best - value) * (1 if self.config.on == "loss" else -1)
        if self.best is None or gain > self.config.smallest_change:
            self.best, self.best_step, self.waited = value, step, 0
        elif self.config.on == "loss" or self.best >= HARDLY:
            self.waited += 1

    @property
    def is_over(self) -> bool:
        return self.waited >= self.config.patience

    @property
    def text(self) -> str:
        """Why the run ends, in a sentence."""
        config, digits = self.config, 3 if self.config.on == "loss" else 1
        by = f" by more than {config.smallest_change:g}" if config.smallest_change else ""
        times = "validation has" if self.waited == 1 else f"{self.waited} validations have"
        best = f"{self.best or 0.0:.{digits}f} of step {self.best_step:,}"
        return f"the last {times} not been better than the {WORDS[config.on]} {best}{by}"

    def entry(self, step: int) -> dict[str, Any]:
        """For ``stops.jsonl``."""
        rule = self.config.model_dump()
        found = {"best": self.best, "best_step": self.best_step, "waited": self.waited}
        return {"step": step, "why": "early-stopping", **rule, **found, "text": self.text}

    def state_dict(self) -> State:
        return {"on": self.config.on, "best": self.best, "best_step": self.best_step, "waited": self.waited}

    def load_state_dict(self, state: State) -> None:
        """With another criterion than before, it begins anew."""
        if state["on"] == self.config.on:
            self.best, self.best_step, self.waited = state["best"], state["best_step"], state["waited"]
