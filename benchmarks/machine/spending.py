"""Where the time of an update goes: every event of torch's profiler belongs to one kind of work."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import torch
from torch.profiler import ProfilerActivity, profile

from machine.pieces import Piece
from machine.work import make_student, one_piece_at_a_time, random_batch
from rota.student.nmt import NMT
from rota.types import Batch
from rows import Row, row

PRODUCTS: Final = "matrix products of layers"
POSITIONS: Final = "embedding and positions"
HEADS: Final = "rows to heads and back"
REST: Final = "Python, layout of the batch, and what has no name"

# Read from the event outwards to those around it: the first known name decides. The backward pass of a function has
# the name of the function with "Backward" in it, so the beginning of a name is enough.
KINDS: Final[Mapping[str, str]] = {
    "aten::random_": "dropout",
    "aten::ge_": "dropout",
    "aten::baddbmm": "matrix products of attention",
    "_SmoothedLoss": "loss, without its products",
    "_Dropped": "dropout",
    "_AddDropped": "dropout and residual sums",
    "_ReluDropped": "dropout and ReLU",
    "_Attention": HEADS,
    "aten::softmax": "softmax of attention",
    "aten::_softmax": "softmax of attention",
    "aten::layer_norm": "layer norm",
    "aten::native_layer_norm": "layer norm",
    "NativeLayerNorm": "layer norm",
    "Optimizer": "optimiser and clipping",
    "aten::_foreach": "optimiser and clipping",
    "aten::embedding": POSITIONS,
    "Embedding": POSITIONS,
    "aten::linear": PRODUCTS,
    "_ScaledLinear": PRODUCTS,
    "AccumulateGrad": "adding up gradients",
    "torch::autograd::AccumulateGrad": "adding up gradients",
}
_PREFIX: Final = "autograd::engine::evaluate_function: "


def measure(piece: Piece) -> list[Row]:
    """Shares of the kinds of work, largest first; those of an update add up to 100 %."""
    torch.set_num_threads(piece.threads)
    # The profiler sees the thread that it was started in, not those that compute two pieces at once.
    student, rng = one_piece_at_a_time(make_student(piece.preset, piece.vocabulary)), np.random.default_rng(0)
    batches = [random_batch(rng, piece.vocabulary, piece.tokens) for _ in range(piece.repetitions + 1)]
    student.update(batches[:1])
    found = [shares(student, batch) for batch in batches[1:]]
    kinds = sorted(
        {kind for each in found for kind in each}, key=lambda kind: -sum(each.get(kind, 0) for each in found)
    )
    return [
        row(piece.benchmark, piece.setting, kind, [100 * each.get(kind, 0) for each in found], "%") for kind in kinds
    ]


def shares(student: NMT, batch: Batch) -> dict[str, float]:
    """Kind of work to its share of one update; what lies between the events is Python's."""
    with profile(activities=[ProfilerActivity.CPU], acc_events=True) as profiled:
        start = time.perf_counter()
        student.update([batch])
        seconds = time.perf_counter() - start
    spent: defaultdict[str, float] = defaultdict(float)
    for event in profiled.events() or ():
        spent[kind_of(names_around(event))] += event.self_cpu_time_total / 1e6 / seconds
    spent[REST] += max(0.0, 1 - sum(spent.values()))
    total = sum(spent.values())
    return {kind: share / total for kind, share in spent.items()}


def names_around(event: Any) -> list[str]:
    """The name of an event, then those of the events that it is part of."""
    names = []
    while event is not None:
        names.append(event.name.removeprefix(_PREFIX))
        event = event.cpu_parent
    return names


def kind_of(names: list[str]) -> str:
    """The kind of work of an event; the products of the loss count among those of the layers."""
    if names[0] in ("aten::mm", "aten::addmm", "aten::addmm_"):
        return PRODUCTS
    found = next((kind for name in names for start, kind in KINDS.items() if name.startswith(start)), REST)
    if found == HEADS and any(name.startswith("aten::mul") for name in names):
        return KINDS["_Dropped"]  # nothing else is multiplied there, one by one
    return POSITIONS if found == REST and names[0] == "aten::index_select" else found
