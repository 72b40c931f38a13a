"""A small planned comparison, to try everything out: two generated corpora, one messy, branching rows, a plan."""

from __future__ import annotations

from typing import Any, Final

from rota.experiments.corpora import SuiteCorpus
from rota.experiments.scale import Values
from rota.experiments.suite import Row, Suite
from rota.plan import Plan

TEXT: Final[Values] = {
    "corpus": "synthetic",
    "synthetic": {
        "families": {"la": {"lala": 2000, "lato": 200}, "ka": {"kaka": 1000, "kato": 100}},
        "dev": 60,
        "test": 60,
    },
    "low_resource": ["lato", "kato"],
    "subwords": {"size": 600},
}
MESS: Final[Values] = {"arms": {"lala": {"misaligned": 0.9}}}
"""Nine tenths of the pairs of the largest language have the English of another pair."""

BASE: Final[Values] = {
    "data": TEXT,
    "student": {
        "preset": "tiny",
        **{"width": 64, "heads": 2, "feedforward": 128, "layers": 1, "dropout": 0.1},
        **{"lr_warmup": "10%", "learning_rate": {"peak": 0.005}},
        "average": 0.98,  # where align measures; the stem must have it too
    },
    "training": {
        **{"steps": 240, "tokens": 500, "checkpoint_every": "5%"},
        **{"validate_every": "5%", "validate_tokens": 1500, "tensorboard": False},
    },
    "evaluation": {"beam": 1, "combine": "average", "window": 4},
}

PLAN: Final[Values] = {
    "endpoint": ["test-loss", "late-dev-loss"],
    "interest": 0.05,
    "contrasts": {
        "against-tuning": {"row": "align", "minus_best_of": ["temperature-*"]},
        "for-its-price": {
            **{"row": "align", "minus_best_of": ["temperature-*"]},
            **{"at": "time", "endpoint": "late-dev-loss"},
        },
        "one-for-all": {
            "row": "align",
            "minus_best_of": ["uniform", "proportional", "temperature-*"],
            "together": True,
        },
    },
}


def _row(label: str, name: str, **settings: Any) -> Row:
    return Row(teacher={"name": name, "warmup": "10%", **settings}, label=label, table="main")


def example() -> Suite:
    """Five schedules, two corpora, three seeds."""
    rows = {
        "uniform": _row("Uniform", "uniform"),
        "proportional": _row("Proportional", "proportional"),
        "temperature-2": _row("Temperature 2", "temperature", temperature=2),
        "temperature-5": _row("Temperature 5", "temperature", temperature=5),
        "align": _row("Align", "align", observe_every=8, refresh=24),
    }
    corpora = {"clean": SuiteCorpus(data=TEXT), "messy": SuiteCorpus(data=TEXT | {"mess": MESS})}
    return Suite(
        name="example",
        base=BASE,
        seeds=(1, 2, 3),
        rows=rows,
        corpora=corpora,
        branch=True,
        plan=Plan.model_validate(PLAN),
    )
