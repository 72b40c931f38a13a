"""How often the tests of averages find a difference between systems that do not differ.

    python benchmarks/false_positives.py [--comparisons 1000] [--metric bleu] [--seed 1]

A test set like that of the gettext catalogues is generated: 8 languages, 2,290 sentences, 308 distinct references. Two
systems replace words at random, more in some sentences than in others. A part of what makes a sentence hard for one
system and not for the other belongs to the reference, so the languages share it, as systems that have learned the same
English sentences do. Then no system is better than the other on purpose: in every comparison a coin for each reference
decides which translations of it are called A and which B. Whatever a test finds at 5 % is false.

Each test is made twice: as if the languages were independent (before), and by the text of the reference (after).
"""

from __future__ import annotations

import argparse
import sys

import numpy as np

from rota.evaluation.significance import Paired, paired_bootstrap, paired_randomisation
from rota.types import Arm, FloatArray

SENTENCES = {"az": 300, "be": 308, "gl": 300, "sk": 308, "tr": 308, "ru": 308, "pt": 150, "cs": 308}
REFERENCES = 308
WORDS = [f"word{number}" for number in range(400)]
ALPHA = 0.05
SHARED = 0.7
"""Of the standard deviation 1 of a sentence's difficulty (on the scale of log odds of a wrong word): makes the standard
error of the average 1.6 to 1.8 times as large as that of independent languages, as it is on the catalogues."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--comparisons", type=int, default=1000)
    parser.add_argument("--resamples", type=int, default=500, help="and trials of the randomisation")
    parser.add_argument("--metric", choices=("bleu", "chrf"), default="bleu")
    parser.add_argument("--shared", type=float, default=SHARED, help="part of the difficulty that is the reference's")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--after-only", action="store_true", help="leave out the tests as if languages were independent"
    )
    arguments = parser.parse_args()
    rng = np.random.default_rng(arguments.seed)
    languages = make_languages(rng, arguments.metric, arguments.shared)
    widths = [spread(each, arguments.metric) for each in (languages, independent(languages))]
    print(f"interval of the average, by reference / as if independent: {widths[0] / widths[1]:.2f}", file=sys.stderr)
    found = np.zeros((2, 3))
    for done in range(1, arguments.comparisons + 1):
        swapped = swap_references(languages, rng)
        if not arguments.after_only:
            found[0] += decide(independent(swapped), arguments.metric, arguments.resamples, seed=done)
        found[1] += decide(swapped, arguments.metric, arguments.resamples, seed=done)
        if done % 50 == 0 or done == arguments.comparisons:
            print(f"{done} comparisons: {(found / done).round(3).tolist()}", file=sys.stderr, flush=True)
    print_table(found / arguments.comparisons, arguments)
    return 0


def make_languages(rng: np.random.Generator, metric: str, shared: float) -> dict[Arm, Paired]:
    """The same references in all languages (some lack a few), translated by two systems."""
    references = [" ".join(rng.choice(WORDS, size=rng.integers(3, 20))) for _ in range(REFERENCES)]
    of_reference = rng.normal(0, shared, size=(2, REFERENCES))  # by system
    own = np.sqrt(1 - shared**2)
    found = {}
    for arm, count in SENTENCES.items():
        chosen = np.sort(rng.choice(REFERENCES, size=count, replace=False))
        texts = [references[number] for number in chosen]
        hardness = of_reference[:, chosen] + rng.normal(0, own, size=(2, count))
        baseline, system = ([spoil(*pair, rng) for pair in zip(texts, values, strict=True)] for values in hardness)
        found[arm] = Paired.of(metric, [baseline], [system], texts)
    return found


def spoil(text: str, hardness: float, rng: np.random.Generator) -> str:
    """Replace words; ``hardness`` is the log odds of a wrong one."""
    wrong = 1 / (1 + np.exp(-hardness))
    return " ".join(rng.choice(WORDS) if rng.random() < wrong else word for word in text.split())


def independent(languages: dict[Arm, Paired]) -> dict[Arm, Paired]:
    return {arm: Paired(paired.baseline, paired.system) for arm, paired in languages.items()}


def swap_references(languages: dict[Arm, Paired], rng: np.random.Generator) -> dict[Arm, Paired]:
    """All translations of a random half of the references change sides."""
    texts = sorted({text for paired in languages.values() for text in paired.references})
    coins = dict(zip(texts, rng.integers(2, size=len(texts)), strict=True))
    found = {}
    for arm, paired in languages.items():
        change = np.array([coins[text] for text in paired.references], dtype=bool)[None, :, None]
        baseline = np.where(change, paired.system, paired.baseline)
        system = np.where(change, paired.baseline, paired.system)
        found[arm] = Paired(baseline, system, paired.references)
    return found


def spread(languages: dict[Arm, Paired], metric: str) -> float:
    found = paired_bootstrap(languages, metric, {"macro": list(languages)}, resamples=2000)["macro"]
    return float(found.samples.std())


def decide(languages: dict[Arm, Paired], metric: str, resamples: int, seed: int) -> list[bool]:
    """Whether the interval excludes 0, and whether p of the bootstrap and of the randomisation is below 0.05."""
    groups = {"macro": list(languages)}
    bootstrap = paired_bootstrap(languages, metric, groups, resamples=resamples, seed=seed)["macro"]
    low, high = bootstrap.interval
    p = paired_randomisation(languages, metric, groups, trials=resamples, seed=seed)["macro"]
    return [not low <= 0 <= high, bootstrap.p < ALPHA, p < ALPHA]


def print_table(rates: FloatArray, arguments: argparse.Namespace) -> None:
    print(f"False positives of the macro average at 5 %, {arguments.metric}, {arguments.comparisons} comparisons:\n")
    print("| languages | 95 % interval excludes 0 | p (bootstrap) | p ar |\n|---|---|---|---|")
    rows = zip(("as if independent (before)", "by reference (after)"), rates, strict=True)
    for name, row in list(rows)[arguments.after_only :]:
        print(f"| {name} | " + " | ".join(f"{100 * rate:.1f} %" for rate in row) + " |")


if __name__ == "__main__":
    sys.exit(main())
