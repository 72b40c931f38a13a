"""How unsure the student is under dropout: the measures of MultiUAT (Wu et al. 2021)."""

from __future__ import annotations

import numpy as np

from rota.measures import Uncertainty, UncertaintyKind
from rota.training.gauges.gradients import RotatingGauge
from rota.training.turns import Window
from rota.types import Arm, Batch, FloatArray
from rota.types import Uncertainty as Predictions


class UncertaintyGauge(RotatingGauge[Uncertainty]):
    def read(self, window: Window) -> dict[Arm, float]:  # noqa: ARG002 - whatever was played
        """Of the dev sentences of its language, for each arm."""
        found = {
            language: self._of(self.sets.sample("teacher", language, self.measure.tokens, self._turn).batch())
            for language in self.sets.languages
        }
        self._turn += 1
        return {arm: found[self.sets.language_of[arm]] for arm in self.sets.arms}

    def _of(self, batch: Batch) -> float:
        if self.measure.kind == "cross-entropy":
            return self.student.losses([batch], weights=self.measure.weights).per_token
        predictions = self.student.uncertainty(
            [batch], samples=self.measure.samples, seed=self._turn, weights=self.measure.weights
        )
        return uncertainty(self.measure.kind, predictions)


def uncertainty(kind: UncertaintyKind, found: Predictions) -> float:
    """One number of all samples of dropout (rows) and sentences (columns)."""
    if kind == "entropy":
        return float(found.entropies.sum(1).mean() / found.tokens.sum())
    if kind == "end-entropy":
        return float(found.end_entropies.mean())
    if kind == "probability":
        return 1 - float(np.exp(found.best).mean())
    if kind == "mean-probability":
        return 1 - float(np.exp(found.best / found.tokens).mean())
    variances = _variances(found)
    if kind == "variance":
        return float(variances.mean())
    means = found.best / found.tokens  # negative, so more variance makes it smaller: as in their code
    return float(np.exp(variances / np.minimum(means, -1e-9)).mean())


def _variances(found: Predictions) -> FloatArray:
    """Of the log-probabilities of the likeliest tokens within each sentence; 0 for a single token."""
    squares = found.best_squares - found.best**2 / found.tokens
    return np.asarray(np.maximum(squares, 0.0) / np.maximum(found.tokens - 1, 1))
