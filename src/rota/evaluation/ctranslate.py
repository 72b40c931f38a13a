"""CTranslate2: our network in its format, an export in its format as a translator, and a run that it translates for."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, cast

import numpy as np
import torch

from rota.data.corpora.parallel import tidy
from rota.data.ready_made.editing import made_up, tokens_of
from rota.data.subwords import BOS, EOS, SPECIALS, UNK, Subwords
from rota.evaluation.translator import Translator
from rota.files import damaged, parse_json, read_json
from rota.student.hardware import is_out_of_memory
from rota.student.search import EncoderCache, Part, Search
from rota.student.transformer import FIRST_POSITION, DecoderLayer, EncoderLayer, Transformer, sinusoids

WEIGHTS: Final = "model.bin"
MARK: Final = "rota.json"
"""Written into every export: what it was made of, and that an export may be put in its place."""

VOCABULARY: Final = "shared_vocabulary.json"
EXPORT_AGAIN: Final = "export it again"
BATCH_TOKENS: Final = 4_000
"""Padded source tokens in a batch, times the beam."""

LONGEST_SOURCE: Final = 1024
"""Positions in the model; what a source has beyond is cut off. Our own search has no such limit."""

CERTAIN: Final = 1 - 2**-24
"""The bias towards a target prefix that forces it: the largest number below 1 in CTranslate2's precision."""


def _library(module: str = "ctranslate2") -> Any:
    try:
        return importlib.import_module(module)
    except ImportError:
        raise ValueError("ctranslate2 is not installed; install it with: pip install ctranslate2") from None


def require_library() -> None:
    """An error now, instead of after minutes."""
    _library()


def save_ctranslate2(network: Transformer, tokenizer: dict[str, Any], folder: Path, *, quantization: str) -> None:
    """Weights, config and vocabulary; ``quantization`` is float32 or int8."""
    spec = network_spec(network)
    rows = network.shape.vocabulary
    named = tokens_of(tokenizer)[:rows]
    tokens = [*named, *(made_up(number) for number in range(len(named), rows))]
    spec.register_source_vocabulary(tokens)
    spec.register_target_vocabulary(tokens)
    config = spec.config
    config.bos_token, config.eos_token, config.unk_token = SPECIALS[BOS], SPECIALS[EOS], SPECIALS[UNK]
    config.decoder_start_token = SPECIALS[EOS]
    spec.validate()
    spec.optimize(quantization=quantization)
    spec.save(str(folder))


def network_spec(network: Transformer) -> Any:
    """The network as CTranslate2 describes one. It joins query, key and value as we do, so nothing is rearranged."""
    shape = network.shape
    specs = _library("ctranslate2.specs")
    spec = specs.TransformerSpec.from_config((shape.encoder_layers, shape.decoder_layers), shape.heads)
    positions = sinusoids(FIRST_POSITION + LONGEST_SOURCE, shape.width)[FIRST_POSITION:]
    embedding = network.embedding.weight.detach()
    for side, norm in ((spec.encoder, network.encoder_norm), (spec.decoder, network.decoder_norm)):
        side.position_encodings.encodings = positions
        _set_norm(side.layer_norm, norm)
    spec.encoder.embeddings[0].weight = embedding
    spec.decoder.embeddings.weight = embedding
    spec.decoder.projection.weight = network.output_matrix.detach()
    for target, layer in zip(spec.encoder.layer, network.encoder, strict=True):
        _set_own_side(target, cast(EncoderLayer, layer))
    for target, layer in zip(spec.decoder.layer, network.decoder, strict=True):
        _set_own_side(target, cast(DecoderLayer, layer))
        _set_cross_attention(target.attention, cast(DecoderLayer, layer))
    return spec


def _set_own_side(target: Any, layer: EncoderLayer | DecoderLayer) -> None:
    """What layers of both sides have: attention to their own side, and the feed-forward network."""
    _set_norm(target.self_attention.layer_norm, layer.attention_norm)
    _set_linear(target.self_attention.linear[0], layer.attention.query_key_value)
    _set_linear(target.self_attention.linear[1], layer.attention.out)
    _set_norm(target.ffn.layer_norm, layer.feedforward_norm)
    _set_linear(target.ffn.linear_0, layer.feedforward.inner)
    _set_linear(target.ffn.linear_1, layer.feedforward.outer)


