"""Begins a run from its stem again and again, and kills it at one moment after the other at which a file changes.

    python killed_branching.py FOLDER EVERY

A script, so that torch is imported once and each attempt is a fork. ``EVERY``: 1 for all moments, 5 for every fifth.
Each killed run is started again with the same stem; ``FOLDER/moments.json`` says at which moment it was killed and
which files then differ from those of an undisturbed run.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import torch._dynamo  # noqa: F401 - takes long to import, before the forks

from rota import api
from rota.config import RunConfig, parse_config

CHANGES = ("os.rename", "os.link", "os.mkdir", "os.remove", "os.rmdir", "os.truncate", "shutil.rmtree")
UNTIL = 13


def config(folder: Path) -> RunConfig:
    return parse_config(
        {
            "data": {
                "corpus": "synthetic",
                "synthetic": {"families": {"la": {"lala": 300, "lato": 60}}, "dev": 20, "test": 4},
                "low_resource": ["lato"],
                "subwords": {"size": 300},
                "folder": str(folder / "data"),
            },
            "student": {"preset": "tiny", "width": 16, "heads": 2, "feedforward": 16, "layers": 1, "lr_warmup": 4},
            "teacher": {
                **{"name": "dqn", "hidden": [8], "groups": 2, "group_sentences": 2, "replay_minimum": 2},
                **{"replay_batch": 2, "warmup": {"until": 10, "inform": "none"}, "decide_every": 2},
            },
            "training": {
                **{"steps": 24, "tokens": 60, "checkpoint_every": 4, "validate_every": 5, "threads": 1},
                "tensorboard": False,
            },
        }
    )


class Killer:
    """An audit hook that ends the process, as SIGKILL does, before change number ``moment`` below ``folder``."""

    def __init__(self, folder: Path, moment: int) -> None:
        self.folder, self.left, self.off = str(folder), moment, False

    def __call__(self, event: str, arguments: tuple[object, ...]) -> None:
        if self.off or not self._changes(event, arguments) or self.folder not in str(arguments[:2]):
            return
        if self.left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        self.left -= 1

    def _changes(self, event: str, arguments: tuple[object, ...]) -> bool:
        if event == "open":
            return bool(isinstance(arguments[2], int) and arguments[2] & (os.O_WRONLY | os.O_RDWR))
        return event in CHANGES


def in_a_fork(work: Callable[[], object]) -> int:
    """The exit code, or minus the signal that ended it."""
    child = os.fork()
    if child == 0:
        work()
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def contents(run: Path) -> dict[str, bytes]:
    """Records and checkpoints; not the times, nor what differs because a checkpoint was saved at the stem's end."""
    names = ("steps", "observations", "rewards", "validations", "spot_checks", "alarms")
    files = [run / f"{name}.jsonl" for name in names] + sorted((run / "checkpoints" / str(UNTIL)).iterdir())
    return {str(path.relative_to(run)): path.read_bytes() for path in files if path.exists()}


def killed_at(moment: int, folder: Path) -> tuple[int, Path]:
    """How the attempt ended (0: the run had begun before that moment came), and its folder."""
    run = folder / f"run-{moment}"

    def work() -> None:
        killer = Killer(run, moment)
        sys.addaudithook(killer)
        store = api.prepare(config(folder))
        api.build_loop(config(folder), store, run, stem=folder / "stem")  # branches, and trains nothing yet

    return in_a_fork(work), run


def main(folder: Path, every: int) -> None:
    whole = config(folder)
    stem = api.stem_of(whole)
    assert stem is not None
    api.train(stem, folder / "stem", until=10)
    api.train(whole, folder / "whole", until=UNTIL)
    expected, found = contents(folder / "whole"), []
    for moment in range(0, 10_000, every):
        code, run = killed_at(moment, folder)
        again = in_a_fork(lambda run=run: api.train(whole, run, until=UNTIL, stem=folder / "stem"))
        now = contents(run) if again == 0 else {}
        different = sorted(name for name in expected | now if expected.get(name) != now.get(name))
        left = sorted(str(path.relative_to(run)) for path in run.rglob(".*.partial"))
        found.append({"moment": moment, "code": code, "again": again, "different": different, "left": left})
        if code == 0:
            break
    (folder / "moments.json").write_text(json.dumps(found))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
