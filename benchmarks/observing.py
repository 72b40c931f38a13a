"""What a DQN teacher costs: the share of a run's time that goes into observing, beside what its arithmetic predicts.

    python benchmarks/observing.py [CORPUS] [--preset tiny] [--prepared FOLDER] [--repetitions 5]

For each number of tokens in an update and each `refresh`: one observation (prototype and reward batch) and its decision
after every 10 updates, as in the paper. Predicted is the same share computed from model operations: an observation is
forward only, an update three times its forward. CORPUS as in data_path.py.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from data_path import DEFAULT_CORPUS, open_or_prepare

from rota.data.batches import make_stream
from rota.student.config import StudentConfig
from rota.student.nmt import NMT, build_student
from rota.teachers import Classroom
from rota.teachers.dqn_config import DQNConfig
from rota.training.devsets import DevSets
from rota.training.probe import Probe
from rota.types import Decision
from training import model_flops

DECIDE_EVERY = 10


def main() -> int:
    arguments = parse()
    if not arguments.corpus.is_dir():
        print(f"SKIPPED: no corpus at {arguments.corpus}; give a folder as the first argument")
        return 0
    torch.set_num_threads(arguments.threads)
    with tempfile.TemporaryDirectory() as scratch:
        store = open_or_prepare(arguments.corpus, arguments.prepared or Path(scratch) / "data", 8000)
        print(
            f"\n{os.cpu_count()} cores, {arguments.threads} thread(s), preset {arguments.preset}; "
            f"median of {arguments.repetitions} (lowest to highest)\n"
        )
        print(f"{'tokens':>7} {'refresh':>8} {'observing':>10} {'(spread)':>16} {'predicted':>10} {'ratio':>6}")
        for tokens in arguments.tokens:
            for refresh in ("1", "1/5", "1/25"):
                report(store, tokens, refresh, arguments)
    return 0


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus", type=Path, nargs="?", default=DEFAULT_CORPUS)
    parser.add_argument("--prepared", type=Path, help="keep the prepared data here and use them again")
    parser.add_argument("--preset", default="tiny")
    parser.add_argument("--tokens", type=int, nargs="*", default=[2_000, 8_000, 32_000])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--repetitions", type=int, default=5)
    return parser.parse_args()


def report(store, tokens: int, refresh: str, arguments: argparse.Namespace) -> None:  # type: ignore[no-untyped-def]
    student = build_student(
        StudentConfig(preset=arguments.preset), vocabulary=store.manifest.vocabulary, steps=100_000, seed=1
    )
    # The minibatch is scaled like the run, as in a short study; the paper's 1,000 adds the same time at every size.
    config = DQNConfig(refresh=refresh, warmup=None, replay_minimum=2, replay_batch=32)
    classroom = Classroom(store.sizes, store.low_resource, 150_000)
    teacher = config.build(classroom, np.random.default_rng(1))
    probe = Probe(student, DevSets(store, config.measurements(), teacher_share=0.5, validate_tokens=8_000))
    streams = [make_stream(store, arm, tokens, seed=1) for arm in store.languages]
    decision = Decision(store.languages[0], "benchmark")

    def observe() -> None:
        observed = probe.observe(1, decision, teacher.watches, played={decision.arm: DECIDE_EVERY}, train_loss=0.0)
        teacher.tell(observed)
        teacher.ask(1)

    observe()
    student.update([next(streams[0])])
    shares, ratios = [], []
    for number in range(arguments.repetitions):
        batches = [next(streams[(number + turn) % len(streams)]) for turn in range(max(2, 16_000 // tokens))]
        training = DECIDE_EVERY * timed(lambda batches=batches: [student.update([batch]) for batch in batches])
        training /= len(batches)
        operations = DECIDE_EVERY * sum(model_flops(student.network.shape, batch) for batch in batches) / len(batches)
        observing = timed(observe)
        shares.append(observing / (observing + training))
        extra = observation_flops(student, probe)
        ratios.append(shares[-1] / (extra / (extra + operations)))
    predicted = statistics.median(share / ratio for share, ratio in zip(shares, ratios, strict=True))
    low, middle, high = min(shares), statistics.median(shares), max(shares)
    print(
        f"{tokens:>7,} {refresh:>8} {middle:>10.1%} {f'{low:.1%} to {high:.1%}':>16} {predicted:>10.1%} "
        f"{statistics.median(ratios):>6.2f}",
        flush=True,
    )


def observation_flops(student: NMT, probe: Probe) -> float:
    """Forward operations of one turn of the prototype and of the reward batch."""
    prototype = probe.sets.prototype.batches
    turn = statistics.mean(model_flops(student.network.shape, batch) for batch in prototype)
    return (turn + model_flops(student.network.shape, probe.sets.joint)) / 3


def timed(work: Callable[[], object]) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start


if __name__ == "__main__":
    sys.exit(main())
