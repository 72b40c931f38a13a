"""Speed and evenness of the training streams on a real corpus.

    python benchmarks/data_path.py [CORPUS] [--prepared FOLDER] [--tokens 4000] [--repetitions 5] [--json FILE]

CORPUS holds LANGUAGE-en/{train,dev,test}.{LANGUAGE,en}.gz; the default is ../shared/corpora/ted8-small.
"""

from __future__ import annotations

import argparse
import resource
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import get_args

import numpy as np

from machine.work import padding as padded_share
from rota.data.batches import make_stream
from rota.data.corpora.sources import CorpusConfig
from rota.data.order import Mixing, cut
from rota.data.preparation.cleaning import CleaningConfig
from rota.data.preparation.stages import prepare
from rota.data.store import Sentences, Store
from rota.data.subwords import SubwordsConfig
from rota.student.nmt import TRAINING_TOKENS
from rota.student.pieces import pieces
from rota.types import MIXED, Arm, Batch, IntArray, Mixture
from rows import Results, Row, row

HIGH_RESOURCE = "mixed-high-resource"
DEFAULT_CORPUS = Path(__file__).resolve().parents[2] / "shared" / "corpora" / "ted8-small"
HEADER = (
    f"{'arm':20} {'M tokens/s':>10} {'spread':>13} {'batches':>8} {'off budget':>10} "
    f"{'padding: target':>16} {'source':>7} {'attention':>9} {'(sorted by source alone)':>28}  every sentence once"
)


def main() -> int:
    arguments = parse()
    if not arguments.corpus.is_dir():
        print(f"SKIPPED: no corpus at {arguments.corpus}; give a folder as the first argument")
        return 0
    with tempfile.TemporaryDirectory() as scratch:
        store = open_or_prepare(arguments.corpus, arguments.prepared or Path(scratch) / "data", arguments.vocabulary)
        print(f"\nbudget {arguments.tokens} real target tokens, {arguments.repetitions} repetitions of one epoch\n")
        print(HEADER)
        arms = (*store.languages, HIGH_RESOURCE, MIXED)
        found = [report(store, arm, arguments) for arm in arms]
        print()
        mixed = mixed_rows(store, arguments.tokens)
    Results(arguments.json).add([*(each for rows, _ in found for each in rows), *mixed])
    return 0 if all(good for _, good in found) else 1


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus", type=Path, nargs="?", default=DEFAULT_CORPUS)
    parser.add_argument("--prepared", type=Path, help="keep the prepared data here and use them again")
    parser.add_argument("--tokens", type=int, default=4000)
    parser.add_argument("--vocabulary", type=int, default=8000)
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--json", type=Path, help="keep the rows here")
    return parser.parse_args()


def open_or_prepare(corpus: Path, folder: Path, vocabulary: int) -> Store:
    pattern = f"{corpus}/{{language}}-en/SPLIT.{{side}}.gz"
    languages = tuple(sorted(path.name.removesuffix("-en") for path in corpus.glob("*-en")))
    config = CorpusConfig(
        languages=languages,
        train=pattern.replace("SPLIT", "train"),
        dev=pattern.replace("SPLIT", "dev"),
        test=pattern.replace("SPLIT", "test"),
    )
    began = time.perf_counter()
    store = prepare(
        config, CleaningConfig(), SubwordsConfig(size=vocabulary), folder, cache=folder.parent / "cache", seed=1
    )
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    pairs = sum(store.sizes.values())
    print(
        f"prepared (or found) {pairs} training pairs in {time.perf_counter() - began:.1f} s, peak memory {peak:.0f} MB"
    )
    return store


def report(store: Store, arm: Arm, arguments: argparse.Namespace) -> tuple[list[Row], bool]:
    """One line of the table, also as rows; whether the arm keeps what the streams promise."""
    speeds = [speed(store, arm, arguments.tokens, seed) for seed in range(arguments.repetitions)]
    batches = epoch(store, arm, arguments.tokens, seed=0)
    off = max(abs(batch.tokens / arguments.tokens - 1) for batch in batches)
    once = every_sentence_once(store, arm, arguments.tokens)
    others = by_source_length(store.split("train"), members(store, arm), arguments.tokens)
    print(
        f"{arm:20} {statistics.median(speeds):10.2f} {min(speeds):6.2f}-{max(speeds):<6.2f} {len(batches):8}"
        f" {off:10.1%} {padding(batches, 'target'):16.1%} {padding(batches, 'source'):7.1%} {attention(batches):9.2f}"
        f" {padding(others, 'target'):12.1%} {padding(others, 'source'):7.1%} {attention(others):7.2f}"
        f"  {'yes' if once else 'NO'}"
    )
    about = ("data-path", f"{arm}, {arguments.tokens:,} tokens")
    rows = [
        row(*about, "target tokens a second", speeds, "million/s", goal="at least 2"),
        row(*about, "largest distance of a batch from the budget", [100 * off], "%", goal="at most 5"),
        row(*about, "padding inside attention, target", [100 * padding(batches, "target")], "%"),
        row(*about, "the same, sorted by source alone", [100 * padding(others, "target")], "%"),
    ]
    return rows, once and off <= 0.05 and statistics.median(speeds) >= 2


