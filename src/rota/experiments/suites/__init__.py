"""The built-in suites by name, and how to take one to another corpus or another size.

``paper`` has every row of the paper's tables, each value with its place; ``laptop`` runs them scaled down; ``order``
trains on the same updates in different orders. A suite is data (:class:`rota.experiments.suite.Suite`); ``open_suite``
finds one by name or in a YAML file and changes its corpus or size before ``jobs.plan`` makes runs of it.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from rota.config import read_yaml
from rota.experiments.scale import Scale, Values
from rota.experiments.suite import Suite, load_suite
from rota.experiments.suites.laptop import CATALOGUES, controls, laptop
from rota.experiments.suites.order import order
from rota.experiments.suites.paper import paper
from rota.settings import ConfigError

SUITES: Final[dict[str, Callable[[], Suite]]] = {
    "laptop": laptop,
    "controls": controls,
    "order": order,
    "paper": paper,
}

CORPORA: Final[dict[str, Values]] = {
    "catalogues": CATALOGUES,
    "debian": {"corpus": "debian", "subwords": {"size": "8k"}},
    "synthetic": {"corpus": "synthetic", "subwords": {"size": 1500}},
    "ted8": {"corpus": "ted8", "subwords": {"size": "8k", "text": "tokenised"}},
}
"""The section ``data`` for each named corpus, with vocabularies for small models."""


def open_suite(name: str, *, corpus: str | None = None, steps: int | None = None, tokens: int | None = None) -> Suite:
    """A suite by its name or its YAML file, on another corpus and in another size if asked."""
    suite = SUITES[name]() if name in SUITES else _from_file(name)
    if corpus is not None:
        suite = on_corpus(suite, corpus)
    return resized(suite, steps, tokens)


def _from_file(name: str) -> Suite:
    if not name.endswith((".yaml", ".yml")) and not Path(name).is_file():
        raise ValueError(f"no suite {name!r}; give {', '.join(SUITES)}, or the path of a YAML file")
    return load_suite(Path(name))


def on_corpus(suite: Suite, corpus: str) -> Suite:
    """The suite on a named corpus, or on the section ``data`` of a YAML file; it gets a name of its own."""
    if (suite.base.get("data") or {}).get("corpus") == corpus:
        return suite
    if corpus in CORPORA:
        data, name = CORPORA[corpus], corpus
    elif corpus.endswith((".yaml", ".yml")) or Path(corpus).is_file():
        data, name = _data_section(Path(corpus)), Path(corpus).stem
    else:
        raise ValueError(f"no corpus {corpus!r}; give {', '.join(CORPORA)}, or a YAML file with a section data")
    return suite.model_copy(update={"name": f"{suite.name}-{name}", "base": suite.base | {"data": data}})


def _data_section(path: Path) -> Values:
    data: Any = read_yaml(path).get("data")
    if not isinstance(data, dict):
        raise ConfigError(f"{path} has no section data, which --corpus takes; write for example data: {{corpus: ted8}}")
    return data


def resized(suite: Suite, steps: int | None, tokens: int | None) -> Suite:
    """The suite with other steps or tokens; everything that depends on them follows in proportion."""
    given = {name: value for name, value in (("steps", steps), ("tokens", tokens)) if value is not None}
    if not given:
        return suite
    return suite.model_copy(update={"scale": (suite.scale or Scale()).model_copy(update=given)})
