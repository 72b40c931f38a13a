"""Ours and other toolkits: the same model on the same segmented text, one thread, an update of each in turn.

    python benchmarks/peers/run.py [--only NAME ...] [--install-only] [--tokens 4000] [--updates 12] [--rounds 3]
                                   [--data FOLDER | --corpus FOLDER] [--preset small] [--json FILE]

Each peer has an environment of its own in --cache, made once. A round trains with all of them for UPDATES updates, of
which the first two warm up, each in a fresh process. One of them computes at a time, and the turn goes round after
every update, ours first; so all of them are in memory, unless --apart trains one after the other. Real target tokens
are counted in the tensors that the peer trains on; seconds are those of its process, its data path included. What
cannot be installed or fails is named with the reason. Stopped in the middle, the same command goes on with the
trainings that are missing; --again begins anew.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

from installing import PEERS, NotInstalledError, Peer, install  # noqa: E402
from peer_rows import rows_of  # noqa: E402
from text import pairs_in, write_text  # noqa: E402
from turns import Training, take_turns  # noqa: E402

from data_path import DEFAULT_CORPUS, open_or_prepare  # noqa: E402
from rota.data.store import Store  # noqa: E402
from rota.student.config import PRESETS  # noqa: E402
from rows import Results, written  # noqa: E402

OURS = Peer("rota", "train_rota.py")
DROPOUT, LABEL_SMOOTHING = 0.3, 0.1


def main() -> int:
    arguments = parse()
    pythons = {} if not chosen(arguments) else install_all(arguments)
    if arguments.install_only:
        return 0
    store = open_data(arguments)
    text = arguments.cache / f"text-{store.fingerprint[:12]}-{arguments.pairs}"
    write_text(store, text, arguments.pairs)
    print(f"{pairs_in(text):,} pairs in {text}", flush=True)
    about = setting(arguments, store)
    size = f"{arguments.preset}-{arguments.tokens}-{arguments.updates}{'-apart' if arguments.apart else ''}"
    runs = arguments.cache / "runs" / f"{size}-{store.fingerprint[:12]}"
    for number in range(1, arguments.rounds + 1):
        peers = [OURS, *(peer for peer in PEERS if peer.name in pythons)]
        trainings = [
            training(peer, pythons.get(peer.name, Path(sys.executable)), text, store, runs, number, arguments)
            for peer in peers
        ]
        train(trainings, number, arguments)
    results = Results(arguments.json)
    results.add(rows_of(runs, arguments.rounds, about))
    show(results, about)
    return 0


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", help="these peers; ours is always measured", metavar="NAME")
    parser.add_argument("--install-only", action="store_true")
    parser.add_argument("--preset", default="small", choices=list(PRESETS))
    parser.add_argument(
        "--tokens", type=int, default=4_000, help="target tokens in a batch, as each toolkit counts them"
    )
    parser.add_argument("--updates", type=int, default=12)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--apart", action="store_true", help="one training after the other: takes less memory")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--pairs", type=int, default=100_000, help="drawn from the training text")
    parser.add_argument("--corpus", type=Path, default=DEFAULT_CORPUS, help="as in data_path.py")
    parser.add_argument("--data", type=Path, help="a prepared data folder instead of a corpus")
    parser.add_argument("--cache", type=Path, default=Path.home() / ".cache" / "rota" / "peers")
    parser.add_argument("--json", type=Path, help="keep the rows here")
    parser.add_argument("--again", action="store_true", help="train again what was trained before")
    parser.add_argument("--timeout", type=int, default=3_600, help="seconds for one update, or for the start")
    return parser.parse_args()


def chosen(arguments: argparse.Namespace) -> list[Peer]:
    names = {peer.name for peer in PEERS}
    for name in arguments.only or ():
        if name not in names:
            raise SystemExit(f"--only {name}: unknown; there are {', '.join(sorted(names))}")
    return [peer for peer in PEERS if arguments.only is None or peer.name in arguments.only]


def install_all(arguments: argparse.Namespace) -> dict[str, Path]:
    pythons = {}
    for peer in chosen(arguments):
        try:
            pythons[peer.name] = install(peer, arguments.cache)
            print(f"{peer.name}: installed", flush=True)
        except NotInstalledError as error:
            print(f"{peer.name}: NOT INSTALLED: {error}", flush=True)
    return pythons


def open_data(arguments: argparse.Namespace) -> Store:
    if arguments.data is not None:
        return Store.open(arguments.data)
    if not arguments.corpus.is_dir():
        raise SystemExit(f"no corpus at {arguments.corpus}; give --corpus, or --data with a prepared folder")
    return open_or_prepare(arguments.corpus, arguments.cache / "data-8000", 8_000)


def setting(arguments: argparse.Namespace, store: Store) -> str:
    threads = f"{arguments.threads} thread{'s' if arguments.threads > 1 else ''}"
    size = f"{arguments.preset}, {arguments.tokens:,} tokens, {store.manifest.vocabulary:,} subwords"
    return f"{size}, {threads}, {arguments.rounds} rounds of {arguments.updates} updates"


def training(
    peer: Peer, python: Path, text: Path, store: Store, runs: Path, number: int, arguments: argparse.Namespace
) -> Training:
    """What round ``number`` of this peer needs, in files; nothing runs yet."""
    folder = runs / str(number)
    scratch = arguments.cache / "scratch" / peer.name
    for each in (folder, scratch):
        each.mkdir(parents=True, exist_ok=True)
    out = folder / f"{peer.name}.jsonl"
    layers, width, heads, feedforward = PRESETS[arguments.preset]
    wanted = {
        "text": str(text),
        "data": str(store.folder.resolve()),
        "scratch": str(scratch),
        "out": str(out),
        "preset": arguments.preset,
        "vocabulary": store.manifest.vocabulary,
        "layers": layers,
        "width": width,
        "heads": heads,
        "feedforward": feedforward,
        "dropout": DROPOUT,
        "label_smoothing": LABEL_SMOOTHING,
        "tokens": arguments.tokens,
        "updates": arguments.updates,
        "threads": arguments.threads,
        "seed": number,
        "pairs": pairs_in(text),
    }
    settings = folder / f"{peer.name}.json"
    settings.write_text(json.dumps(wanted), encoding="utf-8")
    threads = str(arguments.threads)
    environment = {**os.environ, "OMP_NUM_THREADS": threads, "MKL_NUM_THREADS": threads, "CUDA_VISIBLE_DEVICES": ""}
    return Training(peer, [str(python), str(HERE / "drivers" / peer.driver)], settings, out, environment)


def train(trainings: list[Training], number: int, arguments: argparse.Namespace) -> None:
    """A round, without those that were done before."""
    missing = [each for each in trainings if arguments.again or each.done() < arguments.updates]
    for group in [[each] for each in missing] if arguments.apart else [missing]:
        take_turns(group, arguments.updates, arguments.timeout)
        for each in group:
            print(f"round {number}, {each.name}: {each.done()} of {arguments.updates} updates", flush=True)
            if each.done() < arguments.updates:
                last = each.log.read_text(encoding="utf-8", errors="replace").strip().splitlines()[-1:]
                ending = "was stopped: too long" if each.code is None else f"ended with code {each.code}"
                print(f"  FAILED: {ending}; {' '.join(last)} ({each.log})", flush=True)


def show(results: Results, about: str) -> None:
    print(f"\n{about}")
    for each in results.rows:
        if each.benchmark == "peers" and each.setting.endswith(about):
            ratio = "" if each.ratio is None else f"  ratio {each.ratio:.2f}"
            goal = "" if each.goal is None else f"  (goal: {each.goal})"
            print(f"  {each.setting.partition(',')[0]:12} {each.what:82} {written(each):>28} {each.unit}{ratio}{goal}")


if __name__ == "__main__":
    sys.exit(main())
