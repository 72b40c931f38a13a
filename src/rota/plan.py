"""A plan: what a comparison is going to test, written down before its runs begin. No torch.

A suite has it as its section ``plan``; :meth:`Plan.resolved` fills in what the suite says and expands patterns.
``rota compare`` writes the result to ``plan.json`` and gives its fingerprint to every run that begins; ``rota report``
reads it back, tests exactly what it says, and tells whether the runs began under it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Any, Final, Literal, NamedTuple, Self

from pydantic import BeforeValidator, Field, ValidationError, field_validator, model_validator

from rota.files import damaged, fingerprint, read_json, write_json
from rota.settings import ConfigError, Settings, explain

PLAN: Final = "plan.json"
"""The file of a suite's folder."""

MOST_SEEDS: Final = 1000
"""A larger number of seeds is taken for the seed that somebody meant."""

RESTORE: Final = "restore it, or delete it: the report is then without planned contrasts"

Budget = Literal["updates", "time"]
Languages = Literal["all", "goal", "low-resource", "high-resource"]


def parse_seeds(value: Any) -> Any:
    """``5`` means the seeds 1 to 5; ``"1,2,3"`` and ``[1, 2, 3]`` mean these three."""
    if isinstance(value, str):
        value = [part.strip() for part in value.split(",") if part.strip()] if "," in value else value.strip()
    if isinstance(value, list | tuple):
        seeds = tuple(_seed(part, value) for part in value)
        if not seeds or len(set(seeds)) < len(seeds):
            raise ValueError(f"seeds {value!r}: give at least one, each once")
        return seeds
    count = _seed(value, value)
    if count < 1:
        raise ValueError(f"seeds {value!r}: give a number from 1 up, or a list such as 1,2,3")
    if count > MOST_SEEDS:
        raise ValueError(f"seeds {value!r} means the seeds 1 to {count}; for seed {count} alone write '{count},'")
    return tuple(range(1, count + 1))


def _seed(value: Any, written: Any) -> int:
    if not isinstance(value, bool) and str(value).isdecimal():
        return int(value)
    raise ValueError(f"seeds {written!r} are not understood; write how many, such as 5, or a list such as 1,2,3")


def _as_list(value: Any) -> Any:
    """``endpoint: bleu`` is short for ``endpoint: [bleu]``."""
    return (value,) if isinstance(value, str) else value


Seeds = Annotated[tuple[int, ...], BeforeValidator(parse_seeds)]
Names = Annotated[tuple[str, ...], BeforeValidator(_as_list)]


class PlannedContrast(Settings):
    """One row minus another, or minus the best of several."""

    row: str
    minus: str | None = Field(None, description="the row that it is compared with")
    minus_best_of: Names = Field((), description="or several, of which it must beat the best; patterns are allowed")
    endpoint: Names = Field((), description="what is compared; empty: the plan's")
    at: Budget = Field("updates", description="after equally many updates, or after equal time (see costs)")
    languages: Languages = Field("all", description="over which the mean is taken, each counting the same")
    corpora: Names = Field((), description="of a suite with several; empty: all")
    together: bool = Field(False, description="one test of the mean over the corpora, instead of one for each")

    @model_validator(mode="after")
    def _one_reference(self) -> Self:
        if (self.minus is None) == (not self.minus_best_of):
            raise ValueError("write either minus, one row, or minus_best_of, a list of rows")
        return self

    @property
    def references(self) -> tuple[str, ...]:
        return (self.minus,) if self.minus is not None else self.minus_best_of

    @property
    def rows(self) -> tuple[str, ...]:
        return (self.row, *self.references)


class PlannedTest(NamedTuple):
    """One line of the planned table: all of them together are the family that p values are corrected for."""

    name: str
    contrast: PlannedContrast
    endpoint: str
    corpora: tuple[str, ...]  # one; several if they are tested together; none in a suite on one corpus


