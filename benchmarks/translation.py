"""Sentences per second of beam 5 on real text: ours, fairseq, CTranslate2 and ``transformers.generate``, side by side.

    python benchmarks/translation.py [CORPUS] [--folder FOLDER] [--sentences 128] [--repetitions 5] [--json FILE]
                                     [--preset small] [--only NAME ...] [--cores 1,2] [--peers FOLDER]

With random weights translations end at once or never, so a model of the preset `small` is trained first, for 800 steps
of 400 tokens on CORPUS (as in data_path.py): about five minutes, once. FOLDER keeps it and its exports. Such a model
still repeats itself at times, so no translation may be longer than its source plus 10 subwords. For 1 and 2 cores,
each in a process of its own, the programs take turns; all translate the same sentences of all test sets, ids to ids.
fairseq has our weights in a model of its own and takes part on one core, if benchmarks/peers/run.py has installed it.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np

from data_path import DEFAULT_CORPUS
from fairseq_search import PYTHON, Fairseq, write_weights
from rows import Results, Row, row

SETTINGS = {
    "student": {
        "preset": "small",
        "dropout": 0.0,
        "learning_rate": {"peak": 0.002, "decay": "linear"},
        "lr_warmup": "10%",
    },
    "teacher": {"name": "proportional"},
    "training": {
        "steps": 800,
        "tokens": 400,
        "checkpoint_every": "10%",
        "validate_every": "100%",
        "tensorboard": False,
    },
}
EXPORTS = {"hf": ("hf", "float32"), "float32": ("ctranslate2", "float32"), "int8": ("ctranslate2", "int8")}
BATCHES = (8, 16)
"""Sentences in a batch of ``transformers``; the fastest in the first round counts."""

FAIRSEQ_TOKENS = (500, 1_000, 2_000)
"""Padded source tokens in a batch of fairseq; likewise."""

EXTRA = 10
"""Subwords that a translation may have more than its source."""

GOALS = {"fairseq": "1.5"}

Engine = Callable[[list[list[int]]], list[list[int]]]
"""Sources, each as tag, subwords and end, to translations without their ends."""


def main() -> int:
    arguments = parse()
    if arguments.threads:
        measure(arguments)
        return 0
    if not arguments.corpus.is_dir():
        print(f"SKIPPED: no corpus at {arguments.corpus}; give a folder as the first argument")
        return 0
    make_models(arguments.corpus, arguments.folder, arguments.preset)
    print(f"{os.cpu_count()} cores; preset {arguments.preset}, beam 5, {arguments.repetitions} repetitions")
    for threads in map(int, arguments.cores.split(",")):
        command = [sys.executable, *sys.argv, "--threads", str(threads)]
        environment = {**os.environ, "OMP_NUM_THREADS": str(threads), "GOMP_SPINCOUNT": "30000"}
        if subprocess.run(command, env=environment, check=False).returncode:
            return 1
    return 0


def model_parser(description: str | None, sentences: int) -> argparse.ArgumentParser:
    """The arguments of every benchmark that translates: which model, where it is kept, how many sentences."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus", type=Path, nargs="?", default=DEFAULT_CORPUS)
    default = Path.home() / ".cache" / "rota" / "benchmark-translation"
    parser.add_argument("--folder", type=Path, default=default, help="keeps data, run and exports")
    parser.add_argument("--preset", default="small", help="size of the model")
    parser.add_argument("--sentences", type=int, default=sentences)
    parser.add_argument("--json", type=Path, help="keep the rows here")
    return parser


def parse() -> argparse.Namespace:
    parser = model_parser(__doc__, sentences=128)
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--only", nargs="*", help="programs whose names begin so, beside ours", metavar="NAME")
    parser.add_argument("--cores", default="1,2")
    default = Path.home() / ".cache" / "rota" / "peers"
    parser.add_argument("--peers", type=Path, default=default, help="the cache of benchmarks/peers/run.py")
    parser.add_argument("--threads", type=int, help=argparse.SUPPRESS)
    return parser.parse_args()


