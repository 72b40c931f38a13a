"""What choosing checkpoints costs: a window on the low-resource dev sets, against training between two checkpoints.

    python benchmarks/selecting.py [RUN] [--updates 100] [--tokens 750] [--threads 1] [--json FILE]

RUN is a trained run with at least five checkpoints, by default that of `rota demo`. The run's own model is trained for
UPDATES of TOKENS, with one validation, then each way of translating does its next window, and so on in turn, until
there are no more windows. A window includes loading its new checkpoint and computing BLEU; the first one, which loads
four checkpoints, is left out. The defaults are the distance of two checkpoints in `rota compare laptop`.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch

from rota import api
from rota.config import parse_config
from rota.data.store import Store
from rota.evaluation.config import EvaluationConfig
from rota.evaluation.evaluate import open_data
from rota.evaluation.selection import dev_bleu, selection_pairs
from rota.evaluation.translator import SELECTION_PART, Counter, Loader, Translations
from rota.runs import Run
from rota.runs.standing import Model
from rota.student.search import EncoderCache
from rota.training.loop import Loop
from rows import Results, row

WAYS = [
    EvaluationConfig(select="low-resource", combine=how, beam=beam)
    for how in ("average", "ensemble")
    for beam in (1, 5)
]


def main() -> int:
    arguments = parse()
    if not Run(arguments.run).exists:
        print(f"SKIPPED: no run at {arguments.run}; make it with rota demo, or give a run as the first argument")
        return 0
    torch.set_num_threads(arguments.threads)
    with tempfile.TemporaryDirectory() as scratch:
        training, translating = measure(arguments, Path(scratch))
    print(f"{arguments.threads} thread(s), {len(training)} windows; median of processor seconds (lowest to highest)\n")
    print(f"{arguments.updates} updates of {arguments.tokens} tokens  {spread(training)}")
    between = f"{arguments.updates} updates of {arguments.tokens} tokens"
    about = ("selecting", f"{between}, {arguments.threads} thread(s)")
    rows = [row(*about, f"{between}, and a validation", training, "s of processor time")]
    for way, times in zip(WAYS, translating, strict=True):
        share = statistics.median(times) / statistics.median(training)
        name = f"{way.combine}, beam {way.beam}"
        print(name.ljust(28), spread(times), f"{share:.1%}")
        rows.append(row(*about, f"a window, {name}", times, "s of processor time", ratio=share))
    Results(arguments.json).add(rows)
    return 0


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, nargs="?", default=Path("demo/catalogues/uniform"))
    parser.add_argument("--updates", type=int, default=100)
    parser.add_argument("--tokens", type=int, default=750)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--json", type=Path, help="keep the rows here")
    return parser.parse_args()


def measure(arguments: argparse.Namespace, scratch: Path) -> tuple[list[float], list[list[float]]]:
    """Times of training between checkpoints, and for each way those of the windows, in turn."""
    run = Run(arguments.run)
    store = open_data(run)
    share, division = run.setting("config.training.teacher_dev"), run.setting("config.training.dev_division")
    pairs = selection_pairs(store, store.low_resource, share, division)
    print(f"{sum(map(len, pairs.values()))} low-resource dev sentences")
    first, *windows = run.checkpoints().windows(4)
    loop = student_loop(arguments, store, len(windows), scratch / "training")
    ways = [fresh(arguments.run, scratch / f"{way.combine}-{way.beam}", way) for way in WAYS]
    silent = Counter("", 0, lambda *_: None)
    for way, translations in zip(WAYS, ways, strict=True):
        dev_bleu(translations, Model(first, way.combine), pairs, silent)
    training: list[float] = []
    translating: list[list[float]] = [[] for _ in WAYS]
    for number, window in enumerate(windows, start=1):
        training.append(timed(lambda until=number * arguments.updates: loop.run(until)))
        for way, translations, times in zip(WAYS, ways, translating, strict=True):
            model = Model(window, way.combine)
            times.append(timed(lambda sets=translations, model=model: dev_bleu(sets, model, pairs, silent)))
    return training, translating


def student_loop(arguments: argparse.Namespace, store: Store, rounds: int, folder: Path) -> Loop:
    """The run's own config, at the size of batches that is asked for."""
    config = Run(arguments.run).about["config"]
    config["training"] |= {
        "steps": rounds * arguments.updates,
        "tokens": arguments.tokens,
        "threads": arguments.threads,
    }
    config["training"] |= {"validate_every": arguments.updates, "checkpoint_every": "100%"}
    return api.build_loop(parse_config(config), store, folder)


def fresh(run: Path, folder: Path, way: EvaluationConfig) -> Translations:
    """The run without its translations, so that nothing is reused."""
    folder.mkdir()
    of_run = Run(run)
    for path in (of_run.about_path, of_run.subwords_path, of_run.checkpoints_folder):
        (folder / path.name).symlink_to(path.resolve())
    return Translations(
        Loader(folder, "cpu", keep=4), SELECTION_PART, way.selecting, cache=EncoderCache(), together=True
    )


def timed(work: Callable[[], object]) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start


def spread(times: list[float]) -> str:
    return f"{statistics.median(times):6.2f} ({min(times):.2f}-{max(times):.2f})"


if __name__ == "__main__":
    sys.exit(main())
