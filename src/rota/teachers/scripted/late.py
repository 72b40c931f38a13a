"""High-resource languages first, low-resource ones at the end: as much of them as their text is worth repeating."""

from __future__ import annotations

from typing import Literal

import numpy as np
from pydantic import Field

from rota.teachers.base import Classroom, OpenLoopConfig
from rota.teachers.card import Card
from rota.teachers.scripted.two_phase import TwoPhase, last_phase
from rota.teachers.scripted.unimax import unimax
from rota.teachers.static import Static, Temperature
from rota.types import Arm


class LateConfig(OpenLoopConfig):
    """High-resource languages first; the low-resource ones in the last updates, as many as `epochs` allows."""

    card = Card(
        family="scripted",
        line="low-resource last",
        observes="nothing",
        cost=("0.1%", "0"),
        source="Rota",
        reference="ours: UniMax for the low-resource languages, at the end of the run",
    )
    name: Literal["late"] = "late"
    epochs: float = Field(16.0, gt=0, description="how often low-resource text may be seen in the last phase")
    share: float = Field(0.5, gt=0, lt=1, description="of the low-resource languages in the last phase")
    temperature: float = Field(2.0, gt=0, description="of the shares among the high-resource languages")
    floor: float = Field(
        0.0,
        ge=0,
        lt=0.1,
        description="share of each low-resource language before the last phase; it adds to its epochs",
    )

    def build(self, classroom: Classroom, rng: np.random.Generator) -> TwoPhase:
        before, after = self.shares(classroom)
        first, second = (Static(shares, child) for shares, child in zip((before, after), rng.spawn(2), strict=True))
        return TwoPhase(first, second, classroom.steps - self.length(classroom))

    def length(self, classroom: Classroom) -> int:
        """Updates of the last phase."""
        return last_phase(classroom, self.share, self.epochs)

    def shares(self, classroom: Classroom) -> tuple[dict[Arm, float], dict[Arm, float]]:
        """Before the last phase, and in it. Low-resource languages have UniMax's shares of their part."""
        low, high = classroom.select("low-resource"), classroom.select("high-resource")
        sizes = {arm: classroom.sizes[arm] for arm in high}
        among_high = Temperature(sizes, np.random.default_rng(0), self.temperature).shares
        tokens = {arm: classroom.target_tokens()[arm] for arm in low}
        budget = self.share * self.length(classroom) * classroom.tokens_per_update()
        given = unimax(tokens, budget, self.epochs)
        total = sum(given.values())
        before = {arm: (1 - self.floor * len(low)) * share for arm, share in among_high.items()}
        before |= dict.fromkeys(low, self.floor)
        after = {arm: (1 - self.share) * share for arm, share in among_high.items()}
        after |= {arm: self.share * tokens / total for arm, tokens in given.items()}
        return before, after
