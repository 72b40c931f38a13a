"""From sentences to batches of similar length, and their translations back in order."""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Final, TypeAlias

import torch

from rota.student.hardware import TooLargeError, is_out_of_memory
from rota.student.search.beams import Beams, Hypothesis
from rota.student.search.decoder import EncoderCache, StepDecoder
from rota.student.search.workers import Workers, can_fork
from rota.student.transformer import Transformer
from rota.types import IntArray

logger = logging.getLogger(__name__)

MAX_LENGTH: Final = 1023
"""No translation is longer: with its end symbol it fills the 1,024 positions of an exported M2M100."""

LOGITS: Final = 2**24
"""At most so many in one step of each network (64 MB), however many short sentences would fit into a batch."""

Outcome: TypeAlias = "list[Hypothesis] | RuntimeError | MemoryError"
"""The translations of a batch, or why there are none."""


@dataclass(frozen=True)
class Search:
    """How translations are searched for; see :func:`translate`."""

    beam: int = 5
    length_penalty: float = 1.0
    max_ratio: float = 2.0
    extra: int = 10
    batch_tokens: int = 10_000

    def limit(self, source: IntArray) -> int:
        return min(int(self.max_ratio * len(source)) + self.extra, MAX_LENGTH)


@dataclass(frozen=True)
class Part:
    """Sentences whose translations are wanted together, such as a test set; only they share batches.

    A source is language tag, subwords, end of sentence. ``first``: the token that each translation is made to begin
    with, the tag of its language. As in transformers its probability counts as 1, and it counts in the length; it is
    not part of the hypothesis.
    """

    sources: Sequence[IntArray]
    first: Sequence[int] | None = None


@dataclass(frozen=True)
class Batch:
    """Numbers of sentences in one part."""

    part: int
    numbers: tuple[int, ...]


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
    processes: int = 1,
) -> list[Hypothesis]:
    """The best translation of every source, in the order given; a source is language tag, subwords, end of sentence.

    At every step an ensemble averages the probabilities of its networks. A translation has at most ``max_ratio`` times
    the tokens of its source plus ``extra``; there the end symbol is forced. The symbols for padding and beginning are
    never produced. A sentence is finished when ``beam`` hypotheses have ended, as in fairseq, or when no unfinished one
    can still win. ``length_penalty=1`` is the mean log-probability per token, 0 prefers short translations.
    Long sources come first. A batch has at most ``batch_tokens`` padded source tokens divided by ``beam``, and half as
    many from the first one on that does not fit into memory. ``progress`` is called with the number of sentences just
    finished; with a ``cache``, networks that translate the same sources again do not encode them again.
    ``first``: see :class:`Part`. ``processes``: see :func:`translate_parts`.
    """
    search = Search(beam, length_penalty, max_ratio, extra, batch_tokens)
    told = None if progress is None else lambda _, finished: progress(finished)
    parts = translate_parts(networks, [Part(sources, first)], search, progress=told, cache=cache, processes=processes)
    (found,) = parts
    return found


def translate_parts(
    networks: Sequence[Transformer],
    parts: Sequence[Part],
    search: Search,
    *,
    progress: Callable[[int, int], None] | None = None,
    cache: EncoderCache | None = None,
    processes: int = 1,
) -> Generator[list[Hypothesis], None, None]:
    """The translations of each part, as :func:`translate` has them, as soon as it and those before it are complete.

    Networks on a CPU translate in up to so many ``processes`` at the same time, each a batch with one thread: two
    threads in the small matrix products of one batch mostly wait for each other. The batches, and so the translations,
    are the same for any number of processes. ``progress`` is called with the number of a part and of its sentences that
    were just finished.
    """
    for part in parts:
        _check(networks, part.sources, search)
    batches = _Batches(parts, search, networks[0].shape.vocabulary)
    found: list[dict[int, Hypothesis]] = [{} for _ in parts]
    given = 0

    def complete() -> Iterator[list[Hypothesis]]:
        nonlocal given
        while given < len(parts) and len(found[given]) == len(parts[given].sources):
            translations, found[given], given = found[given], {}, given + 1
            yield [translations[number] for number in range(len(translations))]

    yield from complete()  # parts without sentences
    with closing(_outcomes(networks, parts, search, batches, cache, processes)) as outcomes:
        for batch, outcome in outcomes:
            if isinstance(outcome, RuntimeError | MemoryError):
                _check_divisible(outcome, [parts[batch.part].sources[number] for number in batch.numbers], search.beam)
                if cache is not None:
                    cache.forget()
                batches.divide(batch)
                continue
            found[batch.part].update(zip(batch.numbers, outcome, strict=True))
            if progress is not None:
                progress(batch.part, len(batch.numbers))
            yield from complete()


