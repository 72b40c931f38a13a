"""A run that is to go on beyond the updates it was planned for: ``rota train --steps``.

Shares of the run in its config, such as ``lr_warmup: 10%``, stay the numbers of updates that they were, so that what
has been trained is the first part of the longer run. ``extensions`` in ``run.json`` say from where to where.
"""

from __future__ import annotations

import logging
import re
from typing import Any, Final

from rota.config import RunConfig, as_begun, difference, parse_config
from rota.runs import Run
from rota.settings import ConfigError, Duration

logger = logging.getLogger(__name__)

_SHARE = re.compile(r"\d+(\.\d+)?%")
_SECTIONS: Final = ("student", "teacher", "training")

ENDLESS: Final = ("inverse-sqrt", "hold-then-inverse-sqrt")
"""The shapes of the learning rate that do not depend on where the run ends."""


def extended(config: RunConfig, steps: int) -> RunConfig:
    """The same run with ``steps`` updates; shares become the numbers of updates that they were."""
    before, dumped = config.training.steps, config.dump()
    fixed = {name: _fixed(part, before) if name in _SECTIONS else part for name, part in dumped.items()}
    return parse_config(fixed | {"training": {**fixed["training"], "steps": steps}})


def _fixed(value: Any, steps: int) -> Any:
    if isinstance(value, dict):
        return {_fixed(key, steps): _fixed(inner, steps) for key, inner in value.items()}
    if isinstance(value, list):
        return [_fixed(inner, steps) for inner in value]
    if not (isinstance(value, str) and _SHARE.fullmatch(value)):
        return value
    share = Duration(value)
    return max(1, share.steps(steps)) if share.amount else 0


def as_extended(config: RunConfig, run: Run) -> RunConfig:
    """The config that the run resumes with: as long as the run is now, if it was extended before."""
    earlier = run.about.get("extensions") if run.exists else None
    return extended(_as_planned(config, run), run.steps) if earlier else config


def lengthen(config: RunConfig, run: Run, steps: int) -> RunConfig:
    """The config with which the run goes on to ``steps``."""
    if steps < run.steps:
        raise ConfigError(
            f"--steps {steps:,}, but {run} is planned for {run.steps:,} updates; give more, or leave it out"
        )
    return extended(_as_planned(config, run), steps) if steps > run.steps else as_extended(config, run)


def _as_planned(config: RunConfig, run: Run) -> RunConfig:
    """With what the run did before some settings existed; its config must name the length that it was begun with."""
    if config.training.steps != run.begun_with:
        found = f"training.steps is {config.training.steps:,}, but {run} was begun with {run.begun_with:,}"
        longer = f"go on with --steps {run.steps}, extend it with a larger count"
        raise ConfigError(f"{found}; {longer}, or set training.steps to {run.begun_with}")
    return as_begun(config, run.about["config"])


def extend(config: RunConfig, run: Run, steps: int) -> None:
    """Make a run longer that was begun with this very config, and note it in ``run.json``."""
    longer, before, now = lengthen(config, run, steps), run.about["config"], run.steps
    change = difference(before, as_begun(as_extended(config, run), before).dump())
    if change is not None:
        raise ConfigError(
            f"{run} holds another run: {change}; --steps extends a run with the config that it began with"
        )
    if steps == now:
        return
    logger.info("%s goes on from %d to %d steps: %s", run, now, steps, about_rate(longer, now, run.saved_step()))
    note = {"from": now, "to": steps, "at": run.saved_step()}
    changed = {"config": longer.dump(), "config_fingerprint": longer.fingerprint}
    run.write_about({**run.about, **changed, "extensions": [*run.about.get("extensions", []), note]})


def about_rate(config: RunConfig, before: int, step: int) -> str:
    """Whether the learning rate lets a run of ``before`` updates go on at ``step``, in a sentence or two."""
    rate, after = config.student.learning_rate, config.training.steps
    if rate.decay in ENDLESS:
        return (
            f"the learning rate ({rate.decay}) does not depend on the end of the run: with a static schedule this is"
            f" the run that {after:,} steps would have been from the start, with the same numbers of warm-up steps"
        )
    was, goes = config.student.schedule(before)(max(step, 1)), config.student.schedule(after)(step + 1)
    return (
        f"the learning rate ({rate.decay}) was at {was:.2g} at step {step:,}, on its way to 0 at the end; it goes back"
        f" to {goes:.2g} and falls to 0 at step {after:,}. That is not what {after:,} steps from the start would give:"
        " for that train in another folder"
    )
