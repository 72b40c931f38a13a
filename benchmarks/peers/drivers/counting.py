"""What all drivers share: real target tokens, positions and seconds of every update, one JSON object a line.

Runs in the environments of the peers, so it needs torch and nothing else. Tokens are counted in the very tensors that
the peer trains on; an update is over when its optimiser has stepped.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook


def settings() -> SimpleNamespace:
    """What to train, from the file that the driver was given."""
    return SimpleNamespace(**json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")))


class Counter:
    """Writes a line after every update, and ends the process after the last: no peer saves or validates."""

    def __init__(self, wanted: SimpleNamespace) -> None:
        self.updates, self.done = wanted.updates, 0
        self.tokens = self.positions = 0
        self.file = Path(wanted.out).open("w", encoding="utf-8")  # noqa: SIM115
        torch.set_num_threads(wanted.threads)
        torch.manual_seed(wanted.seed)
        register_optimizer_step_post_hook(self._stepped)

    def saw(self, target: torch.Tensor, padding: int) -> None:
        """A batch of targets as the loss sees them, ends of sentences included, starts not."""
        self.count(int((target != padding).sum()), target.numel())

    def count(self, tokens: int, positions: int) -> None:
        self.tokens += tokens
        self.positions += positions

    def _stepped(self, *_: object) -> None:
        self.done += 1
        found = {"tokens": self.tokens, "positions": self.positions, "peak": peak()}
        spent = {"wall": time.perf_counter(), "processor": time.process_time()}
        self.file.write(json.dumps({"update": self.done, **found, **spent}) + "\n")
        self.file.flush()
        self.tokens = self.positions = 0
        if self.done == self.updates:
            os._exit(0)


def peak() -> int:
    """Most resident memory so far, in bytes; that of getrusage begins with the parent's."""
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith("VmHWM"))
