"""The paper's grid on two cores: the same rows, scaled down, on a corpus from a package registry."""

from __future__ import annotations

from typing import Final

from rota.experiments.corpora import CATALOGUES
from rota.experiments.scale import Scale, Values
from rota.experiments.suite import Row, Suite
from rota.experiments.suites.paper import CONTROLS, DQN_ABLATION, MAIN, TSCL_ABLATION, paper, temperature

PEAK: Final = 0.0025
"""Highest learning rate: tuned on the uniform schedule, used for all.

Runs of one seed with peaks of 0.0013, 0.002, 0.003 and 0.006, in batches of 1,000 tokens, ended at mean dev losses of
3.876, 3.823, 3.826 and 4.261.
"""

# All rows choose every 10 updates: most of the effect of fewer comes after their reward was taken, because Adam's
# momentum spreads it over ten. Rewards are taken on all dev sentences of the teacher.
SIZE: Final = Scale(steps=1_500, tokens=750, peak=PEAK, decide_every=10, reward_tokens=8_000)

# A checkpoint every 100 of 1,500 updates. With the paper's share, 2.7 % for each, more than twice as
# many windows would be there to choose from, which takes more than twice the time.
SMALL: Final[Values] = {
    "student": {"preset": "tiny", "dropout": 0.1},
    "training": {"checkpoint_every": "6.67%", "validate_every": "6.67%", "keep": 2, "threads": 1, "tensorboard": False},
    # Greedy while selecting: a window then costs a tenth of the training between two checkpoints (docs/evaluation.md).
    "evaluation": {"select_beam": 1},
}

SWEEP: Final = (1.5, 2, 3, 5, 10)


def laptop() -> Suite:
    """The paper's grid on the catalogues, a few minutes of one core for each run."""
    rows = MAIN | TSCL_ABLATION | DQN_ABLATION | CONTROLS
    return _small("laptop", rows, default=(*MAIN, "temperature-2", "temperature-5", "replay-proportions"))


def controls() -> Suite:
    """What DQN is to be measured against, at laptop size: a sweep of the temperature, and itself without its parts."""
    rows = {name: MAIN[name] for name in ("uniform-warmup", "proportional-warmup", "dqn")}
    sweep = {f"temperature-{value:g}": temperature(value) for value in SWEEP}
    return _small("controls", rows | sweep | CONTROLS)


def _small(name: str, rows: dict[str, Row], default: tuple[str, ...] = ()) -> Suite:
    base = paper().base | {"data": CATALOGUES}
    return Suite(name=name, base=base, scale=SIZE, over=SMALL, seeds=(1, 2, 3, 4, 5), rows=rows, default=default)
