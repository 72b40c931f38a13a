"""All that decides what a data folder will contain, and whether it is still the same."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rota.data.cleaning import CleaningConfig
from rota.data.corpus import CorpusConfig
from rota.data.manifest import InputFile
from rota.data.subwords import SubwordsConfig
from rota.settings import Settings

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Recipe:
    """The settings; what else decides is the content of the input files."""

    corpus: CorpusConfig
    cleaning: CleaningConfig
    subwords: SubwordsConfig
    seed: int  # chooses the lines the subwords are learned from

    def as_settings(self) -> dict[str, Any]:
        """Plain JSON values, from which ``from_settings`` makes the same recipe in another process."""
        parts: dict[str, Settings] = {"corpus": self.corpus, "cleaning": self.cleaning, "subwords": self.subwords}
        return {name: part.model_dump(mode="json") for name, part in parts.items()} | {"seed": self.seed}

    @classmethod
    def from_settings(cls, settings: Mapping[str, Any]) -> Recipe:
        return cls(
            CorpusConfig.model_validate(settings["corpus"]),
            CleaningConfig.model_validate(settings["cleaning"]),
            SubwordsConfig.model_validate(settings["subwords"]),
            int(settings["seed"]),
        )


def changed_setting(old: Mapping[str, Any], new: Mapping[str, Any]) -> str | None:
    """The first setting that differs, with both values."""
    before, after = dict(_leaves(old)), dict(_leaves(new))
    for name in before | after:
        if before.get(name) != after.get(name):
            return f"{name} changed from {before.get(name)} to {after.get(name)}"
    return None


def _leaves(settings: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in settings.items():
        if isinstance(value, Mapping):
            yield from _leaves(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def changed_input(inputs: Mapping[str, InputFile]) -> str | None:
    """Of the files that the config names, which are those it named then, for no setting changed."""
    gone = [name for name in inputs if not Path(name).is_file()]
    if gone:
        # Prepared data stand on their own: they may be moved to where the text is not.
        others = f" (so are {len(gone) - 1} other files)" if len(gone) > 1 else ""
        logger.warning("%s is gone%s: cannot tell whether it changed since the data were prepared", gone[0], others)
    for name in (name for name in inputs if name not in gone):
        if not inputs[name].is_still(Path(name)):
            return f"the content of {name} changed"
    return None
