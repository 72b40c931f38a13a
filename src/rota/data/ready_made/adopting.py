"""A tokenizer that was made elsewhere becomes the subwords of a run: codes of languages, fewer or more subwords."""

from __future__ import annotations

import difflib
import json
import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, Final

from tokenizers import Tokenizer  # type: ignore[import-untyped]

from rota.data.ready_made.editing import is_made_up, new_subwords, numbered, tokens_of, used_tokens, with_subwords
from rota.data.ready_made.reading import MASK, PIECES_FILE, ReadyMade, added_token, read_ready_made
from rota.data.subwords import SPECIALS, Subwords, SubwordsConfig, tag_name
from rota.settings import ConfigError

logger = logging.getLogger(__name__)

NEW: Final = "new"
"""The code in a config of a language that the model does not know yet."""

_ASCII: Final = {chr(number) for number in range(33, 127)}
_LINES: Final = 2_000  # that are divided at once

Texts = Callable[[Sequence[str] | None], Iterator[str]]
"""The training text in these languages; None: all of it."""


def as_it_is(folder: Path) -> Subwords:
    """The tokenizer of a run, its export or a checkpoint, unchanged; with the languages that it names itself."""
    found = read_ready_made(folder)
    about = {
        "kind": found.kind,
        "tags": dict(found.tags),
        "codes": list(found.codes),
        "vocabulary": found.vocabulary,
        "tags_targets": found.tags_targets,
    }
    return Subwords(Tokenizer.from_str(json.dumps(found.content, ensure_ascii=False)), about)


def adopt(
    config: SubwordsConfig, languages: Sequence[str], texts: Texts, folder: Path, *, tags_targets: bool
) -> Subwords:
    """The subwords for these languages; beside them a SentencePiece model, in ``folder``, if the tokenizer has one.

    Without anything to change the vocabulary stays as it is, number for number. Else it is numbered anew: symbols,
    subwords, tags; the weights that belong to them are found by name. What Rota has learned itself keeps its numbers
    unless it is cut, so that dev sets stay divided as they were.
    """
    assert config.model is not None
    found = read_ready_made(config.model)
    tags = _tags(found, languages, config.codes, config.model)
    new_tags = [code for code in tags.values() if code not in found.codes]
    tokens, content = tokens_of(found.content), found.content
    new = [language for language, code in tags.items() if code in new_tags]
    added = new_subwords(content, texts(new or None), config.add) if config.add else []
    if len(added) < config.add:
        rare = "every word that occurs twice has become one of them, and rare ones are hardly trained; ask for fewer"
        logger.warning(
            "data.subwords.add is %d, and the text gives only %d new subwords: %s", config.add, len(added), rare
        )
    kept = _kept(found, texts(None)) if config.cut else None
    if kept is not None or added or new_tags:
        if added:
            content = with_subwords(content, added)
        tokens = _arranged(found, kept, added, new_tags)
        content = {**content, "added_tokens": [*content["added_tokens"], *(added_token(code, 0) for code in new_tags)]}
        content = numbered(content, tokens)
        logger.info(
            "%s: %d tokens (%d before), %d new subwords", config.model, len(tokens), found.vocabulary, len(added)
        )
    if found.pieces is not None:
        pieces = found.pieces.edited(kept, added)
        (folder / PIECES_FILE).write_bytes(pieces.to_bytes())
    changed = content is not found.content
    about: dict[str, Any] = {
        "kind": found.kind,
        "tags": {**tags, **{each: code for each, code in found.tags.items() if each not in tags}},
        "codes": [*found.codes, *new_tags],
        "vocabulary": len(tokens) if changed else found.vocabulary,
        "tags_targets": found.tags_targets or tags_targets,
    }
    return Subwords(Tokenizer.from_str(json.dumps(content, ensure_ascii=False)), about)


def _arranged(found: ReadyMade, kept: set[str] | None, added: Sequence[str], new_tags: Sequence[str]) -> list[str]:
    """The tokens in the order of their new numbers."""
    tokens = tokens_of(found.content)[: found.vocabulary]
    if kept is None and found.kind in ("learned", "own"):
        return [*tokens, *added, *new_tags]
    masks = [token for token in tokens if token == MASK]
    outside = {*found.codes, MASK}
    subwords = [token for token in tokens if token not in outside and not is_made_up(token)]
    subwords = [token for token in subwords if kept is None or token in kept]
    return [*subwords, *added, *found.codes, *new_tags, *masks]


