"""Checkpoints: atomic, complete, checksummed. Arrays are safetensors, the rest is JSON; nothing is unpickled.

A checkpoint of step 200 is the folder ``200/``: ``state.json`` holds the tree of every part, each top-level
entry of a part that has arrays is a file of its own (``student.network.safetensors``), and ``checkpoint.json``, written
last, lists the files with their checksums. Older checkpoints are thinned: they lose the optimiser's moments.

torch is imported when arrays are read or written, not to see which checkpoints there are.
"""

from __future__ import annotations

import json
import logging
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, NotRequired, TypedDict, cast

from rota.files import damaged, fingerprint, folder_atomically, read_json, sha256_of, write_json
from rota.runs.entries import by_name, is_text, is_whole
from rota.runs.records import REMEDY
from rota.runs.written import CHECKPOINTS, Written
from rota.types import Checkpointable, State

if TYPE_CHECKING:
    import torch

logger = logging.getLogger(__name__)

FORMAT = 1
MANIFEST = "checkpoint.json"
TREE = "state.json"
WEIGHTS = "student.network.safetensors"
AVERAGE = "student.average.safetensors"  # of a run with student.average
MOMENTS = "student.optimiser.safetensors"  # two thirds of a checkpoint, needed only by a run that resumes


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """One saved step of a run."""

    step: int
    folder: Path
    complete: bool  # everything needed to resume; False: without the moments of the optimiser

    def load(self) -> dict[str, State]:
        """The state of every part, by name."""
        if not self.complete:
            raise ValueError(f"{self.folder} is not complete any more; training resumes from a newer checkpoint")
        return {part: self.load_part(part) for part in self._tree()}

    def load_part(self, part: str) -> State:
        """The state of one part, such as the teacher: in thinned checkpoints all but ``student`` are whole."""
        from rota.runs.tensors import read_arrays

        tree = self._tree()
        if part not in tree:
            raise ValueError(f"{self.folder} has no part {part!r}; it has {', '.join(tree)}")
        return read_arrays(tree[part], part, self.folder)

    def network(self) -> dict[str, torch.Tensor]:
        """The network's tensors by name: all that translating needs."""
        from rota.runs.tensors import read_tensors

        return read_tensors(self.folder / WEIGHTS)

    def moving_average(self) -> dict[str, torch.Tensor]:
        """The moving average of the network's tensors, if the run kept one."""
        from rota.runs.tensors import read_tensors

        path = self.folder / AVERAGE
        if not path.is_file():
            lacks = f"{self.folder} has no moving average of the weights"
            raise ValueError(f"{lacks}; train with student.average: 0.99, or use --combine average")
        return read_tensors(path)

    def _tree(self) -> dict[str, State]:
        return read_json(self.folder / TREE, remedy=REMEDY)

    def damaged_file(self) -> str | None:
        """The name of the first file that is missing or differs from its checksum; None if all is well."""
        return next(self.damaged_files(), None)

    def damaged_files(self) -> Iterator[str]:
        for name, checksum in _files(self.folder).items():
            path = self.folder / name
            if not path.exists() or sha256_of(path) != checksum:
                yield name

    def left_over(self) -> list[Path]:
        """Files that its manifest does not name: a process was killed before it could remove them."""
        known = _files(self.folder)
        return sorted(path for path in self.folder.iterdir() if path.name not in known and path.name != MANIFEST)

    def weights(self, *, moving_average: bool = False) -> str:
        """The checksum of its weights, as its manifest has it; empty if it has none of that kind."""
        return _files(self.folder).get(AVERAGE if moving_average else WEIGHTS, "")

    def records(self) -> dict[str, int] | None:
        """The lines that each record of the run had when it was saved; None if an earlier version saved it."""
        return read_manifest(self.folder).get("records")

    def is_intact(self) -> bool:
        """Whether all checksums hold; if not, that is reported, since another checkpoint takes its place."""
        damage = self.damaged_file()
        if damage is not None:
            logger.warning("checkpoint %s is damaged (%s); it is passed over", self.folder, damage)
        return damage is None