def _check(networks: Sequence[Transformer], sources: Sequence[IntArray], search: Search) -> None:
    if not networks:
        raise ValueError("there is no network to translate with; give at least one")
    sizes = sorted({network.shape.vocabulary for network in networks})
    if len(sizes) > 1:
        raise ValueError(f"an ensemble needs one vocabulary, but these have {sizes} entries; use runs of the same data")
    largest_beam = (sizes[0] - 2) // 2  # 2 candidates for each hypothesis; two symbols are never produced
    if search.beam < 1 or search.beam > largest_beam:
        raise ValueError(f"beam {search.beam} is not possible; choose 1 (greedy) to {largest_beam}")
    if search.length_penalty < 0:
        raise ValueError(f"length penalty {search.length_penalty} is negative; choose 0 or more (1: mean per token)")
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


class _Batches:
    """The batches of all parts, in order, that are not translated yet."""

    def __init__(self, parts: Sequence[Part], search: Search, vocabulary: int) -> None:
        self._parts = parts
        self._tokens, self._sentences = search.batch_tokens // search.beam, LOGITS // (search.beam * vocabulary)
        self.waiting = [
            batch for number in range(len(parts)) for batch in self._cut(number, self._longest_first(number))
        ]

    def draw(self) -> Batch | None:
        return self.waiting.pop(0) if self.waiting else None

    def divide(self, batch: Batch) -> None:
        """Puts a batch back that was too large for the memory; from now on batches are half as large."""
        longest = len(self._parts[batch.part].sources[batch.numbers[0]])
        self._tokens = min(self._tokens, len(batch.numbers) * longest) // 2
        self._sentences //= 2
        orders: dict[int, list[int]] = {}
        for each in (batch, *self.waiting):
            orders.setdefault(each.part, []).extend(each.numbers)
        self.waiting = [smaller for number, order in orders.items() for smaller in self._cut(number, order)]

    def _longest_first(self, part: int) -> list[int]:
        sources = self._parts[part].sources
        return sorted(range(len(sources)), key=lambda number: -len(sources[number]))

    def _cut(self, part: int, order: Sequence[int]) -> Iterator[Batch]:
        """``order``: numbers of sentences, long ones first."""
        done = 0
        while done < len(order):
            longest = len(self._parts[part].sources[order[done]])
            size = max(1, min(self._sentences, self._tokens // longest))
            yield Batch(part, tuple(order[done : done + size]))
            done += size


def _outcomes(
    networks: Sequence[Transformer],
    parts: Sequence[Part],
    search: Search,
    batches: _Batches,
    cache: EncoderCache | None,
    processes: int,
) -> Generator[tuple[Batch, Outcome], None, None]:
    """The outcome of every batch, in this process or in others; what is put back on the way is tried again."""

    def attempt(batch: Batch) -> Outcome:
        part = parts[batch.part]
        sources = [part.sources[number] for number in batch.numbers]
        first = None if part.first is None else [part.first[number] for number in batch.numbers]
        try:
            return _search(networks, sources, search, cache, first)
        except (RuntimeError, MemoryError) as error:
            return error

    on_cpu = all(network.device.type == "cpu" for network in networks)
    count = min(processes, len(batches.waiting)) if on_cpu and can_fork() else 1
    if count <= 1:
        while (batch := batches.draw()) is not None:
            yield batch, attempt(batch)
        return
    if cache is not None:  # what a process would add to it, the others would not see
        for batch in batches.waiting:
            for network in networks:
                cache.encode(network, [parts[batch.part].sources[number] for number in batch.numbers])
    with Workers(count, attempt) as workers:
        yield from workers.run(batches.draw)


@torch.inference_mode()
def _search(
    networks: Sequence[Transformer],
    sources: Sequence[IntArray],
    search: Search,
    cache: EncoderCache | None,
    first: Sequence[int] | None = None,
) -> list[Hypothesis]:
    """The translations of one batch."""
    decoders = [StepDecoder(network, sources, cache) for network in networks]
    limits = torch.tensor([search.limit(source) for source in sources], device=networks[0].device)
    beams = Beams(limits, search.beam, search.length_penalty)
    if first is not None:
        for decoder in decoders:
            decoder.step(beams.last_R)
        beams.begin_with(torch.tensor(first, device=networks[0].device))
    while True:
        parents_BW, kept_B = beams.advance([decoder.step(beams.last_R) for decoder in decoders])
        if len(kept_B) == 0:
            return beams.best()
        for decoder in decoders:
            decoder.select(parents_BW)
            if len(kept_B) < beams.before:
                decoder.keep_sentences(kept_B)
