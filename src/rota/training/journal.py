"""What a run writes down: steps and dev losses, which repeat exactly, and timings, which do not."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rota.files import damaged
from rota.measures import Measure
from rota.runs.records import REMEDY, Record, cut_off, name_of, untimed
from rota.training.spot_checks import SpotCheck
from rota.types import Alarm, Arm, Batch, Decision

_MORE = ("mixture", "selection", "weights", "emphasis", "scoring", "pacing")
"""What only some decisions have."""


class Journal:
    """The records of one run folder. ``timings.jsonl`` is apart so that the others can be compared bit by bit."""

    def __init__(self, folder: Path, record: type[Record] = Record) -> None:
        self.steps = record(folder / "steps.jsonl")
        self.observations = record(folder / "observations.jsonl")
        self.rewards = record(folder / "rewards.jsonl")
        self.validations = record(folder / "validations.jsonl")
        self.timings = record(folder / "timings.jsonl")
        self.spot_checks = record(folder / "spot_checks.jsonl")
        self.alarms = record(folder / "alarms.jsonl")
        self.stops = record(folder / "stops.jsonl")
        repeating = (self.steps, self.observations, self.rewards, self.validations, self.spot_checks, self.alarms)
        self._records = (*repeating, self.stops, self.timings)
        self._seconds: dict[str, float] = {}
        self._within = 0.0  # seconds of phases that began and ended within the present one
        self._mark = (time.perf_counter(), time.process_time())

    def step(self, step: int, decision: Decision, loss: float, batches: list[Batch], *, decided: bool) -> None:
        """One update. What led to the choice is written at the step that follows it, once."""
        tokens = tokens_by_language(batches)
        entry: dict[str, Any] = {"step": step, "arm": decision.arm, "why": decision.why, "loss": loss}
        entry["tokens"] = sum(tokens.values())
        if set(tokens) != {decision.arm}:
            entry["tokens_by_language"] = tokens
        if decided and decision.probability is not None:
            entry["probability"] = decision.probability
        if decided and decision.epsilon is not None:
            entry["epsilon"] = decision.epsilon
        if decided and decision.scores:
            entry["scores"] = dict(decision.scores)
        if decided:
            state = decision.state()
            if decision.mixture is not None and decision.mixture.fixed:
                del state["mixture"]
            entry |= {name: state[name] for name in _MORE if name in state}
        self.steps.write(entry)

    def observation(
        self, step: int, decision: Decision, measured: Mapping[Measure, Any], rewards: Mapping[Arm, float] | None
    ) -> None:
        """What a teacher was told, as far as its measures are recorded, and the rewards that it made of it."""
        values = {
            measure.record: measure.written(value) for measure, value in measured.items() if measure.record is not None
        }
        if values:
            self.observations.write({"step": step, "arm": decision.arm, **values})
        if rewards:
            self.rewards.write({"step": step, "rewards": dict(rewards)})

    def validation(self, step: int, measured: Mapping[str, Any]) -> None:
        """Dev losses by language, and what else was measured with them."""
        self.validations.write({"step": step, **measured})

    def spot_check(self, step: int, check: SpotCheck) -> None:
        self.spot_checks.write({"step": step, **check.entry()})

    def alarm(self, alarm: Alarm) -> None:
        self.alarms.write(alarm._asdict())

    def stop(self, entry: Mapping[str, Any]) -> None:
        """Why the run ended before its last update, or that it goes on all the same."""
        self.stops.write(entry)

    @contextmanager
    def timed(self, phase: str) -> Iterator[None]:
        """Adds the wall time of the block to the phase, until the next :meth:`timing`, without phases inside it."""
        start, within = time.perf_counter(), self._within
        self._within = 0.0
        try:
            yield
        finally:
            spent = time.perf_counter() - start
            self._seconds[phase] = self._seconds.get(phase, 0.0) + spent - self._within
            self._within = within + spent

    def timing(self, step: int) -> None:
        """Seconds since the last timing: on the wall, of the processors, and by phase."""
        wall, cpu = time.perf_counter(), time.process_time()
        phases = {phase: round(seconds, 4) for phase, seconds in self._seconds.items()}
        entry = {"step": step, "wall": round(wall - self._mark[0], 4), "cpu": round(cpu - self._mark[1], 4)}
        self.timings.write({**entry, "phases": phases})
        self._seconds, self._mark = {}, (wall, cpu)

    @property
    def paths(self) -> list[Path]:
        return [record.path for record in self._records]

    def flush(self) -> None:
        for record in self._records:
            record.flush()

    @property
    def lines(self) -> dict[str, int]:
        """The lines of each record by its name, for a checkpoint; a run that was interrupted has more timings."""
        return {name_of(record.path): record.lines for record in self._records if record is not self.timings}

    def truncate(self, step: int, lines: Mapping[str, int] | None = None) -> None:
        """Cut all records back to a checkpoint; they were on the disk before it was saved, so none may end earlier.

        ``lines`` are those that each record had then, as far as the checkpoint says.
        """
        last = {record: record.truncate(step) for record in self._records}
        ends = last[self.steps] or 0
        if step > 0 and ends != step:
            why = f"it ends with step {ends:,}, and the checkpoint is of step {step:,}"
            raise damaged(self.steps.path, why, REMEDY)
        if lines is None:
            return
        for record in self._records:
            why_not = cut_off(record.lines, lines.get(name_of(record.path), 0), step)
            if why_not is not None:
                raise damaged(record.path, why_not, REMEDY)
        if (last[self.timings] or 0) < (last[self.validations] or 0):
            raise damaged(self.timings.path, untimed(last[self.timings], last[self.validations]), REMEDY)

    def close(self) -> None:
        for record in self._records:
            record.close()


def tokens_by_language(batches: list[Batch]) -> dict[Arm, int]:
    """Real target tokens by language over several batches."""
    total: dict[Arm, int] = {}
    for batch in batches:
        for arm, tokens in batch.tokens_by_language.items():
            total[arm] = total.get(arm, 0) + tokens
    return total
