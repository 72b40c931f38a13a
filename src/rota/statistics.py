"""Small-sample statistics over runs that are paired by seed: t test, sign flips, Holm, what could have been seen.

For many rows at once: one model of rows and seeds with Dunnett's comparisons, regret over corpora, equal time.

Nothing but numpy: reports use these too, and scipy is not a dependency. A test compares the two where it is installed.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise

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
    while low < (middle := (low + high) / 2) < high:
        low, high = (middle, high) if rising(middle) < value else (low, middle)
    return middle


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


def seeds_to_detect(difference: float, spread: float, *, most: int, alpha: float = 0.05) -> int | None:
    """The fewest seeds with which a true difference of that size is found with probability 0.8; None above ``most``."""
    counts = range(2, most + 1)
    found = bisect_left(counts, True, key=lambda n: smallest_detectable(spread, n, alpha=alpha) <= difference)
    return counts[found] if found < len(counts) else None


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
    spread, density = _spread_density(freedom)
    tails = _normal_cdf(shift - critical * spread) + _normal_cdf(-shift - critical * spread)
    return float((density * tails).sum() / density.sum())


def _spread_density(freedom: float) -> tuple[FloatArray, FloatArray]:
    """A grid of what a sample's standard deviation may be where the true one is 1, and its density up to a factor."""
    spread = (np.arange(1000) + 0.5) * (1 + 10 / math.sqrt(freedom)) / 1000
    log_density = (freedom - 1) * np.log(spread) - freedom * spread**2 / 2
    return spread, np.exp(log_density - log_density.max())


def _normal_cdf(values: FloatArray) -> FloatArray:
    return 0.5 * np.array([math.erfc(value) for value in (-values / math.sqrt(2)).tolist()])


def holm(p_values: Mapping[str, float]) -> dict[str, float]:
    """Holm's adjusted p values: below alpha exactly where his step-down procedure rejects."""
    adjusted: dict[str, float] = {}
    largest = 0.0
    for rank, name in enumerate(sorted(p_values, key=lambda name: p_values[name])):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[name]))
        adjusted[name] = largest
    return {name: adjusted[name] for name in p_values}


# Many rows: n values, K contrasts (row minus baseline), G groups of rows with a variance of their own


@dataclass(frozen=True, slots=True)
class PooledContrast:
    """A row minus the baseline, estimated from all rows and seeds together."""

    difference: float
    error: float  # standard error
    freedom: float  # degrees of freedom of the standard error
    interval: tuple[float, float]  # holds for all rows at once with probability 0.95 (or 1 - alpha)
    p: float  # two-sided, adjusted for the number of rows by Dunnett's method


def pooled_comparison(
    values: Mapping[str, Mapping[int, float]],
    baseline: str,
    *,
    own_variance: Collection[str] = (),
    alpha: float = 0.05,
) -> dict[str, PooledContrast]:
    """Compare every row with one baseline in the additive model: value = row + seed + noise.

    ``values``: row to seed to value; seeds may be missing. All rows share the variance of the noise, except those in
    ``own_variance``, which have one each: standard errors are then of the sandwich form, with Satterthwaite's degrees
    of freedom, as in Welch's test. p values and intervals are Dunnett's, with the degrees of freedom of each comparison
    (Hasler and Hothorn, 2008). A row that no seed links to the baseline is left out; nothing is returned where no
    degree of freedom is left for the noise.
    """
    if baseline not in values:
        raise ValueError(f"the baseline {baseline!r} is not one of the rows {', '.join(values)}")
    cells = [(row, seed, value) for row, by_seed in values.items() for seed, value in by_seed.items()]
    others = [row for row in values if row != baseline and values[row]]
    design, contrasts_KP = _two_way(cells, others)
    inverse = np.linalg.pinv(design)
    estimable = np.abs(contrasts_KP - contrasts_KP @ inverse @ design).max(axis=1, initial=0.0) < 1e-8
    others = [row for row, found in zip(others, estimable, strict=True) if found]
    residual_nn = np.eye(len(cells)) - design @ inverse
    if not others or np.trace(residual_nn) < 0.5:
        return {}
    weights_Kn = contrasts_KP[estimable] @ inverse  # each difference as a weighted sum of the values
    observed = np.array([value for _, _, value in cells])
    group_of = np.array([1 + list(values).index(row) if row in own_variance else 0 for row, _, _ in cells])
    return _dunnett(others, weights_Kn, observed, *_variances(residual_nn, observed, group_of), alpha)


