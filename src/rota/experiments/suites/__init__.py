"""The built-in suites by name, and how to take one to another corpus or another size.

``paper`` has every row of the paper's tables, each value with its place; ``laptop`` runs them scaled down; ``order``
trains on the same updates in different orders; ``example`` is a small planned comparison. A suite is data
(:class:`rota.experiments.suite.Suite`); ``open_suite`` finds one by name or in a YAML file and changes its corpus or
size before ``jobs.plan`` makes runs of it.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

from rota.experiments.corpora import CORPORA, find_corpus
from rota.experiments.scale import Scale
from rota.experiments.suite import Suite, load_suite
from rota.experiments.suites.example import example
from rota.experiments.suites.laptop import controls, laptop
from rota.experiments.suites.order import order
from rota.experiments.suites.paper import paper

__all__ = ["CORPORA", "SUITES", "on_corpus", "open_suite", "resized"]

SUITES: Final[dict[str, Callable[[], Suite]]] = {
    "laptop": laptop,
    "controls": controls,
    "order": order,
    "paper": paper,
    "example": example,
}


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
    """The suite on a named corpus, or on the section ``data`` of a YAML file; it gets a name of its own.

    A suite that brings its own corpora stays as it is: the names are of some of these.
    """
    if suite.corpora:
        suite.choose_corpora(corpus)
        return suite
    if (suite.base.get("data") or {}).get("corpus") == corpus:
        return suite
    name, data = find_corpus(corpus)
    return suite.model_copy(update={"name": f"{suite.name}-{name}", "base": suite.base | {"data": data}})


def resized(suite: Suite, steps: int | None, tokens: int | None) -> Suite:
    """The suite with other steps or tokens; everything that depends on them follows in proportion."""
    given = {name: value for name, value in (("steps", steps), ("tokens", tokens)) if value is not None}
    if not given:
        return suite
    return suite.model_copy(update={"scale": (suite.scale or Scale()).model_copy(update=given)})
