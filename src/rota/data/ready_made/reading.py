"""What a tokenizer that was made elsewhere is, and its content with the numbers that the network uses.

Rota's numbers of ``<s>``, ``<pad>``, ``</s>`` and ``<unk>`` are those of M2M100 and NLLB, so that their vocabularies
stay as they are. Others are numbered anew: these four, the subwords in their order, then the tags of languages.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

from rota.data.ready_made.editing import Content, made_up, normalised, numbered, tokens_of
from rota.data.ready_made.sentencepiece import BPE, USER_DEFINED, SentencePieceModel
from rota.data.subwords import ABOUT, SPECIALS, UNK
from rota.files import read_json
from rota.settings import ConfigError

UNKNOWN: Final = SPECIALS[UNK]
MASK: Final = "<mask>"
PIECES_FILE: Final = "sentencepiece.bpe.model"

Kind = Literal["m2m100", "nllb", "learned", "own"]

M2M100_CODES: Final[Mapping[str, str]] = {
    "m2m100": """af am ar ast az ba be bg bn br bs ca ceb cs cy da de el en es et fa ff fi fr fy ga gd gl gu ha he hi hr
    ht hu hy id ig ilo is it ja jv ka kk km kn ko lb lg ln lo lt lv mg mk ml mn mr ms my ne nl no ns oc or pa pl ps pt
    ro ru sd si sk sl so sq sr ss su sv sw ta th tl tn tr uk ur uz vi wo xh yi yo zh zu""",
    "wmt21": "en ha is ja cs ru zh de",
}
"""The tags of M2M100 follow its subwords in this order, which is written in no file, but in the tokenizer's class."""


@dataclass(frozen=True)
class ReadyMade:
    """A tokenizer in the form of ``tokenizers``, and what else must be known to train with it and to export it."""

    kind: Kind
    content: Content
    vocabulary: int  # rows of the embeddings; tokens beyond it are unknown to the network
    codes: tuple[str, ...] = ()  # tokens that stand for languages
    tags: Mapping[str, str] = field(default_factory=dict)  # the code of each language, as far as it is known
    tags_targets: bool = False  # whether targets begin with the code of their language
    pieces: SentencePieceModel | None = None  # the file that the exported model will have too
    files: tuple[Path, ...] = ()


def read_ready_made(path: Path) -> ReadyMade:
    """From a SentencePiece model, a ``tokenizers`` file, or the folder of a checkpoint, a run or its export."""
    if path.is_dir():
        return _of_folder(path)
    if not path.is_file():
        raise ConfigError(
            f"data.subwords.model: {path} does not exist; give a .model or .json file, or a model's folder"
        )
    if path.suffix == ".json":
        return _own(_content(path), (path,))
    pieces = SentencePieceModel.load(path)
    return _own_pieces(pieces, path)


def files_of(path: Path) -> list[Path]:
    """What is read of it: if one of these changes, the data must be prepared again."""
    names = ("subwords.json", "tokenizer.json", PIECES_FILE, "vocab.json", "tokenizer_config.json")
    return [path] if path.is_file() else [found for name in names if (found := path / name).is_file()]


def _of_folder(folder: Path) -> ReadyMade:
    if (folder / "subwords.json").is_file():
        return _of_run(folder)
    path = folder / "tokenizer_config.json"
    settings = read_json(path, remedy="download it again") if path.is_file() else {}
    pieces = folder / PIECES_FILE
    if (folder / "vocab.json").is_file() and pieces.is_file():
        return _m2m100(folder, SentencePieceModel.load(pieces), settings)
    if (folder / "tokenizer.json").is_file():
        return _fast(folder, SentencePieceModel.load(pieces) if pieces.is_file() else None)
    if pieces.is_file():
        return _nllb(folder, SentencePieceModel.load(pieces), settings)
    raise ConfigError(
        f"{folder} has no tokenizer: neither subwords.json, tokenizer.json nor sentencepiece.bpe.model;"
        " give the folder of a run, of its export, or of an M2M100 or NLLB checkpoint"
    )


def _of_run(folder: Path) -> ReadyMade:
    content = json.loads((folder / "subwords.json").read_text(encoding="utf-8"))
    about = content.pop(ABOUT, {})
    added = sorted(content["added_tokens"], key=lambda token: int(token["id"]))
    learned = [token["content"] for token in added[len(SPECIALS) :]]
    spm = folder / PIECES_FILE
    codes = tuple(about.get("codes", learned))
    return ReadyMade(
        about.get("kind", "learned"),
        content,
        about.get("vocabulary", len(tokens_of(content))),
        codes,
        about.get("tags", {code[2:-2]: code for code in codes}),
        about.get("tags_targets") or _has_several_targets(folder / "run.json"),
        SentencePieceModel.load(spm) if spm.is_file() else None,
        tuple(files_of(folder)),
    )


