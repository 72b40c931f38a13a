"""From the values of the arms to a choice: epsilon-greedy, Boltzmann, or Boltzmann with a share of random choices."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rota.types import Arm, Decision, FloatArray


def epsilon_greedy(
    arms: Sequence[Arm], values: FloatArray, scores: FloatArray, rng: np.random.Generator, *, epsilon: float
) -> Decision:
    """With probability ``epsilon`` any arm, else the one of the highest value; of equals, the first in the list.

    ``scores`` are only written down: where arms are ranked by |Q|, they are Q.
    """
    best = int(np.argmax(values))
    explore = rng.random() < epsilon
    index = int(rng.integers(len(arms))) if explore else best
    probability = epsilon / len(arms) + (1 - epsilon if index == best else 0.0)
    return Decision(arms[index], "explore" if explore else "exploit", probability, named(arms, scores), epsilon=epsilon)


def boltzmann(
    arms: Sequence[Arm], values: FloatArray, scores: FloatArray, rng: np.random.Generator, *, temperature: float
) -> Decision:
    """Probabilities proportional to ``exp(value / temperature)``."""
    shares = softmax(values, temperature)
    index = _drawn(shares, rng)
    return Decision(arms[index], "sampled", float(shares[index]), named(arms, scores))


def epsilon_boltzmann(
    arms: Sequence[Arm],
    values: FloatArray,
    scores: FloatArray,
    rng: np.random.Generator,
    *,
    epsilon: float,
    temperature: float,
) -> Decision:
    """With probability ``epsilon`` any arm, else one drawn by :func:`boltzmann`: no arm has less than epsilon / K."""
    shares = softmax(values, temperature)
    explore = rng.random() < epsilon
    index = int(rng.integers(len(arms))) if explore else _drawn(shares, rng)
    probability = epsilon / len(arms) + (1 - epsilon) * float(shares[index])
    return Decision(arms[index], "explore" if explore else "sampled", probability, named(arms, scores), epsilon=epsilon)


def softmax(values: FloatArray, temperature: float) -> FloatArray:
    weights = np.exp((values - values.max()) / temperature)
    shares: FloatArray = weights / weights.sum()
    return shares


def _drawn(shares: FloatArray, rng: np.random.Generator) -> int:
    return min(int(np.searchsorted(np.cumsum(shares), rng.random(), side="right")), len(shares) - 1)


def random_choice(arms: Sequence[Arm], rng: np.random.Generator) -> Decision:
    """Any arm, before there is anything to go by."""
    index = int(rng.integers(len(arms)))
    return Decision(arms[index], "explore", 1 / len(arms), epsilon=1.0)


def named(arms: Sequence[Arm], scores: FloatArray) -> dict[Arm, float]:
    return {arm: float(score) for arm, score in zip(arms, scores, strict=True)}
