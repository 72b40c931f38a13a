"""What differs between machines: precision of products, keeping memory, the way to a device, memory running out."""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import torch
from numpy.typing import NDArray
from torch import Tensor

_MMAP_THRESHOLD: Final = (-3, 2**25)
"""Number of the setting in malloc.h, and its highest value: smaller tensors come from the heap."""

_TRIM_THRESHOLD: Final = (-1, 2**29)
"""How much may lie free at the end of the heap before it goes back to the system."""


_OUT_OF_MEMORY: Final = ("out of memory", "can't allocate memory", "status_alloc_failed")
"""In messages of CUDA, MPS and NCCL; of torch's CPU; of cuBLAS and cuDNN."""

OTHER_DEVICE: Final = "a device with more memory (student.device may change while a run lasts) or a smaller student"
"""What helps if the student itself leaves too little room."""


class TooLargeError(MemoryError):
    """The memory of the device does not hold what is to be computed; a run that meets this ends without saving."""


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


def upload(array: NDArray[Any], device: torch.device) -> Tensor:
    """The array on the device. From pinned memory the copy to a GPU waits in its queue, and we do not wait for it."""
    tensor = torch.from_numpy(array)
    return tensor.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else tensor.to(device)


@contextmanager
def memory_for(describe: Callable[[], str]) -> Iterator[None]:
    """Memory that runs out, whichever way, becomes one line: what was being done, how large it was, what helps."""
    try:
        yield
    except TooLargeError:  # whoever was nearer knew better
        raise
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        raise TooLargeError(f"out of memory {describe()}") from None


def is_out_of_memory(error: BaseException) -> bool:
    """The allocators of torch for GPUs have exceptions of their own; the CPU's, drivers and libraries only messages."""
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return True
    return isinstance(error, RuntimeError) and any(words in str(error).lower() for words in _OUT_OF_MEMORY)
