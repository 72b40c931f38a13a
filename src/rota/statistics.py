"""Small-sample statistics over runs that are paired by seed: t test, sign flips, Holm, what could have been seen.

Nothing but numpy: reports use these too, and scipy is not a dependency. A test compares the two where it is installed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from rota.types import FloatArray

EXACT_UP_TO = 16
"""Seeds for which all sign flips are counted; beyond, a random 100,000 of them."""


@dataclass(frozen=True, slots=True)
class SeedComparison:
    """Differences (system minus baseline) of runs paired by seed, and what they say of the systems."""

    seeds: int
    mean: float  # of the differences
    spread: float  # standard deviation of the differences, n - 1 in the denominator
    interval: tuple[float, float]  # 95 % (or 1 - alpha) interval of the mean, from Student's t
    p_t: float  # two-sided paired t test
    p_permutation: float  # two-sided sign-flip test
    smallest_p: float  # that the sign-flip test can give at all with so few seeds
    smallest_detectable: float  # true mean difference that the t test would have seen with probability 0.8


def paired_seeds(baseline: Sequence[float], system: Sequence[float], *, alpha: float = 0.05) -> SeedComparison:
    """Compare two systems by their scores under the same seeds, in the same order."""
    if len(baseline) != len(system):
        raise ValueError(f"{len(baseline)} scores against {len(system)}: give one of each for every seed")
    if len(baseline) < 2:
        raise ValueError(f"{len(baseline)} pair of runs; a test over seeds needs at least 2, better 5 or more")
    differences = np.asarray(system, dtype=float) - np.asarray(baseline, dtype=float)
    n, mean, spread = len(differences), float(differences.mean()), float(differences.std(ddof=1))
    error = spread / math.sqrt(n)
    reach = student_t_quantile(alpha, n - 1) * error
    return SeedComparison(
        seeds=n,
        mean=mean,
        spread=spread,
        interval=(mean - reach, mean + reach),
        p_t=_p_t(mean, error, n - 1),
        p_permutation=sign_flip_p(differences),
        smallest_p=2.0 ** (1 - n),
        smallest_detectable=smallest_detectable(spread, n, alpha=alpha),
    )


def _p_t(mean: float, error: float, freedom: int) -> float:
    """Differences that are all the same have no error: the t value is then infinite, or there is none."""
    if error <= 1e-12 * abs(mean) or error == 0:
        return 0.0 if mean else 1.0
    return 1 - student_t_within(abs(mean) / error, freedom)


def student_t_within(t: float, freedom: int) -> float:
    """P(-t <= T <= t) for whole degrees of freedom: the finite sums 26.7.3 and 26.7.4 of Abramowitz and Stegun."""
    angle = math.atan(t / math.sqrt(freedom))
    sine, cosine = math.sin(angle), math.cos(angle)
    odd = freedom % 2
    term = cosine if odd else 1.0
    total = 0.0
    for k in range(1 + odd, freedom, 2):  # terms of cosine ** (k - 1)
        total += term
        term *= cosine**2 * k / (k + 1)
    return 2 / math.pi * (angle + sine * total) if odd else sine * total


def student_t_quantile(alpha: float, freedom: int) -> float:
    """The t that T leaves on either side with probability ``alpha``: 12.706 for 0.05 and one degree of freedom."""
    if not 0 < alpha < 1:
        raise ValueError(f"alpha is {alpha}; it lies between 0 and 1, usually 0.05")
    angle = _bisect(
        lambda found: student_t_within(math.tan(found) * math.sqrt(freedom), freedom), 1 - alpha, math.pi / 2
    )
    return math.tan(angle) * math.sqrt(freedom)


def _bisect(rising: Callable[[float], float], value: float, high: float) -> float:
    """Where a function that rises from 0 to ``high`` takes a value."""
    low = 0.0
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if rising(middle) < value else (low, middle)
    return (low + high) / 2


def sign_flip_p(differences: Sequence[float] | FloatArray, *, rng: np.random.Generator | None = None) -> float:
    """Two-sided p of the mean: how often it is as far from 0 if every difference may have either sign.

    Exact up to ``EXACT_UP_TO`` differences, so that n of one sign give 2 / 2 ** n.
    """
    values = np.asarray(differences, dtype=float)
    exact = len(values) <= EXACT_UP_TO
    signs_FN = _all_signs(len(values)) if exact else _random_signs(len(values), rng or np.random.default_rng(12345))
    observed = abs(values.sum())
    hits = int(np.count_nonzero(np.abs(signs_FN @ values) >= observed - 1e-9 * np.abs(values).sum()))
    return hits / len(signs_FN) if exact else (hits + 1) / (len(signs_FN) + 1)


def _all_signs(n: int) -> FloatArray:
    """All (2 ** (n - 1), n) choices of signs with the first one positive: the others only mirror them."""
    bits = (np.arange(2 ** (n - 1))[:, None] >> np.arange(n - 1)) & 1
    return np.concatenate([np.ones((len(bits), 1)), 1.0 - 2 * bits], axis=1)


def _random_signs(n: int, rng: np.random.Generator, flips: int = 100_000) -> FloatArray:
    return 1.0 - 2 * rng.integers(2, size=(flips, n))


def smallest_detectable(spread: float, n: int, *, power: float = 0.8, alpha: float = 0.05) -> float:
    """The smallest true mean difference that a paired t test over ``n`` seeds finds with probability ``power``.

    ``spread``: standard deviation of the differences, in the unit of the result.
    """
    if n < 2:
        raise ValueError(f"{n} pair of runs; a test over seeds needs at least 2")
    return _detectable_shift(n - 1, power, alpha) * spread / math.sqrt(n)


@cache
def _detectable_shift(freedom: int, power: float, alpha: float) -> float:
    """The same in standard errors."""
    critical = student_t_quantile(alpha, freedom)
    high = 2.0
    while _power(high, critical, freedom) < power:
        high *= 2
    return _bisect(lambda shift: _power(shift, critical, freedom), power, high)


def _power(shift: float, critical: float, freedom: int) -> float:
    """P(T beyond +-critical) of the noncentral t: over the sample's spread s, the normal tails beyond critical * s."""
    spread = (np.arange(1000) + 0.5) * (1 + 10 / math.sqrt(freedom)) / 1000
    log_density = (freedom - 1) * np.log(spread) - freedom * spread**2 / 2
    density = np.exp(log_density - log_density.max())
    tails = _normal_cdf(shift - critical * spread) + _normal_cdf(-shift - critical * spread)
    return float((density * tails).sum() / density.sum())


def _normal_cdf(values: FloatArray) -> FloatArray:
    return np.array([0.5 * math.erfc(-value / math.sqrt(2)) for value in values])


def holm(p_values: Mapping[str, float]) -> dict[str, float]:
    """Holm's adjusted p values: below alpha exactly where his step-down procedure rejects."""
    adjusted: dict[str, float] = {}
    largest = 0.0
    for rank, name in enumerate(sorted(p_values, key=lambda name: p_values[name])):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[name]))
        adjusted[name] = largest
    return {name: adjusted[name] for name in p_values}