def make_models(corpus: Path, folder: Path, preset: str = "small") -> None:
    """Whatever is not there yet: data, run, exports. Another preset needs another ``folder``."""
    from rota import api
    from rota.config import parse_config
    from rota.export.model import export

    languages = sorted(path.name.removesuffix("-en") for path in corpus.glob("*-en"))
    text = {split: f"{corpus}/{{language}}-en/{split}.{{side}}.gz" for split in ("train", "dev", "test")}
    data = {"languages": languages, **text, "folder": str(folder / "data"), "subwords": {"size": 8000}}
    settings = {**SETTINGS, "student": {**SETTINGS["student"], "preset": preset}}
    config = parse_config({"name": preset, "data": data, **settings})
    if not (folder / "run" / "checkpoints" / str(config.training.steps)).exists():
        print(f"training {config.training.steps:,} steps into {folder} ...", flush=True)
    api.train(config, folder / "run")
    for name, (to, quantization) in EXPORTS.items():
        export(folder / "run", folder / name, to=to, quantization=quantization)


def measure(arguments: argparse.Namespace) -> None:
    import torch

    from rota.data.store import Store
    from rota.data.subwords import Subwords

    torch.set_num_threads(arguments.threads)
    store = Store.open(arguments.folder / "data")
    each = arguments.sentences // len(store.languages)
    subwords = Subwords.load(arguments.folder / "run" / "subwords.json")
    sources, references = [], []
    for arm in store.languages:
        pairs = store.text("test", arm)[:each]
        sources += subwords.encode_sources(arm, [source for source, _ in pairs])
        references += subwords.encode_targets([reference for _, reference in pairs])
    engines = {
        name: engine
        for name, engine in load_engines(arguments.folder, arguments.threads, arguments.peers).items()
        if name == "ours" or arguments.only is None or any(name.startswith(word) for word in arguments.only)
    }
    print(
        f"\n{arguments.threads} core{'s' if arguments.threads > 1 else ''}; {len(sources)} sentences of "
        f"{mean_length(sources):.1f} subwords, their references {mean_length(references):.1f}",
        flush=True,
    )
    for engine in engines.values():
        engine(sources[:8])
    walls: dict[str, list[float]] = {name: [] for name in engines}
    processors: dict[str, list[float]] = {name: [] for name in engines}
    found: dict[str, list[list[int]]] = {}
    for repetition in range(arguments.repetitions):
        if repetition == 1:
            for kind in ("transformers", "fairseq"):
                drop_slower(kind, engines, walls, processors)
        for name, engine in engines.items():
            wall, processor = time.perf_counter(), processor_time()
            found[name] = engine(sources)
            apart = isinstance(engine, Fairseq)
            walls[name].append(engine.wall if apart else time.perf_counter() - wall)
            processors[name].append(engine.processor if apart else processor_time() - processor)
    Results(arguments.json).add(report(walls, processors, found, arguments.threads))


def processor_time() -> float:
    """Of this process and of those that it started and that have ended."""
    return sum(os.times()[:4])


def drop_slower(
    kind: str, engines: dict[str, Engine], walls: dict[str, list[float]], processors: dict[str, list[float]]
) -> None:
    """Of several ways to call a program, the fastest stays."""
    rivals = sorted((name for name in engines if name.startswith(kind)), key=lambda name: processors[name][0])
    for name in rivals[1:]:
        print(f"  {name}: slower, {processors[name][0]:.1f} s of the processor against {processors[rivals[0]][0]:.1f}")
        for table in (engines, walls, processors):
            table.pop(name)


def load_engines(folder: Path, threads: int, peers: Path) -> dict[str, Engine]:
    from rota.evaluation.ctranslate import CTranslator
    from rota.evaluation.translator import Translator
    from rota.student.search import translate

    ours = Translator.load(folder / "run").networks
    limits = {"beam": 5, "max_ratio": 1.0, "extra": EXTRA}

    def search(sources: list[list[int]]) -> list[list[int]]:
        found = translate(ours, list(map(np.array, sources)), processes=threads, **limits)
        return [best.ids.tolist() for best in found]

    engines: dict[str, Engine] = {"ours": search}
    if threads == 1 and (peers / PYTHON).exists():
        write_weights(folder / "run", folder / "fairseq.pt")
        for tokens in FAIRSEQ_TOKENS:
            engines[f"fairseq, {tokens} tokens"] = Fairseq(peers / PYTHON, folder / "fairseq.pt", tokens, limits)
    elif threads == 1:
        print("fairseq is not installed: left out; benchmarks/peers/run.py --only fairseq --install-only installs it")
    for name in ("float32", "int8"):
        engines[f"CTranslate2 {name}"] = partial(CTranslator(folder / name, threads=threads).search, **limits)
    try:
        import transformers  # noqa: F401
    except ImportError:
        print("transformers is not installed: left out")
        return engines
    return engines | {f"transformers, batch {size}": hugging_face(folder / "hf", size) for size in BATCHES}