def _two_way(cells: Sequence[tuple[str, int, float]], others: Sequence[str]) -> tuple[FloatArray, FloatArray]:
    """Indicators of seeds and of the rows other than the baseline; and which combination each row's effect is."""
    seeds = sorted({seed for _, seed, _ in cells})
    by_seed = [[float(seed == each) for each in seeds] for _, seed, _ in cells]
    by_row = [[float(row == each) for each in others] for row, _, _ in cells]
    effects = np.concatenate([np.zeros((len(others), len(seeds))), np.eye(len(others))], axis=1)
    return np.concatenate([by_seed, np.reshape(by_row, (len(cells), -1))], axis=1), effects


def _variances(
    residual_nn: FloatArray, observed: FloatArray, group_of: FloatArray
) -> tuple[list[tuple[FloatArray, float, float]], float]:
    """Of each group: which values are its, the variance of their noise, and its degrees of freedom; then the scale.

    The expected squares of the residuals are sums of the true variances (weights: squares of the matrix that makes
    residuals of values), which are solved for. Where that gives nothing positive, the group's mean square stands in.
    """
    members = [group_of == group for group in np.unique(group_of)]
    squares = residual_nn**2
    expected_GG = np.array([[squares[np.ix_(ours, theirs)].sum() for theirs in members] for ours in members])
    residuals = residual_nn @ observed
    sums = np.array([(residuals[ours] ** 2).sum() for ours in members])
    freedom = [float(np.diag(residual_nn)[ours].sum()) for ours in members]
    solved = np.linalg.lstsq(expected_GG, sums, rcond=None)[0]
    found = [value if value > 0 else total / nu for value, total, nu in zip(solved, sums, freedom, strict=True)]
    return list(zip(members, map(float, found), freedom, strict=True)), float(np.abs(observed).max(initial=0.0))


def _dunnett(
    others: Sequence[str],
    weights_Kn: FloatArray,
    observed: FloatArray,
    groups: Sequence[tuple[FloatArray, float, float]],
    scale: float,
    alpha: float,
) -> dict[str, PooledContrast]:
    parts = [(variance * weights_Kn[:, ours] @ weights_Kn[:, ours].T, freedom) for ours, variance, freedom in groups]
    covariance = np.sum([part for part, _ in parts], axis=0)
    errors = np.sqrt(np.diag(covariance))
    noisy = errors > 1e-12 * scale  # of the others nothing but rounding is left
    correlation = covariance[np.ix_(noisy, noisy)] / np.outer(errors[noisy], errors[noisy])
    largest = largest_normals(correlation)
    result = {}
    for index, row in enumerate(others):
        difference, error = float(weights_Kn[index] @ observed), float(errors[index])
        # Satterthwaite: the freedom of a sum of independent estimates of variance.
        freedom = (
            error**4 / sum(float(part[index, index]) ** 2 / nu for part, nu in parts) if noisy[index] else math.inf
        )
        reach = many_to_one_quantile(alpha, largest, freedom) * error if noisy[index] else 0.0
        certain = 1.0 if abs(difference) <= 1e-9 * scale else 0.0
        p = many_to_one_p(abs(difference) / error, largest, freedom) if noisy[index] else certain
        result[row] = PooledContrast(difference, error, freedom, (difference - reach, difference + reach), p)
    return result


NORMALS = 2**16
"""Points of the sequence that integrates over correlated normals; p values are right to 0.001."""