def _tags(found: ReadyMade, languages: Sequence[str], codes: Mapping[str, str], model: Path) -> dict[str, str]:
    """The code of each language: as the config says, else as the model itself does."""
    unused = [language for language in codes if language not in languages]
    if unused:
        known = ", ".join(languages)
        raise ConfigError(f"data.subwords.codes names {unused[0]!r}, which is not a language of the data ({known})")
    return {language: _code(found, language, codes.get(language), model) for language in languages}


def check_codes(config: SubwordsConfig, languages: Sequence[str], targets: Collection[str]) -> None:
    """Refuses codes that the tokenizer does not have, and one code for two of the ``targets``.

    Two sources may share one, which is only said: the model then cannot tell them apart.
    """
    assert config.model is not None
    found = read_ready_made(config.model)
    tags = _tags(found, languages, config.codes, config.model)
    for language in languages:
        if config.codes.get(language) == NEW and tags[language] in found.codes:
            there = f"{config.model} has a tag {tags[language]!r}, which is used"
            logger.warning("data.subwords.codes: %r is %s, but %s; another needs another name", language, NEW, there)
    sharing: dict[str, list[str]] = {}
    for language, code in tags.items():
        sharing.setdefault(code, []).append(language)
    for code, those in sharing.items():
        into = [language for language in those if language in targets]
        if len(into) > 1:
            both = f"{into[0]!r} and {into[1]!r} have the same code {code!r}"
            remedy = f"give each its own in data.subwords.codes, or write {into[1]}: {NEW}"
            raise ConfigError(f"{both}, by which the model would be asked for either; {remedy}")
        if len(those) > 1:
            names = " and ".join(map(repr, those))
            logger.warning("%s have the same code %r, so that the model cannot tell them apart", names, code)


def _code(found: ReadyMade, language: str, written: str | None, model: Path) -> str:
    new = tag_name(language)
    code = written or found.tags.get(language) or (language if language in found.codes else None)
    if code == NEW or (code is None and found.kind in ("learned", "own")):
        return new
    if code in found.codes:
        return code
    if code is not None and tag_name(code) in found.codes:
        return tag_name(code)
    if found.kind in ("learned", "own"):
        known = f"it has {', '.join(each[2:-2] for each in found.codes)}" if found.codes else "it has none"
        remedy = f"leave {language!r} out of data.subwords.codes: it gets a tag of its own unless it has one"
        raise ConfigError(f"{model} has no code {written!r}, {known}; {remedy}")
    what = f"{model} has no code {written!r}" if written else f"{model} has no code for the language {language!r}"
    raise ConfigError(
        f"{what}; {_codes_like(written or language, language, found.codes)}, or {NEW} for a language it lacks"
    )


def _codes_like(wanted: str, language: str, codes: Sequence[str]) -> str:
    """Those that begin as what was wanted, as a config writes them; only a near one is put into the example."""

    def in_common(code: str) -> tuple[bool, float]:
        return code[:2] == wanted[:2], difflib.SequenceMatcher(None, code, wanted).ratio()

    ranked = sorted((code.removeprefix("__").removesuffix("__") for code in codes), key=in_common, reverse=True)
    alike = [code for code in ranked if code[0] == wanted[0]][:9]
    example = alike[0] if alike and alike[0][:2] == wanted[:2] else "CODE"
    listed = ", ".join(alike or ranked[:5])
    return f"it has {listed}, ...: write for example data.subwords.codes: {{{language}: {example}}}"


def _kept(found: ReadyMade, lines: Iterator[str]) -> set[str]:
    """What the text at hand needs, symbols, bytes and the characters of ASCII."""
    used = used_tokens(found.content, _batches(lines))
    single = {token for token in tokens_of(found.content) if token.startswith("<0x") or token in _ASCII}
    plain = {token["content"] for token in found.content["added_tokens"] if not token["special"]}
    return used | single | plain | {*SPECIALS, "\u2581"}


def _batches(lines: Iterable[str]) -> Iterator[list[str]]:
    lines = iter(lines)
    while batch := list(islice(lines, _LINES)):
        yield batch