def _has_several_targets(path: Path) -> bool:
    """Whether a run translates into several languages; its ``run.json`` is missing in prepared data."""
    routes = read_json(path, remedy="copy the run again")["data"].get("routes", {}) if path.is_file() else {}
    return len({route["target"] for route in routes.values()}) > 1


def _m2m100(folder: Path, pieces: SentencePieceModel, settings: Mapping[str, Any]) -> ReadyMade:
    if pieces.model_type != BPE:
        raise ConfigError(f"{folder}: {PIECES_FILE} is a unigram model; those of M2M100 are BPE")
    ids: dict[str, int] = read_json(folder / "vocab.json", *SPECIALS, remedy="download the model again")
    by_id = {number: token for token, number in ids.items()}
    tokens = [by_id.get(number, made_up(number)) for number in range(len(ids))]
    family = settings.get("language_codes", "m2m100")
    if family not in M2M100_CODES:
        known = " and ".join(M2M100_CODES)
        raise ConfigError(f"{folder}: language_codes is {family!r} in tokenizer_config.json; Rota knows {known}")
    codes = [f"__{code}__" for code in M2M100_CODES[family].split()]
    needed = len(tokens) + len(codes)
    vocabulary = _rows(folder, needed, needed + int(settings.get("num_madeup_words", 8)))
    tokens += codes
    tokens += [made_up(number) for number in range(len(tokens), vocabulary)]
    # SentencePiece may know pieces that the network does not: they are put together and then are unknown.
    tokens += [text for text in pieces.texts if text not in ids]
    content = _with_added(pieces.to_tokenizer(tokens, UNKNOWN), pieces, (*SPECIALS, *codes))
    _check_specials(folder, content)
    tags = {code[2:-2]: code for code in codes}
    return ReadyMade("m2m100", content, vocabulary, tuple(codes), tags, True, pieces, tuple(files_of(folder)))


def _fast(folder: Path, pieces: SentencePieceModel | None) -> ReadyMade:
    """NLLB as most have it, and exports of runs, whose tags are like those of M2M100."""
    content = _content(folder / "tokenizer.json")
    _check_specials(folder, content)
    special = [token["content"] for token in content["added_tokens"] if token["special"]]
    codes = tuple(token for token in special if token not in (*SPECIALS, MASK))
    mark = folder / "rota.json"
    about: dict[str, Any] = read_json(mark, remedy="export it again") if mark.is_file() else {}
    targets, about = about.get("targets", ()), about.get("subwords", {"kind": "learned"} if about else {})
    kind: Kind = about.get("kind", "nllb")
    tags = about.get("tags", {code[2:-2]: code for code in codes} if kind == "learned" else {})
    tags_targets = about.get("tags_targets", len(targets) > 1) if about else True
    needed = len(tokens_of(content))
    vocabulary = _rows(folder, needed, needed)
    return ReadyMade(kind, content, vocabulary, codes, tags, tags_targets, pieces, tuple(files_of(folder)))


def _nllb(folder: Path, pieces: SentencePieceModel, settings: Mapping[str, Any]) -> ReadyMade:
    """NLLB without its fast tokenizer: SentencePiece's numbers plus one, the codes, ``<mask>``."""
    named = {int(number): token["content"] for number, token in settings.get("added_tokens_decoder", {}).items()}
    outside = [name for _, name in sorted(named.items()) if name not in SPECIALS]
    outside = outside or [*(settings.get("additional_special_tokens") or _listed_codes(folder)), MASK]
    codes = [name for name in outside if name != MASK]
    if not codes:
        lacks = f"{folder} does not say its language codes (additional_special_tokens in tokenizer_config.json)"
        raise ConfigError(f"{lacks}; download tokenizer.json or special_tokens_map.json of the model too")
    tokens = [*SPECIALS, *pieces.texts, *outside]
    content = _with_added(pieces.to_tokenizer([*SPECIALS, *pieces.texts], UNKNOWN), pieces, (*SPECIALS, *outside))
    vocabulary = _rows(folder, len(tokens) - 1, len(tokens))
    return ReadyMade("nllb", content, vocabulary, tuple(codes), {}, True, pieces, tuple(files_of(folder)))


def _listed_codes(folder: Path) -> Sequence[str]:
    path = folder / "special_tokens_map.json"
    found = read_json(path, remedy="download it again").get("additional_special_tokens", ()) if path.is_file() else ()
    return [each if isinstance(each, str) else each["content"] for each in found]