def largest_normals(correlation: FloatArray) -> FloatArray:
    """The largest absolute value of K normals with these correlations (K, K), at NORMALS points, sorted.

    Richtmyer's sequence (multiples of the roots of primes, modulo 1) in pairs through the Box-Muller transform.
    """
    size = len(correlation)
    if size == 0:
        return np.zeros(NORMALS)
    pairs = (size + 1) // 2
    steps = np.sqrt(_primes(2 * pairs)) % 1
    uniform = (np.arange(1, NORMALS + 1)[:, None] * steps + 0.5 / NORMALS) % 1
    radius = np.sqrt(-2 * np.log1p(-uniform[:, :pairs]))
    angle = 2 * math.pi * uniform[:, pairs:]
    normals = np.concatenate([radius * np.cos(angle), radius * np.sin(angle)], axis=1)[:, :size]
    eigenvalues, vectors = np.linalg.eigh(correlation)
    mixed = normals @ (vectors * np.sqrt(np.maximum(eigenvalues, 0.0))).T
    return np.sort(np.abs(mixed).max(axis=1))


def _primes(number: int) -> list[int]:
    found: list[int] = []
    candidate = 2
    while len(found) < number:
        if all(candidate % prime for prime in found):
            found.append(candidate)
        candidate += 1
    return found


def many_to_one_p(t: float, largest: FloatArray, freedom: float) -> float:
    """P(the largest of K absolute t values reaches ``t``), K t values that share their estimate of the noise.

    ``largest``: of :func:`largest_normals`. Over the sample's spread s it is how many of these lie beyond t * s.
    """
    spread, density = _spread_density(freedom)
    beyond = 1 - np.searchsorted(largest, t * spread) / len(largest)
    return float((density * beyond).sum() / density.sum())


def many_to_one_quantile(alpha: float, largest: FloatArray, freedom: float) -> float:
    """The t that the largest of K absolute t values reaches with probability ``alpha``."""
    high = 2.0
    while many_to_one_p(high, largest, freedom) > alpha:
        high *= 2
    return _bisect(lambda t: 1 - many_to_one_p(t, largest, freedom), 1 - alpha, high)


@dataclass(frozen=True, slots=True)
class Regret:
    """How far a row is behind the best row of each corpus, on average; 0 for a row that is the best everywhere."""

    mean: float  # over the corpora, in the unit of the values
    interval: tuple[float, float]  # middle 95 % of the resamples
    by_corpus: Mapping[str, float]
    adjusted: bool = False  # rows have different seeds: means are those of a model of rows and seeds


def regrets(
    values: Mapping[str, Mapping[str, Mapping[int, float]]],
    *,
    higher_is_better: bool,
    resamples: int = 10_000,
    rng: np.random.Generator | None = None,
) -> dict[str, Regret]:
    """Of every row that all corpora have. ``values``: corpus to row to seed to value.

    Where all these rows have the same seeds, these are resampled within each corpus, the same ones for all rows. With
    few seeds such an interval is too narrow, by the factor sqrt((n - 1) / n) at least, as every bootstrap of n values.
    Where rows have different seeds, the means are those of a model (value = row + seed + noise), which takes the seeds
    that a row lacks from the others, and the noise of the model is drawn anew. The best row is found again each time.
    """
    rng = rng or np.random.default_rng(12345)
    rows = [row for row in next(iter(values.values()), {}) if all(row in by_row for by_row in values.values())]
    if not rows:
        raise ValueError(f"no row is in all of {', '.join(values)}; regret is over corpora with the same rows")
    sign, adjusted = 1 if higher_is_better else -1, False
    observed, resampled = [], []
    for corpus, by_row in values.items():
        ours = _with_partners({row: by_row[row] for row in rows})
        if not are_linked(list(ours.values())):
            raise ValueError(f"the rows of {corpus} have no seed in common")
        alike = len({tuple(sorted(by_seed)) for by_seed in ours.values()}) == 1
        means, drawn = (_resampled if alike else _redrawn)(ours, resamples, rng)
        adjusted = adjusted or not alike
        observed.append(_behind(sign * means))
        resampled.append(_behind(sign * drawn))
    low, high = np.percentile(np.mean(resampled, axis=0), [2.5, 97.5], axis=1)
    return {
        row: Regret(
            float(np.mean([found[index] for found in observed])),
            (float(low[index]), float(high[index])),
            {corpus: float(found[index]) for corpus, found in zip(values, observed, strict=True)},
            adjusted,
        )
        for index, row in enumerate(rows)
    }