class Plan(Settings):
    """Primary contrasts, endpoints, seeds, and the smallest difference that would matter."""

    contrasts: dict[str, PlannedContrast]
    endpoint: Names = Field(description="one or several", examples=["endpoint: dev-loss"])
    seeds: Seeds | None = Field(None, description="of the rows in the contrasts; null: the suite's")
    interest: float | dict[str, float] | None = Field(
        None, description="smallest difference of interest, in the unit of the endpoint; or one for each endpoint"
    )
    costs: dict[str, Annotated[float, Field(gt=0)]] = Field(
        {},
        description="for at: time; the time of an update with a row's teacher, relative to one without; rows that are "
        "not named have 1. Empty: the processor time that the runs recorded",
        examples=["costs: {align: 1.05}"],
    )

    @field_validator("contrasts")
    @classmethod
    def _some(cls, contrasts: dict[str, PlannedContrast]) -> dict[str, PlannedContrast]:
        if not contrasts:
            raise ValueError("there is none; write for example align: {row: align, minus: uniform}")
        return contrasts

    def resolved(self, rows: Sequence[str], corpora: Sequence[str], seeds: Sequence[int]) -> Plan:
        """With the suite's seeds and corpora filled in and patterns expanded; a row that is not there is a mistake."""
        found = {
            name: contrast.model_copy(
                update={
                    "row": _one(name, contrast.row, rows),
                    "minus": contrast.minus and _one(name, contrast.minus, rows),
                    "minus_best_of": _expanded(name, contrast.minus_best_of, rows),
                    "endpoint": contrast.endpoint or self.endpoint,
                    "corpora": _corpora(name, contrast.corpora, corpora),
                }
            )
            for name, contrast in self.contrasts.items()
        }
        for name, contrast in found.items():
            if contrast.row in contrast.references:
                raise ValueError(f"plan.contrasts.{name} compares the row {contrast.row!r} with itself")
        for row in self.costs:
            if row not in rows:
                raise ValueError(f"plan.costs names the row {row!r}; the suite has {', '.join(rows)}")
        return self.model_copy(update={"contrasts": found, "seeds": self.seeds or tuple(seeds)})

    def tests(self) -> list[PlannedTest]:
        """The family, in the order of the plan."""
        return [
            PlannedTest(name, contrast, endpoint, corpora)
            for name, contrast in self.contrasts.items()
            for corpora in _places(contrast)
            for endpoint in contrast.endpoint or self.endpoint
        ]

    def seeds_of(self, rows: Iterable[str], own: Mapping[str, Collection[int]]) -> tuple[int, ...]:
        """The seeds of the plan that all of these rows are to have; ``own``: of rows with seeds of their own."""
        wanted = [own[row] for row in rows if row in own]
        return tuple(seed for seed in self.seeds or () if all(seed in seeds for seeds in wanted))

    def interest_in(self, endpoint: str) -> float | None:
        return self.interest.get(endpoint) if isinstance(self.interest, dict) else self.interest

    def dumped(self) -> dict[str, Any]:
        """Without ``costs`` where there are none, so that the fingerprints of plans made before there were any stay."""
        return self.model_dump(mode="json", exclude=None if self.costs else {"costs"})

    @property
    def fingerprint(self) -> str:
        return fingerprint(self.dumped())


def _one(name: str, row: str, rows: Sequence[str]) -> str:
    if row not in rows:
        raise ValueError(f"plan.contrasts.{name} names the row {row!r}; the suite has {', '.join(rows)}")
    return row


def _expanded(name: str, patterns: Sequence[str], rows: Sequence[str]) -> tuple[str, ...]:
    found: list[str] = []
    for pattern in patterns:
        matching = [row for row in rows if fnmatchcase(row, pattern)]
        found += matching or [_one(name, pattern, rows)]
    return tuple(dict.fromkeys(found))


def _corpora(name: str, wanted: Sequence[str], corpora: Sequence[str]) -> tuple[str, ...]:
    for corpus in wanted:
        if corpus not in corpora:
            known = ", ".join(corpora) or "none; leave corpora out"
            raise ValueError(f"plan.contrasts.{name} names the corpus {corpus!r}; the suite has {known}")
    return tuple(wanted) or tuple(corpora)


def _places(contrast: PlannedContrast) -> list[tuple[str, ...]]:
    if contrast.together or not contrast.corpora:
        return [contrast.corpora]
    return [(corpus,) for corpus in contrast.corpora]


class WrittenPlan(NamedTuple):
    """A plan as a suite's folder has it, and the fingerprints of those that it has had before."""

    plan: Plan
    earlier: tuple[str, ...]

    @property
    def fingerprint(self) -> str:
        return self.plan.fingerprint


def read_plan(path: Path) -> WrittenPlan:
    """What :func:`write_plan` wrote."""
    try:
        content = read_json(path, "plan", "fingerprint", remedy=RESTORE)
        plan = Plan.model_validate(content["plan"])
    except FileNotFoundError:
        raise ConfigError(f"no plan {str(path)!r}; rota compare writes one for a suite with a section plan") from None
    except ValidationError as error:
        raise damaged(path, explain(error, Plan, "plan"), RESTORE) from None
    if plan.fingerprint != content["fingerprint"]:
        raise damaged(path, f"its fingerprint is not {content['fingerprint']}", RESTORE)
    return WrittenPlan(plan, tuple(found["fingerprint"] for found in content.get("earlier", [])))


def find_plan(folder: Path) -> WrittenPlan | None:
    """The plan of a suite's folder; None if it has none."""
    return read_plan(folder / PLAN) if (folder / PLAN).is_file() else None


def write_plan(plan: Plan, folder: Path) -> None:
    """The plan of a suite's folder from now on; one that was there before stays in the file, as an earlier one."""
    path = folder / PLAN
    entry: Mapping[str, Any] = {"plan": plan.dumped(), "fingerprint": plan.fingerprint}
    earlier: list[Any] = []
    if path.is_file():
        before = read_json(path, "plan", "fingerprint", remedy=RESTORE)
        if before["fingerprint"] == plan.fingerprint:
            return
        earlier = [*before.pop("earlier", []), before]
    write_json(path, {**entry, **({"earlier": earlier} if earlier else {})}, checked=True)
