"""Whether every file of a run is what it was when it was written: all that is wrong, not only what a command meets.

Records have a check value on every line, JSON files one as their last key, checkpoints a checksum of each file; hashes
of translations, of losses by sentence and of the weights that were scored are in ``translations.jsonl`` and
``evals.jsonl``. Checkpoints say how long most records were, and ``written.json`` how long the others are and which
checkpoints there were. Files of version 0.1 lack some of these; they are counted, and are no problem.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, get_args

from rota.files import CHECK, read_json, short_hash
from rota.runs.checkpoints import MANIFEST, Checkpoint, read_manifest
from rota.runs.entries import Known
from rota.runs.records import REMEDY, Entry, cut_off, damage_in, has_checks, read_record, untimed
from rota.runs.run import RecordName, Run
from rota.runs.standing import model_of
from rota.runs.written import COUNTED, too_short

Progress = Callable[[str, int, int | None], None]
"""Called with what is being read, files done, and files in all."""


@dataclass(frozen=True, slots=True)
class Problem:
    """Something that is not as it was written."""

    file: str
    problem: str
    line: int | None = None

    def __str__(self) -> str:
        place = self.file if self.line is None else f"{self.file}, line {self.line}"
        return f"{place}: {self.problem}"


@dataclass
class Findings:
    """What was read, and what is wrong with it."""

    files: int = 0
    unchecked: list[str] = field(default_factory=list)  # written by a version without check values
    problems: list[Problem] = field(default_factory=list)

    def add(self, path: Path, problem: str, line: int | None = None) -> None:
        self.problems.append(Problem(str(path), problem, line))

    def add_error(self, path: Path, error: Exception | str) -> None:
        """A message of :func:`rota.files.damaged`, which names its file, and often a line of it."""
        text = str(error)
        place, _, why = text.partition(" is damaged (")
        number = place.removeprefix(f"{path}, line ")
        line = int(number) if number.isdigit() else None
        self.add(path, why.rpartition("); ")[0] if why else text, line)

    def names(self, path: Path) -> bool:
        """Whether something is wrong with the file already; a damaged record is read only up to its first bad line."""
        return any(problem.file == str(path) for problem in self.problems)

    def as_json(self) -> dict[str, Any]:
        return {
            "files": self.files,
            "unchecked": self.unchecked,
            "problems": [asdict(problem) for problem in self.problems],
        }


def check_run(run: Run, progress: Progress = lambda *_: None) -> Findings:
    """Reads every file of a run; nothing is changed."""
    found = Findings()
    stages: dict[str, Callable[[Run, Findings], None]] = {
        "run.json": _check_about,
        "records": _check_records,
        "what was written": _check_written,
        "checkpoints": _check_checkpoints,
        "selection and probes": _check_json,
        "translations": _check_translations,
        "scores": _check_evals,
    }
    for number, (name, stage) in enumerate(stages.items()):
        progress(f"{run}: {name}", number, len(stages))
        stage(run, found)
    progress(f"{run}", len(stages), len(stages))
    return found


def check_json(path: Path, found: Findings, *keys: str) -> dict[str, Any] | None:
    """The object in a file with a check value; None if it is not whole."""
    found.files += 1
    try:
        content = read_json(path, *keys, remedy=REMEDY)
    except (ValueError, RecursionError) as error:
        found.add_error(path, error)
        return None
    if CHECK not in json.loads(path.read_bytes()):
        found.unchecked.append(str(path))
    return content


def _check_about(run: Run, found: Findings) -> None:
    about = check_json(run.about_path, found, "config.training.steps", "data.sizes", "data.fingerprint", "seed")
    recorded = None if about is None else about["data"].get("subwords")
    if not run.is_published:
        found.files += 1
        if not run.subwords_path.is_file():
            found.add(run.subwords_path, "it is missing")
        elif recorded is None:
            found.unchecked.append(str(run.subwords_path))
        else:
            try:
                run.check_subwords()
            except ValueError as error:
                found.add_error(run.subwords_path, error)


def _check_records(run: Run, found: Findings) -> None:
    known = _known(run)
    for name in get_args(RecordName):
        path = run.find_record(name)
        if path is None:
            continue
        found.files += 1
        messages = list(damage_in(path, known))
        for message in messages:
            found.add_error(path, message)
        if not messages and path.stat().st_size and not has_checks(path):
            found.unchecked.append(str(path))
    _check_order(run, found)
    if not run.is_published:
        _check_lengths(run, found)


def _known(run: Run) -> Known | None:
    """The names that the records may use; None if run.json, which is checked by itself, does not say."""
    try:
        return run.known
    except ValueError:
        return None


def _check_order(run: Run, found: Findings) -> None:
    """Every update has a line, up to the newest checkpoint."""
    saved = 0 if run.is_published else run.saved_step()  # first: a run may be training
    path = run.find_record("steps")
    steps = [] if path is None else [entry.get("step") for entry in _readable(path)]
    place = path or run.record_path("steps")
    for number, (before, after) in enumerate(pairwise([0, *steps]), start=1):
        if after != (before or 0) + 1:
            found.add(place, f"step {after} comes after step {before}", number)
            return
    if len(steps) < saved and not found.names(place):
        found.add(place, f"it ends with step {len(steps):,}, and there is a checkpoint of step {saved:,}")


def _check_lengths(run: Run, found: Findings) -> None:
    """No record ends before the newest checkpoint, as far as that says how long they were."""
    newest = next(reversed(run.checkpoints().list()), None)
    saved = None if newest is None else newest.records()
    if newest is None or saved is None:
        return
    last = dict.fromkeys(("validations", "timings"), 0)
    for name in get_args(RecordName):
        path = run.find_record(name)
        steps = [] if path is None else [entry.get("step", 0) for entry in _readable(path)]
        upto = [step for step in steps if step <= newest.step]
        place = path or run.record_path(name)
        why = None if found.names(place) else cut_off(len(upto), saved.get(name, 0), newest.step)
        if why is not None:
            found.add(place, why)
        if name in last:
            last[name] = max(upto, default=0)
    timings = run.find_record("timings") or run.record_path("timings")
    if last["timings"] < last["validations"] and not found.names(timings):
        found.add(timings, untimed(last["timings"], last["validations"]))


def _check_written(run: Run, found: Findings) -> None:
    """Records that are added to later have lost no lines, and no checkpoint is gone, as far as that was noted."""
    path = run.written.path
    if not path.is_file() or check_json(path, found) is None:
        return
    try:
        counted = {name: run.written.lines(name) for name in COUNTED}  # first: somebody may be scoring the run
        missing = [] if run.is_published else run.checkpoints().missing()
    except ValueError as error:
        found.add_error(path, error)
        return
    for name in COUNTED:
        record = run.find_record(name)
        lines = 0 if record is None else sum(1 for _ in _readable(record))
        place = record or run.record_path(name)
        lost = None if found.names(place) else too_short(lines, counted[name])
        if lost is not None:
            found.add(place, lost)
    for step in missing:
        again = run.checkpoints().made_again(step)
        found.add(run.checkpoints_folder / str(step), f"it is missing{'; ' if again else ''}{again}")


def _readable(path: Path) -> Iterator[Entry]:
    """Its entries up to the first damaged line, which has been reported."""
    try:
        yield from read_record(path)
    except ValueError:
        return


def _check_checkpoints(run: Run, found: Findings) -> None:
    if not run.checkpoints_folder.is_dir():
        return
    for folder in sorted(run.checkpoints_folder.iterdir(), key=lambda path: (len(path.name), path.name)):
        if folder.name.isdigit():
            _check_checkpoint(folder, found)
        elif folder.name.startswith("."):
            found.add(folder, "a process was killed while it saved this; rota train removes it")


def _check_checkpoint(folder: Path, found: Findings) -> None:
    if not (folder / MANIFEST).is_file():
        found.add(folder / MANIFEST, "it is missing")
        return
    if check_json(folder / MANIFEST, found) is None:
        return
    try:
        manifest = read_manifest(folder)
    except ValueError as error:
        found.add_error(folder / MANIFEST, error)
        return
    if str(manifest["step"]) != folder.name:
        found.add(folder / MANIFEST, f"it is of step {manifest['step']}")
    checkpoint = Checkpoint(int(folder.name), folder, manifest["complete"])
    found.files += len(manifest["files"])
    for name in checkpoint.damaged_files():
        missing = not (folder / name).exists()
        found.add(folder / name, "it is missing" if missing else "its checksum differs")
    for path in checkpoint.left_over():
        found.add(path, "the checkpoint does not have this file; rota train removes what a killed process left")


def _check_json(run: Run, found: Findings) -> None:
    selection = run.selection_path
    if selection.is_file():
        check_json(selection, found, "best")
    for path in sorted(run.policy_folder.glob("*.json")):
        check_json(path, found)


def _check_translations(run: Run, found: Findings) -> None:
    path = run.find_record("translations")
    known = {} if path is None else {entry.get("file"): entry.get("hash") for entry in _readable(path)}
    for file in sorted(run.translations_folder.glob("*.txt")):
        name = file.relative_to(run.folder).as_posix()
        found.files += 1
        if name in known and short_hash(file) != known[name]:
            found.add(file, "it was changed after it was made")


def _check_evals(run: Run, found: Findings) -> None:
    found.files += len(list(run.losses_folder.glob("*.tsv")))
    path = run.find_record("evals")
    if path is None:
        return
    reported: set[str] = set()
    for number, entry in enumerate(_readable(path), start=1):
        hashes = entry.get("hashes")
        if not isinstance(hashes, Mapping):
            continue
        for kind in ("translations", "sentence_scores"):
            file = run.folder / str(entry.get(kind, ""))
            if kind in hashes and file.is_file() and str(file) not in reported and short_hash(file) != hashes[kind]:
                found.add(path, f"{file} is not what was scored", number)
                reported.add(str(file))
        if "weights" in hashes and (weights := _weights(run, entry)) is not None and weights != hashes["weights"]:
            name = f"checkpoints of {model_of(entry)}"
            if name not in reported:
                found.add(path, f"the {name} have other weights than those that were scored", number)
                reported.add(name)


def _weights(run: Run, entry: Entry) -> str | None:
    """A short name of the weights that the model of an entry has now; None if its checkpoints are gone."""
    model, average = model_of(entry), entry.get("combine") == "moving-average"
    steps = model.steps[-1:] if model.combine in ("last", "moving-average") else model.steps
    there = {checkpoint.step for checkpoint in run.checkpoints().list()}
    return run.checkpoints().weights_of(steps, moving_average=average) if there.issuperset(steps) else None
