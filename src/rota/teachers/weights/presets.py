"""The published methods as rows of a table: each is a signal, a rule and their settings.

``settings`` are Rota's: floors, standardised values, losses at averaged weights, and numbers of updates as shares of
the run. ``published`` are those that the source has otherwise; ``variant: source`` takes them. docs/teachers.md says
where each comes from, how far it was checked, and what differs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

PRIOR_5 = {"name": "temperature", "temperature": 5.0}


@dataclass(frozen=True)
class Preset:
    """One published method."""

    about: str  # one line
    source: str
    settings: Mapping[str, Any]
    published: Mapping[str, Any] = field(default_factory=dict)


PRESETS: dict[str, Preset] = {
    "exp3": Preset(
        "bandit on the relative gain of the joint dev loss",
        "Kreutzer et al. 2021",
        {
            **{"signal": "gain", "of": "joint", "relative": True, "tokens": 1_000, "scale": "quantiles"},
            **{"rule": "exp3", "epsilon": 0.1, "decide_every": 10, "reweight_every": None},
        },
        {"eta": 0.1, "cap": None, "scale": "none", "weights": "raw", "floor": 0.0, "decide_every": 1},
    ),
    "exp3-s": Preset(
        "bandit that forgets, on each language's own gain",
        "Graves et al. 2017",
        {
            **{"signal": "gain", "of": "own", "tokens": 500, "scale": "quantiles"},
            **{"rule": "exp3-s", "epsilon": 0.05, "decide_every": 10, "reweight_every": None},
        },
        {"eta": 1e-3, "cap": None, "horizon": "100%", "weights": "raw", "floor": 0.0, "decide_every": 1},
    ),
    "odm": Preset(
        "bandit towards high training loss",
        "Albalak et al. 2023",
        {
            **{"signal": "train-loss", "scale": "z-score", "rule": "odm", "prior": "proportional"},
            **{"start": "5%", "reweight_every": None},
        },
        {"scale": "none", "cap": None, "floor": 0.0, "start": 2_000},
    ),
    "chi-ibr": Preset(
        "the worst mixture near proportional, by training loss over a baseline",
        "Zhou et al. 2021",
        {
            **{"signal": "excess", "loss": "train", "smoothing": 0.1, "restart": True, "rule": "chi-square"},
            **{"prior": "proportional", "reweight_every": "2.5%"},
        },
        {"floor": 0.0},
    ),
    "jean-explicit": Preset(
        "samples what is furthest behind its baseline",
        "Jean et al. 2019",
        {"signal": "shortfall", "rule": "proportional", "reweight_every": "5%"},
        {"weights": "raw", "floor": 0.0},
    ),
    "jean-implicit": Preset(
        "constant sampling; the loss of what is furthest behind counts more",
        "Jean et al. 2019",
        {"signal": "shortfall", "rule": "proportional", "reweight_every": "5%", "apply": "loss"},
        {"weights": "raw", "floor": 0.0},
    ),
    "loss-softmax": Preset(
        "more of what has a high dev loss",
        "a common baseline",
        {
            **{"signal": "dev-loss", "smoothing": 0.3, "scale": "across-arms", "rule": "softmax"},
            **{"prior": PRIOR_5},
        },
        {"weights": "raw", "smoothing": 1.0, "scale": "none", "prior": "uniform", "floor": 0.0},
    ),
    "relative-decrease": Preset(
        "more of what has lately been learned fastest",
        "the signal of Xu et al. 2020",
        {
            **{"signal": "gain", "of": "every", "relative": True, "scale": "across-arms", "rule": "softmax"},
            **{"prior": PRIOR_5},
        },
        {"weights": "raw", "floor": 0.0},
    ),
    "skill-it": Preset(
        "more of what has a high dev loss, itself or in related languages",
        "Chen et al. 2023",
        {"signal": "related-loss", "scale": "across-arms", "rule": "softmax", "temperature": 2.0},
        {"weights": "raw", "scale": "none", "floor": 0.0},
    ),
}


def with_preset(values: Any) -> Any:
    """What a config says, completed by the preset that its name is, in the variant that it asks for."""
    if not isinstance(values, Mapping):
        return values
    preset = PRESETS.get(str(values.get("name")))
    if preset is None:
        return values
    published = preset.published if values.get("variant") == "source" else {}
    return {**preset.settings, **published, **values}
