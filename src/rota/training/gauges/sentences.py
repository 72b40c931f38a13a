"""Scores of every training sentence, as columns by which a decision can select and weight them.

What a teacher is told are means by arm; the scores themselves go to the ranks that the streams use. They are part of
the gauge's state: after a resumption the student is another one than when they were measured.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from typing import Final

import numpy as np

from rota.measures import EmbeddingNorm, SourceNorms, TrainSetLosses
from rota.training.devsets import DevSets
from rota.training.gauges.base import Gauge, M
from rota.training.turns import Window
from rota.types import MIXED, Arm, Batch, FloatArray, ProbedStudent, State

_CHUNK: Final = 1 << 14  # sentences at once, some half a million tokens


class EmbeddingNormGauge(Gauge[EmbeddingNorm]):
    def read(self, window: Window) -> float:  # noqa: ARG002 - whatever was played
        return self.student.embedding_norm()


class _ColumnGauge(Gauge[M]):
    """Measures all training sentences and puts what comes of it into a column."""

    column: str

    def __init__(self, measure: M, student: ProbedStudent, sets: DevSets) -> None:
        super().__init__(measure, student, sets)
        self._scores: FloatArray | None = None  # float32, the lower the easier

    @abstractmethod
    def measure_batch(self, batch: Batch) -> FloatArray:
        """(sentences,)"""

    def measure_all(self) -> FloatArray:
        return np.concatenate([self.measure_batch(batch) for batch in _chunks(self.sets)]).astype(np.float32)

    def put(self, scores: FloatArray) -> None:
        self._scores = scores
        self.sets.ranks.put(self.column, scores)

    def means(self, values: FloatArray) -> dict[Arm, float]:
        ranges = self.sets.train.ranges.items()
        return {arm: float(values[start:stop].mean(dtype=np.float64)) for arm, (start, stop) in ranges}

    def state_dict(self) -> State:
        return {} if self._scores is None else {"scores": self._scores}

    def load_state_dict(self, state: State) -> None:
        self._scores = None
        if "scores" in state:
            self.put(np.asarray(state["scores"]))


class SourceNormsGauge(_ColumnGauge[SourceNorms]):
    column = "norm"

    def measure_batch(self, batch: Batch) -> FloatArray:
        return self.student.source_norms([batch])

    def read(self, window: Window) -> dict[Arm, float]:  # noqa: ARG002 - whatever was played
        norms = self.measure_all()
        self.put(norms)
        return self.means(norms)


class TrainSetLossesGauge(_ColumnGauge[TrainSetLosses]):
    column = "relative-loss"

    def __init__(self, measure: TrainSetLosses, student: ProbedStudent, sets: DevSets) -> None:
        super().__init__(measure, student, sets)
        self._losses: FloatArray | None = None  # of the last time, nats per token, float32

    def measure_batch(self, batch: Batch) -> FloatArray:
        losses = self.student.losses([batch])
        return losses.sums / losses.tokens

    def read(self, window: Window) -> dict[Arm, float]:  # noqa: ARG002 - whatever was played
        before, self._losses = self._losses, self.measure_all()
        self.sets.ranks.put("loss", self._losses)
        if before is not None:
            self.put(relative_losses(before, self._losses))
        return self.means(self._losses)

    def state_dict(self) -> State:
        return super().state_dict() | ({} if self._losses is None else {"losses": self._losses})

    def load_state_dict(self, state: State) -> None:
        super().load_state_dict(state)
        self._losses = np.asarray(state["losses"]) if "losses" in state else None
        if self._losses is not None:
            self.sets.ranks.put("loss", self._losses)


def relative_losses(before: FloatArray, now: FloatArray) -> FloatArray:
    """What is left of each loss, as a share of what it was: 1 minus the relative decline (Xu et al. 2020)."""
    return np.divide(now, np.maximum(before, np.float32(1e-6)))


def _chunks(sets: DevSets) -> Iterator[Batch]:
    """All training sentences, in the order of the store."""
    total = len(sets.train)
    for start in range(0, total, _CHUNK):
        yield sets.train.batch(MIXED, np.arange(start, min(start + _CHUNK, total)))