def _set_cross_attention(target: Any, layer: DecoderLayer) -> None:
    _set_norm(target.layer_norm, layer.cross_attention_norm)
    cross = layer.cross_attention
    for linear, ours in zip(target.linear, (cross.query, cross.key_value, cross.out), strict=True):
        _set_linear(linear, ours)


def _set_linear(target: Any, linear: torch.nn.Linear) -> None:
    target.weight, target.bias = linear.weight.detach(), linear.bias.detach()


def _set_norm(target: Any, norm: torch.nn.LayerNorm) -> None:
    target.gamma, target.beta = norm.weight.detach(), norm.bias.detach()


def is_ctranslate2(folder: Path) -> bool:
    return (folder / WEIGHTS).is_file() and (folder / VOCABULARY).is_file()


def _vocabulary(path: Path) -> list[str]:
    try:
        tokens = parse_json(path.read_bytes())
    except ValueError as error:
        raise damaged(path, error, EXPORT_AGAIN) from None
    if not (isinstance(tokens, list) and all(isinstance(token, str) for token in tokens)):
        raise damaged(path, "not a list of tokens", EXPORT_AGAIN)
    return tokens


class IdSearch:
    """A folder in CTranslate2's format as a search from ids to ids."""

    def __init__(self, folder: Path, *, threads: int | None = None) -> None:
        library = _library()
        self._tokens = _vocabulary(folder / VOCABULARY)
        self._ids = {token: number for number, token in enumerate(self._tokens)}
        device = "cuda" if library.get_cuda_device_count() else "cpu"
        workers = (threads or len(os.sched_getaffinity(0))) if device == "cpu" else 1
        # One batch for each thread: two threads in the small products of one batch mostly wait for each other.
        try:
            self._model = library.Translator(str(folder), device=device, inter_threads=workers, intra_threads=1)
        except RuntimeError as error:
            if is_out_of_memory(error):
                raise
            raise ValueError(f"CTranslate2 cannot load {folder} ({error}); {EXPORT_AGAIN}") from None

    def search(
        self,
        sources: Sequence[Sequence[int]],
        *,
        beam: int = 5,
        length_penalty: float = 1.0,
        max_ratio: float = 2.0,
        extra: int = 10,
        batch_tokens: int = BATCH_TOKENS,
        progress: Callable[[int], None] | None = None,
        first: int | None = None,
    ) -> list[list[int]]:
        """As :func:`rota.student.search.translate`, with CTranslate2 doing the work; the ids of the best translations.

        Lengths count the end symbol, as with us. There are three differences: where a translation reaches its limit, it
        is cut there instead of the end being forced; without a length penalty the search ends when the best hypothesis
        does, not when ``beam`` have ended; and the symbols for padding and beginning, which a trained model never
        produces, are not forbidden, because CTranslate2 would then change all other probabilities too.
        """
        part = Part([np.asarray(source) for source in sources], None if first is None else [first] * len(sources))
        search = Search(beam, length_penalty, max_ratio, extra, batch_tokens)
        told = None if progress is None else lambda _, finished: progress(finished)
        (found,) = self.search_parts([part], search, told)
        return found

    def search_parts(
        self, parts: Sequence[Part], search: Search, progress: Callable[[int, int], None] | None = None
    ) -> Generator[list[list[int]], None, None]:
        """The same for one part after the other, as :func:`rota.student.search.translate_parts`."""
        running = [(number, batch, self._begin(part, batch, search)) for number, part, batch in _batches(parts, search)]
        found: list[dict[int, list[int]]] = [{} for _ in parts]
        waiting = iter(running)
        for number, part in enumerate(parts):
            while len(found[number]) < len(part.sources):
                _, batch, results = next(waiting)
                for each, result in zip(batch, results, strict=True):
                    limit = search.limit(part.sources[each])
                    found[number][each] = self._read(result.result().hypotheses[0])[part.first is not None : limit]
                if progress is not None:
                    progress(number, len(batch))
            yield [found[number][each] for each in range(len(part.sources))]

    def _begin(self, part: Part, batch: Sequence[int], search: Search) -> Any:
        return self._model.translate_batch(
            [self._spell(part.sources[each].tolist()) for each in batch],
            **self._forced(part, batch, search.beam),
            asynchronous=True,
            beam_size=search.beam,
            length_penalty=search.length_penalty,
            return_end_token=True,  # earlier versions count the end symbol only then
            max_decoding_length=1 + max(search.limit(part.sources[each]) for each in batch),
            max_input_length=0,
        )

    def _forced(self, part: Part, batch: Sequence[int], beam: int) -> dict[str, Any]:
        """Options for the first tokens, which are given, and for the shortest translation, which is empty.

        At the first step after a target prefix CTranslate2 discards the end symbol unless it is the likeliest token,
        and with it one of the hypotheses. After a prefix that is only preferred it does not; a preference this strong
        leaves 6e-8 of its probability to another first token. The end symbol must then be ruled out at that position.
        """
        if part.first is None:
            return {"min_decoding_length": 0}
        prefix = {"target_prefix": [[self._tokens[part.first[each]]] for each in batch]}
        if beam == 1:  # greedy search discards nothing
            return {**prefix, "min_decoding_length": 0}
        return {**prefix, "prefix_bias_beta": CERTAIN, "min_decoding_length": 1}

    def _spell(self, source: Sequence[int]) -> list[str]:
        kept = source if len(source) <= LONGEST_SOURCE else [*source[: LONGEST_SOURCE - 1], EOS]
        return [self._tokens[token] for token in kept]

    def _read(self, tokens: Sequence[str]) -> list[int]:
        ids = [self._ids[token] for token in tokens]
        return ids[:-1] if ids and ids[-1] == EOS else ids


