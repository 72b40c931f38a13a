"""The student as the loop sees it: network, optimiser and learning-rate schedule behind ``update`` and ``losses``."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from typing import Final

import numpy as np
import torch
from torch import Tensor, nn

from rota.student.config import Schedule, StudentConfig
from rota.student.hardware import OTHER_DEVICE, allow_tf32, find_device, keep_memory, memory_for
from rota.student.kernels.attention import suits_varlen
from rota.student.kernels.dropout import Noise
from rota.student.kernels.loss import smoothed_loss, token_losses
from rota.student.pieces import LaidOut, join, lay_out, packs, pieces, take
from rota.student.transformer import UNK, Transformer
from rota.team import Team
from rota.types import Batch, FloatArray, SentenceLosses, State

EVALUATION_TOKENS: Final = 1_000
"""Target tokens that :meth:`NMT.losses` runs through the network at once: on a CPU, longer packs only add padding."""

EVALUATION_TOKENS_ELSEWHERE: Final = 16_000
"""The same on an accelerator, where large packs are faster."""

TRAINING_TOKENS: Final = 1_500
"""Target tokens, about, that :meth:`NMT.update` runs forward and backward at once on a CPU, unless configured."""


class NotFiniteError(ArithmeticError):
    """The loss or its gradient is not a finite number; the weights are still those of the step before."""


def build_student(config: StudentConfig, *, vocabulary: int, steps: int, seed: int, team: Team | None = None) -> NMT:
    """A student with fresh weights; ``steps`` is the length of the run, of which the warm-up may be a share."""
    device = find_device(config.device)
    allow_tf32(device, allowed=config.precision != "float32")
    if device.type == "cpu":
        keep_memory()
    with memory_for(lambda: f"building the student; this needs {OTHER_DEVICE}."):
        generator = torch.Generator().manual_seed(_mixed_seed(seed, 0, 0))
        network = Transformer(config.shape(vocabulary), generator).to(device)
        return NMT(network, config, seed=seed, schedule=config.schedule(steps), team=team)


class NMT:
    """Implements :class:`rota.types.Student`."""

    def __init__(
        self, network: Transformer, config: StudentConfig, *, seed: int, schedule: Schedule, team: Team | None = None
    ) -> None:
        self.network, self.config, self.schedule = network, config, schedule
        self.step = 0
        self._seed = seed
        self._team = team or Team()
        self._replica = self._team.replicate(network)
        # OpenNMT-py's epsilon.
        self._optimiser = torch.optim.Adam(network.parameters(), lr=0.0, betas=config.betas, eps=1e-9, fused=True)
        self._start_moments()
        self._ahead: tuple[Batch, LaidOut] | None = None  # a batch of the next update, and its first piece laid out

    @memory_for(lambda: f"clipping gradients or changing weights; this needs {OTHER_DEVICE}.")
    def update(self, batches: Sequence[Batch], draw_next: Callable[[], Sequence[Batch]] = list) -> float:
        """One optimiser step on the mean loss per token of all batches; returns the loss without smoothing.

        Several processes are given the same batches in step; each reads those that are its own. ``draw_next`` gives
        the batches of the next update, if they are known: it is called, and they are laid out, while a GPU computes.
        """
        tokens = sum(batch.tokens for batch in batches)
        self.network.zero_grad(set_to_none=True)
        mine = [number for number in range(len(batches)) if self._team.owns(number)]
        with memory_for(lambda: self._too_large("training on", batches)):
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
        smoothing = self.config.label_smoothing if smoothed else 0.0
        joint = join(batches)
        sums = np.zeros(joint.sentences)
        budget = EVALUATION_TOKENS if self.network.device.type == "cpu" else EVALUATION_TOKENS_ELSEWHERE
        budget = min(budget, self.config.piece_tokens or budget, math.ceil(joint.tokens / self._team.size))
        with torch.inference_mode(), memory_for(lambda: self._too_large("measuring", [joint], budget)):
            for number, rows in enumerate(packs(joint, budget)):
                if self._team.owns(number):
                    sums[rows] = self._sentence_losses(take(joint, rows), smoothing)
        return SentenceLosses(self._team.add_up(sums), joint.target_lengths)

    def state_dict(self) -> State:
        """Weights and moments, by name. The tensors are not copies: write them before the next update."""
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
        """The pieces of a batch, laid out one by one; the first one may have been laid out ahead."""
        ahead, self._ahead = self._ahead, None
        for turn, left, piece in pieces(batch, self.tokens_at_once):
            known = ahead[1] if ahead and ahead[0] is batch and turn == 0 else None
            yield turn, left, known or self._lay_out(piece, training=True)

    def _expect(self, batches: Sequence[Batch]) -> None:
        """Lays out the piece with which this process will begin the next update."""
        mine = next((batch for number, batch in enumerate(batches) if self._team.owns(number)), None)
        if mine is not None:
            with memory_for(lambda: self._too_large("training on", batches)):
                _, _, piece = next(pieces(mine, self.tokens_at_once))
                self._ahead = mine, self._lay_out(piece, training=True)

    @property
    def tokens_at_once(self) -> int | None:
        """Target tokens, about, of a piece; None: batches stay whole."""
        return self.config.piece_tokens or (TRAINING_TOKENS if self.network.device.type == "cpu" else None)

    def _too_large(self, doing: str, batches: Sequence[Batch], tokens: int | None = None) -> str:
        """What did not fit into memory, and the setting that makes it smaller."""
        largest = max(batch.tokens for batch in batches)
        at_once = min(tokens or self.tokens_at_once or largest, largest)
        smaller = f"--set student.piece_tokens={max(1, at_once // 2)}"
        remedy = (
            f"the same run goes on with {smaller}, which takes less at once; a single sentence needs {OTHER_DEVICE}"
        )
        return f"{doing} {at_once:,} target tokens at once; {remedy}."

    def _backward(
        self, piece: LaidOut, number: tuple[int, int], tokens: int, *, last: bool, weight: float = 1.0
    ) -> Tensor:
        """Adds the gradients of one piece, after the ``last`` one those of all processes; returns its summed loss.

        A process without a piece of its own takes part with any sentence and the ``weight`` 0.
        """
        with nullcontext() if last else self._team.hold_back(self._replica):
            with self._autocast():
                states_ND = self._forward(self._replica, piece, self._noise(number))
                smoothed, losses_N = smoothed_loss(
                    states_ND,
                    self.network.output_matrix,
                    piece.target_N,
                    label_smoothing=self.config.label_smoothing,
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
        varlen = self._uses_varlen(training=training)
        return lay_out(batch, self.network.shape.heads, self.network.device, varlen=varlen)

    def _uses_varlen(self, *, training: bool) -> bool:
        """Whether attention will be the kernel of variable length, which has no dropout of attention weights."""
        device, shape = self.network.device, self.network.shape
        if device.type != "cuda" or (training and self.config.dropout_of_attention > 0):
            return False
        dtype = torch.bfloat16 if self.config.precision == "bf16" else torch.float32
        return suits_varlen(device, dtype, shape.width // shape.heads)

    def _noise(self, number: tuple[int, int]) -> Noise | None:
        """Dropout of a piece: a function of seed, step and numbers of batch and piece, so resuming needs no state."""
        config = self.config
        if config.dropout == 0 and config.dropout_of_attention == 0 and config.word_dropout == 0:
            return None
        generator = torch.Generator(self.network.device)
        generator.manual_seed(_mixed_seed(self._seed, self.step + 1, *number))
        return Noise(generator, config.dropout, config.dropout_of_attention, config.word_dropout)

    def _clip(self, gradients: list[Tensor], loss: float, norm: float) -> None:
        if not (math.isfinite(loss) and math.isfinite(norm)):
            self.network.zero_grad(set_to_none=True)
            step = self.step + 1
            raise NotFiniteError(
                f"loss {loss:g} and gradient norm {norm:g} at step {step} with learning rate {self.schedule(step):.3g};"
                " the weights are those of the step before: lower student.learning_rate or lengthen student.lr_warmup."
            )
        if norm > self.config.clip_norm:
            torch._foreach_mul_(gradients, self.config.clip_norm / norm)

    def _autocast(self) -> torch.autocast:
        bf16 = self.config.precision == "bf16"
        return torch.autocast(self.network.device.type, dtype=torch.bfloat16, enabled=bf16)


def _mixed_seed(seed: int, step: int, number: int, piece: int = 0) -> int:
    """The first piece has the seed of the whole batch."""
    entropy = [seed, step, number, *([piece] if piece else [])]
    return int(np.random.SeedSequence(entropy).generate_state(1, np.uint64)[0] >> np.uint64(1))
