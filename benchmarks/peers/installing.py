"""A virtual environment for each peer, in a cache folder: made once, with pinned versions."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent


@dataclass(frozen=True)
class Peer:
    """A toolkit: what is installed, and the driver that trains with it."""

    name: str
    driver: str
    package: str | None = None  # installed without its dependencies, which the requirements list


PEERS = (
    Peer("sockeye", "train_sockeye.py", "sockeye==3.1.34"),
    Peer("opennmt-py", "train_opennmt.py", "OpenNMT-py==3.5.1"),
    Peer("huggingface", "train_huggingface.py"),
    Peer("eole", "train_eole.py"),
    Peer("joeynmt", "train_joeynmt.py"),
    Peer("fairseq", "train_fairseq.py", "fairseq-fixed==0.12.3.1"),
)


class NotInstalledError(RuntimeError):
    """The last line of what pip said."""


def install(peer: Peer, cache: Path) -> Path:
    """The Python of the peer's environment."""
    folder = cache / "environments" / peer.name
    python, mark = folder / "bin" / "python", folder / "complete"
    if mark.exists():
        return python
    _run([sys.executable, "-m", "venv", str(folder)])
    _run([str(python), "-m", "pip", "install", "-r", str(HERE / "requirements" / f"{peer.name}.txt")])
    if peer.package is not None:
        _run([str(python), "-m", "pip", "install", "--no-deps", "--no-build-isolation", peer.package])
    found = subprocess.run([str(python), "-m", "pip", "freeze"], capture_output=True, text=True, check=False)
    mark.write_text(found.stdout, encoding="utf-8")
    return python


def _run(command: list[str]) -> None:
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    if ended.returncode:
        said = [line for line in (ended.stdout + ended.stderr).splitlines() if line.strip()]
        errors = [line for line in said if line.startswith("ERROR")]
        raise NotInstalledError((errors or said or ["no message"])[-1])