class Checkpoints:
    """The checkpoints of one run, oldest first; the last ``keep`` are complete, older ones have lost the moments."""

    def __init__(self, folder: Path, keep: int = 2, written: Written | None = None) -> None:
        """``written``: where it is noted which checkpoints there are, so that one that is gone is missed."""
        if keep < 1:
            raise ValueError(f"keep is {keep}; at least 1 complete checkpoint must stay")
        self.folder = folder
        self.keep = keep
        self._written = written

    def save(
        self,
        step: int,
        parts: Mapping[str, Checkpointable],
        *,
        drop: Iterable[int] = (),
        records: Mapping[str, int] | None = None,
    ) -> Path:
        """Write all parts, then make the folder appear at once under its final name; ``drop`` others after that.

        ``records`` are the lines that the records of the run have now, by name: none of them may have fewer later.
        """
        from rota.runs.tensors import write_arrays

        final = self.folder / str(step)  # where a damaged one may lie, or the same again after a resume
        with folder_atomically(final) as partial:
            tree = {name: write_arrays(part.state_dict(), name, partial) for name, part in parts.items()}
            (partial / TREE).write_text(json.dumps(tree), encoding="utf-8")
            files = {path.name: sha256_of(path) for path in sorted(partial.iterdir())}
            write_manifest(partial, step, files, complete=True, records=records)
        self.drop(drop)
        self._thin()
        self._note()  # last: a step that is noted is saved with all that belongs to it
        return final

    def list(self) -> list[Checkpoint]:
        """All checkpoints that are whole as far as their manifests tell, by step."""
        if not self.folder.is_dir():
            return []
        return [found for step in self._steps() if (found := _inspect(self.folder / str(step))) is not None]

    def _steps(self) -> Sequence[int]:
        """Of all folders, whole or not."""
        if not self.folder.is_dir():
            return []
        return sorted(int(path.name) for path in self.folder.iterdir() if path.name.isdigit())

    def missing(self) -> Sequence[int]:
        """Steps that were saved, as far as that was noted, and whose folders are gone."""
        before, there = self._noted(), self._steps()
        gone = [step for step in before if step not in there]
        return [step for step in gone if step in self._noted()] if gone else []  # a run that trains may drop some

    def lines(self) -> tuple[int, Mapping[str, int]]:
        """The step of the newest checkpoint, and the lines of each record then; no lines if nothing says how many."""
        for step in reversed(self._steps()):
            with suppress(OSError, ValueError):  # what uses a checkpoint says what is wrong with it
                manifest = read_manifest(self.folder / str(step))
                return manifest["step"], manifest.get("records", {})
        return 0, {}

    def _noted(self) -> Sequence[int]:
        return [] if self._written is None else self._written.checkpoints() or []

    def newest(self) -> Checkpoint | None:
        """The newest complete checkpoint whose checksums hold; damaged ones are reported and passed over.

        None if nothing was saved yet. Where all are damaged that is an error: starting again would lose the run.
        """
        for checkpoint in reversed(self.list()):
            if checkpoint.complete and (damage := checkpoint.damaged_file()) is None:
                return checkpoint
            if checkpoint.complete:
                logger.warning("checkpoint %s is damaged (%s); using the one before", checkpoint.folder, damage)
        if self._steps():
            gone = "".join(f", and {step} is missing" for step in self.missing()[-1:])
            lacks = f"{self.folder} has no intact complete checkpoint{gone}"
            raise ValueError(f"{lacks}; delete the run's folder to start again")
        return None

    def made_again(self, step: int) -> str:
        """What to do about a missing checkpoint; nothing if it is older than the one that a run resumes from."""
        found = self.list()
        complete = [checkpoint.step for checkpoint in found if checkpoint.complete]
        if not found:
            return "rota train makes it again, from the beginning"
        if not complete:
            return REMEDY
        newest = max(complete)
        return f"rota train goes on from step {newest:,} and makes it again" if step > newest else ""

    def resumed(self) -> Checkpoint | None:
        """The newest checkpoint, for a run that goes on; it is said if later ones are gone."""
        found, missing = self.newest(), self.missing()
        step = 0 if found is None else found.step
        if missing and missing[-1] > step:
            goes_on = f"training goes on from step {step:,}, and makes it again"
            logger.warning("checkpoint %s is missing; %s", self.folder / str(missing[-1]), goes_on)
        return found

    def go_back_to(self, step: int) -> None:
        """Remove all later checkpoints; the run will save them again."""
        self.drop(later for later in {*self._steps(), *self._noted()} if later > step)
        self._note()

    def drop(self, steps: Iterable[int]) -> None:
        """Remove the checkpoints of these steps, if they are there; from now on none of them is missed."""
        dropped = set(steps)
        if self._written is not None and dropped.intersection(self._noted()):
            with self._written.changing() as written:
                written[CHECKPOINTS] = [step for step in written[CHECKPOINTS] if step not in dropped]
        for step in dropped:
            shutil.rmtree(self.folder / str(step), ignore_errors=True)

    def _note(self) -> None:
        """Note which there are; those that were noted and are gone stay missing."""
        if self._written is None:
            return
        with self._written.changing() as written:
            if steps := {*written.get(CHECKPOINTS, ()), *self._steps()}:
                written[CHECKPOINTS] = sorted(steps)

    def _thin(self) -> None:
        found = self.list()
        for checkpoint in [each for each in found if each.complete][: -self.keep]:
            files = {name: checksum for name, checksum in _files(checkpoint.folder).items() if name != MOMENTS}
            write_manifest(checkpoint.folder, checkpoint.step, files, complete=False, records=checkpoint.records())
            (checkpoint.folder / MOMENTS).unlink(missing_ok=True)

    def tidy(self) -> None:
        """Remove what a killed process left here, or put it back; for the one process that trains the run."""
        if not self.folder.is_dir():
            return
        for old in self.folder.glob(".*.old"):
            final = self.folder / old.name.removeprefix(".").removesuffix(".old")
            if not final.exists():
                old.rename(final)
        for left in [*self.folder.glob(".*.old"), *self.folder.glob(".*.partial")]:
            shutil.rmtree(left, ignore_errors=True)
        for checkpoint in self.list():
            for path in checkpoint.left_over():
                if (path.name == MOMENTS and not checkpoint.complete) or path.name.endswith(".partial"):
                    path.unlink()
        kept = [checkpoint for checkpoint in self.list() if checkpoint.complete][-self.keep :]
        if all(checkpoint.damaged_file() is None for checkpoint in kept):
            self._thin()  # the process was killed after it had saved the last of them

    def weights_of(self, steps: Sequence[int], *, moving_average: bool = False) -> str:
        """A short name of the weights that several checkpoints have; other weights under the same steps differ."""
        found = self._by_step()
        missing = [step for step in steps if step not in found]
        if missing:
            raise self._lacks(missing[0], found)
        chosen = [found[step].weights(moving_average=moving_average) for step in steps]
        return fingerprint([list(steps), chosen])

    def find(self, step: int | None = None) -> Checkpoint:
        """The intact checkpoint of a step, or the last one that is intact; complete or not."""
        if step is None:
            self._check_last()
        run, found = self.folder.parent, self._by_step()
        if step is not None and step not in found:
            raise self._lacks(step, found)
        for checkpoint in [found[step]] if step is not None else reversed(found.values()):
            if checkpoint.is_intact():
                return checkpoint
        raise ValueError(f"{run} has no intact checkpoint{'' if step is None else f' of step {step}'}; train it again")

    def _check_last(self) -> None:
        """Raises an error if the checkpoint that was saved last is gone: the one before is another model."""
        missing, there = self.missing(), self._steps()
        if missing and missing[-1] > max(there, default=0):
            or_name = "name another with --step, or: " if there else ""
            again = self.made_again(missing[-1])
            raise ValueError(f"{self.folder / str(missing[-1])} is missing; {or_name}{again}")

    def _warn_of_missing(self, first: int, last: int | None = None) -> None:
        """Says which checkpoints are gone that would have been in a window between these steps."""
        missing = [step for step in self.missing() if first <= step and (last is None or step <= last)]
        if missing:
            steps = ", ".join(map(str, missing))
            logger.warning("%s lacks its checkpoints of step %s; the others are used", self.folder.parent, steps)

    def _lacks(self, step: int, found: Iterable[int]) -> ValueError:
        run = self.folder.parent
        return ValueError(f"{run} has no checkpoint of step {step}; it has {', '.join(map(str, found))}")

    def window(self, size: int, step: int | None = None) -> tuple[int, ...]:
        """Steps of the ``size`` intact checkpoints that end with ``step``, by default the last; fewer if need be."""
        last = self.find(step).step
        before = (found for found in reversed(self._by_step().values()) if found.step < last)
        others = islice((found for found in before if found.is_intact()), size - 1)
        steps = (*(found.step for found in others), last)
        self._warn_of_missing(min(steps), last)
        self._warn_if_few(len(steps), size)
        return tuple(sorted(steps))

    def windows(self, size: int) -> Sequence[tuple[int, ...]]:
        """Steps of every ``size`` consecutive intact checkpoints, oldest first; of all there are, if they are fewer."""
        self._check_last()
        self._warn_of_missing(1)
        steps = [found.step for found in self._by_step().values() if found.is_intact()]
        if not steps:
            raise ValueError(f"{self.folder.parent} has no intact checkpoint; train it again")
        self._warn_if_few(len(steps), size)
        size = min(size, len(steps))
        return [tuple(steps[start : start + size]) for start in range(len(steps) - size + 1)]

    def _by_step(self) -> dict[int, Checkpoint]:
        found = {checkpoint.step: checkpoint for checkpoint in self.list()}
        if not found:
            raise ValueError(f"{self.folder.parent} has no checkpoint yet; train it first with rota train")
        return found

    def _warn_if_few(self, found: int, size: int) -> None:
        if found < size:
            run = self.folder.parent
            logger.warning("a window has %d checkpoints, %s has %d here: using %d", size, run, found, found)


