"""What a second core gains in translating: 1 and 2 processes in turns, the sentences of several test sets, beam 5.

    python benchmarks/two_cores.py [CORPUS] [--folder FOLDER] [--preset small] [--sentences 512] [--turns 8]
                                   [--cores 2] [--json FILE]

FOLDER is that of translation.py, which makes the model if it is not there. Both ways translate as `rota evaluate` does:
one test set after the other, each in batches of its own. On a shared machine wall time is that of others too. Therefore
there is a second ratio: the processor time of one process to that of the busiest of several, which is what the wall
time would be if nothing else were running.
"""

from __future__ import annotations

import argparse
import os
import statistics
import struct
import sys
import time
from pathlib import Path

import numpy as np

from rows import Results, Row
from translation import EXTRA, make_models, model_parser

RECORD = struct.Struct("qd")
GOAL = "1.8"


def main() -> int:
    arguments = parse()
    if not arguments.corpus.is_dir():
        print(f"SKIPPED: no corpus at {arguments.corpus}; give a folder as the first argument")
        return 0
    make_models(arguments.corpus, arguments.folder, arguments.preset)
    translate = translator_of(arguments.folder, arguments.sentences)
    translate(1)
    walls: dict[int, list[float]] = {1: [], arguments.cores: []}
    busiest: dict[int, list[float]] = {1: [], arguments.cores: []}
    found: dict[int, object] = {}
    for turn in range(arguments.turns):
        for count in walls:
            wall, longest, found[count] = translate(count)
            walls[count].append(wall)
            busiest[count].append(longest)
        print(
            f"turn {turn + 1}: wall {walls[1][-1]:.1f} and {walls[arguments.cores][-1]:.1f} s, busiest process"
            f" {busiest[1][-1]:.1f} and {busiest[arguments.cores][-1]:.1f} s, load {os.getloadavg()[0]:.1f}",
            flush=True,
        )
    print(f"the same translations: {found[1] == found[arguments.cores]}")
    Results(arguments.json).add(report(arguments, walls, busiest))
    return 0


def parse() -> argparse.Namespace:
    parser = model_parser(__doc__, sentences=512)
    parser.add_argument("--turns", type=int, default=8)
    parser.add_argument("--cores", type=int, default=2)
    return parser.parse_args()


def translator_of(folder: Path, sentences: int):
    """A function of the number of processes: wall time, processor time of the busiest process, translations."""
    import torch

    from rota.data.store import Store
    from rota.evaluation.translator import Translator
    from rota.student.search import Part, Search, batches, translate_parts

    torch.set_num_threads(1)
    store, translator = Store.open(folder / "data"), Translator.load(folder / "run")
    each = sentences // len(store.languages)
    parts = [
        Part([np.array(source) for source in translator.subwords.encode_sources(arm, lines)])
        for arm in store.languages
        for lines in [[source for source, _ in store.text("test", arm)[:each]]]
    ]
    theirs, ours = os.pipe()
    os.set_blocking(theirs, False)
    search_batch = batches._search

    def timed(*given):
        start = time.process_time()
        found = search_batch(*given)
        os.write(ours, RECORD.pack(os.getpid(), time.process_time() - start))
        return found

    batches._search = timed
    search = Search(beam=5, max_ratio=1.0, extra=EXTRA)

    def translate(count: int):
        wall = time.perf_counter()
        found = list(translate_parts(translator.networks, parts, search, processes=count))
        wall = time.perf_counter() - wall
        spent: dict[int, float] = {}
        for process, seconds in RECORD.iter_unpack(os.read(theirs, 2**16)):
            spent[process] = spent.get(process, 0.0) + seconds
        assert len(spent) == count, spent
        return wall, max(spent.values()), [best.ids.tolist() for part in found for best in part]

    return translate


def report(arguments: argparse.Namespace, walls: dict[int, list[float]], busiest: dict[int, list[float]]) -> list[Row]:
    rows, setting = [], f"{arguments.preset}, {arguments.sentences} sentences, beam 5, {arguments.cores} processes"
    for clock, seconds in (("wall time", walls), ("processor time of the busiest process", busiest)):
        one, several = seconds.values()
        ratios = sorted(a / b for a, b in zip(one, several, strict=True))
        best = statistics.mean(ratios[-max(1, len(ratios) // 4) :])
        middle = statistics.median(ratios)
        print(f"{clock}: {middle:.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f}), best quarter of the turns {best:.2f}")
        what = f"how many times as fast as one, {clock}"
        rows.append(Row("two-cores", setting, what, middle, ratios[0], ratios[-1], "times", middle, GOAL))
    return rows


if __name__ == "__main__":
    sys.exit(main())
