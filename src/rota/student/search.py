"""Greedy and beam search over one network or an ensemble, one token at a time with cached keys and values.

B sentences, W hypotheses (beams) of each, R = B * W rows, C candidates, S source positions, T target positions so far,
H heads, K head width, D model width, V vocabulary, G groups of neighbouring tokens.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from rota.student.hardware import TooLargeError, is_out_of_memory, upload
from rota.student.kernels.attention import Layout, split_heads
from rota.student.transformer import BOS, DECODER_START, EOS, PAD, DecoderLayer, Transformer
from rota.types import IntArray

logger = logging.getLogger(__name__)

MAX_LENGTH: Final = 1023
"""No translation is longer: with its end symbol it fills the 1,024 positions of an exported M2M100."""

LOGITS: Final = 2**24
"""At most so many in one step of each network (64 MB), however many short sentences would fit into a batch."""

NEVER: Final = [PAD, BOS]
"""Tokens that no translation contains."""

GROUP: Final = 32
"""Tokens in a group of :func:`largest`."""


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
    first: Sequence[int] | None = None,
) -> list[Hypothesis]:
    """The best translation of every source, in the order given; a source is language tag, subwords, end of sentence.

    At every step an ensemble averages the probabilities of its networks. A translation has at most ``max_ratio`` times
    the tokens of its source plus ``extra``; there the end symbol is forced. The symbols for padding and beginning are
    never produced. A sentence is finished when ``beam`` hypotheses have ended, as in fairseq, or when no unfinished one
    can still win. ``length_penalty=1`` is the mean log-probability per token, 0 prefers short translations.
    Long sources come first. A batch has at most ``batch_tokens`` padded source tokens divided by ``beam``, and half as
    many from the first one on that does not fit into memory. ``progress`` is called with the number of sentences just
    finished; with a ``cache``, networks that translate the same sources again do not encode them again.
    ``first``: the token that each translation is made to begin with, the tag of its language. As in transformers its
    probability counts as 1, and it counts in the length; it is not part of the hypothesis.
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
            forced = None if first is None else [first[number] for number in numbers]
            hypotheses = _search(networks, chosen, limits, beam, length_penalty, cache, forced)
            found.update(zip(numbers, hypotheses, strict=True))
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
    """Raises the error again unless a batch half as large may help."""
    if not is_out_of_memory(error):
        raise error
    if len(sources) == 1:
        size = f"one sentence of {len(sources[0])} subwords with beam {beam}"
        remedy = "lower the beam, split the sentence, or leave the GPU out with CUDA_VISIBLE_DEVICES=-1"
        raise TooLargeError(f"out of memory translating {size}; {remedy}.") from None
    logger.warning("%d sentences at once do not fit into memory; continuing with half as many", len(sources))


@torch.inference_mode()
def _search(
    networks: Sequence[Transformer],
    sources: Sequence[IntArray],
    limits: Sequence[int],
    beam: int,
    penalty: float,
    cache: EncoderCache | None,
    first: Sequence[int] | None = None,
) -> list[Hypothesis]:
    decoders = [StepDecoder(network, sources, cache) for network in networks]
    beams = _Beams(torch.tensor(limits, device=networks[0].device), beam, penalty)
    if first is not None:
        for decoder in decoders:
            decoder.step(beams.last_R)
        beams.begin_with(torch.tensor(first, device=networks[0].device))
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


class EncoderCache:
    """Encoder states, for networks that translate the same sentences again, as the windows of a selection do.

    All batches of a network are kept as long as the network lives; its weights must not change meanwhile.
    """

    def __init__(self) -> None:
        self._states: WeakKeyDictionary[Transformer, dict[bytes, Tensor]] = WeakKeyDictionary()

    def encode(self, network: Transformer, ids: IntArray, layout: Layout) -> Tensor:
        known = self._states.setdefault(network, {})
        key = ids.tobytes() + layout.lengths.tobytes()
        if key not in known:
            known[key] = _encode(network, ids, layout)
        return known[key]

    def forget(self) -> None:
        """Frees the memory."""
        self._states.clear()


def _encode(network: Transformer, ids: IntArray, layout: Layout) -> Tensor:
    return network.encode(upload(ids, network.device), layout)