def are_linked(rows: Sequence[Collection[int]]) -> bool:
    """Whether rows can be compared, given the seeds of each: any two share one, or others lead from one to another."""
    reached, left = set(rows[0]), [set(seeds) for seeds in rows[1:]]
    while near := [seeds for seeds in left if seeds & reached]:
        left = [seeds for seeds in left if not seeds & reached]
        reached = reached.union(*near)
    return bool(reached) and not left


Rows = Mapping[str, Mapping[int, float]]


def _with_partners(rows: Rows) -> Rows:
    """Without the seeds that one row alone has, which compare it with nothing."""
    times = Counter(seed for by_seed in rows.values() for seed in by_seed)
    few = min(2, len(rows))
    return {row: {seed: by_seed[seed] for seed in by_seed if times[seed] >= few} for row, by_seed in rows.items()}


def _resampled(rows: Rows, resamples: int, rng: np.random.Generator) -> tuple[FloatArray, FloatArray]:
    """Means of rows that have the same seeds; and, for each resample, the means over seeds drawn with replacement."""
    seeds = sorted(next(iter(rows.values())))
    values_RS = np.array([[by_seed[seed] for seed in seeds] for by_seed in rows.values()])
    drawn = rng.integers(len(seeds), size=(resamples, len(seeds)))
    return values_RS.mean(axis=1), values_RS[:, drawn].mean(axis=2)


def _redrawn(rows: Rows, resamples: int, rng: np.random.Generator) -> tuple[FloatArray, FloatArray]:
    """Differences of rows from the first one in a model of rows and seeds; and the same with its noise drawn anew."""
    cells = [(row, seed, value) for row, by_seed in rows.items() for seed, value in by_seed.items()]
    design, contrasts_KP = _two_way(cells, list(rows)[1:])
    inverse, observed = np.linalg.pinv(design), np.array([value for _, _, value in cells])
    weights_Rn = np.concatenate([np.zeros((1, len(cells))), contrasts_KP @ inverse])
    residuals, freedom = observed - design @ (inverse @ observed), len(cells) - np.linalg.matrix_rank(design)
    spread = math.sqrt((residuals**2).sum() / freedom) if freedom else 0.0
    means = weights_Rn @ observed
    return means, means[:, None] + weights_Rn @ rng.normal(0.0, spread, size=(len(cells), resamples))


def _behind(means: FloatArray) -> FloatArray:
    behind: FloatArray = means.max(axis=0) - means
    return behind


def value_at(times: Sequence[float], values: Sequence[float], budget: float) -> float | None:
    """The value of a curve at a time, by linear interpolation; None before its first point and after its last."""
    if len(times) != len(values):
        raise ValueError(f"{len(times)} times for {len(values)} values: give one of each for every point")
    if any(later < earlier for earlier, later in pairwise(times)):
        raise ValueError("the times of a curve must not fall")
    if not times or not times[0] <= budget <= times[-1]:
        return None
    return float(np.interp(budget, times, values))


def common_time(curves: Sequence[Sequence[float]]) -> float | None:
    """The latest time that all curves reach, given the times of each; None if one begins after another has ended."""
    if not curves or not all(curves):
        return None
    end = min(times[-1] for times in curves)
    return end if all(times[0] <= end for times in curves) else None
