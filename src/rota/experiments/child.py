"""``python -m rota.experiments.child PARENT ...``: a ``rota ...`` that saves and stops when its parent dies."""

from __future__ import annotations

import ctypes
import os
import runpy
import signal
import sys

PR_SET_PDEATHSIG = 1  # linux/prctl.h


def stop_with_parent(parent: int) -> None:
    """SIGTERM comes when ``parent`` ends, even if it is killed; where there is no Linux, nothing happens."""
    if not sys.platform.startswith("linux"):
        return
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    if os.getppid() != parent:  # it ended before we asked
        sys.exit(128 + signal.SIGTERM)


if __name__ == "__main__":
    stop_with_parent(int(sys.argv[1]))
    sys.argv = ["rota", *sys.argv[2:]]
    runpy.run_module("rota", run_name="__main__", alter_sys=False)