def _own(content: Content, files: tuple[Path, ...]) -> ReadyMade:
    """A ``tokenizers`` file of any kind: its special symbols give way to ours, its subwords keep their order."""
    model = content["model"]
    vocabulary = model["vocab"]
    unknown = vocabulary[model["unk_id"]][0] if model.get("unk_id") is not None else model.get("unk_token")
    special = {token["content"] for token in content["added_tokens"] if token["special"]} | {*SPECIALS, unknown}
    kept = [token for token in tokens_of(content) if token not in special]
    plain = [token for token in content["added_tokens"] if token["content"] not in special]
    content = {**content, "added_tokens": plain, "truncation": None, "padding": None, "post_processor": None}
    if model["type"] == "Unigram":
        scores = {**dict(vocabulary), **dict.fromkeys(SPECIALS, 0.0)}
        content["model"] = {**model, "vocab": [[token, score] for token, score in scores.items()]}
        content["model"]["unk_id"] = list(scores).index(UNKNOWN)
        kept.sort(key=lambda token: token not in scores)
    elif unknown is not None:
        content["model"] = {**model, "unk_token": UNKNOWN}
    content = _protected(numbered(content, [*SPECIALS, *kept]))
    content["added_tokens"] = [
        *(added_token(token, number) for number, token in enumerate(SPECIALS)),
        *content["added_tokens"],
    ]
    return ReadyMade("own", content, len(SPECIALS) + len(kept), files=files)


def _own_pieces(pieces: SentencePieceModel, path: Path) -> ReadyMade:
    tokens = [*SPECIALS, *(text for text in pieces.texts if text not in SPECIALS)]
    content = _with_added(pieces.to_tokenizer(tokens, UNKNOWN), pieces, SPECIALS)
    return ReadyMade("own", content, len(tokens), files=(path,))


def _with_added(content: Content, pieces: SentencePieceModel, special: Sequence[str]) -> Content:
    """Symbols and tags as tokens that no text contains, the user's own symbols as ones that are never divided."""
    ids = {token: number for number, token in enumerate(tokens_of(content))}
    beyond = (token for token in special if token not in ids)
    ids |= {token: number for number, token in enumerate(beyond, start=len(ids))}
    whole = [piece.text for piece in pieces.pieces if piece.kind == USER_DEFINED and piece.text in ids]
    added = [*(added_token(token, ids[token]) for token in special)]
    added += [{**added_token(token, ids[token]), "special": False} for token in whole if token not in special]
    return _protected({**content, "added_tokens": sorted(added, key=lambda token: token["id"])})


def added_token(token: str, number: int) -> dict[str, Any]:
    """A symbol or tag as ``tokenizers`` writes one."""
    return {
        "id": number,
        "content": token,
        "single_word": False,
        "lstrip": False,
        "rstrip": False,
        "normalized": False,
        "special": True,
    }


def _protected(content: Content) -> Content:
    """Text that looks like a symbol stays text; merges of BPE never make one, other models would find it whole."""
    if content["model"]["type"] == "BPE":
        return content
    steps = [
        {"type": "Replace", "pattern": {"String": symbol}, "content": f"{symbol[0]} {symbol[1:]}"}
        for symbol in SPECIALS
    ]
    own = [content["normalizer"]] if content["normalizer"] else []
    return {**content, "normalizer": {"type": "Sequence", "normalizers": [*steps, *own]}}


def _content(path: Path) -> Content:
    try:
        return {**normalised(path.read_text(encoding="utf-8")), "truncation": None, "padding": None}
    except Exception as error:  # tokenizers raises a bare Exception for anything that it cannot read
        raise ConfigError(f"{path} is not a file of Hugging Face tokenizers ({error})") from None


def _check_specials(folder: Path, content: Content) -> None:
    found = tokens_of(content)[: len(SPECIALS)]
    if tuple(found) != SPECIALS:
        theirs, ours = ", ".join(found), ", ".join(SPECIALS)
        raise ConfigError(f"{folder}: its vocabulary begins with {theirs}; that of M2M100 and NLLB begins with {ours}")


def _rows(folder: Path, needed: int, otherwise: int) -> int:
    """Rows of the embeddings: the checkpoint says, and may have more than there are tokens."""
    path = folder / "config.json"
    rows = (
        int(read_json(path, remedy="download it again").get("vocab_size", otherwise)) if path.is_file() else otherwise
    )
    if rows < needed:
        found = f"{path}: vocab_size is {rows:,} and the tokenizer beside it has {needed:,} tokens"
        raise ConfigError(f"{found}; take config, weights and tokenizer from the same model")
    return rows
