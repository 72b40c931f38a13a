"""The files of a corpus by language: what patterns name, and dev and test sets held out of the training text."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from rota.data.corpora.arms import held_out_texts
from rota.data.corpora.directions import BOTH_WAYS, direction_name, is_direction, languages_of
from rota.data.corpora.parallel import (
    SPLITS,
    MissingTextError,
    MissingTexts,
    Needed,
    ParallelText,
    Patterns,
    Split,
    check_known,
    fields_of,
    listed,
    named_files,
    text_of_files,
)
from rota.types import Arm

if TYPE_CHECKING:
    from rota.data.corpora.sources import CorpusConfig

logger = logging.getLogger(__name__)

_HOLD_OUT: Final = "or write data.hold_out: 200, which takes dev and test sets from the training text"


def check_keys(config: CorpusConfig) -> None:
    """Mappings may name languages, and directions that have text of their own; a misspelt key would be left out."""
    used = languages_of(config.pairs, config.target) if config.directions else config.known_languages
    known = (*(config.languages or used), *map(direction_name, config.pairs))
    for split in SPLITS:
        patterns = getattr(config, split)
        for key in patterns if isinstance(patterns, dict) else ():
            if key not in known and is_direction(key, config.directions or BOTH_WAYS, known, config.target):
                raise ValueError(f"{key!r} under {split!r} is not among the 'directions'; add it there")
            check_known(key, known, f"key under {split!r}:")


def own_files(config: CorpusConfig, needed: Needed | None = None) -> dict[Arm, dict[Split, ParallelText]]:
    """The text of every language; one message for all that is missing, so that many are not found one by one.

    ``needed``: the languages of which each split is needed; None: all.
    """
    found, missing, remedy = {}, MissingTexts(), ""
    lacking = _lacking(config)
    for language in _file_languages(config):
        wanted = [split for split in SPLITS if needed is None or language in needed[split]]
        found[language] = _files(config, language, wanted, lacking.get(language, ()), missing)
        trained = "train" in wanted and not _has_no_file(config, "train", language)
        if trained and not config.hold_out and not {"dev", "test"}.intersection(wanted) <= found[language].keys():
            remedy = f"; {_HOLD_OUT}"
    missing.check(remedy)
    if lacking:
        logger.info("dev or test sentences held out of the training text of %s", _shown(list(lacking)))
    return found


def _shown(languages: list[Arm]) -> str:
    return ", ".join(languages[:20]) + (f" ... ({len(languages)} in all)" if len(languages) > 20 else "")


def _file_languages(config: CorpusConfig) -> tuple[Arm, ...]:
    if config.languages:
        return config.languages
    if isinstance(config.train, dict) and not config.sources:
        return tuple(config.train)
    if config.sources:
        return config.known_languages
    raise ValueError("no languages; list them, for example languages: [az, tr]")


def _lacking(config: CorpusConfig) -> dict[Arm, tuple[Split, ...]]:
    """With ``hold_out``: the dev and test sets that languages have no files for.

    A pattern that finds the files of no language at all is a mistake in the pattern, and is left to be reported.
    """
    if not config.hold_out:
        return {}
    trained = [language for language in _file_languages(config) if language not in config.only_measured]
    lacking: dict[Arm, tuple[Split, ...]] = {}
    for split in ("dev", "test"):
        without = [language for language in trained if _has_no_file(config, split, language)]
        if getattr(config, split) is None or len(without) < len(trained):
            lacking |= {language: (*lacking.get(language, ()), split) for language in without}
    return lacking


def _files(
    config: CorpusConfig, language: Arm, wanted: Sequence[Split], lacking: tuple[Split, ...], missing: MissingTexts
) -> dict[Split, ParallelText]:
    """All splits that have files; of a language that sources bring text of, those that patterns name."""
    optional = any(source.language == language for source in config.sources.values())
    texts: dict[Split, ParallelText] = {}
    for split in wanted:
        unwanted = split in lacking or (split == "train" and language in config.only_measured)
        if not unwanted and not (optional and _has_no_pattern(config, split, language)):
            with missing.collected():
                texts[split] = text_of_files(patterns_of(config, split, language), language, config.target)
    if lacking and config.hold_out and "train" in texts:
        texts["train"], held_out = held_out_texts(texts["train"], lacking, config.hold_out)
        texts |= held_out
    return texts


def _has_no_file(config: CorpusConfig, split: Split, language: Arm) -> bool:
    return _has_no_pattern(config, split, language) or not any(
        path.is_file() for path in named_files(patterns_of(config, split, language), language, config.target)
    )


def has_text(config: CorpusConfig, split: Split, language: Arm) -> bool:
    """Whether the config says where text of the language itself is; a named corpus has all of it."""
    return config.corpus != "files" or not _has_no_pattern(config, split, language)


def _has_no_pattern(config: CorpusConfig, split: Split, language: Arm) -> bool:
    patterns = getattr(config, split)
    return patterns is None or (isinstance(patterns, dict) and language not in patterns)


def patterns_of(config: CorpusConfig, split: Split, language: Arm) -> Patterns:
    patterns = {"train": config.train, "dev": config.dev, "test": config.test}[split]
    if patterns is None or (isinstance(patterns, dict) and language not in patterns):
        remedy = f"add it under {split!r}" + ("" if patterns is None else ", which is a mapping")
        raise MissingTextError(f"no {split} text for language {language!r}; {remedy}", [f"{split} text of {language}"])
    return patterns[language] if isinstance(patterns, dict) else patterns


def patterns_of_direction(config: CorpusConfig, split: Split, pair: tuple[str, str]) -> Patterns | None:
    """What names the text of a direction itself; None if its text is made from that of its languages.

    That is a key of the mapping. Of two languages without the target it is also any pattern that names pairs, if all
    patterns do, or if other text of this direction is named.
    """
    patterns, name = getattr(config, split), "-".join(pair)
    if isinstance(patterns, dict):
        own: Patterns | None = patterns.get(name)
        return own
    if config.target in pair or patterns is None or not names_pairs(patterns):
        return None
    mappings = [each for split in SPLITS if isinstance(each := getattr(config, split), dict)]
    named = any(name in each for each in mappings) or any(config.sources_of(pair))
    return patterns if config.names_pairs or named else None


def names_pairs(patterns: Patterns) -> bool:
    """Whether patterns name the files of any two languages: they have ``{side}``, or both names, but no one."""
    return all("language" not in fields_of(pattern) and fields_of(pattern) for pattern in listed(patterns))


def warn_of_unused(config: CorpusConfig) -> None:
    """Says which languages that the config lists, and which sources of languages, have no text in any direction."""
    if not config.directions:
        return
    known, (_, needed) = {language for pair in config.pairs for language in pair}, config.undirected()
    unused = [language for language in config.languages if language not in known]
    of_languages = {name: source.language for name, source in config.sources.items() if source.language}
    unused += [name for name, language in of_languages.items() if language not in needed["train"]]
    if unused:
        remedy = "add a direction to data.directions, or remove it"
        logger.warning("no text of %s is used: %s", ", ".join(unused), remedy)
