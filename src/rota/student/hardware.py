"""What differs between machines: precision of products, keeping memory, the way to a device, memory running out."""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

import torch
from torch import Tensor

from rota.types import Batch, IntArray

_MMAP_THRESHOLD: Final = (-3, 2**25)
"""Number of the setting in malloc.h, and its highest value: smaller tensors come from the heap."""

_TRIM_THRESHOLD: Final = (-1, 2**29)
"""How much may lie free at the end of the heap before it goes back to the system."""


class TooLargeError(MemoryError):
    """The memory of the device does not hold what is to be computed; the weights are those of the step before."""


def allow_tf32(device: torch.device, *, allowed: bool) -> None:
    """Whether CUDA may round the factors of float32 products to 10 bits; other devices do not know this."""
    if device.type == "cuda":
        torch.set_float32_matmul_precision("high" if allowed else "highest")


def keep_memory() -> None:
    """Keeps what tensors on the CPU have freed, for the next ones: returning it and asking again costs 2 % of training.

    For glibc, unless its settings are already given in the environment; the highest use of memory stays as it is.
    """
    if sys.platform != "linux" or any(name.startswith(("MALLOC_", "GLIBC_TUNABLES")) for name in os.environ):
        return
    setting = getattr(ctypes.CDLL(None), "mallopt", None)
    if setting is not None:
        setting(*_MMAP_THRESHOLD)
        setting(*_TRIM_THRESHOLD)


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
