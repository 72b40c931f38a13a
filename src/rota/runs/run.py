"""The folder of one run: where each of its files lies, what ``run.json`` says, the lock, and how far the run is."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from rota.files import damaged, is_locked, locked, read_json, sha256_of, write_json
from rota.goal import ALL, Goal, goal_mean, resolve
from rota.runs.checkpoints import Checkpoint, Checkpoints
from rota.runs.entries import Known
from rota.runs.records import REMEDY, Entry, Record, cut_off, forms_of, last_entry, last_lines, read_record, untimed
from rota.runs.written import WITHOUT_IT, Written, too_short
from rota.settings import BEFORE
from rota.types import Arm, Route

RecordName = Literal[
    "steps",
    "observations",
    "rewards",
    "validations",
    "timings",
    "spot_checks",
    "alarms",
    "stops",
    "evals",
    "translations",
    "phases",
]
"""The records of a run. What they hold:

==============  =====================================================================================================
steps           step, arm, why, loss, tokens; at decisions also probability and scores
observations    the measurements that a learned teacher was told
rewards         what it made of them: ``{"step": 40, "rewards": {"az": 0.2}}``
validations     dev loss of every language; tokens and epochs of every arm
timings         wall, processor and phase times; apart from the others because they never repeat
spot_checks     gains from the source, losses on training sentences, epochs; at validations, of some or all arms
alarms          what training noticed and went on
stops           why the run ended early, or that it was continued
evals           every score with its signature, the checkpoints it is of, the file of its translations, and hashes
translations    the hash of every file of translations, of the weights that made it and of the text it is of
phases          how long training and scoring took under ``rota compare``
==============  =====================================================================================================
"""


class Run:
    """One run's folder. It may be training, finished, empty, or a copy of the records alone."""

    def __init__(self, folder: Path | str) -> None:
        self.folder = Path(folder)

    def __str__(self) -> str:
        return str(self.folder)

    def __repr__(self) -> str:
        return f"Run({str(self.folder)!r})"

    # Where the files lie.

    @property
    def about_path(self) -> Path:
        """``run.json``: resolved config, data, versions, hardware. A folder that has it is a run."""
        return self.folder / "run.json"

    @property
    def selection_path(self) -> Path:
        """``selection.json``: every window of checkpoints on dev sentences, and the best, by ``evaluate --select``."""
        return self.folder / "selection.json"

    @property
    def subwords_path(self) -> Path:
        """The vocabulary, so that a run translates without its data folder."""
        return self.folder / "subwords.json"

    @property
    def written(self) -> Written:
        """``written.json``: the lines of some records and the checkpoints that the folder has at least."""
        return Written(self.folder)

    @property
    def checkpoints_folder(self) -> Path:
        return self.folder / "checkpoints"

    @property
    def translations_folder(self) -> Path:
        """One file for each model, part of the data, language and search."""
        return self.folder / "translations"

    @property
    def losses_folder(self) -> Path:
        """Nats and tokens of each sentence; one file for each model, part of the data and language."""
        return self.folder / "losses"

    @property
    def policy_folder(self) -> Path:
        """Probes of the Q network, by ``rota policy``."""
        return self.folder / "policy"

    @property
    def tensorboard_folder(self) -> Path:
        return self.folder / "tensorboard"

    @property
    def config_path(self) -> Path:
        """The config of a run that ``rota compare`` started."""
        return self.folder / "config.yaml"

    @property
    def log_path(self) -> Path:
        """What a run that ``rota compare`` started has printed."""
        return self.folder / "log.txt"

    def record_path(self, name: RecordName) -> Path:
        """Where training writes a record."""
        return self.folder / f"{name}.jsonl"

    def find_record(self, name: RecordName) -> Path | None:
        """Where a record lies: plain as training writes it, or compressed as published; None if it is not there."""
        plain = self.record_path(name)
        return next((path for path in forms_of(plain) if path.is_file()), None)

    # What they say.

    @property
    def exists(self) -> bool:
        """Whether the folder holds a run, begun or finished."""
        return self.about_path.is_file()

    @property
    def is_published(self) -> bool:
        """Whether these are compressed records without models: nothing can be trained here."""
        return any(path.is_file() for path in forms_of(self.record_path("steps"))[1:])

    @cached_property
    def about(self) -> dict[str, Any]:
        """What ``run.json`` says."""
        if not self.exists:
            raise ValueError(f"{self.folder} is not a run folder (no run.json); give the folder that rota train wrote")
        return read_json(self.about_path, "config", "data.sizes", remedy=REMEDY)

    def write_about(self, about: Mapping[str, Any]) -> None:
        """Begin the run: from now on the folder holds one."""
        write_json(self.about_path, about, checked=True)
        self.__dict__.pop("about", None)

    def setting(self, key: str) -> Any:
        """A value in ``run.json`` by its path, such as ``config.training.steps``.

        If the run is older than the setting: what it did then.
        """
        found: Any = self.about
        earlier = key.removeprefix("config.")
        for part in key.split("."):
            if earlier in BEFORE and part not in found:
                return BEFORE[earlier]
            if not isinstance(found, dict) or part not in found:
                raise damaged(self.about_path, f"it has no {key}", REMEDY)
            found = found[part]
        return found

    @property
    def seed(self) -> int:
        return int(self.setting("seed"))

    @property
    def steps(self) -> int:
        """The updates that the run is planned for."""
        return int(self.setting("config.training.steps"))

    @property
    def begun_with(self) -> int:
        """The updates that the run was planned for at first, before it was extended."""
        earlier = self.about.get("extensions")
        return int(earlier[0]["from"]) if earlier else self.steps

    @property
    def stop(self) -> Entry | None:
        """Why the run ended before its last update; None if it did not, or went on later."""
        last = next(reversed(list(self.read("stops"))), None)
        return last if last is not None and last["why"] != "continued" else None

    @property
    def end(self) -> int:
        """The updates after which the run is finished: as planned, or fewer if it stopped early."""
        return self.end_of(self.steps)

    def end_of(self, planned: int) -> int:
        """The same for so many planned updates, also of a folder in which no run has begun."""
        stop = self.stop
        return planned if stop is None else min(planned, int(stop["step"]))

    @property
    def sizes(self) -> dict[Arm, int]:
        """Training pairs of each language, or more exactly of all arms that are measured by each dev set."""
        sizes: dict[Arm, int] = self.about["data"]["sizes"]
        return sizes

    @property
    def arms(self) -> dict[Arm, int]:
        """Training pairs of each arm; by default the arms are the languages."""
        arms: dict[Arm, int] = self.about["data"].get("arms", self.sizes)
        return arms

    @property
    def routes(self) -> dict[Arm, Route]:
        """What every arm and every dev set translates; empty: each language into the target."""
        return {name: Route(**route) for name, route in self.about["data"].get("routes", {}).items()}

    def route(self, name: Arm) -> Route:
        """What an arm or a dev set translates."""
        return self.routes.get(name) or Route(name, self.setting("config.data").get("target", "en"), name)

    @property
    def targets(self) -> tuple[str, ...]:
        """The languages that the model translates into."""
        into = dict.fromkeys(route.target for route in self.routes.values())
        return tuple(into) or (str(self.setting("config.data").get("target", "en")),)

    def language_of(self, arm: Arm) -> Arm:
        """The language, or dev set, that an arm is measured by."""
        return str(self.about["data"].get("routes", {}).get(arm, {}).get("dev", arm))

    @property
    def low_resource(self) -> list[Arm]:
        return [arm for arm in self.sizes if arm in self.setting("data.low_resource")]

    @property
    def high_resource(self) -> list[Arm]:
        return [arm for arm in self.sizes if arm not in self.setting("data.low_resource")]

    @property
    def goal(self) -> Goal:
        """The weights of the languages in everything that is averaged for the run's goal; by default all alike."""
        return resolve(self.about["config"].get("goal", ALL), list(self.sizes), self.low_resource, self.routes)

    def read(self, name: RecordName) -> Iterator[Entry]:
        """The entries of a record, plain or compressed; none if there is no such record.

        An error at the end if it has lost lines, as far as that is known.
        """
        least = self.written.lines(name)  # first: another process may be adding to the record
        step, saved = self.checkpoints().lines()
        path = self.find_record(name)
        entries = iter(()) if path is None else read_record(path, self.known if self.exists else None)
        place = path or self.record_path(name)
        if name in saved:
            return self._as_saved(entries, saved[name], step, place)
        if name == "timings" and saved:
            return self._timed(entries, step, place)
        return entries if least == 0 else self._no_fewer(entries, least, place)

    @staticmethod
    def _as_saved(entries: Iterator[Entry], saved: int, step: int, path: Path) -> Iterator[Entry]:
        """No fewer up to a checkpoint than were on the disk when it was saved."""
        found = 0
        for entry in entries:
            found += entry["step"] <= step
            yield entry
        lost = cut_off(found, saved, step)
        if lost is not None:
            raise damaged(path, lost, REMEDY)

    def _timed(self, entries: Iterator[Entry], step: int, path: Path) -> Iterator[Entry]:
        """The times do not end before the last validation up to a checkpoint."""
        last = 0
        for entry in entries:
            last = max(last, entry["step"]) if entry["step"] <= step else last
            yield entry
        validated = max((entry["step"] for entry in self.read("validations") if entry["step"] <= step), default=0)
        if last < validated:
            raise damaged(path, untimed(last, validated), REMEDY)

    @staticmethod
    def _no_fewer(entries: Iterator[Entry], least: int, path: Path) -> Iterator[Entry]:
        found = 0
        for entry in entries:
            found += 1
            yield entry
        lost = too_short(found, least)
        if lost is not None:
            raise damaged(path, lost, WITHOUT_IT)

    @property
    def known(self) -> Known:
        """The names that its records may use."""
        return Known(self.arms, self.sizes)

    def record(self, name: RecordName) -> Record:
        """A record to write to."""
        return Record(self.record_path(name))

    def append(self, name: RecordName, entries: Iterable[Mapping[str, Any]]) -> None:
        """Add entries to a record that several processes may be adding to, one after the other, and count its lines.

        A process that is killed here leaves fewer counted than there are; the next call counts them, also if it has
        nothing to add.
        """
        with self.written.changing() as written:
            record = self.record(name)
            record.truncate()
            lost = too_short(record.lines, written.get(name, 0))
            if lost is not None:
                raise damaged(record.path, lost, WITHOUT_IT)
            for entry in entries:
                record.write(entry)
            record.flush()
            record.close()
            if record.lines:
                written[name] = record.lines

    def check_subwords(self) -> None:
        """Raises an error if the vocabulary is not the one that the run was trained with, as far as it is known."""
        recorded = self.about["data"].get("subwords")
        if recorded is not None and sha256_of(self.subwords_path) != recorded:
            raise damaged(
                self.subwords_path, "the run was trained with other subwords", "copy it again from the data folder"
            )

    def selection(self, *keys: str) -> dict[str, Any] | None:
        """What the last ``rota evaluate --select`` found, with these keys; None if nothing was selected."""
        path = self.selection_path
        return read_json(path, "best", *keys, remedy=REMEDY) if path.is_file() else None

    def probes(self) -> list[dict[str, Any]]:
        """Probes of the Q network by ``rota policy``, in the order of their steps."""
        paths = sorted(self.policy_folder.glob("[0-9]*.json"))  # the map of who helps whom lies beside them
        return sorted((read_json(path, "step", remedy=REMEDY) for path in paths), key=lambda probe: int(probe["step"]))

    def checkpoints(self, keep: int = 2) -> Checkpoints:
        return Checkpoints(self.checkpoints_folder, keep, self.written)

    def checkpoint(self, step: int | None = None) -> Checkpoint:
        """The intact checkpoint of a step, or the last one that is intact."""
        return self.checkpoints().find(step)

    # Who is at work, and how far they are.

    def locked(self) -> AbstractContextManager[None]:
        """One process trains a run; the others are refused. The lock goes with the process, however it ends."""
        refusal = f"another process is training {self.folder}; wait for it, or choose another folder"
        return locked(self._lock, refusal=refusal)

    @property
    def is_locked(self) -> bool:
        """Whether a process is training the run just now, such as one that outlived a killed ``rota compare``."""
        return is_locked(self._lock)

    @property
    def _lock(self) -> Path:
        return self.folder / ".lock"

    def saved_step(self) -> int:
        """The step of the newest checkpoint as far as its manifest tells, from which training would resume.

        Published records have no checkpoints; they are as far as their last step.
        """
        if self.is_published:
            return self.last_step()
        return max((found.step for found in self.checkpoints().list()), default=0)

    def is_saved(self, step: int) -> bool:
        """Whether the checkpoint of a step is there; its folder appears as a whole."""
        return (self.checkpoints_folder / str(step)).is_dir()

    @property
    def is_trained(self) -> bool:
        """Whether the checkpoint of the last update is there, or, of published records, the last update."""
        return self.exists and self.saved_step() >= self.end

    def last_step(self) -> int:
        """The last step in the records of a run that is training; they reach the disk in blocks."""
        last = self._last("steps")
        return 0 if last is None else int(last["step"])

    def last_dev_loss(self) -> float | None:
        """Mean over languages at the last validation, as the goal weighs them, in nats per token."""
        last = self._last("validations")
        return None if last is None else goal_mean(last["dev_loss"], self.goal)

    def _last(self, name: RecordName) -> Entry | None:
        """The last entry of a record; a plain one is not read as a whole."""
        if self.is_published:
            return next(iter(deque(self.read(name), maxlen=1)), None)
        return last_entry(self.record_path(name))

    def last_log_lines(self) -> Iterator[str]:
        """The lines at the end of the log that are not blank, the last one first."""
        return last_lines(self.log_path)
