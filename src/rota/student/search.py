"""Greedy and beam search over one network or an ensemble.

B sentences, W hypotheses (beams) of each, R = B * W rows, C candidates, T target positions so far, V vocabulary.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import torch
from torch import Tensor

from rota.student.candidates import best_continuations
from rota.student.decoding import EncoderCache, StepDecoder
from rota.student.hardware import TooLargeError, is_out_of_memory
from rota.student.transformer import DECODER_START, EOS, Transformer
from rota.types import IntArray

logger = logging.getLogger(__name__)

MAX_LENGTH: Final = 1023
"""No translation is longer: with its end symbol it fills the 1,024 positions of an exported M2M100."""


LOGITS: Final = 2**24
"""Each network computes at most so many in one step (64 MB), however many short sentences would fit into a batch."""


@dataclass(frozen=True)
class Hypothesis:
    """A translation as subword ids without its end symbol."""

    ids: IntArray
    score: float  # summed log-probability, end symbol included, over length ** length_penalty; higher is better


def translate(
    networks: Sequence[Transformer],
    sources: Sequence[IntArray],
    *,
    beam: int = 5,
    length_penalty: float = 1.0,
    max_ratio: float = 2.0,
    extra: int = 10,
    batch_tokens: int = 10_000,
    progress: Callable[[int], None] | None = None,
    cache: EncoderCache | None = None,
) -> list[Hypothesis]:
    """The best translation of every source, in the order given; a source is language tag, subwords, end of sentence.

    At every step an ensemble averages the probabilities of its networks. A translation has at most ``max_ratio`` times
    the tokens of its source plus ``extra``; there the end symbol is forced. The symbols for padding and beginning are
    never produced. A sentence is finished when ``beam`` hypotheses have ended, as in fairseq, or when no unfinished one
    can still win. ``length_penalty=1`` is the mean log-probability per token, 0 prefers short translations.
    Long sources come first. A batch has at most ``batch_tokens`` padded source tokens divided by ``beam``, and half as
    many from the first one on that does not fit into memory. ``progress`` is called with the number of sentences just
    finished; ``cache`` spares networks that translate the same sources again their encoders.
    """
    _check(networks, sources, beam, length_penalty)
    found: dict[int, Hypothesis] = {}
    budget, widest = batch_tokens // beam, LOGITS // (beam * networks[0].shape.vocabulary)
    order, done = sorted(range(len(sources)), key=lambda number: -len(sources[number])), 0
    while done < len(order):
        numbers = order[done : done + max(1, min(widest, budget // len(sources[order[done]])))]
        chosen = [sources[number] for number in numbers]
        limits = [min(int(max_ratio * len(source)) + extra, MAX_LENGTH) for source in chosen]
        try:
            found.update(zip(numbers, _search(networks, chosen, limits, beam, length_penalty, cache), strict=True))
        except (RuntimeError, MemoryError) as error:
            _check_divisible(error, chosen, beam)
            if cache is not None:
                cache.forget()
            budget, widest = min(budget, len(chosen) * len(chosen[0])) // 2, widest // 2
            continue
        done += len(numbers)
        if progress is not None:
            progress(len(numbers))
    return [found[number] for number in range(len(sources))]


def _check(networks: Sequence[Transformer], sources: Sequence[IntArray], beam: int, length_penalty: float) -> None:
    if not networks:
        raise ValueError("there is no network to translate with; give at least one")
    sizes = sorted({network.shape.vocabulary for network in networks})
    if len(sizes) > 1:
        raise ValueError(f"an ensemble needs one vocabulary, but these have {sizes} entries; use runs of the same data")
    largest_beam = (sizes[0] - 2) // 2  # 2 candidates for each hypothesis; two symbols are never produced
    if beam < 1 or beam > largest_beam:
        raise ValueError(f"beam {beam} is not possible; choose 1 (greedy) to {largest_beam}")
    if length_penalty < 0:
        raise ValueError(f"length penalty {length_penalty} is negative; choose 0 or more (1: mean per token)")
    for number, source in enumerate(sources):
        if len(source) == 0:
            raise ValueError(f"source {number} has no tokens; it needs at least its language tag and the end symbol")


def _check_divisible(error: RuntimeError | MemoryError, sources: Sequence[IntArray], beam: int) -> None:
    """Passes on whatever half of the batch would not help against."""
    if not is_out_of_memory(error):
        raise error
    if len(sources) == 1:
        size = f"one sentence of {len(sources[0])} subwords with beam {beam}"
        remedy = "lower the beam, split the sentence, or leave the GPU out with CUDA_VISIBLE_DEVICES=-1"
        raise TooLargeError(f"out of memory translating {size}; {remedy}.") from None
    logger.warning("%d sentences at once do not fit into memory; going on with half as much", len(sources))


@torch.inference_mode()
def _search(
    networks: Sequence[Transformer],
    sources: Sequence[IntArray],
    limits: Sequence[int],
    beam: int,
    penalty: float,
    cache: EncoderCache | None,
) -> list[Hypothesis]:
    decoders = [StepDecoder(network, sources, cache) for network in networks]
    beams = _Beams(torch.tensor(limits, device=networks[0].device), beam, penalty)
    while True:
        rows_R, kept_B = beams.advance([decoder.step(beams.last_R) for decoder in decoders])
        if len(kept_B) == 0:
            return beams.best()
        for decoder in decoders:
            decoder.select(rows_R)
            if len(kept_B) < beams.before:
                decoder.drop_sentences(kept_B)


class _Beams:
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

    @property
    def last_R(self) -> Tensor:
        return self.tokens_BWT[:, :, -1].flatten()

    def best(self) -> list[Hypothesis]:
        return [Hypothesis(ids, score) for ids, score in zip(self.best_tokens, self.best_scores.tolist(), strict=True)]

    def advance(self, logits_RV: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
        """One more token; returns the rows that live on, as numbers of the old rows, and the sentences likewise."""
        scores_BC, parents_BC, tokens_BC = self._candidates(logits_RV)
        ends_BC = tokens_BC == EOS
        self._finish(scores_BC, parents_BC, ends_BC)
        # At most W candidates of 2 W are ends, one of each parent; the first W others live on.
        alive_BW = ends_BC.long().argsort(dim=1, stable=True)[:, : self.beam]
        scores_BW = scores_BC.gather(1, alive_BW)
        kept_B = self._open(scores_BW).nonzero()[:, 0]
        parents_BW, tokens_BW = (table.gather(1, alive_BW)[kept_B] for table in (parents_BC, tokens_BC))
        rows_BW = kept_B[:, None] * self.tokens_BWT.shape[1] + parents_BW
        history_BWT = self.tokens_BWT.flatten(0, 1)[rows_BW]
        self.before = len(self.sentences_B)
        self.tokens_BWT = torch.cat([history_BWT, tokens_BW[:, :, None]], dim=2)
        self.scores_BW = scores_BW[kept_B]
        self.sentences_B, self.limits_B, self.ended_B = (
            table[kept_B] for table in (self.sentences_B, self.limits_B, self.ended_B)
        )
        return rows_BW.flatten(), kept_B

    def _candidates(self, logits_RV: Sequence[Tensor]) -> tuple[Tensor, Tensor, Tensor]:
        """The 2 W best continuations of each sentence, best first: summed log-probability, parent, token."""
        sentences, hypotheses, length = self.tokens_BWT.shape
        full_R = (self.limits_B < length).repeat_interleave(hypotheses)
        found_RC, tokens_RC = best_continuations(logits_RV, 2 * self.beam, full_R)
        totals = (self.scores_BW.view(-1, 1) + found_RC).view(sentences, -1)
        scores_BC, places_BC = totals.topk(2 * self.beam)
        return scores_BC, places_BC // (2 * self.beam), tokens_RC.view(sentences, -1).gather(1, places_BC)

    def _finish(self, scores_BC: Tensor, parents_BC: Tensor, ends_BC: Tensor) -> None:
        """Takes note of hypotheses that end here; an end counts if it is among the W best continuations."""
        length = self.tokens_BWT.shape[2]  # the end symbol takes the place of the start symbol
        ends_BW = ends_BC[:, : self.beam] & scores_BC[:, : self.beam].isfinite()
        normalised_BW = (scores_BC[:, : self.beam] / length**self.penalty).masked_fill(~ends_BW, -math.inf)
        self.ended_B = self.ended_B + ends_BW.sum(1)
        scores_B, places_B = normalised_BW.max(1)
        for row in (scores_B > self.best_scores[self.sentences_B]).nonzero()[:, 0].tolist():
            sentence = int(self.sentences_B[row])
            self.best_scores[sentence] = scores_B[row]
            parent = parents_BC[row, places_B[row]]
            self.best_tokens[sentence] = self.tokens_BWT[row, parent, 1:].cpu().numpy()

    def _open(self, scores_BW: Tensor) -> Tensor:
        """Which sentences go on: fewer than W ends, and some hypothesis that could still beat the best one."""
        # A sum of log-probabilities only falls; the most favourable length is the longest.
        hope_B = scores_BW.amax(1) / (self.limits_B + 1) ** self.penalty
        below_limit_B = self.limits_B >= self.tokens_BWT.shape[2]
        return (self.ended_B < self.beam) & below_limit_B & (hope_B > self.best_scores[self.sentences_B])