def hugging_face(folder: Path, size: int) -> Engine:
    """``generate`` as a careful user calls it: sorted by length, in batches, without gradients."""
    import torch
    from transformers import AutoModelForSeq2SeqLM

    model = AutoModelForSeq2SeqLM.from_pretrained(folder)
    pad, end = model.config.pad_token_id, model.config.eos_token_id

    @torch.inference_mode()
    def search(sources: list[list[int]]) -> list[list[int]]:
        order = sorted(range(len(sources)), key=lambda number: -len(sources[number]))
        found: dict[int, list[int]] = {}
        for start in range(0, len(order), size):
            numbers = order[start : start + size]
            longest = len(sources[numbers[0]])
            ids = torch.tensor([sources[number] + [pad] * (longest - len(sources[number])) for number in numbers])
            rows = model.generate(input_ids=ids, attention_mask=ids != pad, max_new_tokens=longest + EXTRA + 1)
            found |= {number: row[1 : row.index(end, 1)] for number, row in zip(numbers, rows.tolist(), strict=True)}
        return [found[number] for number in range(len(sources))]

    return search


def mean_length(sentences: list[list[int]]) -> float:
    return statistics.mean(map(len, sentences))


def report(
    walls: dict[str, list[float]],
    processors: dict[str, list[float]],
    found: dict[str, list[list[int]]],
    threads: int,
) -> list[Row]:
    """A line for each program; ratios to ``transformers`` are taken round by round, of wall and of processor time."""
    rows = []
    count = len(found["ours"])
    rival = next((name for name in processors if name.startswith("transformers")), None)
    print(
        f"  {'':22} {'sentences/s':>20} {'ratio':>17} {'per processor s':>20} {'ratio':>17} {'tokens':>7} {'same':>8}"
    )
    for name in processors:
        cells = ""
        for seconds in (walls, processors):
            ratios = [] if rival is None else [a / b for a, b in zip(seconds[rival], seconds[name], strict=True)]
            cells += f" {spread([count / each for each in seconds[name]]):>20} {spread(ratios):>17}"
            what = "sentences a second" if seconds is walls else "sentences a second of processor time"
            setting = f"{name}, beam 5, {threads} core{'s' if threads > 1 else ''}"
            ratio = statistics.median(ratios) if ratios else None
            speeds = [count / each for each in seconds[name]]
            rows.append(row("translation", setting, what, speeds, "sentences/s", ratio=ratio))
        same = sum(ours == theirs for ours, theirs in zip(found["ours"], found[name], strict=True)) / count
        print(f"  {name:22}{cells} {mean_length(found[name]):7.1f} {same:8.1%}", flush=True)
    return rows + [
        against(name, walls if threads > 1 else processors, threads) for name in processors if name != "ours"
    ]


def against(name: str, seconds: dict[str, list[float]], threads: int) -> Row:
    """How many times as fast ours is, over all turns; the interval holds 95 % of what turns drawn anew give."""
    ours, theirs = np.array(seconds["ours"]), np.array(seconds[name])
    drawn = np.random.default_rng(1).integers(len(ours), size=(4_000, len(ours)))
    low, high = np.percentile(theirs[drawn].sum(1) / ours[drawn].sum(1), (2.5, 97.5))
    ratio = float(theirs.sum() / ours.sum())
    clock = "processor time" if threads == 1 else "wall time"
    print(f"  ours is {ratio:.2f} [{low:.2f}, {high:.2f}] times as fast as {name} ({clock}, {len(ours)} turns)")
    setting = f"ours and {name}, beam 5, {threads} core{'s' if threads > 1 else ''}"
    what = f"how many times as fast ours is, {clock}"
    return Row("translation", setting, what, ratio, float(low), float(high), "times", ratio, GOALS.get(name[:7]))


def spread(values: list[float]) -> str:
    return f"{statistics.median(values):.1f} ({min(values):.1f} to {max(values):.1f})" if values else ""


if __name__ == "__main__":
    sys.exit(main())
