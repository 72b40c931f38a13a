"""What all drivers share: real target tokens, positions and seconds of every update, one JSON object a line.

Runs in the environments of the peers, so it needs torch and nothing else. Tokens are counted in the very tensors that
the peer trains on; an update is over when its optimiser has stepped. Then, outside its time, a fixed matrix product
says how fast the machine is at this moment, since that changes with what else runs there; and the next update begins
when a byte has come through the pipe whose number is the second argument: others had their turn meanwhile.
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

ROWS, INNER, OUTER, REPEATED = 1_000, 512, 2_048, 8
"""The fixed product: one of a feed-forward layer, 17 GFLOP together, a quarter of a second on a slow core."""


def settings() -> SimpleNamespace:
    """What to train, from the file that the driver was given, and the number of the pipe."""
    turn = int(sys.argv[2]) if len(sys.argv) > 2 else None
    return SimpleNamespace(turn=turn, **json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")))


class Counter:
    """Writes a line after every update, and ends the process after the last: no peer saves or validates."""

    def __init__(self, wanted: SimpleNamespace) -> None:
        self.updates, self.done, self.turn = wanted.updates, 0, wanted.turn
        self.tokens = self.positions = 0
        self.outside = {"wall": 0.0, "processor": 0.0}  # seconds of the matrix products and of waiting so far
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
        spent = {clock: now - self.outside[clock] for clock, now in clocks().items()}
        line = {"update": self.done, **found, **spent, "machine": self._machine()}
        self.file.write(json.dumps(line) + "\n")
        self.file.flush()
        self.tokens = self.positions = 0
        if self.done == self.updates:
            os._exit(0)
        if self.turn is not None:
            self._wait(self.turn)

    def _wait(self, turn: int) -> None:
        """For our turn; who should give it to us may have gone."""
        before = clocks()
        if not os.read(turn, 1):
            os._exit(1)
        self._leave_out(before)

    def _leave_out(self, before: dict[str, float]) -> None:
        for clock, now in clocks().items():
            self.outside[clock] += now - before[clock]

    def _machine(self) -> float:
        """Floating-point operations a second of processor time, now."""
        before = clocks()
        left, right = torch.ones(ROWS, INNER), torch.ones(INNER, OUTER)
        result = torch.empty(ROWS, OUTER)
        torch.mm(left, right, out=result)
        start = time.process_time()
        for _ in range(REPEATED):
            torch.mm(left, right, out=result)
        spent = time.process_time() - start
        self._leave_out(before)
        return 2.0 * ROWS * INNER * OUTER * REPEATED / spent


def clocks() -> dict[str, float]:
    return {"wall": time.perf_counter(), "processor": time.process_time()}


def peak() -> int:
    """Most resident memory so far, in bytes; that of getrusage begins with the parent's."""
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith("VmHWM"))
