"""Tail first: mostly the language whose hardest sentences are hardest, by a measure of its own."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from own_teacher import WorstFirst, WorstFirstConfig

from rota.measures import DevLoss, Measure, Scene
from rota.teachers import Classroom, measured
from rota.training.probe import Gauge
from rota.training.turns import Window
from rota.types import Observation


@dataclass(frozen=True)
class HardTail(Measure):
    """Mean loss, in nats per token, of the hardest dev sentences of each language."""

    record: ClassVar[str | None] = "hard_tail"  # its key in observations.jsonl
    share: float = 0.1

    def imagine(self, scene: Scene) -> dict[str, float]:
        """On a scripted student, for rota simulate and the contract tests: half as much again as the mean."""
        return {arm: 1.5 * loss for arm, loss in scene.losses.items()}


class HardTailGauge(Gauge[HardTail]):
    def read(self, window: Window) -> dict[str, float]:  # noqa: ARG002 - whatever was played
        return {arm: self._tail(batch) for arm, batch in self.sets.by_arm(DevLoss(tokens=2_000)).items()}

    def _tail(self, batch: Any) -> float:
        sums, tokens = self.student.losses([batch])
        hardest = np.argsort(sums / tokens)[-max(1, round(self.measure.share * len(sums))) :]
        return float(sums[hardest].sum() / tokens[hardest].sum())


class TailFirst(WorstFirst):
    watches = (HardTail(),)

    def tell(self, observation: Observation) -> None:
        tails = measured(observation, HardTail())
        if not np.isfinite(list(tails.values())).all():
            raise ValueError(f"step {observation.step}: a loss is not finite; lower the learning rate")
        self.losses.update(tails)


class TailFirstConfig(WorstFirstConfig):
    name: str = "own_measure:TailFirstConfig"

    def build(self, classroom: Classroom, rng: np.random.Generator) -> TailFirst:
        return TailFirst(classroom.arms, rng, self.epsilon)

    def gauges(self) -> Mapping[type[Measure], Any]:
        return {HardTail: HardTailGauge}
