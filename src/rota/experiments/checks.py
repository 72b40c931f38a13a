"""What is refused of a planned suite before any text is prepared, besides the configs themselves.

``rota train`` refuses the same of a single run; here a mistake in one row would show only when the data of all rows
are ready, or when its turn comes.
"""

from __future__ import annotations

from collections.abc import Sequence
from graphlib import CycleError, TopologicalSorter
from typing import TYPE_CHECKING

from rota.config import check_goal
from rota.settings import ConfigError
from rota.start.points import with_start
from rota.student.config import StudentConfig

if TYPE_CHECKING:
    from rota.experiments.jobs import Job


def check_circles(jobs: Sequence[Job]) -> None:
    """Runs that wait for each other would wait for ever."""
    needs = {job.name: job.needs for job in jobs}
    try:
        TopologicalSorter(needs).prepare()
    except CycleError as error:
        name = min(error.args[1])
        raise ConfigError(f"{name} reads {', '.join(needs[name])}, which waits for it; change teacher.run") from None


def check_before_preparing(jobs: Sequence[Job]) -> None:
    """Goals, and what runs start from; one that has begun needs its start no longer."""
    rows = {job.folder.resolve(): job.row for job in jobs}
    checked: list[StudentConfig] = []  # the weights of a start are looked at once, not for every seed
    for job in jobs:
        student, remedy = job.config.student, ""
        try:
            check_goal(job.config)
            if student.start is None or job.run.exists or student in checked:
                continue
            if row := rows.get(student.start.resolve()):
                remedy = f"; row {row!r} of this suite trains it: run that one first, with --rows {row}"
            with_start(student, job.folder)
            checked.append(student)
        except ValueError as mistake:
            raise ConfigError(f"row {job.row!r}: {mistake}{remedy}") from None
