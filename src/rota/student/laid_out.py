"""Sentences on their device, with all that the network is told of them: nothing is left to send once it computes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from rota.student.attention import Layout
from rota.student.hardware import upload
from rota.types import Batch


@dataclass(frozen=True)
class LaidOut:
    """N tokens of all sentences on either side, and where each sentence lies among them."""

    source_N: Tensor
    source: Layout
    target_N: Tensor
    target: Layout


def lay_out(batch: Batch, heads: int, device: torch.device, *, flat: bool) -> LaidOut:
    """Builds the tables and starts their way to the device, for which nobody waits.

    ``flat``: for the kernel of :mod:`rota.student.varlen`, which wants no rectangles.
    """
    source_N, target_N = (upload(ids.astype(np.int64), device) for ids in (batch.source, batch.target))
    source, target = (Layout(lengths, heads, device) for lengths in (batch.source_lengths, batch.target_lengths))
    here = ("bounds",) if flat else ("query_key_value", "query")
    source_needs = ("positions", *here, *(() if flat else ("hide_padding", "key_value")))
    target_needs = ("positions", "first_rows", *here, *(() if flat else ("hide_future",)))
    for layout, needs in ((source, source_needs), (target, target_needs)):
        for name in needs:
            getattr(layout, name)
    return LaidOut(source_N, source, target_N, target)
