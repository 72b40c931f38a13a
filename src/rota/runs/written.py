"""``written.json``: what a run's folder has at least, so that what is lost at the end of it is noticed.

A check value on every line says nothing of lines that are gone from the end of a record, and a folder without its last
checkpoint looks like one of a run that was killed before. What training writes is counted in each checkpoint; here are
the lines of the records that are added to afterwards, and the steps of the checkpoints.

Each is noted after what it is about has reached the disk, so that a process may be killed between the two: the file may
lag behind, and never says too much. What is removed on purpose is taken out of it first. Earlier versions did not
write the file, and without it nothing is asked for.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from rota.files import damaged, locked, read_json, write_json
from rota.runs.entries import is_whole

COUNTED: Final = ("evals", "translations")
"""The records that are added to after training, maybe by several processes."""

CHECKPOINTS: Final = "checkpoints"
NAME: Final = "written.json"
WITHOUT_IT: Final = f"copy it again, or delete {NAME} beside it and run rota evaluate again"
"""What to do about a record that has lost lines."""


class Written:
    """The file of one run."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / NAME

    def read(self) -> dict[str, Any]:
        """Lines by the name of a record, and ``checkpoints``: a list of steps. Empty if there is no such file."""
        remedy = "delete it; the next rota train or rota evaluate writes it again"
        try:
            found = read_json(self.path, remedy=remedy)
        except FileNotFoundError:
            return {}
        for key, value in found.items():
            if key == CHECKPOINTS and not (isinstance(value, list) and all(map(is_whole, value))):
                raise damaged(self.path, f"its {key} are not a list of steps", remedy)
            if key in COUNTED and not is_whole(value):
                raise damaged(self.path, f"its {key} is not a whole number", remedy)
        return found

    def lines(self, name: str) -> int:
        """The lines that a record has at least. Ask before the record is read: another process may be adding to it."""
        return int(self.read().get(name, 0)) if name in COUNTED else 0

    def checkpoints(self) -> list[int] | None:
        """The steps that were saved; None if an earlier version saved them."""
        steps: list[int] | None = self.read().get(CHECKPOINTS)
        return steps

    def has_checkpoint(self, step: int) -> bool:
        """Whether a checkpoint was saved, and all that was due after it was done; of an earlier version: always."""
        steps = self.checkpoints()
        return steps is None or step in steps

    @contextmanager
    def changing(self) -> Iterator[dict[str, Any]]:
        """What the file says, to be changed; written when the block ends well. One process at a time is inside."""
        with locked(self.path.with_name(".written.lock"), keep=False):
            before = self.read()
            after = dict(before)
            yield after
            if after != before:
                write_json(self.path, after, checked=True)


def too_short(found: int, least: int) -> str | None:
    """What is wrong with a record of ``found`` lines that had at least so many; None if nothing is."""
    if found >= least:
        return None
    return f"it has {found:,} {'line' if found == 1 else 'lines'}, and had {least:,}"
