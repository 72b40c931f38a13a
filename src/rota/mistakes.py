"""Mistakes in a config that show before anything is prepared: preparing may take long."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING

from rota.config import RunConfig
from rota.goal import GROUPS, resolve
from rota.runs import Run
from rota.settings import ConfigError

if TYPE_CHECKING:
    from rota.team import Team

logger = logging.getLogger(__name__)


def check_before_preparing(config: RunConfig, run: Path, team: Team) -> None:
    """All of them, for the run in the folder ``run`` that ``team`` is about to train."""
    from rota.student.hardware import check_machine

    check_durations(config, begun=Run(run).exists)
    check_goal(config)
    check_machine(config.student)
    check_sharing(config, run, team)


def check_durations(config: RunConfig, *, begun: bool = False) -> None:
    """Warm-ups and phases that outlast a run are nearly always settings of a longer one.

    A run that has begun may go on with a teacher that would be refused today; it is said all the same.
    """
    steps = config.training.steps
    try:
        config.teacher.check(steps)
    except ConfigError as mistake:
        if not begun:
            raise
        logger.warning("%s", mistake)
    restart = config.student.learning_rate.restart
    if restart is not None and not 0 < restart.steps(steps) < steps:
        comes = f"student.learning_rate.restart is step {restart.steps(steps):,} and the run has {steps:,}"
        raise ConfigError(f"{comes}; write for example 50%")
    rising = config.student.lr_warmup.steps(steps)
    if rising >= steps:
        logger.warning(
            "student.lr_warmup lasts %d steps and the run %d: the rate never reaches its peak", rising, steps
        )


def check_goal(config: RunConfig) -> None:
    """A goal among languages that the config does not have; which of them are low-resource is known only later."""
    languages = config.data.known_languages
    if languages and config.goal not in GROUPS:
        resolve(config.goal, languages)


def check_sharing(config: RunConfig, run: Path, team: Team) -> None:
    """A new run needs as many batches in an update for each process; one that resumes takes the processes it gets."""
    accumulate, size = config.training.accumulate, team.size
    started = team.share(lambda: Run(run).exists)
    if accumulate % size == 0:
        return
    found = f"training.accumulate is {accumulate} and there are {size} processes"
    if not started:
        even = size * (accumulate // size + 1)
        remedy = f"write for example --set training.accumulate={even}"
        raise ConfigError(f"{found}, which share the batches of an update: {remedy}")
    if team.first:
        idle = f"{size - accumulate} without a batch" if size > accumulate else "some wait for others"
        logger.warning("%s: %s in each update", found, idle)