class StepDecoder:
    """One network and the keys and values of the unfinished hypotheses of B source sentences.

    Each sentence has one hypothesis at first; ``select`` makes them W, the same number for all sentences.
    """

    def __init__(self, network: Transformer, sources: Sequence[IntArray], cache: EncoderCache | None = None) -> None:
        self.network, self.length = network, 0
        layout = Layout(np.array([len(source) for source in sources]), network.shape.heads, network.device)
        ids = np.concatenate(sources).astype(np.int64)
        memory_ND = _encode(network, ids, layout) if cache is None else cache.encode(network, ids, layout)
        self._layers = [layer for layer in network.decoder if isinstance(layer, DecoderLayer)]
        self._hidden_B11S = layout.hide_padding[:, None]
        self._memory_2BHSK = [
            split_heads(layer.cross_attention.key_value(memory_ND), layout.key_value) for layer in self._layers
        ]
        width = network.shape.width // network.shape.heads
        empty = torch.empty(len(sources), network.shape.heads, 0, width, device=network.device)
        self._past_2RHTK = [(empty, empty) for _ in self._layers]

    def step(self, ids_R: Tensor) -> Tensor:
        """Reads one more token of every hypothesis; returns the R x V logits of the next one."""
        network = self.network
        positions_R = ids_R.new_full((1,), self.length)  # one row of the table, for all hypotheses
        states_RD = network.add_positions(network.embedding(ids_R), positions_R, self.length + 1, None)
        for number, layer in enumerate(self._layers):
            states_RD = states_RD + self._attend_past(number, layer, layer.attention_norm(states_RD))
            states_RD = states_RD + self._attend_source(number, layer, layer.cross_attention_norm(states_RD))
            states_RD = states_RD + layer.feedforward(layer.feedforward_norm(states_RD))
        self.length += 1
        return functional.linear(network.decoder_norm(states_RD), network.output_matrix)

    def select(self, rows_R: Tensor) -> None:
        """Goes on with copies of these rows, in this order."""
        if not _is_everything(rows_R, len(self._past_2RHTK[0][0])):
            self._past_2RHTK = [_take(pair, rows_R) for pair in self._past_2RHTK]

    def drop_sentences(self, kept_B: Tensor) -> None:
        """Drops the source of finished sentences; ``kept_B`` are the indices of the others."""
        self._hidden_B11S = self._hidden_B11S.index_select(0, kept_B)
        self._memory_2BHSK = [_take(pair, kept_B) for pair in self._memory_2BHSK]

    def _attend_past(self, number: int, layer: DecoderLayer, states_RD: Tensor) -> Tensor:
        rows, heads = len(states_RD), self.network.shape.heads
        joined = layer.attention.query_key_value(states_RD).view(rows, 3, heads, 1, -1)
        query, key, value = joined.unbind(1)
        keys, values = self._past_2RHTK[number]
        keys, values = torch.cat([keys, key], dim=2), torch.cat([values, value], dim=2)
        self._past_2RHTK[number] = keys, values
        mixed_RH1K = functional.scaled_dot_product_attention(query, keys, values)
        result: Tensor = layer.attention.out(mixed_RH1K.reshape(rows, -1))
        return result

    def _attend_source(self, number: int, layer: DecoderLayer, states_RD: Tensor) -> Tensor:
        # The hypotheses of a sentence are queries of the same attention: the source is never copied for them.
        keys, values = self._memory_2BHSK[number]
        sentences, heads, _, width = keys.shape
        query_BWHK = layer.cross_attention.query(states_RD).view(sentences, -1, heads, width)
        mixed_BHWK = functional.scaled_dot_product_attention(
            query_BWHK.transpose(1, 2), keys, values, attn_mask=self._hidden_B11S
        )
        result: Tensor = layer.cross_attention.out(mixed_BHWK.transpose(1, 2).reshape(states_RD.shape))
        return result


def _take(pair: Sequence[Tensor], rows: Tensor) -> tuple[Tensor, Tensor]:
    # On a CPU five times as fast as indexing with brackets.
    keys, values = pair
    return keys.index_select(0, rows), values.index_select(0, rows)


def _is_everything(rows_R: Tensor, count: int) -> bool:
    """Whether these are all rows in order, as often in greedy search: then nothing need be copied."""
    return len(rows_R) == count and torch.equal(rows_R, torch.arange(count, device=rows_R.device))
