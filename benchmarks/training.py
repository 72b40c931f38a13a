"""Speed of training beside the machine's own matrix products, and of the search, on random sentences like TED's.

    python benchmarks/training.py [--preset small] [--tokens 4000] [--vocabulary 8000] [--repetitions 5]

For 1 and 2 threads, each in a process of its own: real target tokens per second of wall and processor time, and the
share of the limit: floating-point operations of the model (real tokens only) per second, divided by those of float32
matrix products of the model's shapes measured in the same process, before and after.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable

import numpy as np


def main() -> int:
    arguments = parse()
    if arguments.threads:
        measure(arguments)
        return 0
    print(
        f"{os.cpu_count()} cores; preset {arguments.preset}, {arguments.tokens} target tokens a batch, "
        f"{arguments.vocabulary} subwords, median of {arguments.repetitions} (lowest to highest)"
    )
    for threads in (1, 2):
        command = [sys.executable, *sys.argv, "--threads", str(threads)]
        environment = {**os.environ, "OMP_NUM_THREADS": str(threads), "GOMP_SPINCOUNT": "30000"}
        if subprocess.run(command, env=environment, check=False).returncode:
            return 1
    return 0


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--preset", default="small")
    parser.add_argument("--tokens", type=int, default=4000)
    parser.add_argument("--vocabulary", type=int, default=8000)
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--threads", type=int, help=argparse.SUPPRESS)
    return parser.parse_args()


def measure(arguments: argparse.Namespace) -> None:
    import torch

    from rota.student.config import StudentConfig
    from rota.student.nmt import build_student
    from rota.student.search import translate

    torch.set_num_threads(arguments.threads)
    student = build_student(
        StudentConfig(preset=arguments.preset), vocabulary=arguments.vocabulary, steps=100_000, seed=1
    )
    rng = np.random.default_rng(0)
    batches = [random_batch(rng, arguments.vocabulary, arguments.tokens) for _ in range(arguments.repetitions)]
    student.update(batches[:1])
    shape = student.network.shape
    limits, runs = [matmul_speed(shape.width, shape.feedforward, arguments.tokens)], []
    for batch in batches:
        wall, cpu = timed(lambda batch=batch: student.update([batch]))
        limits.append(matmul_speed(shape.width, shape.feedforward, arguments.tokens))
        limit = statistics.mean(limits[-2:])
        runs.append((batch.tokens / wall, batch.tokens / cpu, model_flops(shape, batch) / wall / limit))
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"\n{arguments.threads} thread{'s' if arguments.threads > 1 else ''}")
    for name, values, digits in zip(
        ("training, tokens/s (wall)", "training, tokens/s (processor)", "share of matrix-product speed"),
        zip(*runs, strict=True),
        (0, 0, 2),
        strict=True,
    ):
        print(f"  {name:34} {spread(values, digits)}")
    print(f"  {'matrix products, GFLOP/s (wall)':34} {spread([limit / 1e9 for limit in limits], 1)}")
    print(f"  {'peak memory, MB':34} {memory:,.0f}")
    sources = [np.append(rng.integers(4, arguments.vocabulary, rng.integers(5, 35)), 2) for _ in range(60)]
    for beam in (1, 5):
        speeds = []
        for _ in range(min(3, arguments.repetitions)):
            wall, _ = timed(lambda beam=beam: translate([student.network], sources, beam=beam, max_ratio=1.0, extra=0))
            speeds.append(len(sources) / wall)
        print(f"  {f'search, beam {beam}, sentences/s':34} {spread(speeds, 1)}")


def random_batch(rng: np.random.Generator, vocabulary: int, tokens: int):  # type: ignore[no-untyped-def]
    """Sentences of similar length, as the streams give them: about 20 words, sources a tenth longer."""
    from rota.types import Batch

    centre = max(5.0, rng.normal(20, 8))
    lengths = np.maximum(2, rng.normal(centre, 1.0, 2 * tokens).round().astype(np.int64))
    target = lengths[: int(np.searchsorted(np.cumsum(lengths), tokens)) + 1]
    source = np.maximum(3, (target * rng.normal(1.1, 0.12, len(target))).astype(np.int64))
    words = [rng.integers(4, vocabulary, side.sum()) for side in (source, target)]
    return Batch("xx", words[0], source, words[1], target, {"xx": int(target.sum())})


def model_flops(shape, batch) -> float:  # type: ignore[no-untyped-def]
    """Forward and backward (twice the forward) of the matrix products on real tokens; attention without padding."""
    width, hidden = shape.width, shape.feedforward
    source, target = batch.source_lengths.astype(float), batch.target_lengths.astype(float)
    encoder = shape.encoder_layers * (4 * width**2 + 2 * width * hidden)
    decoder = shape.decoder_layers * (6 * width**2 + 2 * width * hidden) + shape.vocabulary * width
    memory = shape.decoder_layers * 2 * width**2
    products = source.sum() * (encoder + memory) + target.sum() * decoder
    pairs = shape.encoder_layers * (source**2).sum() + shape.decoder_layers * (
        (target**2).sum() + (source * target).sum()
    )
    return 3 * 2 * float(products + 2 * width * pairs)


def matmul_speed(width: int, hidden: int, tokens: int, repetitions: int = 30) -> float:
    import torch

    left, right = torch.randn(tokens, width), torch.randn(width, hidden)
    for _ in range(3):
        left @ right
    wall, _ = timed(lambda: [left @ right for _ in range(repetitions)])
    return 2 * tokens * width * hidden * repetitions / wall


def timed(work: Callable[[], object]) -> tuple[float, float]:
    """Seconds of wall and processor time."""
    wall, cpu = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - wall, time.process_time() - cpu


def spread(values, digits: int) -> str:  # type: ignore[no-untyped-def]
    low, middle, high = min(values), statistics.median(values), max(values)
    return f"{middle:,.{digits}f} ({low:,.{digits}f} to {high:,.{digits}f})"


if __name__ == "__main__":
    sys.exit(main())
