"""Peak memory of training, in a process of its own."""

from __future__ import annotations

import resource
import sys
from pathlib import Path

import numpy as np
import torch

from machine.pieces import Piece
from machine.work import make_student, random_batch
from rows import Row, row

MEGABYTE = 2**20


def measure(piece: Piece) -> list[Row]:
    """A few updates; what the imports and the student itself take is told apart."""
    torch.set_num_threads(piece.threads)
    about = (piece.benchmark, piece.setting)
    imported = peak()
    student = make_student(piece.preset, piece.vocabulary)
    rng = np.random.default_rng(0)
    for _ in range(piece.repetitions):
        student.update([random_batch(rng, piece.vocabulary, piece.tokens)])
    weights = sum(weight.numel() for weight in student.network.parameters())
    return [
        row(*about, "peak resident memory", [peak() / MEGABYTE], "MB"),
        row(*about, "of it, before the student is built", [imported / MEGABYTE], "MB"),
        # In float32 each: the weight, its gradient, two moments.
        row(*about, "of it, weights, gradients and moments", [16 * weights / MEGABYTE], "MB"),
    ]


def peak() -> int:
    """Most resident memory of this process so far, in bytes.

    The figure of ``getrusage`` would not do: it begins with that of the process that started this one.
    """
    try:
        lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    except OSError:
        used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return used if sys.platform == "darwin" else 1024 * used
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith("VmHWM"))
