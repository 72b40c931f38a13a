"""What differs between machines: precision of float32 products, the way to a device, and its memory running out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor

from rota.types import Batch, IntArray


class TooLargeError(MemoryError):
    """The memory of the device does not hold what is to be computed; the weights are those of the step before."""


def allow_tf32(device: torch.device, *, allowed: bool) -> None:
    """Whether CUDA may round the factors of float32 products to 10 bits; other devices do not know this."""
    if device.type == "cuda":
        torch.set_float32_matmul_precision("high" if allowed else "highest")


def upload(array: IntArray, device: torch.device) -> Tensor:
    """The array on the device. From pinned memory the copy to a GPU runs beside what it is computing."""
    tensor = torch.from_numpy(array)
    return tensor.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else tensor.to(device)


@contextmanager
def memory_for(batches: Sequence[Batch], work: str) -> Iterator[None]:
    """Says in one line what was too large, whichever way the memory ran out."""
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        largest = max(batches, key=lambda batch: batch.tokens)
        size = f"{largest.tokens:,} target tokens in {largest.sentences:,} sentences"
        longest = int(max(largest.source_lengths.max(), largest.target_lengths.max()))
        remedy = "lower training.tokens; a higher training.accumulate keeps the update as large"
        raise TooLargeError(f"out of memory {work} a batch of {size}, the longest of {longest}; {remedy}.") from None


def is_out_of_memory(error: BaseException) -> bool:
    """CUDA has an exception of its own; the allocator of the CPU only a message."""
    return isinstance(error, torch.OutOfMemoryError | MemoryError) or "can't allocate memory" in str(error)
