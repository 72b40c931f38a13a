"""Kills commands, damages files, gives bad input, for a limited time; a table at the end, code 1 if anything is wrong.

    python torture/run.py [--minutes 20] [--seed 1] [--jobs 2] [--only kills flips inputs corpora] [--folder DIR]

Each job takes turns between the kinds of trials. The files are in DIR, by default a temporary folder; with --folder
they are kept, with ``counts.json``. ``--add FILE...`` adds the counts of earlier calls to the table.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import forks
import kills
from corpora import Corpora
from counts import Counts
from flips import Flips
from inputs import BadInput

Trial = Callable[[], None]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--only", nargs="+", choices=KINDS, default=list(KINDS))
    parser.add_argument("--scenarios", nargs="+", help="kills: only these", choices=kills.SCENARIOS, metavar="NAME")
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--add", nargs="+", type=Path, default=[])
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="rota-torture-") as temporary:
        folder = (options.folder or Path(temporary)).resolve()
        folder.mkdir(parents=True, exist_ok=True)
        counts = work_together(options, folder) if options.minutes > 0 else Counts()
        for path in options.add:
            counts.merge(Counts.load(path))
        counts.save(folder / "counts.json")
    print(counts.table())
    for line in counts.wrong:
        print(line)
    sys.exit(counts.failed)


def work_together(options: argparse.Namespace, folder: Path) -> Counts:
    forks.import_first()
    until = time.monotonic() + 60 * options.minutes
    children = []
    for job in range(options.jobs):
        child = os.fork()
        if child == 0:
            work(options, folder / f"job-{job}", random.Random(f"{options.seed} {job}"), until)
            os._exit(0)
        children.append(child)
    failed = [child for child in children if os.waitpid(child, 0)[1]]
    counts = Counts()
    for path in sorted(folder.glob("job-*/counts.json")):
        counts.merge(Counts.load(path))
    if failed:
        counts.add("harness", "other", f"{len(failed)} jobs ended with an error, which is printed above")
    return counts


def work(options: argparse.Namespace, folder: Path, rng: random.Random, until: float) -> None:
    """Each kind in its turn; every kind gets about the same time."""
    folder.mkdir(parents=True, exist_ok=True)
    counts = Counts()
    trials = {kind: KINDS[kind](folder / kind, rng, counts, options) for kind in options.only}
    spent = dict.fromkeys(trials, 0.0)
    while time.monotonic() < until:
        kind = min(spent, key=spent.__getitem__)
        begun = time.monotonic()
        next(trials[kind])()
        spent[kind] += time.monotonic() - begun
        counts.save(folder / "counts.json")


def kill_trials(folder: Path, rng: random.Random, counts: Counts, options: argparse.Namespace) -> Iterator[Trial]:
    """The same time for every scenario, so that the quick ones are killed more often."""
    names = list(options.scenarios or kills.SCENARIOS)
    spent = dict.fromkeys(rng.sample(names, len(names)), 0.0)
    projects = kills.Projects(folder)
    ready: dict[str, tuple[kills.Scenario, Iterator[kills.How]]] = {}
    while True:
        name = min(spent, key=spent.__getitem__)
        if name not in ready:
            scenario = kills.prepared(name, projects)
            ready[name] = scenario, kills.attempts(scenario, rng)
        scenario, attempts = ready[name]
        begun = time.monotonic()
        yield partial(kills.kill_once, scenario, projects, next(attempts), counts)
        spent[name] += time.monotonic() - begun


def flip_trials(folder: Path, rng: random.Random, counts: Counts, _: argparse.Namespace) -> Iterator[Trial]:
    flips = Flips(kills.Projects(folder), rng, counts)
    while True:
        yield from (flips.flip, flips.cut, flips.remove)


def input_trials(folder: Path, rng: random.Random, counts: Counts, _: argparse.Namespace) -> Iterator[Trial]:
    bad = BadInput(kills.Projects(folder), rng, counts)
    while True:
        yield from (bad.configs, bad.suites, bad.overrides, *[bad.command_line, bad.record] * 2)


def corpus_trials(folder: Path, rng: random.Random, counts: Counts, _: argparse.Namespace) -> Iterator[Trial]:
    corpora = Corpora(folder, rng, counts)
    while True:
        yield corpora.corpus


KINDS = {"kills": kill_trials, "flips": flip_trials, "inputs": input_trials, "corpora": corpus_trials}

if __name__ == "__main__":
    main()
