"""Is a difference between two systems more than chance? Pure functions over sentences and their counts.

A paired bootstrap and a paired approximate randomisation, as in sacreBLEU, and the same for averages over languages.
Test sets of several languages often translate the same text, so for an average all sentences with one reference are
drawn, or swapped, together in all languages. A language that shares no reference is resampled by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from rota.evaluation.metrics import OF_SUMS, sentence_counts
from rota.types import Arm, FloatArray, IntArray

# N sentences, C counts of a sentence, S pairs of runs (seeds), R resamples or trials,
# U units that are drawn or swapped together: sentences, or distinct references

BOOTSTRAPS: Final = 1_000
TRIALS: Final = 10_000
SEED: Final = 12345  # also sacreBLEU's, unless SACREBLEU_SEED says otherwise
CHUNK: Final = 500  # resamples at a time, so that memory stays small


@dataclass(frozen=True, slots=True)
class Paired:
    """Counts (S, N, C) of one language under two systems: the same sentences, and runs of the same seeds.

    ``references`` (N): by which sentences of other languages are known to be the same. Without them a language
    counts as independent of all others.
    """

    baseline: FloatArray
    system: FloatArray
    references: Sequence[str] = ()

    @classmethod
    def of(
        cls, metric: str, baseline: Sequence[Sequence[str]], system: Sequence[Sequence[str]], references: Sequence[str]
    ) -> Paired:
        """Each system is a list of runs, each run a list of translations."""
        sides = [np.stack([sentence_counts(metric, run, references) for run in runs]) for runs in (baseline, system)]
        return cls(sides[0], sides[1], references)

    @property
    def sentences(self) -> int:
        return self.baseline.shape[1]

    def scores(self, metric: str) -> tuple[FloatArray, FloatArray]:
        """Scores (S,) of the runs of the baseline and of those of the system."""
        return OF_SUMS[metric](self.baseline.sum(axis=1)), OF_SUMS[metric](self.system.sum(axis=1))

    def difference(self, metric: str) -> float:
        """System minus baseline, mean over the pairs of runs."""
        baseline, system = self.scores(metric)
        return float((system - baseline).mean())


@dataclass(frozen=True, slots=True)
class Bootstrap:
    """Differences (system minus baseline) of resampled test sets."""

    difference: float  # on the test set itself
    samples: FloatArray  # (R,)

    @property
    def interval(self) -> tuple[float, float]:
        """The middle 95 % of the resamples."""
        low, high = np.percentile(self.samples, [2.5, 97.5])
        return float(low), float(high)

    @property
    def p(self) -> float:
        """Two-sided: how often a resample is as far from the mean of all as the difference is from 0."""
        distances = np.abs(self.samples - self.samples.mean())
        return _p(int(np.count_nonzero(distances >= abs(self.difference) - 1e-9)), len(distances))


def _p(hits: int, trials: int) -> float:
    """One is added to both, for the test set itself: a p value is never 0."""
    return (hits + 1) / (trials + 1)


def paired_bootstrap(
    languages: Mapping[Arm, Paired],
    metric: str,
    groups: Mapping[str, Sequence[Arm]],
    *,
    resamples: int = BOOTSTRAPS,
    seed: int = SEED,
) -> dict[str, Bootstrap]:
    """Resample the test sets, the same sentences for both systems and for all seeds; by group.

    The sentences of a single language are drawn as sacreBLEU draws them. For an average over several, what is drawn are
    distinct references, with their sentences in all languages.
    """
    rng = np.random.default_rng(seed)
    samples = _resampled(languages, metric, resamples, rng, _drawn_counts, _differences)
    return {name: Bootstrap(_observed(languages, metric, arms), samples.average(arms)) for name, arms in groups.items()}


def paired_randomisation(
    languages: Mapping[Arm, Paired],
    metric: str,
    groups: Mapping[str, Sequence[Arm]],
    *,
    trials: int = TRIALS,
    seed: int = SEED,
) -> dict[str, float]:
    """Two-sided p of each group's average: the systems swap a random half of their translations.

    A difference as large as the one found must be rare if it does not matter which system made a translation. For an
    average over several languages one coin decides about all sentences with the same reference.
    """
    rng = np.random.default_rng(seed)
    samples = _resampled(languages, metric, trials, rng, _coins, _swapped_differences)
    found = {}
    for name, arms in groups.items():
        observed = abs(_observed(languages, metric, arms))
        differences = np.abs(samples.average(arms))
        found[name] = _p(int(np.count_nonzero(differences >= observed - 1e-9)), trials)
    return found


def _observed(languages: Mapping[Arm, Paired], metric: str, arms: Sequence[Arm]) -> float:
    """The difference of the average on the test sets themselves."""
    return float(np.mean([languages[arm].difference(metric) for arm in arms]))


@dataclass(frozen=True, slots=True)
class _Samples:
    """Differences (R,) of each language."""

    alone: Mapping[Arm, FloatArray]  # drawn sentence by sentence
    together: Mapping[Arm, FloatArray]  # the same ones, or drawn by reference where a language shares some

    def average(self, arms: Sequence[Arm]) -> FloatArray:
        drawn = self.together if len(arms) > 1 else self.alone
        average: FloatArray = np.mean([drawn[arm] for arm in arms], axis=0)
        return average


def _resampled(
    languages: Mapping[Arm, Paired],
    metric: str,
    number: int,
    rng: np.random.Generator,
    draw: Callable[[int, int, np.random.Generator], Iterator[FloatArray]],
    differences: Callable[[Paired, str, FloatArray], FloatArray],
) -> _Samples:
    """Draw ``number`` times: weights (R, U) of units, and from them differences (R,) of each language.

    Single languages come first and all from the same generator, so that their samples do not depend on what they share.
    """
    alone = {
        arm: np.concatenate([differences(paired, metric, chunk) for chunk in draw(number, paired.sentences, rng)])
        for arm, paired in languages.items()
    }
    together = dict(alone)
    for units in _shared_references(languages):
        count = 1 + max(int(unit_N.max()) for unit_N in units.values())
        parts: dict[Arm, list[FloatArray]] = {arm: [] for arm in units}
        for weights_RU in draw(number, count, rng):
            for arm, unit_N in units.items():
                parts[arm].append(differences(languages[arm], metric, weights_RU[:, unit_N]))
        together |= {arm: np.concatenate(found) for arm, found in parts.items()}
    return _Samples(alone, together)


def _shared_references(languages: Mapping[Arm, Paired]) -> list[dict[Arm, IntArray]]:
    """Sets of languages that are linked by common references; for each sentence the number of its reference in the set.

    A language that shares none is in no set.
    """
    sets: list[tuple[list[Arm], set[str]]] = []
    for arm, paired in languages.items():
        texts = set(paired.references)
        linked = [each for each in sets if not texts.isdisjoint(each[1])]
        arms = [other for each in linked for other in each[0]]
        sets = [each for each in sets if each not in linked]
        sets.append(([*arms, arm], texts.union(*(each[1] for each in linked))))
    return [_numbered({arm: languages[arm] for arm in languages if arm in arms}) for arms, _ in sets if len(arms) > 1]


def _numbered(languages: Mapping[Arm, Paired]) -> dict[Arm, IntArray]:
    """Distinct references are numbered in the order in which they first occur."""
    numbers: dict[str, int] = {}
    return {
        arm: np.array([numbers.setdefault(text, len(numbers)) for text in paired.references])
        for arm, paired in languages.items()
    }


def _drawn_counts(resamples: int, units: int, rng: np.random.Generator) -> Iterator[FloatArray]:
    """How often each unit occurs in each resample, (R, U) in chunks; drawn as sacreBLEU draws them."""
    chosen_RU = rng.choice(units, size=(resamples, units), replace=True)
    for start in range(0, resamples, CHUNK):
        chunk = chosen_RU[start : start + CHUNK]
        indices = chunk + np.arange(len(chunk))[:, None] * units
        yield np.bincount(indices.ravel(), minlength=chunk.size).reshape(chunk.shape).astype(float)


def _differences(paired: Paired, metric: str, weights_RN: FloatArray) -> FloatArray:
    """Differences (R,) of weighted test sets, mean over the pairs of runs."""
    # References drawn for all languages may miss one with a few sentences; it then keeps its test set.
    weights_RN[~weights_RN.any(axis=1)] = 1.0
    baseline, system = (
        OF_SUMS[metric](np.einsum("rn,snc->rsc", weights_RN, counts, optimize=True))
        for counts in (paired.baseline, paired.system)
    )
    mean: FloatArray = (system - baseline).mean(axis=1)
    return mean


def _coins(trials: int, units: int, rng: np.random.Generator) -> Iterator[FloatArray]:
    """Whether each unit is swapped in each trial, 0 or 1, (R, U) in chunks."""
    for start in range(0, trials, CHUNK):
        yield rng.integers(2, size=(min(CHUNK, trials - start), units), dtype=np.int8).astype(float)


def _swapped_differences(paired: Paired, metric: str, swaps_RN: FloatArray) -> FloatArray:
    """Differences (R,) of pairs of systems that have swapped some sentences, in all runs alike."""
    both = paired.baseline.sum(axis=1) + paired.system.sum(axis=1)
    change_SNC = paired.system - paired.baseline
    baseline = paired.baseline.sum(axis=1) + np.einsum("rn,snc->rsc", swaps_RN, change_SNC, optimize=True)
    mean: FloatArray = (OF_SUMS[metric](both - baseline) - OF_SUMS[metric](baseline)).mean(axis=1)
    return mean
