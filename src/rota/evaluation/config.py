"""How a run is evaluated: which checkpoints, how they are put together, how translations are searched for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, Self, TypedDict, Unpack, get_args

from pydantic import Field, SerializerFunctionWrapHandler, field_validator, model_serializer, model_validator

from rota.runs.standing import DEFAULT_METRICS, Combine, MetricName, Select
from rota.settings import Settings

Engine = Literal["rota", "ctranslate2"]


class Changes(TypedDict, total=False):
    """What may take the place of a config's settings; ``None`` is not given, ``select="none"`` selects nothing."""

    select: str | None
    combine: str | None
    window: int | None
    beam: int | None
    select_beam: int | None
    length_penalty: float | None
    metrics: str | Sequence[str] | None
    engine: str | None


ONE_NETWORK = "ctranslate2 translates with one network and an ensemble has several; add --combine average"


class EvaluationConfig(Settings):
    """Which checkpoints translate, and the search. Without ``select`` and ``combine`` it is the last one alone."""

    beam: int = Field(5, ge=1, description="hypotheses kept at every position; 1 is greedy")
    length_penalty: float = Field(1.0, ge=0, description="a hypothesis scores its log probability / length ** this")
    select: Select | None = Field(
        None,
        description="choose the window of checkpoints with the best mean dev BLEU of these languages, or dev loss;"
        " null: the window that ends with the last checkpoint; by default goal if the config has a goal",
    )
    combine: Combine = Field(
        "last",
        description="a window as one model: its last checkpoint, the average of its weights, or an ensemble;"
        " moving-average: that of the last checkpoint's weights, which student.average keeps;"
        " by default ensemble if something is selected, as in the paper, else last",
    )
    window: int = Field(4, ge=1, le=20, description="checkpoints in a window; the paper's 4")
    select_beam: int | None = Field(None, ge=1, description="beam while selecting; null: the same as beam")
    metrics: tuple[MetricName, ...] = Field(
        DEFAULT_METRICS,
        min_length=1,
        description="what is scored; loss, the cross-entropy per token, needs no translations and takes seconds",
    )
    engine: Engine = Field(
        "rota",
        description="what searches for translations; ctranslate2, if it is installed, is faster, for one network alone",
    )

    @model_validator(mode="before")
    @classmethod
    def _combine_what_is_selected(cls, values: Any) -> Any:
        if not isinstance(values, dict):
            return values
        select = None if values.get("select") == "none" else values.get("select")
        combine = values.get("combine") or ("last" if select is None else "ensemble")
        return {**values, "select": select, "combine": combine}

    @field_validator("metrics", mode="before")
    @classmethod
    def _written_with_commas(cls, value: Any) -> Any:
        return [part.strip() for part in value.split(",")] if isinstance(value, str) else value

    @model_validator(mode="after")
    def _one_network(self) -> Self:
        if self.engine == "ctranslate2" and self.combine == "ensemble":
            raise ValueError(ONE_NETWORK)
        return self

    @model_serializer(mode="wrap")
    def _without_later_defaults(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Named only where they are others: fingerprints of configs stay what they were."""
        written: dict[str, Any] = write(self)
        for name in ("metrics", "engine"):
            if getattr(self, name) == type(self).model_fields[name].default:
                del written[name]
        return written

    @property
    def translated(self) -> tuple[MetricName, ...]:
        """The metrics that need translations."""
        return tuple(metric for metric in self.metrics if metric != "loss")

    @property
    def search(self) -> dict[str, float | str]:
        """The part that changes the translations of a given model; those of another engine differ at times."""
        engine = {} if self.engine == "rota" else {"engine": self.engine}
        return {"beam": self.beam, "length_penalty": self.length_penalty, **engine}

    @property
    def selecting(self) -> Self:
        """The settings of the search while selecting."""
        return self.model_copy(update={"beam": self.select_beam or self.beam})

    @property
    def checkpoints(self) -> int:
        """Checkpoints that one model is made of, if the run has as many."""
        return self.window if self.combine in ("average", "ensemble") else 1

    def changed(self, *, step: int | None = None, **changes: Unpack[Changes]) -> Self:
        """As options on the command line change it.

        A step names one model, so nothing is selected; where the selection changes, ``combine`` has its default again.
        """
        given: dict[str, Any] = {name: value for name, value in changes.items() if value is not None}
        select = given.pop("select", None)
        _require("--select", select, (*get_args(Select), "none"))
        _require("--combine", given.get("combine"), get_args(Combine))
        _require("--engine", given.get("engine"), get_args(Engine))
        metrics = given.get("metrics", ())
        for metric in metrics.split(",") if isinstance(metrics, str) else metrics:
            _require("--metrics", metric.strip(), get_args(MetricName))
        if step is not None and select not in (None, "none"):
            raise ValueError(f"--step {step} names a checkpoint and --select {select} looks for one; give one of them")
        wanted = "none" if step is not None else select
        values = self.model_dump() | ({} if wanted is None else {"select": wanted, "combine": None})
        values |= given
        combine = values["combine"] or ("last" if values["select"] in (None, "none") else "ensemble")
        if values.get("engine") == "ctranslate2" and combine == "ensemble":
            raise ValueError(ONE_NETWORK)
        changed = type(self).model_validate(values)
        if "window" in given and changed.combine in ("last", "moving-average"):
            several = f"--window {given['window']} is of several checkpoints"
            raise ValueError(f"{several}; add --combine average or ensemble")
        if "select_beam" in given and changed.select is None:
            raise ValueError(f"--select-beam {given['select_beam']} is for selecting; add --select low-resource")
        return changed


def _require(option: str, value: str | None, known: tuple[str, ...]) -> None:
    if value is not None and value not in known:
        raise ValueError(f"{option} is {value!r}; it is one of {', '.join(known)}")
