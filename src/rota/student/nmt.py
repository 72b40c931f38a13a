"""The student as loop and probes see it: network, optimiser and schedule behind ``update``, ``losses``, ``gradient``.

R numbers for each token, N target tokens of a piece, D model width.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from typing import Final

import numpy as np
import torch
from torch import Tensor, nn

from rota.measures import RECENT_DECAY, RewardWeights, Weights
from rota.student.average import MovingAverage
from rota.student.config import Schedule, StudentConfig
from rota.student.gradients import NetworkGradient, directions_after, dots, projection
from rota.student.hardware import OTHER_DEVICE, allow_tf32, find_device, keep_memory, memory_for
from rota.student.kernels.attention import suits_varlen
from rota.student.kernels.dropout import Noise, mixed_seed
from rota.student.kernels.loss import examined_tokens, smoothed_loss, token_losses, uncertain_tokens
from rota.student.optimiser import Optimiser, freeze
from rota.student.parallel import Pairs
from rota.student.pieces import LaidOut, join, lay_out, packs, pieces, take, token_places
from rota.student.statistics import WeightStatistics
from rota.student.transformer import EOS, UNK, Transformer
from rota.team import Team
from rota.types import (
    Batch,
    Examined,
    FloatArray,
    Gradient,
    Projection,
    SentenceLosses,
    State,
    Uncertainty,
)

TokenMeasure = Callable[[Tensor, Tensor, Tensor], Tensor]
"""R x N numbers from N x D decoder states, the output matrix and N targets."""

EVALUATION_TOKENS: Final = 1_000
"""Target tokens that are measured at once: on a CPU, longer packs only add padding."""

EVALUATION_TOKENS_ELSEWHERE: Final = 16_000
"""The same on an accelerator, where large packs are faster."""

TRAINING_TOKENS: Final = 1_500
"""Target tokens, about, that run forward and backward at once on a CPU, unless configured."""

PAIRED_WIDTH: Final = 256
"""Students up to this width compute two pieces at once on a CPU: ``base`` (512) would gain 3 % and take 1.4 GB more."""

GRADIENT_TOKENS: Final = 600
"""Target tokens, at most, of a piece whose gradient is measured on a CPU: sentences of all lengths come together there,
and smaller pieces, sorted by length, have less padding. With 1,800 tokens it takes a third less time than in one."""


def build_student(
    config: StudentConfig,
    *,
    vocabulary: int,
    steps: int,
    seed: int,
    restart: int | None = None,
    team: Team | None = None,
) -> NMT:
    """A student with fresh weights; ``steps`` is the length of the run, of which the warm-up may be a share.

    ``restart``: the step after which the learning rate begins again.
    """
    device = find_device(config.device)
    allow_tf32(device, allowed=config.precision != "float32")
    if device.type == "cpu":
        keep_memory()
    with memory_for(lambda: f"building the student; this needs {OTHER_DEVICE}."):
        generator = torch.Generator().manual_seed(mixed_seed(seed, 0, 0))
        network = Transformer(config.shape(vocabulary), generator).to(device)
        freeze(network, config.freeze)
        return NMT(network, config, seed=seed, schedule=config.schedule(steps, restart), team=team)


class NMT(WeightStatistics):
    """Implements :class:`rota.types.ProbedStudent`."""

    def __init__(
        self, network: Transformer, config: StudentConfig, *, seed: int, schedule: Schedule, team: Team | None = None
    ) -> None:
        self.network, self.config, self.schedule = network, config, schedule
        self.step = 0
        self._seed = seed
        self._team = team or Team()
        self._replica = self._team.replicate(network)
        self._optimiser = Optimiser(network, config)
        self._pairs = Pairs()
        self._ahead: tuple[Batch, LaidOut] | None = None  # a batch of the next update, and its first piece laid out
        self._average: MovingAverage | None = None
        self._recent: MovingAverage | None = None
        self._directions: tuple[NetworkGradient, ...] = ()
        self.gradient_norm: float | None = None
        self.projection: Projection | None = None
        if config.average is not None:
            self.keep_average(config.average)

    @memory_for(lambda: f"clipping gradients or changing weights; this needs {OTHER_DEVICE}.")
    def update(self, batches: Sequence[Batch], draw_next: Callable[[], Sequence[Batch]] = list) -> float:
        """One optimiser step on the mean loss per token of all batches; returns the loss without smoothing.

        Several processes are given the same batches in step; each reads those that are its own. ``draw_next`` gives
        the batches of the next update, if they are known: it is called, and they are laid out, while a GPU computes.
        """
        tokens = sum(batch.tokens for batch in batches)
        self.network.zero_grad(set_to_none=True)
        mine = [number for number in range(len(batches)) if self._team.owns(number)]
        with memory_for(lambda: self._too_large("training on", batches, pairs=self._may_pair())):
            if self._works_in_pairs(batches):
                sums = self._backward_in_pairs(batches, tokens)
            else:
                sums = [
                    self._backward(piece, (number, turn), tokens, last=(number, left) == (mine[-1], 0))
                    for number in mine
                    for turn, left, piece in self._pieces(batches[number])
                ]
            if not mine:
                sentence = self._lay_out(take(batches[0], np.array([0])), training=True)
                self._backward(sentence, (0, 0), tokens, last=True, weight=0.0)
        gradients = self._optimiser.gradients
        norm = torch.stack(torch._foreach_norm(gradients)).norm()
        along = dots(self._directions, gradients)
        self._expect(draw_next())
        # Only now: reading a number waits for the device, which computes while we lay out the next batch.
        summed = np.array([math.fsum(float(value) for value in sums)])
        loss = float(self._team.add_up(summed)[0]) / tokens
        self.gradient_norm = float(norm)
        self.projection = projection(along, self.gradient_norm)
        step = self.step + 1
        self._optimiser.step(step, self.schedule(step), loss, self.gradient_norm)
        self.step = step
        for average in filter(None, (self._average, self._recent)):
            average.update()
        return loss

    def losses(
        self, batches: Sequence[Batch], *, smoothed: bool = False, weights: RewardWeights = "raw"
    ) -> SentenceLosses:
        """Cross-entropy per sentence in evaluation mode, in the order given; leaves no trace.

        ``smoothed``: with the label smoothing of training. Several processes divide the sentences among them.
        """
        joint, smoothing = join(batches), self.config.label_smoothing if smoothed else 0.0
        measure = partial(token_losses, label_smoothing=smoothing)
        ((sums,),) = self._measure(joint, lambda *given: measure(*given)[None], 1, weights)
        return SentenceLosses(sums, joint.target_lengths)

    def examine(
        self, batches: Sequence[Batch], *, temperatures: Sequence[float] = (), weights: Weights = "raw"
    ) -> Examined:
        """Losses, correct tokens, and losses at these softmax temperatures, in one pass; leaves no trace."""
        joint, measure = join(batches), partial(examined_tokens, temperatures=temperatures)
        ((sums, correct, *others),) = self._measure(joint, measure, 2 + len(temperatures), weights)
        at_temperatures = np.array(others).reshape(len(temperatures), joint.sentences)
        return Examined(sums, joint.target_lengths, correct.astype(np.int64), at_temperatures)

    def dropout_samples(
        self, batches: Sequence[Batch], *, samples: int, seed: int, weights: Weights = "raw"
    ) -> FloatArray:
        """(samples, sentences): cross-entropy with the dropout of training, except that of words; leaves no trace."""
        sums = self._measure(join(batches), lambda *given: token_losses(*given)[None], 1, weights, samples, seed)
        return sums[:, 0]

    def token_dropout_samples(self, batch: Batch, *, samples: int, seed: int) -> FloatArray:
        """(samples, target tokens): the same for every token of a batch; leaves no trace."""
        losses = self._measure(batch, lambda *given: token_losses(*given)[None], 1, "raw", samples, seed, by_token=True)
        return losses[:, 0]

    def uncertainty(
        self, batches: Sequence[Batch], *, samples: int, seed: int, weights: Weights = "raw"
    ) -> Uncertainty:
        """What :class:`Uncertainty` lists, with the same dropout; leaves no trace."""

        def measure(states_ND: Tensor, output_VD: Tensor, target_N: Tensor) -> Tensor:
            losses_N, probabilities_N, entropies_N, best_N = uncertain_tokens(states_ND, output_VD, target_N)
            at_end_N = entropies_N * (target_N == EOS)
            return torch.stack([losses_N, probabilities_N, entropies_N, at_end_N, best_N, best_N.square()])

        joint = join(batches)
        sums = self._measure(joint, measure, 6, weights, samples, seed)
        return Uncertainty(joint.target_lengths, *sums.swapaxes(0, 1))

    def gradient(self, batches: Sequence[Batch], *, weights: Weights = "raw", smoothed: bool = False) -> Gradient:
        """Of the mean loss per token in evaluation mode, sentences weighted as in :meth:`update`; leaves no trace."""
        joint, network = join(batches), self._network(weights)
        parameters = [parameter for parameter in network.parameters() if parameter.requires_grad]
        smoothing = self.config.label_smoothing if smoothed else 0.0
        total: list[Tensor] = []
        with memory_for(lambda: self._too_large("computing a gradient of", [joint])):
            at_once = self.tokens_at_once
            if at_once is not None and network.device.type == "cpu":
                at_once = min(at_once, GRADIENT_TOKENS)
            for _, _, batch in pieces(joint, at_once):
                piece = self._lay_out(batch, training=False)
                loss, _ = self._loss(network, network, piece, None, smoothing)
                # Unlike backward(), this leaves the gradients of the parameters alone.
                found = torch.autograd.grad(loss / joint.tokens, parameters)
                if total:
                    torch._foreach_add_(total, found)
                else:
                    total = list(found)
        return NetworkGradient(total, self._denominators)

    def follow(self, direction: Gradient | None, others: Sequence[Gradient] = (), memory: float = 0.0) -> None:
        """From now on every update computes the dot products of its gradient, before clipping, with the directions."""
        self._directions = directions_after(self._directions, direction, others, memory)

    def keep_average(self, decay: float) -> None:
        """From now on keeps a moving average of the weights; does nothing if one is kept already."""
        if self._average is None:
            self._average = MovingAverage(self.network, decay)

    def keep_recent(self) -> None:
        """From now on keeps an average over about the last ten updates; saved with the moments, for the same reason."""
        self._recent = self._recent or MovingAverage(self.network, RECENT_DECAY, settled=True)

    def begin_with(self, weights: Mapping[str, Tensor]) -> None:
        """Before the first update: these weights instead of random ones."""
        assert self.step == 0, f"{self.step} updates were made already"
        self.network.load_state_dict(dict(weights))
        for average in filter(None, (self._average, self._recent)):
            average.network.load_state_dict(dict(weights))

    def state_dict(self) -> State:
        """Weights, moments and what else updates use, by name; tensors are not copies: write before the next update.

        The directions are with the moments, because only a run that resumes needs either.
        """
        moments = self._optimiser.state_dict()
        state = {"network": dict(self.network.state_dict()), "optimiser": moments, "step": self.step}
        for number, direction in enumerate(self._directions):
            moments[_direction_key(number)] = dict(zip(self._optimiser.names, direction.tensors, strict=True))
        if self._recent is not None:
            moments["recent"] = dict(self._recent.network.state_dict())
        if self._average is not None:
            state |= self._average.state_dict()
        return state

    def load_state_dict(self, state: State) -> None:
        self.network.load_state_dict(state["network"])
        self.step = int(state["step"])
        self._optimiser.load_state_dict(state["optimiser"], self.step)
        keys = (_direction_key(number) for number in range(len(state["optimiser"])))
        saved = [state["optimiser"][key] for key in keys if key in state["optimiser"]]
        self._directions = tuple(
            NetworkGradient([each[name].to(self.network.device) for name in self._optimiser.names], self._denominators)
            for each in saved
        )
        self.gradient_norm = self.projection = self._recent = None
        if "recent" in state["optimiser"]:
            self.keep_recent()
            self._network("recent").load_state_dict(state["optimiser"]["recent"])
        if self._average is not None:
            self._average.load_state_dict(state)

    def _network(self, weights: RewardWeights) -> Transformer:
        if weights == "raw":
            return self.network
        average = self._average if weights == "average" else self._recent
        if average is None:
            raise ValueError("no averaged weights are kept; write for example student.average: 0.99")
        return average.network

    def _denominators(self) -> list[Tensor] | None:
        return self._optimiser.denominators(self.step)

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
            with memory_for(lambda: self._too_large("training on", batches, pairs=self._may_pair())):
                _, _, piece = next(pieces(mine, self.tokens_at_once))
                self._ahead = mine, self._lay_out(piece, training=True)

    @property
    def tokens_at_once(self) -> int | None:
        """Target tokens, about, of a piece; None: batches stay whole."""
        return self.config.piece_tokens or (TRAINING_TOKENS if self.network.device.type == "cpu" else None)

    def _too_large(
        self, doing: str, batches: Sequence[Batch], tokens: int | None = None, *, pairs: bool = False
    ) -> str:
        """What did not fit into memory, and the setting that halves it."""
        largest = max(batch.tokens for batch in batches)
        at_once = min(tokens or self.tokens_at_once or largest, largest)
        if pairs and self._works_in_pairs(batches):
            at_once *= 2
        # With pairs, two of the smaller pieces will be computed at once.
        smaller = f"--set student.piece_tokens={max(1, at_once // (4 if pairs else 2))}"
        remedy = f"continue the run with {smaller}, which takes less at once; a single sentence needs {OTHER_DEVICE}"
        return f"{doing} {at_once:,} target tokens at once; {remedy}."

    def _backward(
        self, piece: LaidOut, number: tuple[int, int], tokens: int, *, last: bool, weight: float = 1.0
    ) -> Tensor:
        """Adds the gradients of one piece, after the ``last`` one those of all processes; returns its summed loss.

        A process without a piece of its own takes part with any sentence and the ``weight`` 0.
        """
        with nullcontext() if last else self._team.hold_back(self._replica):
            smoothed, losses_N = self._loss(
                self.network, self._replica, piece, self._noise(number), self.config.label_smoothing
            )
            # The replicas leave the mean of their gradients; we want the sum.
            (smoothed * (weight * self._team.size) / tokens).backward()  # type: ignore[no-untyped-call]
        return losses_N.sum()

    def _may_pair(self) -> bool:
        """Whether two pieces are computed at once if there are two; several processes divide batches instead."""
        narrow = self.network.shape.width <= PAIRED_WIDTH
        return self._team.size == 1 and self.network.device.type == "cpu" and narrow and Pairs.threads_can_be_halved()

    def _works_in_pairs(self, batches: Sequence[Batch]) -> bool:
        at_once = self.tokens_at_once or math.inf
        return self._may_pair() and sum(max(1, round(batch.tokens / at_once)) for batch in batches) > 1

    def _backward_in_pairs(self, batches: Sequence[Batch], tokens: int) -> list[Tensor]:
        """Adds up the gradients of all pieces in their order; returns their summed losses."""
        numbered = [
            ((number, turn), piece) for number, batch in enumerate(batches) for turn, _, piece in self._pieces(batch)
        ]
        sums = []
        for loss, gradients in self._pairs.map(partial(self._gradients_of, tokens), numbered):
            sums.append(loss)
            self._optimiser.add(gradients)
            del gradients  # else they stay in memory while the next are computed
        return sums

    def _gradients_of(
        self, tokens: int, numbered: tuple[tuple[int, int], LaidOut]
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        """The summed loss of one piece and its gradients; those of the parameters are not changed."""
        number, piece = numbered
        smoothed, losses_N = self._loss(
            self.network, self.network, piece, self._noise(number), self.config.label_smoothing
        )
        return losses_N.sum(), torch.autograd.grad(smoothed / tokens, self._optimiser.parameters)

    def _loss(
        self, network: Transformer, replica: nn.Module, piece: LaidOut, noise: Noise | None, smoothing: float
    ) -> tuple[Tensor, Tensor]:
        """Summed loss of a piece to differentiate, sentences weighted; the plain loss of each of its tokens."""
        with self._autocast():
            states_ND = self._forward(replica, piece, noise)
            output_VD, target_N, factors_N = network.output_matrix, piece.target_N, piece.factors_N
            return smoothed_loss(states_ND, output_VD, target_N, label_smoothing=smoothing, factors_N=factors_N)

    def _measure(
        self,
        joint: Batch,
        measure: TokenMeasure,
        numbers: int,
        weights: RewardWeights,
        samples: int | None = None,
        seed: int = 0,
        *,
        by_token: bool = False,
    ) -> FloatArray:
        """(samples, numbers, sentences): what is measured of each token, summed over sentences, or of each token.

        Without ``samples`` there is one pass in evaluation mode. Otherwise dropout is a function of the seed and the
        numbers of sample and pack; packs then do not depend on the number of processes.
        """
        if samples is not None and samples < 1:
            raise ValueError(f"{samples} samples of dropout tell nothing; ask for at least 1")
        network = self._network(weights)
        sums = np.zeros((samples or 1, numbers, joint.tokens if by_token else joint.sentences))
        budget = EVALUATION_TOKENS if network.device.type == "cpu" else EVALUATION_TOKENS_ELSEWHERE
        # Rewards at recent weights are of few sentences of all lengths, which in one pack would be mostly padding.
        parts = self._team.size * (3 if weights == "recent" else 1)
        most = joint.tokens if samples else math.ceil(joint.tokens / parts)
        budget = min(budget, self.config.piece_tokens or budget, most)
        with torch.inference_mode(), memory_for(lambda: self._too_large("measuring", [joint], budget)):
            for number, rows in enumerate(packs(joint, budget)):
                if not self._team.owns(number):
                    continue
                pack = self._lay_out(take(joint, rows), training=samples is not None)
                starts = np.cumsum(pack.target.lengths) - pack.target.lengths
                for sample in range(samples or 1):
                    noise = self._sampled_noise(seed, sample, number) if samples else None
                    with self._autocast():
                        states_ND = self._forward(network, pack, noise)
                        values_RN = measure(states_ND, network.output_matrix, pack.target_N)
                    found = values_RN.double().cpu().numpy()
                    if by_token:
                        sums[sample][:, token_places(joint.target_lengths, rows)] = found
                    else:
                        sums[sample][:, rows] = np.add.reduceat(found, starts, axis=1)
        return self._team.add_up(sums)

    def _sampled_noise(self, seed: int, sample: int, pack: int) -> Noise:
        generator = torch.Generator(self.network.device).manual_seed(mixed_seed(seed, sample, pack))
        return Noise(generator, self.config.dropout, self.config.dropout_of_attention)

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
        generator.manual_seed(mixed_seed(self._seed, self.step + 1, *number))
        return Noise(generator, config.dropout, config.dropout_of_attention, config.word_dropout)

    def _autocast(self) -> torch.autocast:
        bf16 = self.config.precision == "bf16"
        return torch.autocast(self.network.device.type, dtype=torch.bfloat16, enabled=bf16)


def _direction_key(number: int) -> str:
    """Of a followed direction among the moments; the first one had no number when it was alone."""
    return f"direction.{number}" if number else "direction"
