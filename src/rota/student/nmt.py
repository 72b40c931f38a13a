"""The student as the loop sees it: network, optimiser and learning-rate schedule behind ``update`` and ``losses``."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from typing import Final

import numpy as np
import torch
from torch import Tensor, nn

from rota.student import varlen
from rota.student.config import Schedule, StudentConfig
from rota.student.devices import find_device
from rota.student.dropout import Noise
from rota.student.hardware import OTHER_DEVICE, allow_tf32, keep_memory, memory_for
from rota.student.laid_out import LaidOut, lay_out
from rota.student.loss import smoothed_loss, token_losses
from rota.student.packs import join, pack_too_large, packs, pieces, pieces_too_large, take
from rota.student.team import Team
from rota.student.transformer import UNK, Shape, Transformer
from rota.types import Batch, FloatArray, SentenceLosses, State

EVALUATION_TOKENS: Final = 1_000
"""Target tokens that :meth:`NMT.losses` runs through the network at once: on a CPU, longer packs only add padding."""

EVALUATION_TOKENS_ELSEWHERE: Final = 16_000
"""The same on an accelerator, which wants large packs."""

TRAINING_TOKENS: Final = 1_500
"""Target tokens, about, that :meth:`NMT.update` runs forward and back at once on a CPU, unless told otherwise."""


class NotFiniteError(ArithmeticError):
    """The loss or its gradient is not a finite number; the weights are still those of the step before."""


def build_student(config: StudentConfig, *, vocabulary: int, steps: int, seed: int, team: Team | None = None) -> NMT:
    """A student with fresh weights; ``steps`` is the length of the run, of which the warm-up may be a share."""
    shape = config.shape(vocabulary)
    warmup = config.lr_warmup.steps(steps)
    rate = config.learning_rate
    end = steps if rate.decay == "linear" else None
    if rate.peak is not None:
        schedule = Schedule(rate.peak, warmup, end)
    else:
        assert rate.scale is not None
        schedule = Schedule.from_scale(rate.scale, width=shape.width, warmup=warmup, end=end)
    device = find_device(config.device)
    allow_tf32(device, allowed=config.precision != "float32")
    if device.type == "cpu":
        keep_memory()
    with memory_for(lambda: _student_too_large(shape)):
        network = Transformer(shape, torch.Generator().manual_seed(_mixed_seed(seed, 0, 0))).to(device)
        return NMT(
            network,
            seed=seed,
            schedule=schedule,
            dropout=config.dropout,
            attention_dropout=config.dropout if config.attention_dropout is None else config.attention_dropout,
            word_dropout=config.word_dropout,
            label_smoothing=config.label_smoothing,
            betas=config.betas,
            clip_norm=config.clip_norm,
            bf16=config.precision == "bf16",
            piece_tokens=config.piece_tokens,
            team=team,
        )


def _student_too_large(shape: Shape) -> str:
    """For whoever has no memory for a student, its gradients and moments, even before the first batch."""
    with torch.device("meta"):
        weights = sum(parameter.numel() for parameter in Transformer(shape).parameters())
    size = f"{weights / 1e6:,.1f} million weights, {16 * weights / 1e9:,.1f} GB with gradients and moments"
    return f"building a student of {size}; this needs {OTHER_DEVICE}."


class NMT:
    """Implements :class:`rota.types.Student`."""

    def __init__(
        self,
        network: Transformer,
        *,
        seed: int,
        schedule: Schedule,
        dropout: float = 0.3,
        attention_dropout: float = 0.3,
        word_dropout: float = 0.0,
        label_smoothing: float = 0.1,
        betas: tuple[float, float] = (0.9, 0.998),
        clip_norm: float = 5.0,
        bf16: bool = False,
        piece_tokens: int | None = None,
        team: Team | None = None,
    ) -> None:
        self.network = network
        self._team = team or Team()
        self._replica = self._team.replicate(network)
        self.step = 0
        self.schedule, self.clip_norm, self.label_smoothing = schedule, clip_norm, label_smoothing
        self._dropout, self._attention_dropout, self._word_dropout = dropout, attention_dropout, word_dropout
        self._seed, self._bf16, self._piece_tokens = seed, bf16, piece_tokens
        # OpenNMT-py's epsilon.
        self._optimiser = torch.optim.Adam(network.parameters(), lr=0.0, betas=betas, eps=1e-9, fused=True)
        self._start_moments()
        self._ahead: tuple[Batch, LaidOut] | None = None  # a batch of the next update, and its first piece laid out

    @memory_for(lambda: f"clipping gradients or changing weights; this needs {OTHER_DEVICE}.")
    def update(self, batches: Sequence[Batch], draw_next: Callable[[], Sequence[Batch]] = list) -> float:
        """One optimiser step on the mean loss per token of all batches; returns the loss without smoothing.

        Several processes are given the same batches in step; each reads those that are its own. ``draw_next``: the
        batches of the next update, if they are known. They are asked for, and set on their way, while a GPU computes.
        """
        tokens = sum(batch.tokens for batch in batches)
        self.network.zero_grad(set_to_none=True)
        mine = [number for number in range(len(batches)) if self._team.owns(number)]
        with memory_for(lambda: pieces_too_large(batches, self.tokens_at_once)):
            sums = [
                self._backward(piece, (number, turn), tokens, last=(number, left) == (mine[-1], 0))
                for number in mine
                for turn, left, piece in self._pieces(batches[number])
            ]
            if not mine:
                sentence = self._lay_out(take(batches[0], np.array([0])), training=True)
                self._backward(sentence, (0, 0), tokens, last=True, weight=0.0)
        gradients = [parameter.grad for parameter in self.network.parameters() if parameter.grad is not None]
        norm = torch.stack(torch._foreach_norm(gradients)).norm()
        self._expect(draw_next())
        # Only now: reading a number waits for the device, which computes while we lay out the next batch.
        summed = np.array([math.fsum(float(value) for value in sums)])
        loss = float(self._team.add_up(summed)[0]) / tokens
        self._clip(gradients, loss, float(norm))
        self.step += 1
        self._optimiser.param_groups[0]["lr"] = self.schedule(self.step)
        self._optimiser.step()
        return loss

    def losses(self, batches: Sequence[Batch], *, smoothed: bool = False) -> SentenceLosses:
        """Cross-entropy per sentence in evaluation mode, in the order given; leaves no trace.

        ``smoothed``: with the label smoothing of training. Several processes divide the sentences among them.
        """
        smoothing = self.label_smoothing if smoothed else 0.0
        joint = join(batches)
        sums = np.zeros(joint.sentences)
        budget = EVALUATION_TOKENS if self.network.device.type == "cpu" else EVALUATION_TOKENS_ELSEWHERE
        budget = min(budget, self._piece_tokens or budget, math.ceil(joint.tokens / self._team.size))
        with torch.inference_mode(), memory_for(lambda: pack_too_large(joint, budget)):
            for number, rows in enumerate(packs(joint, budget)):
                if self._team.owns(number):
                    sums[rows] = self._sentence_losses(take(joint, rows), smoothing)
        return SentenceLosses(self._team.add_up(sums), joint.target_lengths)

    def state_dict(self) -> State:
        """Weights and moments, by name. The tensors are the living ones: write them before the next update."""
        moments: dict[str, dict[str, Tensor]] = {key: {} for key in ("exp_avg", "exp_avg_sq")}
        for name, parameter in self.network.named_parameters():
            for key, tensors in moments.items():
                tensors[name] = self._optimiser.state[parameter][key]
        return {"network": dict(self.network.state_dict()), "optimiser": moments, "step": self.step}

    def load_state_dict(self, state: State) -> None:
        self.network.load_state_dict(state["network"])
        self.step = int(state["step"])
        for name, parameter in self.network.named_parameters():
            moments = self._optimiser.state[parameter]
            moments["step"].fill_(self.step)
            for key in ("exp_avg", "exp_avg_sq"):
                moments[key].copy_(state["optimiser"][key][name])

    def _start_moments(self) -> None:
        """What Adam would create at its first step, created now, so that every state has the same form."""
        for parameter in self.network.parameters():
            self._optimiser.state[parameter] = {
                "step": torch.zeros((), dtype=torch.float32, device=parameter.device),
                "exp_avg": torch.zeros_like(parameter),
                "exp_avg_sq": torch.zeros_like(parameter),
            }

    def _pieces(self, batch: Batch) -> Iterator[tuple[int, int, LaidOut]]:
        """The pieces of a batch, laid out one by one; the first may be so already."""
        ahead, self._ahead = self._ahead, None
        for turn, left, piece in pieces(batch, self.tokens_at_once):
            known = ahead[1] if ahead and ahead[0] is batch and turn == 0 else None
            yield turn, left, known or self._lay_out(piece, training=True)

    def _expect(self, batches: Sequence[Batch]) -> None:
        """Lays out what this process will begin the next update with."""
        mine = next((batch for number, batch in enumerate(batches) if self._team.owns(number)), None)
        if mine is not None:
            with memory_for(lambda: pieces_too_large(batches, self.tokens_at_once)):
                _, _, piece = next(pieces(mine, self.tokens_at_once))
                self._ahead = mine, self._lay_out(piece, training=True)

    @property
    def tokens_at_once(self) -> int | None:
        """Target tokens, about, of a piece; None: batches stay whole."""
        return self._piece_tokens or (TRAINING_TOKENS if self.network.device.type == "cpu" else None)

    def _backward(
        self, piece: LaidOut, number: tuple[int, int], tokens: int, *, last: bool, weight: float = 1.0
    ) -> Tensor:
        """Adds the gradients of one piece, after the ``last`` one those of all processes; its loss, summed.

        A process without a piece of its own takes part with any sentence and the ``weight`` 0.
        """
        with nullcontext() if last else self._team.hold_back(self._replica):
            with self._autocast():
                states_ND = self._forward(self._replica, piece, self._noise(number))
                smoothed, losses_N = smoothed_loss(
                    states_ND, self.network.output_matrix, piece.target_N, label_smoothing=self.label_smoothing
                )
            # The replicas leave the mean of their gradients; we want the sum.
            (smoothed * (weight * self._team.size) / tokens).backward()  # type: ignore[no-untyped-call]
        return losses_N.sum()

    def _sentence_losses(self, batch: Batch, smoothing: float) -> FloatArray:
        pack = self._lay_out(batch, training=False)
        with self._autocast():
            states_ND = self._forward(self.network, pack, None)
            losses_N = token_losses(states_ND, self.network.output_matrix, pack.target_N, label_smoothing=smoothing)
        starts = np.cumsum(batch.target_lengths) - batch.target_lengths
        sums: FloatArray = np.add.reduceat(losses_N.double().cpu().numpy(), starts)
        return sums

    def _forward(self, network: nn.Module, piece: LaidOut, noise: Noise | None) -> Tensor:
        read = (piece.source_N, piece.target_N)
        if noise is not None:
            read = (noise.drop_words(read[0], UNK), noise.drop_words(read[1], UNK))
        states_ND: Tensor = network(read[0], piece.source, read[1], piece.target, noise)
        return states_ND

    def _lay_out(self, batch: Batch, *, training: bool) -> LaidOut:
        flat = self._attends_flat(training=training)
        return lay_out(batch, self.network.shape.heads, self.network.device, flat=flat)

    def _attends_flat(self, *, training: bool) -> bool:
        """Whether attention will be one kernel over flat rows, which drops no weights."""
        device, shape = self.network.device, self.network.shape
        if device.type != "cuda" or (training and self._attention_dropout > 0):
            return False
        dtype = torch.bfloat16 if self._bf16 else torch.float32
        return varlen.suits(device, dtype, shape.width // shape.heads)

    def _noise(self, number: tuple[int, int]) -> Noise | None:
        """Dropout of a piece: a function of seed, step and numbers of batch and piece, so resuming needs no state."""
        if self._dropout == 0 and self._attention_dropout == 0 and self._word_dropout == 0:
            return None
        generator = torch.Generator(self.network.device)
        generator.manual_seed(_mixed_seed(self._seed, self.step + 1, *number))
        return Noise(generator, self._dropout, self._attention_dropout, self._word_dropout)

    def _clip(self, gradients: list[Tensor], loss: float, norm: float) -> None:
        if not (math.isfinite(loss) and math.isfinite(norm)):
            self.network.zero_grad(set_to_none=True)
            step = self.step + 1
            raise NotFiniteError(
                f"loss {loss:g} and gradient norm {norm:g} at step {step} with learning rate {self.schedule(step):.3g};"
                " the weights are those of the step before: lower student.learning_rate or lengthen student.lr_warmup."
            )
        if norm > self.clip_norm:
            torch._foreach_mul_(gradients, self.clip_norm / norm)

    def _autocast(self) -> torch.autocast:
        return torch.autocast(self.network.device.type, dtype=torch.bfloat16, enabled=self._bf16)


def _mixed_seed(seed: int, step: int, number: int, piece: int = 0) -> int:
    """The first piece has the seed of the whole batch."""
    entropy = [seed, step, number, *([piece] if piece else [])]
    return int(np.random.SeedSequence(entropy).generate_state(1, np.uint64)[0] >> np.uint64(1))
