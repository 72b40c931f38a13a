"""Rota: multilingual machine translation in which a teacher decides what the model trains on next.

A YAML file becomes settings (``config``), text becomes a folder of encoded sentences (``data``), and ``api.train``
makes a run of both: the teacher (``teachers``) decides, the student (``student``) learns, records go into its folder
(``runs``). ``evaluation``, ``export`` and ``report`` read that folder. docs/design.md has the picture.
"""

from __future__ import annotations

from importlib.metadata import version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rota.api import evaluate, prepare, train
    from rota.config import load_config
    from rota.evaluation.translator import Translator

__version__ = version("rota-nmt")
__all__ = ["Translator", "__version__", "evaluate", "load_config", "prepare", "train"]

# Loaded at first use: importing rota, or asking the command line for help, must not wait for torch.
_HOMES = {
    "evaluate": "rota.api",
    "prepare": "rota.api",
    "train": "rota.api",
    "load_config": "rota.config",
    "Translator": "rota.evaluation.translator",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'rota' has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(_HOMES[name]), name)
