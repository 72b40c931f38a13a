"""Mistakes in a config that show before anything is prepared."""

from __future__ import annotations

import logging
from pathlib import Path

from rota.config import RunConfig
from rota.settings import ConfigError
from rota.student.hardware import check_machine
from rota.teachers.static import TwoPhaseConfig
from rota.team import Team

logger = logging.getLogger(__name__)


def check_before_preparing(config: RunConfig, run: Path, team: Team) -> None:
    """Mistakes that need no data to be found: preparing them may take long."""
    check_durations(config)
    check_machine(config.student)
    check_sharing(config, run, team)


def check_durations(config: RunConfig) -> None:
    """Warm-ups and phases that outlast a run are nearly always settings of a longer one."""
    steps = config.training.steps
    warmup = config.teacher.warmup
    if warmup is not None and warmup.until.steps(steps) >= steps:
        lasts = f"teacher.warmup lasts {warmup.until.steps(steps):,} steps and the run {steps:,}"
        raise ConfigError(f"{lasts}: the teacher would never decide; write for example teacher.warmup: 10%")
    if isinstance(config.teacher, TwoPhaseConfig) and config.teacher.switch.steps(steps) >= steps:
        comes = f"teacher.switch comes at step {config.teacher.switch.steps(steps):,} and the run has {steps:,}"
        raise ConfigError(f"{comes}: the second schedule would never decide; write for example teacher.switch: 50%")
    rising = config.student.lr_warmup.steps(steps)
    if rising >= steps:
        logger.warning(
            "student.lr_warmup lasts %d steps and the run %d: the rate never reaches its peak", rising, steps
        )


def check_sharing(config: RunConfig, run: Path, team: Team) -> None:
    """A new run has as many batches in an update for each process; one that goes on takes the processes it is given."""
    accumulate, size = config.training.accumulate, team.size
    started = team.share((run / "run.json").exists)
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
