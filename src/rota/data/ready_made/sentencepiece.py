"""SentencePiece's model files, without its library: read, write with other pieces, turn into a ``tokenizers`` file.

The files are protocol buffers of a few fields (``sentencepiece_model.proto``); what Rota does not need stays as it is.
"""

from __future__ import annotations

import base64
import struct
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from rota.settings import ConfigError

SPACE: Final = "▁"
UNIGRAM, BPE = 1, 2
_KINDS: Final = {UNIGRAM: "unigram", BPE: "BPE", 3: "word", 4: "char"}
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)

# Numbers of the fields that are read.
_PIECES, _TRAINER, _NORMALIZER = 1, 2, 3
_MODEL_TYPE, _SPACE_AS_SUFFIX, _BYTE_FALLBACK = 3, 24, 35
_CHARSMAP, _DUMMY_PREFIX, _REMOVE_EXTRA, _ESCAPE = 2, 3, 4, 5

Fields = list[tuple[int, int, Any]]
"""Number, wire type and value of each field of a message, in order."""


class UnsuitableError(ValueError):
    """The model of a file is whole, and of a kind that Rota does not read."""


@dataclass(frozen=True)
class Piece:
    text: str
    score: float
    kind: int = NORMAL


@dataclass(frozen=True)
class SentencePieceModel:
    """The content of a model file; ``others`` are the bytes of everything but the pieces."""

    pieces: tuple[Piece, ...]
    model_type: int
    byte_fallback: bool
    charsmap: bytes
    dummy_prefix: bool
    remove_extra: bool
    others: bytes

    @classmethod
    def load(cls, path: Path) -> SentencePieceModel:
        try:
            return cls.parse(path.read_bytes())
        except UnsuitableError as error:
            raise ConfigError(f"{path} is a SentencePiece model, but {error}") from None
        except (ValueError, IndexError, struct.error, TypeError) as error:
            raise ConfigError(f"{path} is not a SentencePiece model ({error}); give the .model file") from None

    @classmethod
    def parse(cls, data: bytes) -> SentencePieceModel:
        fields = list(_fields(data))
        trainer, normalizer = (_message(fields, number) for number in (_TRAINER, _NORMALIZER))
        model_type = trainer.get(_MODEL_TYPE, UNIGRAM)
        pieces = tuple(_piece(value) for number, _, value in fields if number == _PIECES)
        if not pieces:
            raise ValueError("it has no pieces")
        if model_type not in (UNIGRAM, BPE):
            kind = _KINDS.get(model_type, model_type)
            raise UnsuitableError(f"its model type is {kind}; Rota reads unigram and BPE: train one of these")
        if trainer.get(_SPACE_AS_SUFFIX, 0) or not normalizer.get(_ESCAPE, 1):
            raise UnsuitableError(
                "it marks the ends of words, or does not mark spaces; train one that marks where words begin"
            )
        others = b"".join(_written(*field) for field in fields if field[0] != _PIECES)
        return cls(
            pieces,
            model_type,
            bool(trainer.get(_BYTE_FALLBACK, 0)),
            normalizer.get(_CHARSMAP, b""),
            bool(normalizer.get(_DUMMY_PREFIX, 1)),
            bool(normalizer.get(_REMOVE_EXTRA, 1)),
            others,
        )

    def to_bytes(self) -> bytes:
        """A model file that SentencePiece reads."""
        return b"".join(_written(_PIECES, 2, _piece_bytes(piece)) for piece in self.pieces) + self.others

    def edited(self, kept: Collection[str] | None, added: Sequence[str]) -> SentencePieceModel:
        """Without the normal pieces that are not ``kept`` (None: with all), and with others, which merge last."""
        pieces = [piece for piece in self.pieces if kept is None or piece.kind != NORMAL or piece.text in kept]
        lowest = min(piece.score for piece in self.pieces)
        new = (Piece(text, lowest - number) for number, text in enumerate(added, start=1))
        return replace(self, pieces=(*pieces, *new))

    @property
    def texts(self) -> list[str]:
        """The pieces that text is made of, in order: neither the unknown one nor control symbols."""
        return [piece.text for piece in self.pieces if piece.kind in (NORMAL, USER_DEFINED, BYTE)]

    def to_tokenizer(self, tokens: Sequence[str], unknown: str) -> dict[str, Any]:
        """The content of a ``tokenizers`` file in which ``tokens`` have the ids 0, 1, ...; of pieces among them."""
        return {
            "version": "1.0",
            "truncation": None,
            "padding": None,
            "added_tokens": [],
            "normalizer": self._normalizer(),
            "pre_tokenizer": {
                "type": "Metaspace",
                "replacement": SPACE,
                "prepend_scheme": "always" if self.dummy_prefix else "never",
                # Words can be looked up by themselves unless a piece spans several.
                "split": not any(SPACE in text[1:] and text.strip(SPACE) for text in self.texts),
            },
            "post_processor": None,
            "decoder": self._decoder(),
            "model": self._bpe(tokens, unknown) if self.model_type == BPE else self._unigram(tokens, unknown),
        }

    def _normalizer(self) -> dict[str, Any]:
        steps: list[dict[str, Any]] = []
        if self.charsmap:
            charsmap = base64.b64encode(self.charsmap).decode()
            steps.append({"type": "Precompiled", "precompiled_charsmap": charsmap})
        if self.remove_extra:
            steps.append({"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "})
            steps.append({"type": "Strip", "strip_left": True, "strip_right": True})
        return {"type": "Sequence", "normalizers": steps}

    def _decoder(self) -> dict[str, Any]:
        if not self.byte_fallback:
            scheme = "always" if self.dummy_prefix else "never"
            return {"type": "Metaspace", "replacement": SPACE, "prepend_scheme": scheme, "split": True}
        steps: list[dict[str, Any]] = [
            {"type": "Replace", "pattern": {"String": SPACE}, "content": " "},
            {"type": "ByteFallback"},
            {"type": "Fuse"},
        ]
        if self.dummy_prefix:
            steps.append({"type": "Strip", "content": " ", "start": 1, "stop": 0})
        return {"type": "Sequence", "decoders": steps}

    def _bpe(self, tokens: Sequence[str], unknown: str) -> dict[str, Any]:
        ids = {token: number for number, token in enumerate(tokens)}
        return {
            "type": "BPE",
            "dropout": None,
            "unk_token": unknown,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": True,
            "byte_fallback": self.byte_fallback,
            "ignore_merges": False,
            "vocab": ids,
            "merges": self._merges(ids),
        }

    def _merges(self, ids: Mapping[str, int]) -> list[list[str]]:
        """SentencePiece merges any two neighbours that make a piece, the piece with the highest score first."""
        normal = {piece.text: piece.score for piece in self.pieces if piece.kind == NORMAL and piece.text in ids}
        found = [
            (-score, -len(left), ids[left], ids[right], left, right)
            for text, score in normal.items()
            for left, right in splits(text, normal)
        ]
        return [[left, right] for *_, left, right in sorted(found)]

    def _unigram(self, tokens: Sequence[str], unknown: str) -> dict[str, Any]:
        scores = {piece.text: piece.score for piece in self.pieces if piece.kind in (NORMAL, USER_DEFINED, BYTE)}
        return {
            "type": "Unigram",
            "unk_id": list(tokens).index(unknown),
            "vocab": [[token, scores.get(token, 0.0)] for token in tokens],
            "byte_fallback": self.byte_fallback,
        }


