"""What differs between machines: which device to use, precision, keeping and running out of memory, copies to a GPU."""

from __future__ import annotations

import ctypes
import logging
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import torch
from numpy.typing import NDArray
from torch import Tensor

from rota.student.config import Shape, StudentConfig

logger = logging.getLogger(__name__)

_UNFIT: Final = {
    "meta": "holds no numbers",
    "mps": "has no 64-bit numbers (float64), in which losses are added up",
}

_MMAP_THRESHOLD: Final = (-3, 2**25)
"""Number of the setting in malloc.h, and its highest value: smaller tensors come from the heap."""

_TRIM_THRESHOLD: Final = (-1, 2**29)
"""How much may lie free at the end of the heap before it goes back to the system."""

_ARENAS: Final = (-8, 1)
"""One heap for all threads: what the pieces in one thread have freed serves those in the other (190 MB less)."""

_OUT_OF_MEMORY: Final = ("out of memory", "can't allocate memory", "status_alloc_failed")
"""In messages of CUDA, MPS and NCCL; of torch's CPU; of cuBLAS and cuDNN."""

OTHER_DEVICE: Final = "a device with more memory (student.device may change while a run lasts) or a smaller student"
"""What helps if the student itself leaves too little room."""


class TooLargeError(MemoryError):
    """The memory of the device does not hold what is to be computed; a run that raises this ends without saving."""


def check_machine(config: StudentConfig) -> None:
    """Refuses, within a second, a device that is not there or far too small; preparing data may take much longer."""
    device = find_device(config.device)
    if device.type == "cpu" and config.start is None:
        _check_size(config.shape(vocabulary=0))
    if config.precision == "bf16" and device.type == "cuda" and not torch.cuda.is_bf16_supported(False):
        logger.warning("student.precision is bf16, which this GPU only emulates; GPUs since Ampere have it")


def _check_size(shape: Shape) -> None:
    """Whether weights, gradients and moments alone, in float32, are more than the memory of this machine."""
    try:
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):  # not on every system
        return
    needed = 16 * shape.parameters
    if needed > memory:
        layers = f"{shape.encoder_layers:,} + {shape.decoder_layers:,} layers"
        raise ValueError(
            f"a student of width {shape.width:,}, feed-forward width {shape.feedforward:,} and {layers} takes"
            f" {needed / 1e9:,.0f} GB, and this machine has {memory / 1e9:,.0f} GB;"
            " write a smaller one, such as student.preset: small"
        )


def find_device(name: str) -> torch.device:
    """``"auto"`` is CUDA if there is such a device, else the CPU; anything else is a device of torch."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise ValueError(f"device {name!r} cannot be used here; write auto or cpu") from error
    if device.type in _UNFIT:
        raise ValueError(f"device {name!r} cannot be used: it {_UNFIT[device.type]}; write auto or cpu")
    if device.type == "cuda":
        _check_gpus(name, device.index)
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError, ImportError) as error:
        reason = str(error).partition("\n")[0].rstrip(".")
        raise ValueError(f"device {name!r} cannot be used here ({reason}); write auto or cpu") from error
    return device


def _check_gpus(name: str, index: int | None) -> None:
    if torch.version.cuda is None and torch.version.hip is None:  # ROCm goes by the name of CUDA
        found = f"this PyTorch ({torch.__version__}) was built without CUDA"
        raise ValueError(f"device {name!r} cannot be used: {found}; install one with it, or write cpu")
    count = torch.cuda.device_count()
    if count == 0:
        raise ValueError(
            f"device {name!r} cannot be used: PyTorch has CUDA but finds no GPU;"
            " look at nvidia-smi and CUDA_VISIBLE_DEVICES, or write cpu"
        )
    if index is not None and index >= count:
        known = "cuda:0" if count == 1 else f"cuda:0 to cuda:{count - 1}"
        raise ValueError(f"device {name!r} cannot be used: {count} GPU{'s' * (count > 1)} found; write {known}")


def use_threads(count: int | None) -> int:
    """Has torch use so many threads, and says how many it uses; by default one for each core, or OMP_NUM_THREADS."""
    if count is not None:
        torch.set_num_threads(count)
    return torch.get_num_threads()


def refuse_number(name: str) -> None:
    """With several processes a numbered device would be that of all of them."""
    kind, colon, _ = name.partition(":")
    if colon:
        raise ValueError(
            f"student.device is {name!r}, and each of several processes has a device of its own:"
            f" write --set student.device={kind}; CUDA_VISIBLE_DEVICES chooses among GPUs"
        )


def allow_tf32(device: torch.device, *, allowed: bool) -> None:
    """Whether CUDA may round the factors of float32 products to 10 bits; other devices have no such mode."""
    if device.type == "cuda":
        torch.set_float32_matmul_precision("high" if allowed else "highest")


def keep_memory() -> None:
    """Keeps what tensors on the CPU have freed for the next ones; returning it to the system costs 2 % of training.

    For glibc, unless its settings are already given in the environment; the peak use of memory stays the same.
    """
    if sys.platform != "linux" or any(name.startswith(("MALLOC_", "GLIBC_TUNABLES")) for name in os.environ):
        return
    setting = getattr(ctypes.CDLL(None), "mallopt", None)
    if setting is not None:
        setting(*_MMAP_THRESHOLD)
        setting(*_TRIM_THRESHOLD)
        setting(*_ARENAS)


def upload(array: NDArray[Any], device: torch.device) -> Tensor:
    """The array on the device. To a GPU it goes from pinned memory, so that the copy is queued and we do not wait."""
    tensor = torch.from_numpy(array)
    return tensor.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else tensor.to(device)


@contextmanager
def memory_for(describe: Callable[[], str]) -> Iterator[None]:
    """Turns every form of running out of memory into one line: what was being done, and what helps."""
    try:
        yield
    except TooLargeError:  # an inner context is nearer to the cause
        raise
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        raise TooLargeError(f"out of memory {describe()}") from None


def is_out_of_memory(error: BaseException) -> bool:
    """Torch's allocators for GPUs have their own exceptions; its CPU allocator, drivers and libraries only messages."""
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return True
    return isinstance(error, RuntimeError) and any(words in str(error).lower() for words in _OUT_OF_MEMORY)