def speed(store: Store, arm: Arm, tokens: int, seed: int) -> float:
    """Million target tokens per second over one epoch, its set-up included."""
    began = time.perf_counter()
    total = sum(batch.tokens for batch in epoch(store, arm, tokens, seed))
    return total / (time.perf_counter() - began) / 1e6


def epoch(store: Store, arm: Arm, tokens: int, seed: int) -> list[Batch]:
    stream = make_stream(store, arm, tokens, seed, mixture=mixture_of(store, arm))
    return [next(stream) for _ in range(stream.batches_per_epoch)]


def every_sentence_once(store: Store, arm: Arm, tokens: int) -> bool:
    stream = make_stream(store, arm, tokens, seed=0, mixture=mixture_of(store, arm))
    drawn = np.concatenate([stream.sentences_at(position) for position in range(stream.batches_per_epoch)])
    return np.array_equal(np.sort(drawn), np.sort(members(store, arm)))


def mixture_of(store: Store, arm: Arm) -> Mixture | None:
    """All languages, or the high-resource ones, in proportion to their sizes."""
    arms = {MIXED: store.languages, HIGH_RESOURCE: store.high_resource}.get(arm)
    return None if arms is None else Mixture({name: store.sizes[name] for name in arms}, "sentence")


def members(store: Store, arm: Arm) -> IntArray:
    mixture = mixture_of(store, arm)
    languages = (arm,) if mixture is None else mixture.shares
    return np.concatenate([np.arange(*store.split("train").range(language)) for language in languages])


def by_source_length(sentences: Sentences, indices: IntArray, tokens: int) -> list[Batch]:
    """What other toolkits do: the whole corpus sorted by source length, cut into batches of the same budget."""
    shuffled = np.random.default_rng(0).permutation(indices)
    order = shuffled[np.argsort(sentences.source.lengths(shuffled), kind="stable")]
    bounds = cut(sentences.target.lengths(order), tokens)
    return [sentences.batch(MIXED, part) for part in np.split(order, bounds[1:-1])]


def mixed_rows(store: Store, tokens: int) -> list[Row]:
    """How evenly the languages of a mixture are spread over its batches, and what that costs in attention.

    Beside sorting by length alone: the spread of the languages' shares among random sentences, and padding as the
    student has it on a CPU, which cuts batches into pieces of similar length.
    """
    about, rows, train = ("data-path", f"mixing, {tokens:,} tokens"), [], store.split("train")
    for mixing in get_args(Mixing):
        stream = make_stream(store, MIXED, tokens, seed=0, mixture=mixture_of(store, MIXED), mixing=mixing)
        parts = [stream.sentences_at(position) for position in range(stream.batches_per_epoch)]
        batches = [train.batch(MIXED, part) for part in parts]
        cut_up = [piece for batch in batches for _, _, piece in pieces(batch, TRAINING_TOKENS)]
        rows += [
            row(*about, f"spread of languages, random sentences = 1, {mixing}", [uneven(train, parts)], ""),
            row(*about, f"padded entries of attention for each needed, {mixing}", [attention(batches)], ""),
            row(*about, f"the same in the pieces of a CPU, {mixing}", [attention(cut_up)], ""),
        ]
    for each in rows:
        print(f"{each.what:70} {each.value:.2f}")
    return rows


def uneven(sentences: Sentences, parts: list[IntArray]) -> float:
    """Variance of the languages' sentences in a batch, for one of as many random sentences: 1 is random, 0 exact."""
    arms = len(sentences.ranges)
    counts = np.array([np.bincount(sentences.languages_of(part), minlength=arms) for part in parts])
    size, share = counts.sum(1, keepdims=True), counts.sum(0) / counts.sum()
    return float(np.mean((counts - size * share) ** 2 / (size * share * (1 - share))))


def padding(batches: list[Batch], side: str) -> float:
    return padded_share([getattr(batch, f"{side}_lengths") for batch in batches])


def attention(batches: list[Batch]) -> float:
    """Entries of the three attention matrices, padded, for one that is needed: target, source, and between the two."""
    padded = needed = 0
    for batch in batches:
        target, source = batch.target_lengths, batch.source_lengths
        needed += int((target**2 + target * source + source**2).sum())
        longest, longest_source = int(target.max()), int(source.max())
        padded += batch.sentences * (longest**2 + longest * longest_source + longest_source**2)
    return padded / needed


if __name__ == "__main__":
    sys.exit(main())
