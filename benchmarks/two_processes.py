"""Two pieces of an update at once, beside one piece with two threads, and beside two processes: all in turns.

    python benchmarks/two_processes.py [--preset small] [--tokens 4000] [--turns 8] [--json FILE]

A turn of the two processes, started by torchrun, on two cores: the first one trains with two threads, on two pieces at
once and then on one after the other, while the second process waits; each trains a student of its own with one thread;
both train one student together, each with a batch of half the tokens (training.accumulate: 2). Wall times need a
machine with nothing else on it. By processor time both cores are busy in either case, and the ratio of the last two is
what the exchange of gradients costs; waiting is not counted there.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch
from torch import distributed

from machine.limit import matrices, product_speed
from machine.work import make_student, one_piece_at_a_time, random_batch, timed, update_flops
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
        one_at_a_time = one_piece_at_a_time(make_student(arguments.preset, VOCABULARY))
        shape = alone.network.shape
        for turn in range(arguments.turns + 1):
            rng = np.random.default_rng(turn)
            whole = random_batch(rng, VOCABULARY, arguments.tokens)
            half = random_batch(rng, VOCABULARY, arguments.tokens // 2)
            found = {"tokens": whole.tokens, "team_tokens": 2 * half.tokens}
            if team.first:
                torch.set_num_threads(2)
                found["pairs"] = update_flops(shape, whole) / timed(partial(alone.update, [whole])).wall
                found["threads"] = update_flops(shape, whole) / timed(partial(one_at_a_time.update, [whole])).wall
                found["threads_limit"] = product_speed(matrices(alone, whole))[0]
                torch.set_num_threads(1)
            distributed.barrier()
            seconds = timed(partial(alone.update, [whole]))
            limit = product_speed(matrices(alone, whole))
            distributed.barrier()
            shared = timed(partial(together.update, [half, half]))
            found |= {
                "alone": update_flops(shape, whole) / seconds.processor,
                "limit": limit[1],
                "limit_wall": limit[0],
            }
            found |= {
                "team": update_flops(shape, half) / shared.processor,
                "team_wall": update_flops(shape, half) / shared.wall,
            }
            distributed.barrier()
            if turn:  # the first warms up
                file.write(json.dumps({**found, "load": os.getloadavg()[0]}) + "\n")


def report(arguments: argparse.Namespace, turns: list[list[dict[str, float]]]) -> list[Row]:
    """``turns`` of each process; the slower process of a turn counts, as the other waits for it."""
    pairs = list(zip(*turns, strict=True))
    slower = [min(pair, key=lambda each: each["team"]) for pair in pairs]
    both = [sum(each["limit_wall"] for each in pair) for pair in pairs]
    wall = [2 * min(each["team_wall"] for each in pair) for pair in pairs]
    threads = [first for first, _ in pairs]
    setting = f"{arguments.preset}, {arguments.tokens:,} tokens, {VOCABULARY:,} subwords, two processes"
    values = {
        "two pieces at once to one, by wall time": [each["pairs"] / each["threads"] for each in threads],
        "two pieces at once to two processes, by wall time": [
            first["pairs"] / team for team, first in zip(wall, threads, strict=True)
        ],
        "one piece: share of the limit, by wall time": [each["threads"] / each["threads_limit"] for each in threads],
        "two pieces: share of the limit, by wall time": [each["pairs"] / each["threads_limit"] for each in threads],
        "two pieces: share of two single limits, by wall time": [
            first["pairs"] / limit for first, limit in zip(threads, both, strict=True)
        ],
        "two processes: share of two single limits, by wall time": [
            team / limit for team, limit in zip(wall, both, strict=True)
        ],
        "two processes: share of two threads' limit, by wall time": [
            team / first["threads_limit"] for team, first in zip(wall, threads, strict=True)
        ],
        "operations a second in a team, to those alone": [each["team"] / each["alone"] for each in slower],
        "share of the limit alone, one thread, by processor time": [each["alone"] / each["limit"] for each in slower],
        "share of the limit in a team, by processor time": [each["team"] / each["limit"] for each in slower],
    }
    rows = [
        row("two-processes", setting, what, found, "", ratio=statistics.median(found)) for what, found in values.items()
    ]
    print(f"{setting}; load {min(each['load'] for each in slower):.1f} to {max(each['load'] for each in slower):.1f}")
    for each in rows:
        print(f"  {each.what:56} {each.value:.2f} ({each.low:.2f} to {each.high:.2f})")
    return rows


if __name__ == "__main__":
    sys.exit(main())
