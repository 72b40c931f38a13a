"""The best next tokens of every hypothesis, under one network or the mean of several.

R hypotheses, C candidates of each, V vocabulary, G groups of neighbouring tokens.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import torch
from torch import Tensor
from torch.nn import functional

from rota.student.transformer import BOS, EOS, PAD

NEVER: Final = [PAD, BOS]
GROUP: Final = 32
"""Tokens in a group of :func:`largest`."""


def best_continuations(logits_RV: Sequence[Tensor], count: int, full_R: Tensor) -> tuple[Tensor, Tensor]:
    """Log of the mean probability over the networks, and token: the ``count`` best for each row, best first.

    A row of ``full_R`` has one candidate alone, the end symbol. Overwrites the logits of a single network.
    """
    normalisers_R, probabilities_RV = zip(*map(_normalise, logits_RV), strict=True)
    # Logarithms are taken of the candidates alone; the order of probabilities is that of their logarithms.
    ranked_RV = logits_RV[0] if len(logits_RV) == 1 else _sum(probabilities_RV)
    ranked_RV[:, NEVER] = -math.inf
    _, tokens_RC = largest(ranked_RV, count)
    tokens_RC[full_R] = EOS
    each_RC = [
        logits.gather(1, tokens_RC) - normaliser[:, None]
        for logits, normaliser in zip(logits_RV, normalisers_R, strict=True)
    ]
    found_RC = each_RC[0] if len(each_RC) == 1 else torch.stack(each_RC).logsumexp(0) - math.log(len(each_RC))
    found_RC[full_R, 1:] = -math.inf
    return found_RC, tokens_RC


def _normalise(logits_RV: Tensor) -> tuple[Tensor, Tensor]:
    """What must be subtracted from logits to make them log-probabilities; and the probabilities."""
    probabilities_RV = logits_RV.softmax(-1)
    return logits_RV.amax(-1) - probabilities_RV.amax(-1).log(), probabilities_RV


def _sum(probabilities_RV: Sequence[Tensor]) -> Tensor:
    total_RV = probabilities_RV[0]
    for others_RV in probabilities_RV[1:]:
        total_RV += others_RV
    return total_RV


def largest(values_RV: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """``values.topk(count)``: the largest of a row lie in the ``count`` groups with the largest maxima."""
    if values_RV.shape[1] < 4 * count * GROUP:
        values_RC, places_RC = values_RV.topk(count)
        return values_RC, places_RC
    missing = -values_RV.shape[1] % GROUP
    if missing:
        values_RV = functional.pad(values_RV, (0, missing), value=-math.inf)
    groups_RGV = values_RV.view(len(values_RV), -1, GROUP)
    chosen_RC = groups_RGV.amax(-1).topk(count).indices
    near = groups_RGV.gather(1, chosen_RC[:, :, None].expand(-1, -1, GROUP)).flatten(1)
    values_RC, places_RC = near.topk(count)
    return values_RC, chosen_RC.gather(1, places_RC // GROUP) * GROUP + places_RC % GROUP
