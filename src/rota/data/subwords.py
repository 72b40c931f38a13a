"""One joint BPE for all languages; only this file knows what an id means."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np
from pydantic import Field, SerializerFunctionWrapHandler, model_serializer, model_validator
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers  # type: ignore[import-untyped]

from rota.settings import ConfigError, Count, Settings
from rota.types import Arm, IntArray

logger = logging.getLogger(__name__)

# The order of M2M100, so that an exported model needs no renumbering. The language tags follow, then the subwords.
SPECIALS: Final = ("<s>", "<pad>", "</s>", "<unk>")
BOS, PAD, EOS, UNK = range(len(SPECIALS))

ABOUT: Final = "rota"
"""The key in ``subwords.json`` under which Rota keeps what a ``tokenizers`` file has no place for; it comes first."""


class SubwordsConfig(Settings):
    """How the vocabulary is learned; the defaults are the paper's, except that text is taken to be raw."""

    size: Count = Field(default=32_000, gt=0)
    lines: Count = Field(default=10_000, gt=0)
    """Training pairs per language the BPE is learned from; a language that has fewer repeats them."""
    text: Literal["raw", "tokenised"] = "raw"
    """``tokenised``: words are already separated by spaces, and characters not seen in training are unknown."""
    max_subwords: Count = Field(default=200, gt=0)
    """Training pairs with more subwords than this on either side are dropped."""
    model: Path | None = None
    """A tokenizer in place of learned subwords: a SentencePiece model, a ``tokenizers`` file, or a model's folder."""
    codes: dict[str, str] = Field(default_factory=dict)
    """Languages by the codes that the tokenizer has for them, such as ``{az: azj_Latn}``; ``new``: a new tag."""
    cut: bool = False
    """Keep only the tokens that the training text uses."""
    add: Count = Field(default=0, ge=0)
    """So many new subwords, learned from the text of new languages, or of all if none is new."""

    @model_validator(mode="after")
    def _learned_or_given(self) -> SubwordsConfig:
        if self.model is None and (self.codes or self.cut or self.add):
            name = "codes" if self.codes else "cut" if self.cut else "add"
            raise ValueError(f"{name!r} changes a tokenizer that is given; give model, or student.start")
        return self

    @model_serializer(mode="wrap")
    def _where_used(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        written: dict[str, Any] = write(self)
        return {name: value for name, value in written.items() if name not in _LATER or value}


_LATER: Final = ("model", "codes", "cut", "add")


class Subwords:
    """Text to ids and back. Text that happens to contain a tag or ``</s>`` is text like any other.

    ``about``, of a tokenizer that was made elsewhere: its ``kind``, the token of each language (``tags``), all tokens
    that stand for languages (``codes``), rows of the embeddings (``vocabulary``), and whether every target begins with
    the tag of its language (``tags_targets``).
    """

    def __init__(self, tokenizer: Tokenizer, about: Mapping[str, Any] | None = None) -> None:
        self._tokenizer, self.about = tokenizer, dict(about or {})
        # Without this, "</s>" in a sentence would become the end of the sentence. It is not saved in the file.
        self._tokenizer.encode_special_tokens = True
        added = tokenizer.get_added_tokens_decoder()
        self._tags: dict[Arm, int] = (
            {language: tokenizer.token_to_id(token) for language, token in self.about["tags"].items()}
            if self.about
            else {added[token].content[2:-2]: token for token in sorted(added) if token >= len(SPECIALS)}
        )
        self.tags_targets: bool = self.about.get("tags_targets", False)

    @classmethod
    def train(cls, texts: Iterable[str], languages: Sequence[Arm], config: SubwordsConfig) -> Subwords:
        """Learn the vocabulary; the same texts in the same order give the same file, byte for byte."""
        symbols = [*SPECIALS, *(tag_name(language) for language in languages)]
        tokenizer, alphabet = _raw_pipeline() if config.text == "raw" else _tokenised_pipeline()
        _require_room(config.size, len(symbols) + len(alphabet))
        trainer = trainers.BpeTrainer(
            vocab_size=config.size,
            min_frequency=2,
            special_tokens=symbols,
            initial_alphabet=alphabet,
            show_progress=False,
        )
        _configure_parallelism()
        tokenizer.train_from_iterator(texts, trainer)
        _require_room(config.size, tokenizer.get_vocab_size())
        if tokenizer.get_vocab_size() < config.size:
            logger.info(
                "the text gives only %d subwords, not %d, which does no harm", tokenizer.get_vocab_size(), config.size
            )
        return cls(_without_merges_into(symbols, tokenizer))

    def save(self, path: Path) -> None:
        """One JSON file in the format of Hugging Face ``tokenizers``."""
        text = self._tokenizer.to_str(pretty=False)
        if self.about:
            text = f"{_ABOUT_FIRST}{json.dumps(self.about, ensure_ascii=False)},{text.removeprefix('{')}"
        path.write_text(text + "\n", encoding="utf-8")

    @classmethod
    def load(cls, path: Path, about: Mapping[str, Any] | None = None) -> Subwords:
        """From a file of :meth:`save`; ``about`` of one that holds the tokenizer alone."""
        try:
            text = path.read_text(encoding="utf-8")
        except FileNotFoundError:
            raise ValueError(f"{path} does not exist; prepare the data first") from None
        try:
            tokenizer, own = _parts(text)
            return cls(tokenizer, own or about)
        except Exception as error:  # tokenizers raises a bare Exception for anything that it cannot read
            raise ValueError(f"{path} is damaged ({error}); prepare the data again") from None

    @cached_property
    def vocabulary(self) -> int:
        """Number of ids, symbols and tags included; ``tokenizers`` builds the whole vocabulary to count it."""
        return int(self.about.get("vocabulary") or self._tokenizer.get_vocab_size())

    @cached_property
    def tokens(self) -> list[str | None]:
        """The tokens by id; None where the network has a row that no text uses."""
        return [self._tokenizer.id_to_token(number) for number in range(self.vocabulary)]

    @property
    def tag_ids(self) -> list[int]:
        """The ids of all tags, also of languages that the data do not have."""
        if not self.about:
            return list(self._tags.values())
        return [self._tokenizer.token_to_id(code) for code in self.about["codes"]]

    def pieces(self, token: str) -> list[int]:
        """The ids that a token of another vocabulary would be divided into here."""
        return self._known([each.id for each in self._tokenizer.model.tokenize(token)])

    def tag(self, arm: Arm) -> int:
        """Id of the tag that opens every source sentence of the language."""
        if arm not in self._tags:
            raise ValueError(f"unknown language {arm!r}; the vocabulary has tags for {', '.join(self._tags)}")
        return self._tags[arm]

    def encode_sources(self, arm: Arm, texts: Sequence[str]) -> list[list[int]]:
        """Each as language tag, subwords, end of sentence."""
        tag = self.tag(arm)
        return [[tag, *ids, EOS] for ids in self._encode(texts)]

    @property
    def languages(self) -> list[str]:
        """Those with a tag, in the order of the tags."""
        return list(self._tags)

    def encode_targets(self, texts: Sequence[str], language: str | None = None) -> list[list[int]]:
        """Each as subwords, end of sentence; of a model with several target languages after the tag of this one."""
        start = [] if language is None else [self.tag(language)]
        return [[*start, *ids, EOS] for ids in self._encode(texts)]

    def target_tag(self, language: str | None, targets: Sequence[str]) -> int | None:
        """The tag that a translation into a language begins with; None if the model has one target language alone."""
        if language is not None and language not in targets:
            raise ValueError(f"the model does not translate into {language!r}; it does into {', '.join(targets)}")
        if len(targets) == 1 and not self.tags_targets:
            return None
        if language is None and len(targets) == 1:
            language = targets[0]
        if language is None:
            raise ValueError(f"the model translates into {', '.join(targets)}; say into which one with --to")
        return self.tag(language)

    def decode(self, ids: Sequence[int] | IntArray) -> str:
        """The text without tags and symbols; ``decode`` of an encoded raw text is that text, stripped."""
        return str(self._tokenizer.decode(_plain(ids), skip_special_tokens=True))

    def decode_batch(self, sentences: Sequence[Sequence[int] | IntArray]) -> list[str]:
        plain = [_plain(ids) for ids in sentences]
        return list(self._tokenizer.decode_batch(plain, skip_special_tokens=True))

    def _encode(self, texts: Sequence[str]) -> list[list[int]]:
        _configure_parallelism()
        stripped = [text.strip() for text in texts]
        found = self._tokenizer.encode_batch_fast(stripped, add_special_tokens=False)
        if self._has_more:
            return [self._known(encoding.ids) for encoding in found]
        return [encoding.ids for encoding in found]

    @cached_property
    def _has_more(self) -> bool:
        """Whether the tokenizer has tokens that the network has no row for."""
        return bool(self.about) and int(self._tokenizer.get_vocab_size()) > self.vocabulary

    def _known(self, ids: list[int]) -> list[int]:
        return [number if number < self.vocabulary else UNK for number in ids]


_ABOUT_FIRST: Final = f'{{"{ABOUT}":'


def _parts(text: str) -> tuple[Tokenizer, dict[str, Any] | None]:
    """The tokenizer of a file, and what Rota has written about it."""
    if not text.startswith(_ABOUT_FIRST):
        return Tokenizer.from_str(text), None
    content = json.loads(text)
    about = content.pop(ABOUT)
    return Tokenizer.from_str(json.dumps(content, ensure_ascii=False)), about


def tag_name(arm: Arm) -> str:
    """``"az"`` to ``"__az__"``, as M2M100 writes it."""
    return f"__{arm}__"


def sample_lines(available: int, wanted: int, rng: np.random.Generator) -> IntArray:
    """``wanted`` line numbers in rising order; all lines equally often (give or take one) if there are too few."""
    if available == 0:
        raise ValueError("there are no lines to learn subwords from")
    rounds, rest = divmod(wanted, available)
    return np.sort(np.concatenate([np.repeat(np.arange(available), rounds), rng.permutation(available)[:rest]]))


def _raw_pipeline() -> tuple[Tokenizer, list[str]]:
    """BPE over bytes: no text has unknown characters, and nothing is lost."""
    tokenizer = Tokenizer(models.BPE())
    # Not ByteLevel's own add_prefix_space: transformers' fast tokenizer would silently switch that off.
    tokenizer.normalizer = normalizers.Prepend(" ")
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.Sequence([decoders.ByteLevel(), decoders.Strip(" ", 1, 0)])
    return tokenizer, sorted(pre_tokenizers.ByteLevel.alphabet())


def _tokenised_pipeline() -> tuple[Tokenizer, list[str]]:
    """BPE over the characters of words, as in the paper, with a space as the mark of a word's beginning.

    subword-nmt marks the end, with ``</w>``. The trainer of ``tokenizers`` numbers such symbols in random order, so
    that the same text gives another vocabulary each time, and a known letter would be unknown at the end of a word
    where it was not seen; a leading space has neither trouble, and cannot be confused with text.
    """
    tokenizer = Tokenizer(models.BPE(unk_token=SPECIALS[UNK]))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Replace(Regex(r"\s+"), " "), normalizers.Prepend(" ")])
    tokenizer.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_next")
    tokenizer.decoder = decoders.Sequence([decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    return tokenizer, []


def _without_merges_into(symbols: Sequence[str], tokenizer: Tokenizer) -> Tokenizer:
    """Forget the merges that spell a symbol, so that ``a</s>b`` in tokenised text cannot end a sentence."""
    content: dict[str, Any] = json.loads(tokenizer.to_str())
    forbidden = set(symbols)
    merges = content["model"]["merges"]
    content["model"]["merges"] = [[left, right] for left, right in merges if left + right not in forbidden]
    return Tokenizer.from_str(json.dumps(content, ensure_ascii=False))


def _require_room(size: int, needed: int) -> None:
    if needed > size:
        raise ConfigError(f"subwords.size {size} is too small: symbols, tags and characters alone need {needed}")


def _configure_parallelism() -> None:
    """Say that threads are wanted: else ``tokenizers`` warns on stderr whenever the process forks afterwards."""
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")


def _plain(ids: Sequence[int] | IntArray) -> list[int]:
    return [int(token) for token in ids]