class CTranslator(IdSearch):
    """An exported CTranslate2 model; used like a :class:`~rota.evaluation.translator.Translator`."""

    def __init__(self, folder: Path | str, *, threads: int | None = None) -> None:
        folder = Path(folder)
        if not (is_ctranslate2(folder) and (folder / "tokenizer.json").is_file()):
            raise ValueError(
                f"{folder} is not an export for CTranslate2; make one with rota export RUN --to ctranslate2"
            )
        super().__init__(folder, threads=threads)
        mark = read_json(folder / MARK, remedy=EXPORT_AGAIN) if (folder / MARK).is_file() else {}
        self.subwords = Subwords.load(folder / "tokenizer.json", mark.get("subwords"))
        self.targets: tuple[str, ...] = tuple(mark.get("targets", ("en",)))

    def translate(
        self,
        texts: Sequence[str],
        language: str,
        *,
        to: str | None = None,
        beam: int = 5,
        length_penalty: float = 1.0,
        batch_tokens: int = BATCH_TOKENS,
        progress: Callable[[int], None] | None = None,
    ) -> list[str]:
        """Translations in the order of ``texts``, blank for blank; ``progress`` is told how many were done just now.

        ``to``: the language to translate into; it can be left out if the model has one alone.
        """
        tidied = [tidy(text) for text in texts]
        indices = [index for index, text in enumerate(tidied) if text]
        sources = self.subwords.encode_sources(language, [tidied[index] for index in indices])
        found = self.search(
            sources,
            beam=beam,
            length_penalty=length_penalty,
            batch_tokens=batch_tokens,
            progress=progress,
            first=self.subwords.target_tag(to, self.targets),
        )
        translations = [""] * len(texts)
        for index, text in zip(indices, self.subwords.decode_batch(found), strict=True):
            translations[index] = text
        return translations


class Converted(Translator):
    """The single network of a translator, taken over by CTranslate2 in float32; ``processes`` are its threads."""

    def __init__(self, translator: Translator, tokenizer: dict[str, Any], *, threads: int) -> None:
        super().__init__(translator.networks, translator.subwords, translator.targets)
        (network,) = translator.networks
        with TemporaryDirectory(prefix="rota-ctranslate2-") as folder:
            save_ctranslate2(network, tokenizer, Path(folder), quantization="float32")
            self._engine = IdSearch(Path(folder), threads=threads)

    def find(
        self,
        parts: Sequence[Part],
        search: Search,
        progress: Callable[[int, int], None] | None,
        cache: EncoderCache | None,  # noqa: ARG002 - CTranslate2 does not say what its encoder found
    ) -> Generator[Sequence[Sequence[int]], None, None]:
        yield from self._engine.search_parts(parts, replace(search, batch_tokens=BATCH_TOKENS), progress)


def _batches(parts: Sequence[Part], search: Search) -> Iterator[tuple[int, Part, list[int]]]:
    """Sentence numbers of each part, long sources first; padded sources of a batch, times the beam, fit the budget."""
    budget = max(1, search.batch_tokens // search.beam)
    for number, part in enumerate(parts):
        lengths = [len(source) for source in part.sources]
        order = sorted(range(len(lengths)), key=lengths.__getitem__, reverse=True)
        while order:
            count = max(1, budget // lengths[order[0]])
            yield number, part, order[:count]
            order = order[count:]
