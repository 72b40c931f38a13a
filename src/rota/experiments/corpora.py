"""The corpora of a suite: by name, by file, or written out, and what else changes with them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Final

from pydantic import BeforeValidator, Field

from rota.config import read_yaml
from rota.experiments.scale import Values
from rota.plan import Names, Seeds
from rota.settings import ConfigError, Settings

CATALOGUES: Final[Values] = {"corpus": "catalogues", "subwords": {"size": "4k"}}

CORPORA: Final[dict[str, Values]] = {
    "catalogues": CATALOGUES,
    "debian": {"corpus": "debian", "subwords": {"size": "8k"}},
    "synthetic": {"corpus": "synthetic", "subwords": {"size": 1500}},
    "ted8": {"corpus": "ted8", "subwords": {"size": "8k", "text": "tokenised"}},
}
"""The section ``data`` for each named corpus, with vocabularies for small models."""


def find_corpus(corpus: str, folder: Path = Path()) -> tuple[str, Values]:
    """A name and the section ``data`` of a named corpus or of a YAML file, whose path is relative to ``folder``."""
    if corpus in CORPORA:
        return corpus, CORPORA[corpus]
    if corpus.endswith((".yaml", ".yml")) or (folder / corpus).is_file():
        return Path(corpus).stem, _data_section(folder / corpus)
    raise ValueError(f"no corpus {corpus!r}; give {', '.join(CORPORA)}, or a YAML file with a section data")


def _data_section(path: Path) -> Values:
    data: Any = read_yaml(path).get("data")
    if not isinstance(data, dict):
        raise ConfigError(f"{path} has no section data, which a corpus is; write for example data: {{corpus: ted8}}")
    return data


class SuiteCorpus(Settings):
    """One corpus of a suite that has several: its section ``data``, and what rows change there besides."""

    data: str | Values = Field(description="the section, or a name or a file as for --corpus")
    student: Values = Field(default_factory=dict)
    training: Values = Field(default_factory=dict)
    evaluation: Values = Field(default_factory=dict)
    rows: Names = Field((), description="those that are run on it, or patterns; empty: as everywhere")
    seeds: Seeds | None = Field(None, description="null: as everywhere")

    def changes(self) -> Values:
        """What it changes beside the text."""
        return {name: getattr(self, name) for name in ("student", "training", "evaluation") if getattr(self, name)}


def _short(value: Any) -> Any:
    """``catalogues: catalogues`` is short for ``catalogues: {data: catalogues}``."""
    return {"data": value} if isinstance(value, str) else value


CorpusField = Annotated[SuiteCorpus, BeforeValidator(_short)]
