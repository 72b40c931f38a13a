"""A look at a few training and dev sentences at each validation, for alarms and curves; training does not depend on it.

How many sentences is a matter of time: all checks of a run together cost about ``share`` of its computation. Training
sentences are other ones at every check; dev sentences stay the same, and no teacher sees them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from rota.measures import Estimate
from rota.training.devsets import DevSets
from rota.training.gauges.source import Found, Pair, compare_sources, mismatched_pairs
from rota.types import Arm, ProbedStudent

MOST: Final = 2_000
"""Target tokens of an arm in a check, however long the run: enough for an error of about 0.01 nats."""

LEAST: Final = 60
"""The fewest, about. Where there is no time for that, a check has some of the arms only, in rotation."""

DEV_EVERY: Final = 4
"""Checks between two looks at dev sentences, which no alarm needs, while time is short."""

PASSES: Final = 2 + 2 / DEV_EVERY  # each sentence with the right source and with another one
UPDATE: Final = 2  # forward passes for which an update pays: fewer than it takes, since small batches take longer


class SpotCheck(NamedTuple):
    """What the sentences of one check showed, by arm; losses and gains are nats per token."""

    source_gain: Mapping[Arm, Estimate]  # of training sentences
    train_loss: Mapping[Arm, Estimate]  # of the same ones; seen before if the arm has been through its first epoch
    dev_source_gain: Mapping[Arm, Estimate]
    dev_loss: Mapping[Arm, float]  # calibrated, of all languages: those of the validation
    seen: Mapping[Arm, int]  # target tokens since step 0, of all arms
    epochs: Mapping[Arm, float]  # how often that is the arm's corpus, of all arms

    def entry(self) -> dict[str, Any]:
        """For ``spot_checks.jsonl``: pairs of a value and its standard error; epochs rounded."""
        estimates = {name: dict(getattr(self, name)) for name in ("source_gain", "train_loss", "dev_source_gain")}
        return {**estimates, "epochs": {arm: round(epochs, 3) for arm, epochs in self.epochs.items()}}

    @classmethod
    def from_entry(
        cls,
        entry: Mapping[str, Any],
        dev_loss: Mapping[Arm, float],
        seen: Mapping[Arm, int],
        sizes: Mapping[Arm, int],
    ) -> SpotCheck:
        """The check that wrote an entry.

        ``dev_loss`` is the calibrated one of the validation at its step, ``seen`` are the tokens then, and ``sizes``
        the training tokens of every arm.
        """
        gain, loss, dev_gain = (
            {arm: Estimate(*pair) for arm, pair in entry[name].items()}
            for name in ("source_gain", "train_loss", "dev_source_gain")
        )
        epochs = {arm: seen.get(arm, 0) / size for arm, size in sizes.items()}
        return cls(gain, loss, dev_gain, dict(dev_loss), {arm: seen.get(arm, 0) for arm in sizes}, epochs)


class SpotChecks:
    """``tokens`` are the target tokens that the run trains on between two validations."""

    def __init__(self, student: ProbedStudent, sets: DevSets, *, share: float, tokens: int) -> None:
        self.student, self.sets = student, sets
        self._budget = share * UPDATE * tokens / PASSES  # target tokens of a check, of all arms together

    def due(self, number: int) -> tuple[Sequence[Arm], int, int]:
        """For validation ``number``, from 1: the arms, about how many tokens of each, and which turn of their samples.

        It follows from the number alone, so there is nothing to save.
        """
        arms = self.sets.arms
        if self._budget >= LEAST * len(arms):
            return arms, min(MOST, int(self._budget / len(arms))), number
        done, now = (int(count * self._budget / LEAST) for count in (number - 1, number))
        return [arms[place % len(arms)] for place in range(done, now)], LEAST, 1 + done // len(arms)

    def looks_at_dev(self, turn: int) -> bool:
        """At every turn if there is time for it."""
        return turn % DEV_EVERY == 0 or self._budget >= 2 * MOST * len(self.sets.arms)

    def take(self, number: int, seen: Mapping[Arm, int], dev_loss: Mapping[Arm, float]) -> SpotCheck | None:
        """The check of validation ``number``; None if none is due."""
        arms, tokens, turn = self.due(number)
        train = mismatched_pairs(self.sets, "train", arms, tokens, turn)
        dev = mismatched_pairs(self.sets, "selection", arms if self.looks_at_dev(turn) else (), tokens, 0)
        if not train and not dev:
            return None
        # One call, so that sentences of all arms share the passes.
        named: dict[tuple[str, Arm], Pair] = {("train", arm): pair for arm, pair in train.items()}
        named |= {("dev", arm): pair for arm, pair in dev.items()}
        found = compare_sources(self.student, named)
        of_train: dict[Arm, Found] = {arm: found["train", arm] for arm in train}
        sizes = self.sets.train_tokens
        return SpotCheck(
            source_gain={arm: each.gain for arm, each in of_train.items()},
            train_loss={arm: each.loss for arm, each in of_train.items()},
            dev_source_gain={arm: found["dev", arm].gain for arm in dev},
            dev_loss=dict(dev_loss),
            seen={arm: seen.get(arm, 0) for arm in sizes},
            epochs={arm: seen.get(arm, 0) / size for arm, size in sizes.items()},
        )
