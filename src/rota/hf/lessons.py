"""The training sets of all arms, and the teacher that decides which of them each update is made of."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence, Sized
from contextlib import nullcontext
from pathlib import Path
from typing import Any, Final, cast

import numpy as np
import torch
from torch import Tensor, distributed
from torch.utils.data import ConcatDataset, IterableDataset, Subset

from rota.files import read_json, write_json
from rota.goal import ALL, Setting
from rota.hf.report import write_report
from rota.hf.sampler import LessonSampler
from rota.hf.sources import POOL, SourceGainOfExamples
from rota.hf.student import ExampleSets, ModelStudent, label_lengths
from rota.measures import Alignment, DevLoss, GroupLosses, JointLoss, Measure, SourceGain, TrainLoss
from rota.runs.records import Record
from rota.runs.tensors import read_arrays, write_arrays
from rota.settings import ConfigError
from rota.teachers import TeacherConfig, teacher_from
from rota.training.probe import Probe
from rota.types import Arm, Decision, State

MEASURED: Final = (TrainLoss, DevLoss, JointLoss, GroupLosses, Alignment, SourceGain)
"""What teachers may watch here."""

TEACHER_EXAMPLES: Final = 256
"""Dev examples of each arm, at most, on which a teacher's measures are taken."""

STATE: Final = "lessons.json"
"""In every checkpoint: teacher, generators, and the place in every data set."""

REMEDY: Final = "resume from another checkpoint"


