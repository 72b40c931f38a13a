"""What ``rota teachers`` says of a teacher in one line: every config of the registry has a :class:`Card`.

The lengths are limits, not advice: the list fits into 80 columns, with one line for each teacher.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

FAMILIES: Final[Mapping[str, str]] = {
    "static": "Static: the same shares throughout",
    "scripted": "Scripted: shares that change by the clock",
    "bandits": "Bandits: each language is worth what its last updates brought",
    "weights": "Weights: shares follow a signal, by a rule",
    "policies": "Policies: a network or a state machine decides",
    "curricula": "Curricula: which sentences of a language, inside any teacher (curriculum: NAME)",
    "controls": "Controls: repeat another run, to explain it",
}
"""The sections of the list, in its order."""

ADVICE: Final = (
    "Which one? Begin with {name: temperature, temperature: 5, warmup: 10%}: nothing was shown to beat uniform yet. "
    "Compare on your own text (rota compare)."
)
"""The answer to the question that people ask first."""

_LIMITS: Final[Mapping[str, int]] = {"line": 25, "observes": 10, "source": 12}
COST: Final = 5  # characters of each of the two costs


@dataclass(frozen=True)
class Card:
    """A teacher in one line, and where it comes from.

    ``cost`` is the share of a run's time that goes into its decisions and observations, with its default settings and
    eight languages, in runs with updates of 750 and of 8,000 target tokens: the table of docs/benchmarks.md, rounded
    (``"0"``: less than 0.05 %). A leading ``~`` says that it is not in the table, but computed.
    """

    family: str
    line: str  # what it does
    observes: str  # "nothing", "dev loss", "gradients", ...
    cost: tuple[str, str]
    source: str  # who and when, such as "Wu '21"
    reference: str  # the same in full, for ``rota teachers NAME``

    def __post_init__(self) -> None:
        if self.family not in FAMILIES:
            raise ValueError(f"unknown family {self.family!r}; there are {', '.join(FAMILIES)}")
        for name, limit in _LIMITS.items():
            text = getattr(self, name)
            if not 0 < len(text) <= limit:
                raise ValueError(f"{name} is {text!r}, {len(text)} characters; 1 to {limit} fit into the list")
        for cost in self.cost:
            if not 0 < len(cost) <= COST:
                raise ValueError(f"the cost {cost!r} has {len(cost)} characters; 1 to {COST} fit into the list")
        if not self.reference:
            raise ValueError(f"the card of {self.line!r} has no reference; name the source in full")
