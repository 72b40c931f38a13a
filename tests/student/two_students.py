"""One student trained and probed by one process and by two on gloo: a script, so that torch is imported once.

    python two_students.py FOLDER

Every rank leaves what it found in ``FOLDER/<size>.<rank>.json``.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import traceback
from pathlib import Path
from typing import Any

import torch
import torch._dynamo
from student_cases import batch_of, make_student, random_pairs

from rota.training.distributed import join_team

LENGTHS = ((3, 12), (20, 2), (2, 1), (6, 6), (9, 4))


def train(*, probed: bool) -> dict[str, Any]:
    """Three updates of four batches each with dropout, and what each probe says after the second."""
    with join_team("cpu") as team:
        student = make_student(team=team, dropout=0.3, attention_dropout=0.2)
        dev = [batch_of(random_pairs(*LENGTHS, seed=50)), batch_of(random_pairs((5, 5), (7, 8), seed=51))]
        found: dict[str, Any] = {"losses": []}
        if probed:
            student.keep_average(0.9)
        for step in range(3):
            batches = [batch_of(random_pairs(*LENGTHS, seed=4 * step + number)) for number in range(4)]
            found["losses"].append(student.update(batches))
            if probed and step == 1:
                direction = student.gradient(dev, weights="average").in_adams_metric()
                student.follow(direction)
                found |= {
                    "norm": student.gradient(dev).norm(),
                    "metric": direction.norm(),
                    "examined": student.examine(dev, temperatures=[2.0]).sums_by_temperature.tolist(),
                    "correct": student.examine(dev).correct.tolist(),
                    "samples": student.dropout_samples(dev, samples=3, seed=1).tolist(),
                    "entropies": student.uncertainty(dev, samples=2, seed=1).entropies.tolist(),
                    "average": student.losses(dev, weights="average").sums.tolist(),
                }
        found["projection"] = student.projection and student.projection[:2]
        found["weights"] = torch.cat([weight.flatten() for weight in student.network.parameters()]).tolist()
    return found


def start(size: int, folder: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    ranks = [os.fork() or _be(rank, size, port, folder) for rank in range(size)]
    codes = [os.waitstatus_to_exitcode(os.waitpid(rank, 0)[1]) for rank in ranks]
    assert codes == [0] * size, codes


def _be(rank: int, size: int, port: int, folder: Path) -> int:
    if size > 1:
        os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(size)}
        os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    code = 1
    try:
        found = train(probed=True)
        found["unprobed"] = train(probed=False)
        (folder / f"{size}.{rank}.json").write_text(json.dumps(found))
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


if __name__ == "__main__":
    torch.set_num_threads(1)
    for size in (1, 2):
        start(size, Path(sys.argv[1]))
