"""Which hypotheses of a batch go on, and which ended best.

B sentences, W hypotheses (beams) of each, R = B * W rows, C candidates, T target positions so far, V vocabulary,
G groups of neighbouring tokens.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from rota.student.transformer import BOS, DECODER_START, EOS, PAD
from rota.types import IntArray

NEVER: Final = [PAD, BOS]
"""Tokens that no translation contains."""

GROUP: Final = 32
"""Tokens in a group of :func:`largest`."""


@dataclass(frozen=True)
class Hypothesis:
    """A translation as subword ids without its end symbol."""

    ids: IntArray
    score: float  # summed log-probability, end symbol included, over length ** length_penalty; higher is better


class Beams:
    """The hypotheses of all sentences of a batch that are not finished, and the best finished one of each sentence."""

    def __init__(self, limits_B: Tensor, beam: int, penalty: float) -> None:
        self.beam, self.penalty = beam, penalty
        sentences, device = len(limits_B), limits_B.device
        self.before = sentences
        self.sentences_B = torch.arange(sentences, device=device)
        self.limits_B = limits_B
        # One hypothesis of each sentence until the first step: W would all be alike.
        self.tokens_BWT = torch.full((sentences, 1, 1), DECODER_START, device=device)
        self.scores_BW = torch.zeros(sentences, 1, device=device)
        self.ended_B = torch.zeros(sentences, dtype=torch.int64, device=device)
        self.best_scores = torch.full((sentences,), -math.inf, device=device)
        self.best_tokens: list[IntArray] = [np.zeros(0, dtype=np.int64)] * sentences
        self.given = 1  # tokens before the first one that is searched for

    def begin_with(self, tokens_B: Tensor) -> None:
        """Before the first step: the first token of every sentence is given."""
        self.tokens_BWT = torch.cat([self.tokens_BWT, tokens_B[:, None, None]], dim=2)
        self.given = 2

    @property
    def last_R(self) -> Tensor:
        return self.tokens_BWT[:, :, -1].flatten()

    def best(self) -> list[Hypothesis]:
        return [Hypothesis(ids, score) for ids, score in zip(self.best_tokens, self.best_scores.tolist(), strict=True)]

    def advance(self, logits_RV: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
        """One more token; returns the parent of each hypothesis that lives on, and the indices of unfinished sentences.

        The parents are of the sentences as they were. Those that go on are then in the order of the indices: each stays
        where it was, or takes the place of a finished one.
        """
        scores_BC, parents_BC, tokens_BC = self._candidates(logits_RV)
        ends_BC = tokens_BC == EOS
        self._finish(scores_BC, parents_BC, ends_BC)
        # At most W candidates of 2 W are ends, one of each parent; the first W others live on.
        alive_BW = ends_BC.long().argsort(dim=1, stable=True)[:, : self.beam]
        scores_BW = scores_BC.gather(1, alive_BW)
        parents_BW, tokens_BW = parents_BC.gather(1, alive_BW), tokens_BC.gather(1, alive_BW)
        history_BWT = self.tokens_BWT.gather(1, parents_BW[:, :, None].expand(-1, -1, self.tokens_BWT.shape[2]))
        kept_B = _close_ranks(self._open(scores_BW))
        self.before = len(self.sentences_B)
        self.tokens_BWT = torch.cat([history_BWT, tokens_BW[:, :, None]], dim=2)
        self.scores_BW = scores_BW
        if len(kept_B) < self.before:
            self.tokens_BWT, self.scores_BW, self.sentences_B, self.limits_B, self.ended_B = (
                table.index_select(0, kept_B)
                for table in (self.tokens_BWT, self.scores_BW, self.sentences_B, self.limits_B, self.ended_B)
            )
        return parents_BW, kept_B

    def _candidates(self, logits_RV: Sequence[Tensor]) -> tuple[Tensor, Tensor, Tensor]:
        """The 2 W best continuations of each sentence, best first: summed log-probability, parent, token."""
        sentences, hypotheses, length = self.tokens_BWT.shape
        full_R = (self.limits_B < length).repeat_interleave(hypotheses)
        found_RC, tokens_RC = best_continuations(logits_RV, 2 * self.beam, full_R)
        totals = (self.scores_BW.view(-1, 1) + found_RC).view(sentences, -1)
        scores_BC, indices_BC = totals.topk(2 * self.beam)
        return scores_BC, indices_BC // (2 * self.beam), tokens_RC.view(sentences, -1).gather(1, indices_BC)

    def _finish(self, scores_BC: Tensor, parents_BC: Tensor, ends_BC: Tensor) -> None:
        """Records hypotheses that end here; an end counts if it is among the W best continuations."""
        length = self.tokens_BWT.shape[2]  # the end symbol takes the place of the start symbol
        ends_BW = ends_BC[:, : self.beam] & scores_BC[:, : self.beam].isfinite()
        normalised_BW = (scores_BC[:, : self.beam] / length**self.penalty).masked_fill(~ends_BW, -math.inf)
        self.ended_B = self.ended_B + ends_BW.sum(1)
        scores_B, indices_B = normalised_BW.max(1)
        for row in (scores_B > self.best_scores[self.sentences_B]).nonzero()[:, 0].tolist():
            sentence = int(self.sentences_B[row])
            self.best_scores[sentence] = scores_B[row]
            parent = parents_BC[row, indices_B[row]]
            self.best_tokens[sentence] = self.tokens_BWT[row, parent, self.given :].cpu().numpy()

    def _open(self, scores_BW: Tensor) -> Tensor:
        """Which sentences continue: fewer than W ends, and some hypothesis that could still beat the best one."""
        # A sum of log-probabilities only falls; the most favourable length is the longest.
        hope_B = scores_BW.amax(1) / (self.limits_B + 1) ** self.penalty
        below_limit_B = self.limits_B >= self.tokens_BWT.shape[2]
        return (self.ended_B < self.beam) & below_limit_B & (hope_B > self.best_scores[self.sentences_B])


def _close_ranks(open_B: Tensor) -> Tensor:
    """Indices of the true ones, of which the last take the places of those that are false."""
    indices_B = open_B.nonzero()[:, 0]
    front_B = indices_B < len(indices_B)
    places_B = torch.arange(len(indices_B), device=open_B.device)
    places_B[~open_B[: len(indices_B)]] = indices_B[~front_B]
    return places_B


def best_continuations(logits_RV: Sequence[Tensor], count: int, full_R: Tensor) -> tuple[Tensor, Tensor]:
    """Log of the mean probability over the networks, and token: the ``count`` best for each row, best first.

    A row of ``full_R`` has one candidate alone, the end symbol. Overwrites the logits of a single network.
    """
    probabilities_RV = [logits.softmax(-1) for logits in logits_RV]
    # Logarithms are taken of the candidates alone; the order of probabilities is that of their logarithms.
    if len(logits_RV) == 1:
        ranked_RV, never_R2 = logits_RV[0], logits_RV[0][:, NEVER]
        ranked_RV[:, NEVER] = -math.inf
        _, tokens_RC = largest(ranked_RV, count)
        normalisers_R = [_normaliser(ranked_RV, probabilities_RV[0], tokens_RC[:, :1], never_R2)]
    else:
        normalisers_R = [
            logits.amax(-1) - probabilities.amax(-1).log()
            for logits, probabilities in zip(logits_RV, probabilities_RV, strict=True)
        ]
        ranked_RV = _sum(probabilities_RV)
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


def _normaliser(logits_RV: Tensor, probabilities_RV: Tensor, best_R1: Tensor, never_R2: Tensor) -> Tensor:
    """What must be subtracted from logits to make them log-probabilities.

    It follows from the logit and the probability of any token. The likeliest, which is the best one or one of those
    that are never produced, has a probability that is not rounded to 0; so no further pass over the vocabulary.
    """
    logits_R3 = torch.cat([logits_RV.gather(1, best_R1), never_R2], dim=1)
    probabilities_R3 = torch.cat([probabilities_RV.gather(1, best_R1), probabilities_RV[:, NEVER]], dim=1)
    return logits_R3.amax(1) - probabilities_R3.amax(1).log()


def _sum(probabilities_RV: Sequence[Tensor]) -> Tensor:
    total_RV = probabilities_RV[0]
    for others_RV in probabilities_RV[1:]:
        total_RV += others_RV
    return total_RV


def largest(values_RV: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """``values.topk(count)``: the largest of a row lie in the ``count`` groups with the largest maxima."""
    if values_RV.shape[1] < 4 * count * GROUP:
        values_RC, indices_RC = values_RV.topk(count)
        return values_RC, indices_RC
    missing = -values_RV.shape[1] % GROUP
    if missing:
        values_RV = functional.pad(values_RV, (0, missing), value=-math.inf)
    groups_RGV = values_RV.view(len(values_RV), -1, GROUP)
    chosen_RC = groups_RGV.amax(-1).topk(count).indices
    near = groups_RGV.gather(1, chosen_RC[:, :, None].expand(-1, -1, GROUP)).flatten(1)
    values_RC, indices_RC = near.topk(count)
    return values_RC, chosen_RC.gather(1, indices_RC // GROUP) * GROUP + indices_RC % GROUP
