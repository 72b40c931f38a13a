"""A Hugging Face model as probes see it: losses of examples, gradients as opaque vectors, averaged weights.

The gauges of ``rota train`` measure it, through the same interface as Rota's own student.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.optim import Optimizer

from rota.goal import is_alike
from rota.measures import RECENT_DECAY, DevLoss, GroupLosses, JointLoss, RewardWeights, Weights
from rota.student.gradients import NetworkGradient, directions_after, dots
from rota.training.devsets import Groups
from rota.types import MIXED, Arm, FloatArray, Gradient, IntArray, Projection, SentenceLosses, State

Collate = Callable[[list[Any]], Mapping[str, Tensor]]

AT_ONCE = 16
"""Examples that are measured at once."""


@dataclass(frozen=True)
class Examples:
    """Some examples of a data set: what a batch is to Rota's own student."""

    arm: Arm
    rows: tuple[Any, ...]
    target_lengths: IntArray  # label tokens of each
    weights: FloatArray | None = None

    @property
    def sentences(self) -> int:
        return len(self.rows)

    @property
    def tokens(self) -> int:
        return int(self.target_lengths.sum())

    def batch(self) -> Examples:
        """A sample is its own batch."""
        return self


class ExampleSets:
    """The teacher's dev examples of each arm, in the roles that :class:`rota.training.devsets.DevSets` has.

    ``training``: some training examples, for measures that need them.
    """

    def __init__(
        self,
        rows: Mapping[Arm, Sequence[Any]],
        lengths: Mapping[Arm, IntArray],
        goal: Mapping[Arm, float],
        training: ExampleSets | None = None,
    ) -> None:
        self.rows, self.lengths, self.goal, self.training = rows, lengths, goal, training
        self.languages = tuple(rows)

    def by_arm(self, measure: DevLoss) -> dict[Arm, Examples]:
        if measure.data != "dev":
            raise ValueError("training batches are not measured here; leave out teacher.variant: released")
        return {arm: self._some(arm, np.arange(len(self.rows[arm])), measure.tokens) for arm in self.languages}

    def joint(self, measure: JointLoss) -> Examples:
        """As many tokens of every data set; with a goal as it weighs them, by tokens and by weights of the examples."""
        if is_alike(self.goal, self.languages):
            each = max(1, measure.tokens // len(self.languages))
            return _together([self._some(arm, np.arange(len(self.rows[arm])), each) for arm in self.languages])
        parts = [
            self._some(arm, np.arange(len(self.rows[arm])), max(1, int(measure.tokens * weight)))
            for arm, weight in self.goal.items()
        ]
        batch = _together(parts)
        factors = np.array(list(self.goal.values())) * batch.tokens / np.array([part.tokens for part in parts])
        return replace(batch, weights=np.repeat(factors, [part.sentences for part in parts]))

    def groups(self, measure: GroupLosses) -> Groups:
        groups = [group for arm in self.languages for group in self._groups(arm, measure)]
        turns = [groups[turn :: measure.refresh_every] for turn in range(min(measure.refresh_every, len(groups)))]
        batches: Any = tuple(_together(turn) for turn in turns)
        return Groups(batches, tuple(np.array([each.sentences for each in turn]) for turn in turns), len(groups))

    def _groups(self, arm: Arm, measure: GroupLosses) -> list[Examples]:
        available = np.arange(len(self.rows[arm]))
        size = max(1, min(measure.sentences, len(available) // measure.groups))
        starts = range(0, measure.groups * size, size)
        return [self.picked(arm, np.take(available, np.arange(size) + start, mode="wrap")) for start in starts]

    def sample(self, part: str, arm: Arm, tokens: int, turn: int = 0) -> Examples:  # noqa: ARG002 - all are the teacher's
        """The examples number ``turn`` of a rotation through all of them."""
        return self.picked(arm, self.rotated(arm, tokens, turn))

    def rotated(self, arm: Arm, tokens: int, turn: int) -> IntArray:
        ends = np.cumsum(self.lengths[arm])
        start = int(np.searchsorted(ends, turn * tokens % int(ends[-1]), side="right"))
        return self._first(arm, np.roll(np.arange(len(self.rows[arm])), -start), tokens)

    def _some(self, arm: Arm, indices: IntArray, tokens: int) -> Examples:
        return self.picked(arm, self._first(arm, indices, tokens))

    def _first(self, arm: Arm, indices: IntArray, tokens: int) -> IntArray:
        """The first of these with at most so many tokens together, one at the least."""
        fitting = int((np.cumsum(self.lengths[arm][indices]) <= tokens).sum())
        return indices[: max(1, fitting)]

    def picked(self, arm: Arm, indices: IntArray) -> Examples:
        return Examples(arm, tuple(self.rows[arm][int(index)] for index in indices), self.lengths[arm][indices])


def _together(parts: Sequence[Examples]) -> Examples:
    rows = tuple(row for part in parts for row in part.rows)
    return Examples(MIXED, rows, np.concatenate([part.target_lengths for part in parts]))


def label_lengths(rows: Sequence[Any], collate: Collate, *, causal: bool) -> IntArray:
    """Label tokens that count in the loss, by example."""
    found = [_labels(collate(list(rows[start : start + AT_ONCE])), causal) for start in range(0, len(rows), AT_ONCE)]
    lengths: IntArray = np.concatenate([(labels != -100).sum(1).numpy() for labels in found])
    if not lengths.all():
        raise ValueError(f"dev example {int(lengths.argmin())} has no label token; leave such examples out")
    return lengths


def _labels(inputs: Mapping[str, Tensor], causal: bool) -> Tensor:
    if "labels" not in inputs:
        raise ValueError("the data collator makes no labels, without which no loss can be measured; use one that does")
    return inputs["labels"][:, 1:] if causal else inputs["labels"]


class ModelStudent:
    """What gauges need of a student: :class:`rota.types.ProbedStudent` for a model of somebody else's loop."""

    def __init__(
        self,
        model: nn.Module,
        collate: Collate,
        optimiser: Callable[[], Optimizer | None],
        *,
        causal: bool,
        precision: Callable[[], AbstractContextManager[Any]] = nullcontext,
    ) -> None:
        self.model, self._collate, self._optimiser = model, collate, optimiser
        self.causal, self._precision = causal, precision
        self.parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
        self.projection: Projection | None = None
        self.gradient_norm: float | None = None
        self._directions: list[NetworkGradient] = []
        self._average: list[Tensor] | None = None
        self._recent: list[Tensor] | None = None
        self._decay, self._averaged = 0.0, 0

    @torch.no_grad()
    def losses(
        self, batches: Sequence[Examples], *, smoothed: bool = False, weights: RewardWeights = "raw"
    ) -> SentenceLosses:
        if smoothed:
            raise ValueError("label-smoothed losses are not measured here; use reward_loss: plain, state_loss: mean")
        rows = [row for batch in batches for row in batch.rows]
        with self._measuring(weights):
            sums = [self._sums(rows[start : start + AT_ONCE]) for start in range(0, len(rows), AT_ONCE)]
        lengths = np.concatenate([batch.target_lengths for batch in batches])
        return SentenceLosses(torch.cat(sums).double().cpu().numpy(), lengths)

    def gradient(self, batches: Sequence[Examples], *, weights: Weights = "raw", smoothed: bool = False) -> Gradient:
        """Of the mean loss per label token, examples weighted; the gradients of the parameters stay as they are."""
        assert not smoothed
        tokens = sum(batch.tokens for batch in batches)
        total: list[Tensor] = [torch.zeros_like(parameter, dtype=torch.float32) for parameter in self.parameters]
        with self._measuring(weights), torch.enable_grad():
            for batch in batches:
                factors = np.ones(batch.sentences) if batch.weights is None else batch.weights
                for start in range(0, batch.sentences, AT_ONCE):
                    sums = self._sums(batch.rows[start : start + AT_ONCE])
                    share = torch.as_tensor(factors[start : start + AT_ONCE], dtype=sums.dtype, device=sums.device)
                    found = torch.autograd.grad((sums * share).sum() / tokens, self.parameters, allow_unused=True)
                    for so_far, more in zip(total, found, strict=True):
                        if more is not None:
                            so_far += more
        return NetworkGradient(total, self._adams_denominators)

    def follow(self, direction: Gradient | None, others: Sequence[Gradient] = (), memory: float = 0.0) -> None:
        self._directions = list(directions_after(self._directions, direction, others, memory))

    def backward_done(self, scale: float = 1.0) -> None:
        """All gradients of an update are there, not clipped yet, and ``scale`` times too large."""
        if not self._directions:
            self.projection = None
            return
        gradients = [
            torch.zeros_like(each, dtype=torch.float32) if each.grad is None else each.grad.float()
            for each in self.parameters
        ]
        norm = float(torch.stack(torch._foreach_norm(gradients)).norm()) / scale
        dot, *others = (float(found) / scale for found in dots(self._directions, gradients))
        self.gradient_norm, self.projection = norm, Projection(dot, norm, tuple(others))

    def keep_average(self, decay: float) -> None:
        if self._average is None:
            self._decay = decay
            self._average = [parameter.detach().clone().float() for parameter in self.parameters]

    def keep_recent(self) -> None:
        if self._recent is None:
            self._recent = [parameter.detach().clone().float() for parameter in self.parameters]

    @torch.no_grad()
    def updated(self) -> None:
        """The optimiser has made a step."""
        now = [parameter.detach().float() for parameter in self.parameters] if self._average or self._recent else []
        if self._average is not None:
            self._averaged += 1
            kept = min(self._decay, (1 + self._averaged) / (10 + self._averaged))
            torch._foreach_lerp_(self._average, now, 1 - kept)
        if self._recent is not None:
            torch._foreach_lerp_(self._recent, now, 1 - RECENT_DECAY)

    def _sums(self, rows: Sequence[Any]) -> Tensor:
        """Cross-entropy of each example in nats, summed over its labels."""
        inputs = self._collate(list(rows))
        device = self.parameters[0].device
        moved = {name: value.to(device) if isinstance(value, Tensor) else value for name, value in inputs.items()}
        labels = _labels(moved, self.causal)
        with self._precision():
            logits = self.model(**moved).logits
        logits = logits[:, :-1] if self.causal else logits
        losses = functional.cross_entropy(
            logits.float().flatten(0, 1), labels.flatten(), ignore_index=-100, reduction="none"
        )
        return losses.view(labels.shape).sum(1)

    @contextmanager
    def _measuring(self, weights: RewardWeights) -> Iterator[None]:
        """The model in evaluation mode, at its averaged weights if they are asked for; then as it was."""
        training = self.model.training
        self.model.eval()
        raw: list[Tensor] | None = None
        averages = {"average": self._average, "recent": self._recent}.get(weights)
        if averages is not None:
            raw = [parameter.data for parameter in self.parameters]
            for parameter, average in zip(self.parameters, averages, strict=True):
                parameter.data = average.to(parameter.dtype)
        device = self.parameters[0].device
        try:
            # Some models draw random numbers in evaluation mode too, for layers that they never drop there.
            with torch.random.fork_rng([device] if device.type == "cuda" else []):
                yield
        finally:
            if raw is not None:
                for parameter, data in zip(self.parameters, raw, strict=True):
                    parameter.data = data
            self.model.train(training)

    def _adams_denominators(self) -> list[Tensor] | None:
        """What Adam divides by now; infinite where it has seen no gradient. None before its first step."""
        optimiser = self._optimiser()
        if optimiser is None or not optimiser.state:
            return None
        found: dict[int, Tensor] = {}
        for group in optimiser.param_groups:
            for parameter in group["params"]:
                moments = optimiser.state.get(parameter, {})
                if not moments:
                    found[id(parameter)] = torch.full_like(parameter, math.inf, dtype=torch.float32)
                    continue
                if "exp_avg_sq" not in moments:
                    kind = type(optimiser).__name__
                    raise ValueError(f"{kind} keeps no second moments; set metric: none for the teacher align")
                square, step = moments["exp_avg_sq"].float(), float(moments["step"])
                root = (square / (1 - group["betas"][1] ** step)).sqrt() + group["eps"]
                found[id(parameter)] = root.masked_fill(square == 0, math.inf)
        return [found[id(parameter)] for parameter in self.parameters]

    def state_dict(self) -> State:
        state: State = {"averaged": self._averaged}
        if self._average is not None:
            state["average"] = {str(number): tensor for number, tensor in enumerate(self._average)}
        if self._recent is not None:
            state["recent"] = {str(number): tensor for number, tensor in enumerate(self._recent)}
        for number, direction in enumerate(self._directions):
            state[f"direction{number}"] = {str(index): tensor for index, tensor in enumerate(direction.tensors)}
        return state

    def load_state_dict(self, state: State) -> None:
        device = self.parameters[0].device
        self._averaged = state["averaged"]
        if "average" in state:
            self._average = [state["average"][str(n)].to(device) for n in range(len(self.parameters))]
        if "recent" in state:
            self._recent = [state["recent"][str(n)].to(device) for n in range(len(self.parameters))]
        self._directions = []
        while (tensors := state.get(f"direction{len(self._directions)}")) is not None:
            found = [tensors[str(number)].to(device) for number in range(len(self.parameters))]
            self._directions.append(NetworkGradient(found, self._adams_denominators))
