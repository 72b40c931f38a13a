"""Is a difference between two systems more than chance? Pure functions over sentences and their counts.

A paired bootstrap and a paired approximate randomisation, as in sacreBLEU. For several languages together the sentences
are resampled within each language, and the scores are then averaged over the languages.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from rota.evaluation.metrics import OF_SUMS, sentence_counts
from rota.types import Arm, FloatArray

# N sentences, C counts of a sentence, S pairs of runs (seeds), R resamples or trials

BOOTSTRAPS: Final = 1_000
TRIALS: Final = 10_000
SEED: Final = 12345  # also sacreBLEU's, unless SACREBLEU_SEED says otherwise
CHUNK: Final = 500  # resamples at a time, so that memory stays small


@dataclass(frozen=True, slots=True)
class Paired:
    """Counts (S, N, C) of one language under two systems: the same sentences, and runs of the same seeds."""

    baseline: FloatArray
    system: FloatArray

    @classmethod
    def of(
        cls, metric: str, baseline: Sequence[Sequence[str]], system: Sequence[Sequence[str]], references: Sequence[str]
    ) -> Paired:
        """Each system is a list of runs, each run a list of translations."""
        counts = [np.stack([sentence_counts(metric, run, references) for run in runs]) for runs in (baseline, system)]
        return cls(*counts)

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
    languages: Mapping[Arm, Paired], metric: str, *, resamples: int = BOOTSTRAPS, seed: int = SEED
) -> dict[Arm, Bootstrap]:
    """Resample the sentences of each language, the same ones for both systems and for all seeds.

    The resamples of one language are independent of those of another: averaging them gives a stratified bootstrap of
    any group (:func:`group_bootstrap`).
    """
    rng = np.random.default_rng(seed)
    found = {}
    for arm, paired in languages.items():
        differences = [
            _differences(paired, metric, weights_RN) for weights_RN in _bootstrap_weights(paired, resamples, rng)
        ]
        found[arm] = Bootstrap(paired.difference(metric), np.concatenate(differences))
    return found


def group_bootstrap(languages: Mapping[Arm, Bootstrap], arms: Sequence[Arm]) -> Bootstrap:
    """The average over some languages: of the differences, and of the resamples."""
    return Bootstrap(
        float(np.mean([languages[arm].difference for arm in arms])),
        np.mean([languages[arm].samples for arm in arms], axis=0),
    )


def _bootstrap_weights(paired: Paired, resamples: int, rng: np.random.Generator) -> Iterator[FloatArray]:
    """How often each sentence occurs in each resample, (R, N) in chunks; drawn as sacreBLEU draws them."""
    sentences = paired.baseline.shape[1]
    chosen_RN = rng.choice(sentences, size=(resamples, sentences), replace=True)
    for start in range(0, resamples, CHUNK):
        chunk = chosen_RN[start : start + CHUNK]
        indices = chunk + np.arange(len(chunk))[:, None] * sentences
        yield np.bincount(indices.ravel(), minlength=chunk.size).reshape(chunk.shape).astype(float)


def _differences(paired: Paired, metric: str, weights_RN: FloatArray) -> FloatArray:
    """Differences (R,) of weighted test sets, mean over the pairs of runs."""
    baseline, system = (
        OF_SUMS[metric](np.einsum("rn,snc->rsc", weights_RN, counts, optimize=True))
        for counts in (paired.baseline, paired.system)
    )
    mean: FloatArray = (system - baseline).mean(axis=1)
    return mean


def paired_randomisation(
    languages: Mapping[Arm, Paired],
    metric: str,
    groups: Mapping[str, Sequence[Arm]],
    *,
    trials: int = TRIALS,
    seed: int = SEED,
) -> dict[str, float]:
    """Two-sided p of each group's average: the systems swap a random half of the sentences of every language.

    A difference as large as the one found must be rare if it does not matter which system made a translation.
    """
    rng = np.random.default_rng(seed)
    swapped = {arm: _swapped_differences(paired, metric, trials, rng) for arm, paired in languages.items()}
    found = {}
    for name, arms in groups.items():
        observed = abs(np.mean([languages[arm].difference(metric) for arm in arms]))
        differences = np.abs(np.mean([swapped[arm] for arm in arms], axis=0))
        found[name] = _p(int(np.count_nonzero(differences >= observed - 1e-9)), trials)
    return found


def _swapped_differences(paired: Paired, metric: str, trials: int, rng: np.random.Generator) -> FloatArray:
    """Differences (R,) of pairs of systems that have swapped some sentences, in all runs alike."""
    both = paired.baseline.sum(axis=1) + paired.system.sum(axis=1)
    change_SNC = paired.system - paired.baseline
    found = []
    for start in range(0, trials, CHUNK):
        size = (min(CHUNK, trials - start), paired.baseline.shape[1])
        swaps_RN = rng.integers(2, size=size, dtype=np.int8).astype(float)
        baseline = paired.baseline.sum(axis=1) + np.einsum("rn,snc->rsc", swaps_RN, change_SNC, optimize=True)
        found.append((OF_SUMS[metric](both - baseline) - OF_SUMS[metric](baseline)).mean(axis=1))
    return np.concatenate(found)