class Lessons:
    """Data sets by arm and their teacher, for a :func:`rota.hf.taught` trainer.

    ``teacher`` is what a config of ``rota train`` says under that key. ``dev`` are examples on which the teacher's
    measures are taken, by arm; by default a sample of the trainer's ``eval_dataset``, which must then be a dictionary
    with the same keys.
    """

    def __init__(
        self,
        datasets: Mapping[Arm, Any],
        teacher: str | Mapping[str, Any] | TeacherConfig = "uniform",
        *,
        seed: int = 1,
        dev: Mapping[Arm, Any] | None = None,
        low_resource: Sequence[Arm] | None = None,
        goal: Setting = ALL,
    ) -> None:
        for arm, dataset in datasets.items():
            if isinstance(dataset, IterableDataset) or not isinstance(dataset, Sized):
                raise ValueError(f"the data set of {arm!r} has no length; give one that has, not an iterable one")
        self.sizes = {arm: len(dataset) for arm, dataset in datasets.items()}
        self._starts = dict(zip(self.sizes, np.cumsum([0, *self.sizes.values()])[:-1].tolist(), strict=True))
        self.dataset = _concatenated(list(datasets.values()))
        self.config = teacher_from(teacher)
        self.seed, self.dev, self.low_resource, self.goal = seed, dev, low_resource, goal
        self.tokens = {arm: _tokens_of_example(dataset) for arm, dataset in datasets.items()}
        self.sampler: LessonSampler | None = None
        self.probe: Probe | None = None
        self.student: ModelStudent | None = None
        self.folder: Path | None = None  # of the records
        self._records: dict[str, Record] = {}
        self._loss: Tensor | float = 0.0

    def begin(
        self,
        *,
        update: int,
        steps: int,
        lr_warmup: int = 0,
        probe: Callable[[LessonSampler], tuple[ModelStudent, Probe]] | None = None,
        folder: Path | None = None,
        sources: bool = True,
    ) -> LessonSampler:
        """The sampler of a run; ``probe`` is called if the teacher watches anything, ``folder`` is for records.

        ``sources``: examples have a source of its own, which can be exchanged for that of another.
        """
        self.config = _fitting(self.config, sources=sources)
        self.sampler = LessonSampler(
            self.sizes,
            self.config,
            update=update,
            steps=steps,
            seed=self.seed,
            low_resource=self.low_resource,
            goal=self.goal,
            tokens=self.tokens,
            lr_warmup=lr_warmup,
            measure=self._measure,
            begun=self._begun,
            broadcast=_broadcast,
        )
        watched = self.sampler.turns.watches
        refuse_measures(watched, self.config.name, sources=sources)
        if watched and probe is not None:
            self.student, self.probe = probe(self.sampler)
            self.probe.prepare(watched)
        self.folder = folder
        names = ("steps", "observations", "rewards", "validations") if folder is not None else ()
        self._records = {name: Record(cast(Path, folder) / f"{name}.jsonl") for name in names}
        return self.sampler

    def training_examples(self, arm: Arm) -> Any:
        """Some of an arm, spread over its data set, as a data set."""
        start = self._starts[arm]
        indices = [start + index for index in spread(self.sizes[arm], POOL)]
        return self.dataset.select(indices) if hasattr(self.dataset, "select") else Subset(self.dataset, indices)

    def start_records(self, step: int) -> None:
        """Drops what an earlier run in the same folder, or the part after the checkpoint, has written."""
        for record in self._records.values():
            record.truncate(step)

    def _measure(self, step: int, measures: Sequence[Measure], window: Any) -> Mapping[Measure, Any]:
        assert self.probe is not None, "a teacher that watches something has a probe"
        return self.probe.read(step, measures, window)

    def _begun(self, measures: Sequence[Measure], decision: Decision) -> None:
        if self.probe is not None:
            self.probe.begin(measures, decision)

    @property
    def watches_losses(self) -> bool:
        assert self.sampler is not None
        return any(isinstance(measure, TrainLoss) for measure in self.sampler.turns.watches)

    def trained(self, loss: Tensor, *, last: bool, scale: float) -> None:
        """One batch of an update has gone forward and backward; ``last``: all gradients of the update are there."""
        if self.sampler is not None and self.watches_losses:
            self._loss = self._loss + loss.detach()
        if last and self.student is not None:
            self.student.backward_done(scale)

    def played(self, step: int) -> None:
        """An update was made, the one that completes ``step``."""
        assert self.sampler is not None
        loss, self._loss = float(self._loss), 0.0
        decision = self.sampler.played(loss)
        if self.student is not None and self.probe is not None:
            self.student.updated()
            self.probe.updated(self.sampler.turns.watches, decision)
        if self._records:
            self._write(step, decision, loss)

    def _write(self, step: int, decision: Decision, loss: float) -> None:
        assert self.sampler is not None
        entry: dict[str, Any] = {"step": step, "arm": decision.arm, "why": decision.why}
        if set(self.sampler.last) != {decision.arm}:  # a mixture
            entry["examples_by_arm"] = dict(self.sampler.last)
        if self.watches_losses:
            entry["loss"] = loss
        if decision.probability is not None:
            entry["probability"] = decision.probability
        self._records["steps"].write(entry)
        for at, measured, rewards in self.sampler.told:
            values = {measure.record: measure.written(value) for measure, value in measured.items() if measure.record}
            if values:
                self._records["observations"].write({"step": step, "played": at, **values})
            if rewards:
                self._records["rewards"].write({"step": step, "rewards": dict(rewards)})
        self.sampler.told.clear()

    def validated(self, step: int, losses: Mapping[Arm, float]) -> None:
        if self._records and losses:
            self._records["validations"].write({"step": step, "dev_loss": dict(losses)})

    def macro_loss(self, losses: Mapping[Arm, float]) -> float | None:
        """The goal's loss; None if one of its arms was not measured."""
        assert self.sampler is not None
        goal = self.sampler.classroom.goal
        if not goal.keys() <= losses.keys():
            return None
        return math.fsum(weight * losses[arm] for arm, weight in goal.items())

    def save(self, folder: Path) -> None:
        """Into a checkpoint: everything that the rest of the run depends on, as of the last update that was played."""
        for record in self._records.values():
            record.flush()
        tree = {name: write_arrays(part, f"lessons-{name}", folder) for name, part in self._parts().items()}
        write_json(folder / STATE, {"sizes": self.sizes, "teacher": self._written(), "seed": self.seed, "state": tree})

    def load(self, folder: Path) -> None:
        """From a checkpoint; refuses one of other data sets or of another teacher."""
        assert self.sampler is not None
        path = folder / STATE
        if not path.is_file():
            raise ConfigError(f"{folder} has no {STATE}: it was not saved by a trainer with lessons; {REMEDY}")
        found = read_json(path, "sizes", "teacher", "seed", "state", remedy=REMEDY)
        for name, now in (("sizes", self.sizes), ("teacher", self._written()), ("seed", self.seed)):
            if found[name] != now:
                raise ConfigError(f"{folder}: its {name} are {found[name]}, and now {now}; {REMEDY}, or use the same")
        state = {name: read_arrays(tree, f"lessons-{name}", folder) for name, tree in found["state"].items()}
        self.sampler.load_state_dict(state["sampler"])
        if self.student is not None and self.probe is not None:
            self.student.load_state_dict(state["student"])
            self.probe.load_state_dict(state["probe"])

    def _parts(self) -> dict[str, State]:
        assert self.sampler is not None
        parts = {"sampler": self.sampler.state_dict()}
        if self.student is not None and self.probe is not None:
            parts |= {"student": self.student.state_dict(), "probe": self.probe.state_dict()}
        return parts

    def _written(self) -> dict[str, Any]:
        return self.config.model_dump(mode="json")

    def close(self) -> None:
        for record in self._records.values():
            record.close()

    def report(self, out: Path | str) -> Path:
        """A page about the run in the folder ``out``: who was trained on when, and how the losses went."""
        if self.folder is None or self.sampler is None:
            raise ValueError("there is nothing to report yet; train first")
        for record in self._records.values():
            record.flush()
        return write_report(self.folder, Path(out), self.sampler, self.config.name)


