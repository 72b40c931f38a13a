"""Preparing and training on many millions of generated pairs: memory of all processes together, speed, resuming.

    python benchmarks/long_corpus.py [--pairs 20M] [--compare 500k] [--folder FOLDER] [--json FILE]

The text of eight languages of unequal size is written. ``--compare`` pairs (0: none) are prepared by one process and by
two, in turn, and once with an interruption: all must give the same data. Then ``--pairs`` are prepared by ``rota
prepare`` and interrupted by SIGTERM when half is encoded; the same command goes on, and ``rota train`` makes some
updates on mixed batches. 20 million pairs take 8 GB of disk, which are free again at the end. The exit code is not 0 if
data differ, memory exceeds 4 GB or training fails.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from rota.data.store import Flat, Manifest
from rota.settings import parse_count
from rota.types import IntArray
from tree import Use, watched

SHARES = {"aa": 0.4, "bb": 0.25, "cc": 0.15, "dd": 0.1, "ee": 0.05, "ff": 0.03, "gg": 0.015, "hh": 0.005}
CHUNK = 100_000  # sentences written at once
REPEATED = 0.01  # of the pairs of a chunk stand in it twice, for cleaning to find
WORDS = 30_000
HELD_OUT = 500
MEMORY = 4096  # MB that all processes together may take
CONSONANTS, VOWELS = "bdfghjklmnprstvz", "aeiou"
ONE_THREAD = {"OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}


def main() -> int:
    arguments = parse()
    with tempfile.TemporaryDirectory(dir=arguments.folder, prefix="long-corpus-") as name:
        scratch = Path(name)
        found: dict[str, Any] = {"cores": os.cpu_count()}
        if arguments.compare:
            found["compare"] = compare(scratch / "short", arguments)
        found["long"] = long_run(scratch / "long", arguments.pairs, arguments.steps)
    if arguments.json:
        arguments.json.write_text(json.dumps(found, indent=1) + "\n")
    wrong = problems(found)
    for problem in wrong:
        print(f"failed: {problem}")
    return 1 if wrong else 0


def problems(found: dict[str, Any]) -> list[str]:
    """What did not go as it should; nothing, if all is well."""
    run = found["long"]
    checks = {
        "one process, two, and an interruption gave different data": found.get("compare", {"same": True})["same"],
        "cleaning did not find the pairs that were written twice, or lost others": run["same"],
        f"peak memory of {run['memory']:,.0f} MB, {MEMORY:,} allowed": run["memory"] < MEMORY,
        f"rota train ended with code {run['training']['code']}": run["training"]["code"] == 0,
    }
    return [problem for problem, passed in checks.items() if not passed]


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=parse_count, default=20_000_000)
    parser.add_argument("--compare", type=parse_count, default=500_000)
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--steps", type=int, default=20, help="updates of training")
    parser.add_argument("--folder", type=Path, help="where the text and the data go for the time of the run")
    parser.add_argument("--json", type=Path)
    return parser.parse_args()


def compare(folder: Path, arguments: argparse.Namespace) -> dict[str, object]:
    """Seconds of one process and of two, and whether all data are the same, after an interruption too."""
    config = write_corpus(folder, arguments.compare)
    uses: dict[int, list[Use]] = {1: [], 2: []}
    manifests = []
    for _ in range(arguments.repetitions):
        for processes, results in uses.items():
            results.append(prepare(config, processes, again=True))
            manifests.append((folder / "data" / "manifest.json").read_bytes())
    interrupt(config, folder)
    prepare(config, 2, again=True)
    manifests.append((folder / "data" / "manifest.json").read_bytes())
    print(f"\n{arguments.compare:,} pairs; median of {arguments.repetitions} (lowest to highest)")
    for processes, results in uses.items():
        print(f"{processes} process(es): {spread([arguments.compare / use.wall for use in results])} pairs/s,")
        print(f"  {spread([arguments.compare / use.cpu for use in results])} pairs per second of processor time,")
        print(f"  peak memory {max(use.memory for use in results):,.0f} MB")
    ratios = [one.wall / two.wall for one, two in zip(*uses.values(), strict=True)]
    print(f"two processes are {spread(ratios)} times as fast as one; all data the same: {len(set(manifests)) == 1}")
    results = {str(processes): [asdict(use) for use in results] for processes, results in uses.items()}
    return {"pairs": arguments.compare, "same": len(set(manifests)) == 1, "ratios": ratios, "uses": results}


def spread(values: list[float]) -> str:
    digits = 2 if max(values) < 100 else 0
    low, middle, high = (f"{value:,.{digits}f}" for value in (min(values), statistics.median(values), max(values)))
    return f"{middle} ({low}-{high})"


def long_run(folder: Path, pairs: int, steps: int) -> dict[str, object]:
    began = time.perf_counter()
    config = write_corpus(folder, pairs)
    print(f"\n{pairs:,} pairs written in {time.perf_counter() - began:,.0f} s", flush=True)
    first = interrupt(config, folder)
    report("prepared, until it was interrupted", first)
    second = prepare(config, None)
    report("prepared, the rest", second)
    found = prepare(config, None)
    report("prepared again: nothing to do", found)
    manifest = Manifest.load(folder / "data")
    same = check(manifest, pairs)
    size = sum(file.bytes for file in manifest.files.values())
    speed = pairs / (first.wall + second.wall)
    print(f"{speed:,.0f} pairs/s over both parts; {size / 2**30:.1f} GB of data; duplicates all found: {same}")
    training = watched([*ROTA, "train", str(config), "--run", str(folder / "run"), "--until", str(steps)])
    report(f"{steps} updates on mixed batches", training)
    uses = {"interrupted": first, "rest": second, "again": found, "training": training}
    memory = max(use.memory for use in uses.values())
    return {"pairs": pairs, "memory": memory, "same": same, **{name: asdict(use) for name, use in uses.items()}}


def report(what: str, use: Use) -> None:
    print(
        f"{what:36} {use.wall:8,.1f} s {use.cpu:8,.1f} s of the processors, {use.processes} processes, "
        f"peak {use.memory:6,.0f} MB",
        flush=True,
    )


def check(manifest: Manifest, pairs: int) -> bool:
    """Whether cleaning found every pair that was written twice, and kept all the others."""
    counts = [splits["train"] for splits in manifest.cleaning.values()]
    repeated = sum(sum(count - len_unique(count) for count in counts_of(share * pairs)) for share in SHARES.values())
    others = sum(count["English in dev or test"] for count in counts)
    # Short sentences may be equal by chance, so there are a few more.
    duplicates = sum(count["duplicate pair"] for count in counts)
    total = sum(sum(count.values()) for count in counts)
    return total == sum(round(share * pairs) for share in SHARES.values()) and duplicates >= repeated and others < 1000


ROTA = [sys.executable, "-m", "rota"]


def prepare(config: Path, processes: int | None, *, again: bool = False) -> Use:
    options = ["--again"] if again else []
    options += ["--processes", str(processes)] if processes else []
    use = watched([*ROTA, "prepare", str(config), *options], environment=ONE_THREAD if processes == 1 else None)
    assert use.code == 0, f"rota prepare ended with code {use.code}"
    return use


def interrupt(config: Path, folder: Path) -> Use:
    """Prepare until half of the training pieces are encoded."""
    done = folder / ".data.partial" / "done"

    def half() -> bool:
        cleaned = list(done.glob("clean.train.*")) if done.exists() else []
        if len(cleaned) < len(SHARES):
            return False
        pieces = sum(len(json.loads(path.read_text())["pieces"]) for path in cleaned)
        return len(list(done.glob("encode.train.*[0-9]"))) >= pieces / 2

    use = watched([*ROTA, "prepare", str(config), "--again", "--processes", "2"], stop_when=half)
    assert use.code != 0, "it was over before it could be interrupted"
    return use


def write_corpus(folder: Path, pairs: int) -> Path:
    """Text of all languages, and the config that names it."""
    folder.mkdir(parents=True)
    words = [word(number) for number in range(WORDS)]
    english = dictionary(words)
    for number, (language, share) in enumerate(SHARES.items()):
        rng = np.random.default_rng([1, number])
        letters = str.maketrans(dict(zip(CONSONANTS, rng.permutation(list(CONSONANTS)), strict=True)))
        foreign = dictionary([text.translate(letters) for text in words])
        for split, count in (("train", round(share * pairs)), ("dev", HELD_OUT), ("test", HELD_OUT)):
            with (
                (folder / f"{split}.{language}.{language}").open("wb") as source,
                (folder / f"{split}.{language}.en").open("wb") as target,
            ):
                for sentences in chunks(rng, count):
                    source.write(foreign.gather(sentences)[0].astype(np.uint8).data)
                    target.write(english.gather(sentences)[0].astype(np.uint8).data)
    return write_config(folder)


def chunks(rng: np.random.Generator, sentences: int) -> Iterator[IntArray]:
    """Entries of the dictionary for so many sentences of 3 to 14 words, frequent words more often than rare ones."""
    for count in counts_of(sentences):
        lengths = rng.integers(3, 15, len_unique(count))
        ends = np.cumsum(lengths)
        entries = (WORDS * rng.random(ends[-1]) ** 3).astype(np.int64)
        entries[ends - 1] += WORDS  # the same words with a line's end behind them
        repeated = ends[count - len_unique(count) - 1] if count > len_unique(count) else 0
        yield np.concatenate([entries, entries[:repeated]])


def counts_of(sentences: float) -> list[int]:
    whole, rest = divmod(round(sentences), CHUNK)
    return [CHUNK] * whole + [rest] * (rest > 0)


def len_unique(count: int) -> int:
    return count - int(count * REPEATED)


def word(number: int) -> str:
    """Syllables as digits: frequent words are short."""
    head, digit = divmod(number, len(CONSONANTS) * len(VOWELS))
    consonant, vowel = divmod(digit, len(VOWELS))
    return (word(head - 1) if head else "") + CONSONANTS[consonant] + VOWELS[vowel]


def dictionary(words: list[str]) -> Flat:
    """The words as bytes, first all with a space behind them, then all with a line's end."""
    entries = [text.encode() + end for end in (b" ", b"\n") for text in words]
    offsets = np.concatenate([[0], np.cumsum([len(entry) for entry in entries])])
    return Flat(np.frombuffer(b"".join(entries), dtype=np.uint8), offsets)


def write_config(folder: Path) -> Path:
    pattern = f"{folder}/SPLIT.{{language}}.{{side}}"
    texts = {split: pattern.replace("SPLIT", split) for split in ("train", "dev", "test")}
    data = {"languages": list(SHARES), "folder": str(folder / "data"), "subwords": {"size": 8000}, **texts}
    training = {"steps": 100_000, "tokens": 4000, "threads": 1, "tensorboard": False}
    values = {"data": data, "student": {"preset": "tiny"}, "teacher": "mixed", "training": training}
    path = folder / "long.yaml"
    path.write_text(json.dumps(values, indent=1))  # JSON is YAML too
    return path


if __name__ == "__main__":
    sys.exit(main())
