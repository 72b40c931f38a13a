"""The command line. A command reads its options, calls :mod:`rota.api` or another package, and prints the result.

The commands register with ``application``; ``runs``, ``scores``, ``models``, ``studies`` and ``teaching`` define some
each, ``demo`` runs all steps in one command, and ``check`` goes through folders. ``views`` has tables and bars,
``comparison`` the tables of ``rota compare-scores``; ``processes`` starts those of ``rota train --processes``. Heavy
imports stay inside functions: ``rota --help``, and whatever only reads files, must not wait for torch.
"""

from __future__ import annotations

import errno
import logging
import os
import sys

# --help lists the commands in this order.
# isort: off
from rota.cli.application import app, call, out_of_memory
from rota.cli import runs, scores, models, studies, teaching
# isort: on

__all__ = ["app", "main", "models", "runs", "scores", "studies", "teaching"]


def main() -> None:
    """The entry point: what a user got wrong is one line on stderr and exit code 2, never a traceback."""
    # Read by OpenMP when torch is loaded: how long a waiting thread spins before it sleeps. With the usual time, a
    # shared core made training up to ten times slower; without any, a free machine loses a quarter.
    os.environ.setdefault("GOMP_SPINCOUNT", "30000")
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s: %(message)s")
    try:
        code = call()
    except (ValueError, ArithmeticError, OSError, MemoryError, RuntimeError) as error:
        memory = out_of_memory(error)
        if os.environ.get("ROTA_TRACEBACK") or (isinstance(error, RuntimeError) and memory is None):
            raise
        # Of the processes that torchrun starts, one reports a mistake, unless it is about a process.
        if os.environ.get("LOCAL_RANK", "0") == "0" or isinstance(error, ConnectionError):
            sys.stderr.write(f"error: {memory or _in_words(error)}\n")
        sys.exit(1 if memory or isinstance(error, ArithmeticError | MemoryError) else 2)
    sys.exit(code)


def _in_words(error: Exception) -> str:
    """A whole text where a path belongs is not repeated as a whole; a full disk is said with what to do."""
    if isinstance(error, OSError) and error.errno == errno.ENAMETOOLONG:
        return f"{str(error.filename)[:40]!r}... is too long to be the name of a file; give a path"
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        place = f" for {error.filename}" if error.filename else ""
        return f"there is no space left{place}; free some, and type the same command again: what was saved is used"
    return str(error)
