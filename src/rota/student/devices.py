"""Which device a student is on, and whether this machine can do what its settings ask: said before any long work."""

from __future__ import annotations

import logging
from typing import Final

import torch

from rota.student.config import StudentConfig

logger = logging.getLogger(__name__)

_UNFIT: Final = {
    "meta": "holds no numbers",
    "mps": "has no 64-bit numbers (float64), in which losses are added up",
}


def check_machine(config: StudentConfig) -> None:
    """Refuses, within a second, a device that is not there; preparing data may take much longer."""
    device = find_device(config.device)
    if config.precision == "bf16" and device.type == "cuda" and not torch.cuda.is_bf16_supported(False):
        logger.warning("student.precision is bf16, which this GPU can only imitate; those since Ampere have it")


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


def refuse_number(name: str) -> None:
    """With several processes a numbered device would be that of all of them."""
    kind, colon, _ = name.partition(":")
    if colon:
        raise ValueError(
            f"student.device is {name!r}, and each of several processes has a device of its own:"
            f" write --set student.device={kind}; CUDA_VISIBLE_DEVICES chooses among GPUs"
        )
