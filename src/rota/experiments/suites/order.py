"""Does the order of the languages matter, apart from their totals? The same updates of every language, in four orders.

Published schedules contradict each other: low-resource languages often at first and less afterwards (Li et al. 2024),
or not before the second half (Choi et al. 2023). Both change totals and order at once. Here UniMax fixes the totals,
exactly, and only the order differs; because a language's batches come in the order that its own stream has, every row
trains on the very same batches.
"""

from __future__ import annotations

from typing import Any

from rota.experiments.corpora import CATALOGUES
from rota.experiments.suite import Row, Suite
from rota.experiments.suites.laptop import SIZE, SMALL
from rota.experiments.suites.paper import paper

EPOCHS = 16
"""The most that a language is repeated: small students tolerate more than large ones."""


def _unimax(label: str, when: str) -> Row:
    return _row(label, {"name": "unimax", "epochs": EPOCHS, "when": when})


def _row(label: str, teacher: dict[str, Any]) -> Row:
    return Row(teacher=teacher, label=label, table="control", warmup="none")


ROWS = {
    "spread": _unimax("UniMax, spread", "spread"),
    "early": _unimax("UniMax, low-resource early", "early"),
    "late": _unimax("UniMax, low-resource late", "late"),
    # Within windows of a tenth of the run the order is drawn again: the slow change stays, single choices do not.
    "late-windows": _row(
        "Late, windows shuffled", {"name": "replay-shuffled", "run": "{runs}/late/seed-{seed}", "window": "10%"}
    ),
}


def order() -> Suite:
    """Four orders of the same updates, at laptop size."""
    base = paper().base | {"data": CATALOGUES}
    scale = SIZE.model_copy(update={"decide_every": None})  # all rows choose at every update
    return Suite(name="order", base=base, scale=scale, over=SMALL, seeds=(1, 2, 3, 4, 5), rows=ROWS)
