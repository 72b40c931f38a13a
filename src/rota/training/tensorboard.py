"""Curves for TensorBoard, beside the records (which remain the source of every figure)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from torch.utils.tensorboard import SummaryWriter

from rota.types import Arm, Decision


class TensorBoard:
    """Training loss, language shares and dev losses as TensorBoard events; a listener of the loop."""

    def __init__(self, folder: Path, step: int) -> None:
        self._writer = SummaryWriter(str(folder), purge_step=step + 1)
        self._seen: Mapping[Arm, int] = {}

    def updated(self, step: int, decision: Decision, loss: float, seen: Mapping[Arm, int]) -> None:
        self._seen = seen
        self._scalar("loss/train", loss, step)
        self._scalar(f"loss/train/{decision.arm}", loss, step)

    def validated(self, step: int, dev_loss: Mapping[Arm, float]) -> None:
        total = sum(self._seen.values())
        for arm, loss in dev_loss.items():
            self._scalar(f"loss/dev/{arm}", loss, step)
            self._scalar(f"share/{arm}", self._seen.get(arm, 0) / total, step)

    def saved(self, step: int) -> None:  # noqa: ARG002
        self._writer.flush()

    def close(self) -> None:
        self._writer.close()

    def _scalar(self, name: str, value: float, step: int) -> None:
        self._writer.add_scalar(name, value, step)
