"""The published methods as rows of a table: each is a signal, a rule and their settings.

``settings`` are Rota's: floors, standardised values, losses at averaged weights, and numbers of updates as shares of
the run. ``published`` are those that the source has otherwise; ``variant: source`` takes them. docs/weights.md says
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
            ("4%", "0.4%"),
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
            ("5%", "0.5%"),
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
            ("0.4%", "0"),
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
            ("0.3%", "0"),
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
            ("2%", "0"),
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
            ("2%", "0"),
            "Jean '19",
            "Jean, Firat and Johnson 2019, Adaptive Scheduling for Multi-Task Learning; our reading",
        ),
        {"signal": "shortfall", "rule": "proportional", "reweight_every": "5%", "apply": "loss"},
        {"weights": "raw", "floor": 0.0},
    ),
    "loss-softmax": Preset(
        "More of what has a high dev loss: the simplest rule, for comparison.",
        _card("high loss", "dev loss", ("4%", "0"), "-", "a common baseline"),
        {"signal": "dev-loss", "smoothing": 0.3, "scale": "across-arms", "rule": "softmax", "prior": TEMPERATURE_5},
        {"weights": "raw", "smoothing": 1.0, "scale": "none", "prior": "uniform", "floor": 0.0},
    ),
    "relative-decrease": Preset(
        "More of what has lately been learned fastest for its loss: the signal of Xu et al. 2020, for languages.",
        _card(
            "fast relative decrease",
            "dev loss",
            ("4%", "0"),
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
            ("4%", "0"),
            "Chen '23",
            "Chen et al. 2023, Skill-it! A Data-Driven Skills Framework for Language Models",
        ),
        {"signal": "related-loss", "scale": "across-arms", "rule": "softmax", "temperature": 2.0},
        {"weights": "raw", "scale": "none", "floor": 0.0},
    ),
    "multidds-s": Preset(
        "Drifts towards what has training gradients like the dev gradients, by cosine (Wang et al. 2020).",
        _card(
            "gradients like dev's",
            "gradients",
            ("7%", "0"),
            "Wang '20",
            "Wang, Tsvetkov and Neubig 2020, Balancing Training for Multilingual NMT (MultiDDS-S)",
        ),
        {"signal": "gradient", "tokens": 150, "rule": "actor", "prior": "proportional"},
        {"tokens": 1_200, "weights": "raw", "actor": "adam", "reweight_every": 1_000, "floor": 0.0},
    ),
    "multiuat": Preset(
        "Drifts towards what the student is unsure of under dropout (Wu et al. 2021).",
        _card(
            "what it is unsure of",
            "dropout",
            ("4%", "0"),
            "Wu '21",
            "Wu et al. 2021, Uncertainty-Aware Balancing for Multilingual and Multi-Domain NMT (MultiUAT)",
        ),
        {"signal": "uncertainty", "tokens": 200, "samples": 2, "rule": "actor", "prior": "proportional"},
        {"tokens": 1_024, "weights": "raw", "actor": "adam", "reweight_every": 2_000, "floor": 0.0, "samples": 1},
    ),
    "zaremoodi": Preset(
        "In proportion to how far a language's gradient leads down the low-resource dev losses (our reading).",
        _card(
            "gradients for some",
            "gradients",
            ("5%", "0"),
            "Zaremoodi'19",
            "Zaremoodi and Haffari 2019, Adaptively Scheduled Multitask Learning; our reading of the abstract",
        ),
        {
            "signal": "gradient",
            "divided_by": "nothing",
            "targets": "low-resource",
            "smoothing": 0.3,
            "rule": "proportional",
            "tokens": 150,
        },
        {"weights": "raw", "smoothing": 1.0, "floor": 0.0},
    ),
    "pike": Preset(
        "More of what has large gradients that vary little (PiKE, 2025).",
        _card(
            "large, steady gradients",
            "gradients",
            ("6%", "0"),
            "PiKE '25",
            "PiKE: Adaptive Data Mixing for Multi-Task Learning, 2025, Algorithm 1; its constants are not in our copy",
        ),
        {"signal": "pike", "tokens": 200, "scale": "across-arms", "rule": "mirror"},
        {"weights": "raw", "scale": "none", "eta": 1.0, "floor": 0.0},
    ),
    "doge": Preset(
        "Weights grow with the dot product of training and dev gradients: DoGE on the run itself (Fan et al. 2024).",
        _card(
            "gradients along dev's",
            "gradients",
            ("7%", "0"),
            "Fan '24",
            "Fan, Pagliardini and Jaggi 2024, DoGE: Domain Reweighting with Generalization Estimation",
        ),
        {
            "signal": "gradient",
            "divided_by": "mean-norm",
            "tokens": 150,
            "scale": "across-arms",
            "rule": "mirror",
        },
        {"weights": "raw", "scale": "none", "between": [0.0, 5.0], "eta": 0.01, "reweight_every": 1, "floor": 0.0},
    ),
    "dynamix-sft": Preset(
        "The prior, tilted to what one step on itself would improve most (DynamixSFT, 2025; our reading).",
        _card(
            "one-step gain on itself",
            "gradients",
            ("6%", "0"),
            "Dynamix '25",
            "DynamixSFT: Dynamic Mixture Optimization of Instruction Tuning Collections, 2025; our reading",
        ),
        {
            "signal": "virtual-gain",
            "tokens": 200,
            "smoothing": 0.3,
            "scale": "min-max",
            "rule": "softmax",
            "prior": "proportional",
        },
        {"weights": "raw", "floor": 0.0},
    ),
}