def refuse_measures(measures: Sequence[Measure], teacher: str, *, sources: bool) -> None:
    """In one line, what a trainer cannot measure."""
    for measure in measures:
        if isinstance(measure, SourceGain) and not sources:
            why = "the gate of align needs to know what in an example is the source, and in a language model's nothing"
            raise ConfigError(f"{why} says so; set gate: false")
        if isinstance(measure, Alignment) and measure.direction != "loss":
            raise ConfigError(f"direction: {measure.direction} of align is for rota train alone; use direction: loss")
        if not isinstance(measure, MEASURED):
            known = ", ".join(kind.__name__ for kind in MEASURED)
            why = f"teacher {teacher} watches {measure}, which only rota train measures"
            raise ConfigError(f"{why}; choose one that watches nothing, or any of {known}")
        if isinstance(measure, DevLoss) and measure.when == "around":
            why = f"teacher {teacher} compares losses right before and after an update"
            raise ConfigError(f"{why}, and a trainer draws its batches earlier than that; choose another teacher")


def make_probe(
    sampler: LessonSampler,
    model: torch.nn.Module,
    dev: Mapping[Arm, tuple[Sequence[Any], Any]],
    optimiser: Callable[[], Any],
    *,
    causal: bool,
    precision: Callable[[], Any] = nullcontext,
    training: Mapping[Arm, Sequence[Any]] | None = None,
) -> tuple[ModelStudent, Probe]:
    """The model as a student, and its probe; ``dev`` has rows and the function that makes a batch of them, by arm.

    ``training``: training examples of each arm, if some of them are measured too.
    """
    collate, goal = next(iter(dev.values()))[1], sampler.classroom.goal

    def measured(of: Mapping[Arm, Sequence[Any]], also: ExampleSets | None = None) -> ExampleSets:
        lengths = {arm: label_lengths(some, collate, causal=causal) for arm, some in of.items()}
        return ExampleSets(of, lengths, goal, also)

    rows = {arm: [examples[index] for index in spread(len(examples))] for arm, (examples, _) in dev.items()}
    student = ModelStudent(model, collate, optimiser, causal=causal, precision=precision)
    sets = measured(rows, None if training is None else measured(training))
    return student, Probe(cast(Any, student), cast(Any, sets), {SourceGain: SourceGainOfExamples})


def spread(size: int, most: int = TEACHER_EXAMPLES) -> list[int]:
    """So many indices, evenly from the first to the last."""
    found: list[int] = np.unique(np.linspace(0, size - 1, min(size, most)).round().astype(int)).tolist()
    return found


def _fitting(config: TeacherConfig, *, sources: bool) -> TeacherConfig:
    """``align`` with what can be had here, unless something else was asked for, which is refused later."""
    if config.name != "align":
        return config
    here = {"direction": "loss"} if sources else {"direction": "loss", "gate": False}
    return config.model_copy(update={name: here[name] for name in here if name not in config.model_fields_set})


def _concatenated(datasets: list[Any]) -> Any:
    """One ``datasets.Dataset`` if all of them are, so that a trainer treats it as such."""
    try:
        from datasets import Dataset, concatenate_datasets
    except ImportError:
        return ConcatDataset(datasets)
    whole = all(isinstance(dataset, Dataset) for dataset in datasets)
    return concatenate_datasets(datasets) if whole else ConcatDataset(datasets)


def _tokens_of_example(dataset: Any) -> float:
    """Labels of an example, on average over some; 1 if it has none yet."""
    some = [dataset[index] for index in spread(len(dataset), 64)]
    for column in ("labels", "input_ids"):
        if some and isinstance(some[0], Mapping) and column in some[0]:
            return float(np.mean([len(row[column]) for row in some]))
    return 1.0


def _broadcast(work: Callable[[], Any]) -> Any:
    """Done by the first of several processes; all get the result."""
    if not (distributed.is_available() and distributed.is_initialized()):
        return work()
    box = [work() if distributed.get_rank() == 0 else None]
    distributed.broadcast_object_list(box, src=0)
    return box[0]
