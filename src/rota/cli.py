"""The entry point: commands in, mistakes of users out as one line."""

from __future__ import annotations

import logging
import os
import sys

# In this order --help lists the commands.
from rota.commands import runs, scores

# isort: split
from rota.commands import comparing, models, reporting, studies, teaching
from rota.commands.app import app, call, unforeseen_lack

__all__ = ["app", "comparing", "main", "models", "reporting", "runs", "scores", "studies", "teaching"]


def main() -> None:
    """The entry point: what a user got wrong is one line on stderr and exit code 2, never a traceback."""
    # Read by OpenMP when torch is loaded: how long a waiting thread spins before it sleeps. For as long as is usual, a
    # core that is shared made training up to ten times slower; not at all, and a free machine loses a quarter.
    os.environ.setdefault("GOMP_SPINCOUNT", "30000")
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s: %(message)s")
    try:
        code = call()
    except (ValueError, ArithmeticError, OSError, MemoryError, RuntimeError) as error:
        memory = unforeseen_lack(error)
        if os.environ.get("ROTA_TRACEBACK") or (isinstance(error, RuntimeError) and memory is None):
            raise
        # Of the processes that torchrun starts, one makes the mistake known, unless it is about a process.
        if os.environ.get("LOCAL_RANK", "0") == "0" or isinstance(error, ConnectionError):
            sys.stderr.write(f"error: {memory or error}\n")
        sys.exit(1 if memory or isinstance(error, ArithmeticError | MemoryError) else 2)
    sys.exit(code)
