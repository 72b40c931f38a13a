"""How each measure is taken: one gauge for every class in ``rota/measures.py``.

A gauge (``base.py``) reads its value from the student and the dev sets when the teacher is to be told, and may follow
the updates in between; what it remembers is saved. ``losses.py`` has those of losses, ``source.py`` that of the gain
from the source, ``alignment.py`` that of gradients along the goal's, ``gradients.py`` those of gradients of sampled
sentences, ``uncertainty.py`` that of predictions under dropout, ``sentences.py`` those that score every training
sentence, ``weights.py`` that of moving weights. ``GAUGES`` below is the table that the probe looks measures up in; a
teacher of a user's own can bring more (``TeacherConfig.gauges``).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rota.measures import (
    Alignment,
    DevLoss,
    EmbeddingNorm,
    GradientMoments,
    GradientProducts,
    GroupLosses,
    JointGain,
    JointLoss,
    Measure,
    SourceGain,
    SourceNorms,
    TrainLoss,
    TrainSampleLoss,
    TrainSetLosses,
    Uncertainty,
    WeightChange,
)
from rota.training.gauges.alignment import AlignmentGauge
from rota.training.gauges.base import Gauge
from rota.training.gauges.gradients import GradientMomentsGauge, GradientProductsGauge
from rota.training.gauges.losses import (
    DevLossGauge,
    GroupLossesGauge,
    JointGainGauge,
    JointLossGauge,
    TrainLossGauge,
    TrainSampleLossGauge,
)
from rota.training.gauges.sentences import EmbeddingNormGauge, SourceNormsGauge, TrainSetLossesGauge
from rota.training.gauges.source import SourceGainGauge
from rota.training.gauges.uncertainty import UncertaintyGauge
from rota.training.gauges.weights import WeightChangeGauge

Gauges = Mapping[type[Measure], type[Gauge[Any]]]

GAUGES: Gauges = {
    TrainLoss: TrainLossGauge,
    DevLoss: DevLossGauge,
    JointLoss: JointLossGauge,
    JointGain: JointGainGauge,
    GroupLosses: GroupLossesGauge,
    SourceGain: SourceGainGauge,
    TrainSampleLoss: TrainSampleLossGauge,
    EmbeddingNorm: EmbeddingNormGauge,
    SourceNorms: SourceNormsGauge,
    TrainSetLosses: TrainSetLossesGauge,
    WeightChange: WeightChangeGauge,
    Alignment: AlignmentGauge,
    GradientProducts: GradientProductsGauge,
    GradientMoments: GradientMomentsGauge,
    Uncertainty: UncertaintyGauge,
}

__all__ = ["GAUGES", "Gauge", "Gauges"]