def read_manifest(folder: Path) -> Manifest:
    """What ``checkpoint.json`` says, if every part of it is of its kind."""
    path = folder / MANIFEST
    manifest = read_json(path, "format", "step", "complete", "files", remedy=REMEDY)
    for key, (kind, article) in _KINDS.items():
        if key in manifest and not kind(manifest[key]):
            raise damaged(path, f"its {key} is not {article}", REMEDY)
    if manifest["format"] == FORMAT and TREE not in manifest["files"]:
        raise damaged(path, f"its files lack {TREE}", REMEDY)
    return cast(Manifest, manifest)


class Manifest(TypedDict):
    """``checkpoint.json``."""

    format: int
    step: int
    complete: bool
    files: dict[str, str]
    records: NotRequired[dict[str, int]]  # lines; earlier versions did not count them


_KINDS: dict[str, tuple[Callable[[Any], bool], str]] = {
    "format": (is_whole, "a whole number"),
    "step": (is_whole, "a whole number"),
    "complete": (lambda value: isinstance(value, bool), "true or false"),
    "files": (by_name(is_text), "an object of checksums"),
    "records": (by_name(is_whole), "an object of counts"),
}


def _files(folder: Path) -> dict[str, str]:
    """Checksums by file name, as written when the checkpoint was saved."""
    return read_manifest(folder)["files"]


@cache
def _warn_once(text: str) -> None:
    """A command lists the checkpoints of a run many times."""
    logger.warning("%s", text)


def _inspect(folder: Path) -> Checkpoint | None:
    try:
        manifest = read_manifest(folder)
    except (OSError, ValueError):
        _warn_once(f"checkpoint {folder} is damaged ({MANIFEST}); it is passed over")
        return None
    if manifest["format"] != FORMAT:
        raise ValueError(f"{folder} has checkpoint format {manifest['format']}; this version reads {FORMAT}")
    if str(manifest["step"]) != folder.name:
        _warn_once(f"checkpoint {folder} says that it is of step {manifest['step']}; it is passed over")
        return None
    return Checkpoint(manifest["step"], folder, manifest["complete"])


def write_manifest(
    folder: Path, step: int, files: Mapping[str, str], *, complete: bool, records: Mapping[str, int] | None
) -> None:
    manifest: dict[str, Any] = {"format": FORMAT, "step": step, "complete": complete, "files": files}
    if records is not None:
        manifest["records"] = records
    write_json(folder / MANIFEST, manifest, checked=True)