def splits(text: str, known: Collection[str]) -> Iterator[tuple[str, str]]:
    """The ways to divide a piece into two known ones."""
    for place in range(1, len(text)):
        if text[:place] in known and text[place:] in known:
            yield text[:place], text[place:]


def _message(fields: Fields, wanted: int) -> dict[int, Any]:
    """The fields of an inner message; the last one of each number."""
    data = b"".join(value for number, _, value in fields if number == wanted)
    return {number: value for number, _, value in _fields(data)}


def _piece(data: bytes) -> Piece:
    values = {number: value for number, _, value in _fields(data)}
    return Piece(values[1].decode(), struct.unpack("<f", values.get(2, bytes(4)))[0], values.get(3, NORMAL))


def _piece_bytes(piece: Piece) -> bytes:
    kind = b"" if piece.kind == NORMAL else _written(3, 0, piece.kind)
    return _written(1, 2, piece.text.encode()) + _written(2, 5, struct.pack("<f", piece.score)) + kind


def _fields(data: bytes) -> Iterator[tuple[int, int, Any]]:
    """Number, wire type and value: an int (type 0) or bytes."""
    place = 0
    while place < len(data):
        key, place = _varint(data, place)
        number, wire = key >> 3, key & 7
        if wire == 0:
            value: Any
            value, place = _varint(data, place)
        else:
            size, place = _varint(data, place) if wire == 2 else ({1: 8, 5: 4}.get(wire, len(data) + 1), place)
            value, place = data[place : place + size], place + size
        if place > len(data) or number == 0:
            raise ValueError(f"it ends, or is something else, at byte {min(place, len(data))}")
        yield number, wire, value


def _varint(data: bytes, place: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[place]
        value, place, shift = value | (byte & 127) << shift, place + 1, shift + 7
        if byte < 128:
            return value, place


def _written(number: int, wire: int, value: Any) -> bytes:
    key = _varint_bytes(number << 3 | wire)
    if wire == 0:
        return key + _varint_bytes(value)
    data: bytes = value
    return key + (_varint_bytes(len(data)) if wire == 2 else b"") + data


def _varint_bytes(value: int) -> bytes:
    found = bytearray()
    while value > 127:
        found.append(value & 127 | 128)
        value >>= 7
    return bytes([*found, value])
