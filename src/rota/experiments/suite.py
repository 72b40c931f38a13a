"""A suite: one base config, rows that change some of its values, seeds. Built in, or a few lines of YAML."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from fnmatch import fnmatch
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, ValidationError, field_validator, model_validator

from rota.config import read_yaml
from rota.experiments.corpora import CorpusField, find_corpus
from rota.experiments.scale import Scale, Values, merged, scaled
from rota.plan import Plan, Seeds, parse_seeds
from rota.settings import ConfigError, Settings, explain

Table = Literal["main", "tscl", "dqn", "control", "other"]
NAME = re.compile(r"\w[\w.-]*")
SECTIONS = ("data", "student", "teacher", "training", "evaluation")

__all__ = ["NAME", "SECTIONS", "Row", "Suite", "check_own", "load_suite", "parse_seeds"]


class Row(Settings):
    """What one row changes in the base, and what a report says about it."""

    data: Values = Field(default_factory=dict)
    student: Values = Field(default_factory=dict)
    teacher: str | Values | None = Field(None, description="takes the place of the base's teacher as a whole")
    training: Values = Field(default_factory=dict)
    evaluation: Values = Field(default_factory=dict)
    label: str | None = Field(None, description="in tables; by default the row's name")
    warmup: str | None = Field(None, description="in tables; by default that of the teacher")
    table: Table = Field("other", description="the paper's table that the row belongs to")
    paper: str | None = Field(None, description="the row in the paper's results, such as dqn/16000 or tscl/alpha-0.3")
    place: str | None = Field(None, description="where in the paper it is described")
    seeds: Seeds | None = Field(None, description="its own; null: those of the suite")
    branch: bool = Field(True, description="false: in a suite that branches, it trains its warm-up itself")

    def changes(self) -> Values:
        """The sections that differ from the base."""
        return {name: getattr(self, name) for name in SECTIONS if getattr(self, name)}


def check_name(value: Any) -> Any:
    """Rows and suites are names of folders, so ``..`` is refused."""
    if not isinstance(value, str):
        raise ValueError(f"{value!r} is not text; write the name in quotes: {str(value)!r}")
    if not NAME.fullmatch(value):
        raise ValueError(f"{value!r} is not a name; use letters, digits, '-', '_' and '.', a letter or digit first")
    return value


def check_own(key: str, place: str) -> None:
    """What makes the runs of a suite differ cannot be one value for all of them."""
    if key == "seed":
        raise ConfigError(f"{place} would make all seeds of a row the same run; use --seeds, or seeds: in the suite")
    if key == "name":
        raise ConfigError(f"{place} would name all runs the same; a run is named after its row")


Name = Annotated[str, BeforeValidator(check_name)]


def _filled(value: Any, places: Mapping[str, str]) -> Any:
    """Every text with its placeholders filled in; other braces, as in a pattern of files, stay."""
    if isinstance(value, str):
        for place, text in places.items():
            value = value.replace(place, text)
        return value
    if isinstance(value, Mapping):
        return {key: _filled(inner, places) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_filled(inner, places) for inner in value]
    return value


class Suite(Settings):
    """Rows times seeds. The run of a row and a seed lies in ``<out>/<row>/seed-<seed>``.

    With ``corpora`` it is rows times seeds on each of them, in ``<out>/<corpus>/<row>/seed-<seed>``.
    """

    name: Name
    base: Values = Field(description="the config that all rows share, or the path of one")
    scale: Scale | None = Field(None, description="another size, in proportion: steps, tokens, peak")
    over: Values = Field(default_factory=dict, description="what is changed in every row after it is scaled")
    seeds: Seeds = (1,)
    rows: dict[Name, Row]
    default: tuple[str, ...] = Field((), description="the rows that run unless others are asked for; empty: all")
    corpora: dict[Name, CorpusField] = Field(default_factory=dict, description="instead of the base's data")
    branch: bool = Field(False, description="rows begin from one checkpoint for each seed: the end of their warm-up")
    plan: Plan | None = Field(None, description="what is going to be tested")

    @field_validator("over")
    @classmethod
    def _check_over(cls, over: Values) -> Values:
        for key in over:
            check_own(key, f"{key} in over")
        return over

    @field_validator("rows")
    @classmethod
    def _check_rows(cls, rows: dict[str, Row]) -> dict[str, Row]:
        if not rows:
            raise ValueError("there is none; write at least one, such as uniform: {teacher: uniform}")
        return rows

    @model_validator(mode="after")
    def _check_plan(self) -> Self:
        plan = self.resolved_plan
        for test in [] if plan is None else plan.tests():
            for corpus in test.corpora:
                for row in test.contrast.rows:
                    if row not in self.rows_on(corpus):
                        raise ValueError(f"plan.contrasts.{test.name}: row {row!r} is not run on corpus {corpus!r}")
        return self

    @property
    def resolved_plan(self) -> Plan | None:
        """The plan with everything filled in, as it is hashed."""
        return None if self.plan is None else self.plan.resolved(list(self.rows), list(self.corpora), self.seeds)

    def on(self, corpus: str) -> Suite:
        """The part of a suite with several corpora that runs on one of them, as a suite of its own."""
        found = self.corpora[corpus]
        data = find_corpus(found.data)[1] if isinstance(found.data, str) else found.data
        rows = self.rows_on(corpus)
        return self.model_copy(
            update={
                "name": f"{self.name}-{corpus}",
                "base": merged(self.base | {"data": data}, found.changes()),
                "seeds": found.seeds or self.seeds,
                "rows": {name: row for name, row in self.rows.items() if name in rows},
                "default": tuple(name for name in self.default if name in rows),
                "corpora": {},
                "plan": None,
            }
        )

    def rows_on(self, corpus: str) -> list[str]:
        wanted = {row for part in self.corpora[corpus].rows for row in self._named(part)}
        return [row for row in self.rows if not wanted or row in wanted]

    def choose_corpora(self, wanted: str | None) -> list[str]:
        """Those of a list such as ``debian,ted8``, in the order of the suite; none in a suite on one corpus."""
        parts = list(self.corpora) if wanted is None else [part.strip() for part in wanted.split(",")]
        for part in parts:
            if part not in self.corpora:
                raise ValueError(f"no corpus {part!r} in suite {self.name!r}; it has {', '.join(self.corpora)}")
        return [corpus for corpus in self.corpora if corpus in parts]

    def seeds_of(self, row: str) -> tuple[int, ...]:
        return self.rows[row].seeds or self.seeds

    def values(self, row: str, seed: int, runs: Path) -> Values:
        """The config of one run; ``{runs}`` and ``{seed}`` in its texts are filled in."""
        changed = self.rows[row].changes()
        values = merged(self.base, changed) | {"name": row, "seed": seed}
        if self.scale is not None:
            values = scaled(values, self.scale)
        values = merged(values, self.over)
        own = f"{self.name}-{row}" if "data" in changed else self.name
        values["data"] = {"folder": f"prepared/{own}", **(values.get("data") or {})}
        result: Values = _filled(values, {"{runs}": str(runs), "{seed}": str(seed)})
        return result

    def choose(self, wanted: str | None) -> list[str]:
        """The rows named by a list such as ``main,dqn-tau-*``, in the order of the suite."""
        parts = [part.strip() for part in ("default" if wanted is None else wanted).split(",") if part.strip()]
        if not parts:
            raise ValueError(f"--rows {wanted!r} names no row; suite {self.name!r} has {', '.join(self.rows)}")
        chosen = {name for part in parts for name in self._named(part)}
        return [name for name in self.rows if name in chosen]

    def _named(self, part: str) -> Sequence[str]:
        if part in self.rows:
            return [part]
        if part == "all" or (part == "default" and not self.default):
            return list(self.rows)
        if part == "default":
            return self.default
        found = [name for name, row in self.rows.items() if row.table == part or fnmatch(name, part)]
        if not found:
            raise ValueError(f"no row {part!r} in suite {self.name!r}; it has {', '.join(self.rows)}")
        return found


def load_suite(path: Path) -> Suite:
    """The suite of a YAML file; ``base`` may be the path of a config, from the folder of the suite."""
    values = read_yaml(path)
    if values.keys().isdisjoint(("base", "rows")) and not values.keys().isdisjoint(SECTIONS):
        raise ConfigError(f"{path} is a config, not a suite: put it under base: in a suite (docs/suites.md)")
    values.setdefault("name", path.stem)
    if isinstance(values.get("base"), str):
        values["base"] = read_yaml(path.parent / values["base"])
    try:
        suite = _with_files(Suite.model_validate(values), path.parent)
    except ValidationError as error:
        raise ConfigError(f"{path}: {explain(error, Suite)}") from None
    except ConfigError:
        raise
    except ValueError as error:
        raise ConfigError(f"{path}: {error}") from None
    for name in suite.default:
        if name not in suite.rows:
            raise ConfigError(f"{path}: default names the row {name!r}; the rows are {', '.join(suite.rows)}")
    return suite


def _with_files(suite: Suite, folder: Path) -> Suite:
    """Corpora that are named or lie in files, from the folder of the suite, written out."""
    found = {}
    for name, corpus in suite.corpora.items():
        if isinstance(corpus.data, str):
            corpus = corpus.model_copy(update={"data": find_corpus(corpus.data, folder)[1]})
        for row in corpus.rows:
            suite._named(row)
        found[name] = corpus
    return suite.model_copy(update={"corpora": found})
