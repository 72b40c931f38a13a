"""The published methods as rows of a table: each is a signal, a rule and their settings.

``settings`` are Rota's: floors, standardised values, losses at averaged weights, and numbers of updates as shares of
the run. ``published`` are those that the source has otherwise; ``variant: source`` takes them. docs/teachers.md says
where each comes from, how far it was checked, and what differs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from rota.teachers.card import Card

TEMPERATURE_5 = {"name": "temperature", "temperature": 5.0}


@dataclass(frozen=True)
class Preset:
    """One published method."""

    about: str  # what it does, in a sentence or two
    card: Card
    settings: Mapping[str, Any]
    published: Mapping[str, Any] = field(default_factory=dict)


def _card(line: str, observes: str, cost: tuple[str, str], source: str, reference: str) -> Card:
    return Card("weights", line, observes, cost, source, reference)


PRESETS: dict[str, Preset] = {
    "exp3": Preset(
        "Bandit on the relative gain of the joint dev loss, credited to the language played (Kreutzer et al. 2021).",
        _card(
            "bandit: joint gain",
            "dev loss",
            ("~+4%", "0"),
            "Kreutzer '21",
            "Kreutzer, Vilar and Sokolov 2021, Bandits Don't Follow Rules; constants from memory",
        ),
        {
            "signal": "gain",
            "of": "joint",
            "relative": True,
            "tokens": 1_000,
            "scale": "quantiles",
            "rule": "exp3",
            "epsilon": 0.1,
            "decide_every": 10,
            "reweight_every": None,
        },
        {"eta": 0.1, "cap": None, "scale": "none", "weights": "raw", "floor": 0.0, "decide_every": 1},
    ),
    "exp3-s": Preset(
        "Bandit that forgets, on the gain of each language's own dev loss around its updates (Graves et al. 2017).",
        _card(
            "forgetful bandit: gain",
            "dev loss",
            ("~+4%", "0"),
            "Graves '17",
            "Graves et al. 2017, Automated Curriculum Learning for Neural Networks; constants from memory",
        ),
        {
            "signal": "gain",
            "of": "own",
            "tokens": 500,
            "scale": "quantiles",
            "rule": "exp3-s",
            "epsilon": 0.05,
            "decide_every": 10,
            "reweight_every": None,
        },
        {"eta": 1e-3, "cap": None, "horizon": "100%", "weights": "raw", "floor": 0.0, "decide_every": 1},
    ),
    "odm": Preset(
        "Bandit towards a high training loss, exploring less and less (Albalak et al. 2023).",
        _card(
            "bandit: training loss",
            "train loss",
            ("0", "0"),
            "Albalak '23",
            "Albalak et al. 2023, Efficient Online Data Mixing for Language Model Pre-Training",
        ),
        {
            "signal": "train-loss",
            "scale": "z-score",
            "rule": "odm",
            "prior": "proportional",
            "start": "5%",
            "reweight_every": None,
        },
        {"scale": "none", "cap": None, "floor": 0.0, "start": 2_000},
    ),
    "chi-ibr": Preset(
        "The worst mixture near the proportional one, by training loss over a baseline (Zhou et al. 2021).",
        _card(
            "worst case near size",
            "train loss",
            ("0", "0"),
            "Zhou '21",
            "Zhou et al. 2021, Distributionally Robust Multilingual Machine Translation",
        ),
        {
            "signal": "excess",
            "loss": "train",
            "smoothing": 0.1,
            "restart": True,
            "rule": "chi-square",
            "prior": "proportional",
            "reweight_every": "2.5%",
        },
        {"floor": 0.0},
    ),
    "jean-explicit": Preset(
        "Samples more of what is furthest behind its baseline (Jean et al. 2019; our reading).",
        _card(
            "furthest behind",
            "dev loss",
            ("~+1%", "0"),
            "Jean '19",
            "Jean, Firat and Johnson 2019, Adaptive Scheduling for Multi-Task Learning; our reading",
        ),
        {"signal": "shortfall", "rule": "proportional", "reweight_every": "5%"},
        {"weights": "raw", "floor": 0.0},
    ),
    "jean-implicit": Preset(
        "Constant sampling; the loss of what is furthest behind counts more (Jean et al. 2019; our reading).",
        _card(
            "its loss counts more",
            "dev loss",
            ("~+1%", "0"),
            "Jean '19",
            "Jean, Firat and Johnson 2019, Adaptive Scheduling for Multi-Task Learning; our reading",
        ),
        {"signal": "shortfall", "rule": "proportional", "reweight_every": "5%", "apply": "loss"},
        {"weights": "raw", "floor": 0.0},
    ),
    "loss-softmax": Preset(
        "More of what has a high dev loss: the simplest rule, for comparison.",
        _card("high loss", "dev loss", ("~+3%", "0"), "-", "a common baseline"),
        {"signal": "dev-loss", "smoothing": 0.3, "scale": "across-arms", "rule": "softmax", "prior": TEMPERATURE_5},
        {"weights": "raw", "smoothing": 1.0, "scale": "none", "prior": "uniform", "floor": 0.0},
    ),
    "relative-decrease": Preset(
        "More of what has lately been learned fastest for its loss: the signal of Xu et al. 2020, for languages.",
        _card(
            "fast relative decrease",
            "dev loss",
            ("~+3%", "0"),
            "Xu '20",
            "Xu et al. 2020, Dynamic Curriculum Learning for Low-Resource NMT, whose signal is of sentences",
        ),
        {
            "signal": "gain",
            "of": "every",
            "relative": True,
            "scale": "across-arms",
            "rule": "softmax",
            "prior": TEMPERATURE_5,
        },
        {"weights": "raw", "floor": 0.0},
    ),
    "skill-it": Preset(
        "More of what has a high dev loss, itself or in its relatives (Chen et al. 2023).",
        _card(
            "high loss, also of kin",
            "dev loss",
            ("~+3%", "0"),
            "Chen '23",
            "Chen et al. 2023, Skill-it! A Data-Driven Skills Framework for Language Models",
        ),
        {"signal": "related-loss", "scale": "across-arms", "rule": "softmax", "temperature": 2.0},
        {"weights": "raw", "scale": "none", "floor": 0.0},
    ),
}
