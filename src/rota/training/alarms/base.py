"""The detectors of a run, and what they have raised so far."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from rota.teachers.wrappers import alarms_of
from rota.training.spot_checks import SpotCheck
from rota.types import CHANGES, Alarm, Arm, Decision, State, Teacher


class Detector:
    """Looks for one kind of trouble. Every method may return alarms; by default none does.

    It may raise the same alarm again and again: :class:`Alarms` lets each kind through once for each arm. Under
    ``torchrun`` every process calls the methods, in step and with the same arguments, except :meth:`told`.
    """

    name: str = ""
    """The key of its state in a checkpoint; two detectors of a run have different names."""

    def updated(self, step: int, decision: Decision, loss: float, seen: Mapping[Arm, int]) -> Iterable[Alarm]:  # noqa: ARG002
        """After each update, so it must cost next to nothing; ``seen`` are the target tokens by arm since step 0."""
        return ()

    def told(self, step: int, rewards: Mapping[Arm, float] | None) -> Iterable[Alarm]:  # noqa: ARG002
        """After each ``tell``, with the rewards that the teacher made of it."""
        return ()

    def validated(self, step: int, dev_loss: Mapping[Arm, float]) -> Iterable[Alarm]:  # noqa: ARG002
        """After each validation: the dev loss of every language, nats per token."""
        return ()

    def checked(self, step: int, check: SpotCheck) -> Iterable[Alarm]:  # noqa: ARG002
        """After the spot check of a validation, and after :meth:`validated`; not every validation has one."""
        return ()

    def state_dict(self) -> State:
        return {}

    def load_state_dict(self, state: State) -> None:
        """Everything that changes over time is in the state, so that a resumed run raises what a whole one does."""


class Alarms:
    """Collects the alarms of the detectors, and of the teacher about itself, and lets each (kind, arm) through once.

    Those that report a change of state pass every time.
    """

    def __init__(self, detectors: Sequence[Detector] = ()) -> None:
        names = [detector.name for detector in detectors]
        assert len(set(names)) == len(names), f"two detectors have the same name: {names}"
        self.detectors = tuple(detectors)
        self.raised: set[tuple[str, Arm | None]] = set()

    def updated(self, step: int, decision: Decision, loss: float, seen: Mapping[Arm, int]) -> list[Alarm]:
        found: list[Alarm] = []
        for detector in self.detectors:
            found += self._new(detector.updated(step, decision, loss, seen))
        return found

    def told(self, step: int, rewards: Mapping[Arm, float] | None, teacher: Teacher) -> list[Alarm]:
        found = [*self._new(alarms_of(teacher, step))]
        for detector in self.detectors:
            found += self._new(detector.told(step, rewards))
        return found

    def validated(self, step: int, dev_loss: Mapping[Arm, float]) -> list[Alarm]:
        found: list[Alarm] = []
        for detector in self.detectors:
            found += self._new(detector.validated(step, dev_loss))
        return found

    def checked(self, step: int, check: SpotCheck) -> list[Alarm]:
        found: list[Alarm] = []
        for detector in self.detectors:
            found += self._new(detector.checked(step, check))
        return found

    def _new(self, alarms: Iterable[Alarm]) -> Iterator[Alarm]:
        for alarm in alarms:
            if alarm.kind in CHANGES:
                yield alarm
            elif (alarm.kind, alarm.arm) not in self.raised:
                self.raised.add((alarm.kind, alarm.arm))
                yield alarm

    def state_dict(self) -> State:
        states = {detector.name: detector.state_dict() for detector in self.detectors}
        raised = sorted(self.raised, key=lambda pair: (pair[0], pair[1] or ""))
        return {"raised": [list(pair) for pair in raised], **{name: state for name, state in states.items() if state}}

    def load_state_dict(self, state: State) -> None:
        """A detector that is younger than the run has no state there, and begins now."""
        self.raised = {(kind, arm) for kind, arm in state["raised"]}
        for detector in self.detectors:
            if detector.name in state:
                detector.load_state_dict(state[detector.name])
