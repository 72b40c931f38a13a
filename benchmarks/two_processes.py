"""What training in two processes costs: updates alone and in a team in turns, by processor time, one thread each.

    python benchmarks/two_processes.py [--preset small] [--tokens 4000] [--turns 8] [--json FILE]

Two processes, started by torchrun, each train a student of their own, and then both of them one student together, each
with a batch of half the tokens (training.accumulate: 2). So both cores are busy in either case, and the ratio is what
the exchange of gradients costs. Waiting is not counted: it is short, because the halves have equally many tokens.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch

from machine.limit import matrices, product_speed
from machine.work import random_batch, update_flops
from rota.student.config import StudentConfig
from rota.student.nmt import build_student
from rota.training.distributed import join_team
from rows import Results, Row, row

VOCABULARY = 8_000


def main() -> int:
    arguments = parse()
    if arguments.out is not None:
        train(arguments)
        return 0
    with TemporaryDirectory() as folder:
        launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
        command = [*launch, *sys.argv, "--out", folder]
        if subprocess.run(command, env={**os.environ, "OMP_NUM_THREADS": "1"}, check=False).returncode:
            return 1
        turns = [
            [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
            for path in sorted(Path(folder).glob("*.jsonl"))
        ]
    Results(arguments.json).add(report(arguments, turns))
    return 0


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--preset", default="small")
    parser.add_argument("--tokens", type=int, default=4_000)
    parser.add_argument("--turns", type=int, default=8)
    parser.add_argument("--json", type=Path, help="keep the rows here")
    parser.add_argument("--out", type=Path, help=argparse.SUPPRESS)
    return parser.parse_args()


def train(arguments: argparse.Namespace) -> None:
    """In each of the two processes: a line for each turn."""
    torch.set_num_threads(1)
    config = StudentConfig.model_validate({"preset": arguments.preset, "device": "cpu"})
    with join_team("cpu") as team, (arguments.out / f"{os.environ['RANK']}.jsonl").open("w") as file:
        alone = build_student(config, vocabulary=VOCABULARY, steps=100_000, seed=1)
        together = build_student(config, vocabulary=VOCABULARY, steps=100_000, seed=1, team=team)
        for turn in range(arguments.turns + 1):
            rng = np.random.default_rng(turn)
            whole = random_batch(rng, VOCABULARY, arguments.tokens)
            half = random_batch(rng, VOCABULARY, arguments.tokens // 2)
            seconds = processor_time(lambda batch=whole: alone.update([batch]))
            limit = product_speed(matrices(alone, whole))[1]
            shared = processor_time(lambda batch=half: together.update([batch, batch]))
            shape = alone.network.shape
            found = {"alone": update_flops(shape, whole) / seconds, "team": update_flops(shape, half) / shared}
            if turn:  # the first warms up
                file.write(json.dumps({**found, "limit": limit, "load": os.getloadavg()[0]}) + "\n")


def processor_time(work: Callable[[], object]) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start


def report(arguments: argparse.Namespace, turns: list[list[dict[str, float]]]) -> list[Row]:
    """``turns`` of each process; the slower process of a turn counts, as the other waits for it."""
    slower = [min(pair, key=lambda each: each["team"]) for pair in zip(*turns, strict=True)]
    setting = f"{arguments.preset}, {arguments.tokens:,} tokens, {VOCABULARY:,} subwords, two processes"
    values = {
        "operations a second in a team, to those alone": [each["team"] / each["alone"] for each in slower],
        "share of the limit alone, one thread, by processor time": [each["alone"] / each["limit"] for each in slower],
        "share of the limit in a team, by processor time": [each["team"] / each["limit"] for each in slower],
    }
    rows = [
        row("two-processes", setting, what, found, "", ratio=statistics.median(found)) for what, found in values.items()
    ]
    print(f"{setting}; load {min(each['load'] for each in slower):.0f} to {max(each['load'] for each in slower):.0f}")
    for each in rows:
        print(f"  {each.what:56} {each.value:.2f} ({each.low:.2f} to {each.high:.2f})")
    return rows


if __name__ == "__main__":
    sys.exit(main())
