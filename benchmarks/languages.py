"""What 8, 64 and 512 languages cost: preparing, starting, memory, open files, steps and decisions.

    python benchmarks/languages.py [--languages 8 64 512] [--repetitions 5] [--json FILE] [--plot FILE]

Generated languages, all of the same size, so every column may grow with their number and none faster: the exit code is
1 if the lowest of the repetitions grows by more than 1.25 times the number of languages from one row to the next. Each
number of languages is measured in a process of its own, one thread, in processor time: other programs do not count.
Rotation measures as many prototype groups at an observation whatever the number of languages (``refresh: 1/5`` for 8).
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

TEACHERS = ("uniform", "tscl", "dqn", "dqn, rotation")
PAIRS = {"high": 100, "low": 100, "dev": 160, "test": 10}  # of each language
TOKENS = 1_000  # in an update
REWARD_TOKENS = 4_000  # of DQN: eight languages have as many in their dev sets, 512 with a sentence of each
WARMUPS = 2  # decisions: at the first every group is measured, whatever the rotation; after the second DQN learns
FASTER = 1.25  # than the number of languages: so much is taken for linear
FLOOR = 0.005  # seconds; below there is nothing but noise
# Blue, vermilion, green and purple of Okabe and Ito, who chose them for all eyes.
COLOURS = dict(zip(TEACHERS, ("#0072B2", "#D55E00", "#009E73", "#CC79A7"), strict=True))
Figures = dict[str, Any]


def main() -> int:
    arguments = parse()
    if arguments.child:
        print(json.dumps(measure(arguments.child, arguments.folder, arguments.repetitions)))
        return 0
    rows: list[Figures] = []
    with tempfile.TemporaryDirectory() as scratch:
        for count in arguments.languages:
            rows.append(run_child(count, Path(scratch) / str(count), arguments.repetitions))
            if arguments.json:
                arguments.json.write_text(json.dumps({"cores": os.cpu_count(), "rows": rows}, indent=1) + "\n")
    show(rows)
    if arguments.plot:
        plot(rows, arguments.plot)
    found = growth(rows)
    print("\n" + ("\n".join(found) or "nothing grows faster than the number of languages"))
    return 1 if found else 0


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--languages", type=int, nargs="*", default=[8, 64, 512])
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--plot", type=Path, help="a picture, .svg or .png")
    parser.add_argument("--child", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    return parser.parse_args()


def run_child(count: int, folder: Path, repetitions: int) -> Figures:
    options = ["--child", str(count), "--folder", str(folder), "--repetitions", str(repetitions)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
    command = [sys.executable, __file__, *options]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=environment)
    print(f"{count} languages measured", file=sys.stderr, flush=True)
    figures: Figures = json.loads(done.stdout.splitlines()[-1])
    return figures


def measure(count: int, folder: Path, repetitions: int) -> Figures:
    """All figures of one number of languages; run in a process of its own."""
    from rota import api
    from rota.config import parse_config
    from rota.data.store import Store

    figures: Figures = {"languages": count, "memory_before": memory()}
    configs = {teacher: parse_config(settings(teacher, count, folder)) for teacher in TEACHERS}
    for _ in range(repetitions):
        with timed(figures, "once"):
            api.prepare(configs["uniform"], processes=1, again=True)
        figures.setdefault("prepare", []).append(figures.pop("once"))
    with timed(figures, "open"):
        store = Store.open(folder / "data")
    api.build_loop(configs["uniform"], store, folder / "first")  # which loads libraries
    for teacher, config in configs.items():
        found: Figures = {}
        with timed(found, "start"):
            loop = api.build_loop(config, store, folder / teacher)
        measure_teacher(found, loop, repetitions)
        found["memory"] = memory()
        figures[teacher] = found
    figures["memory"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    figures["open_files"] = len(list(Path("/proc/self/fd").iterdir()))
    maps = Path("/proc/self/maps").read_text().splitlines()
    figures["mapped_files"] = sum(str(folder) in line for line in maps)
    return figures


def settings(teacher: str, count: int, folder: Path) -> Figures:
    """A config as a user would write it; the minibatch of the Q network is that of a short run."""
    teaching: Figures = {"name": teacher.split(",")[0]}
    if teaching["name"] != "uniform":
        teaching["warmup"] = None
    if teaching["name"] == "dqn":
        teaching |= {"replay_minimum": 2, "replay_batch": 32, "group_sentences": 1, "reward_tokens": REWARD_TOKENS}
    if "rotation" in teacher:
        teaching["refresh"] = f"1/{5 * max(1, count // 8)}"
    return {
        "data": {
            "corpus": "synthetic",
            "synthetic": {"languages": count, "family_size": 8, **PAIRS},
            "low_resource": [],
            "folder": str(folder / "data"),
            "subwords": {"size": 4000 + 2 * count, "lines": 50},
        },
        "student": {"preset": "tiny", "lr_warmup": "10%"},
        "teacher": teaching,
        "training": {"steps": 10_000, "tokens": TOKENS, "threads": 1, "tensorboard": False},
    }


def measure_teacher(figures: Figures, loop: Any, repetitions: int) -> None:
    """Seconds of an update, of observing what the teacher watches, and of the teacher's own work at a decision."""
    steps, observing, deciding = [], [], []
    for number in range(repetitions + WARMUPS):
        started = time.process_time()
        decision = loop.teacher.ask(number)
        asked = time.process_time()
        loop.student.update([next(loop.streams[decision.arm])])
        updated = time.process_time()
        observation = loop.probe.observe(
            number + 1, decision, loop.teacher.watches, played={decision.arm: 1}, train_loss=1.0
        )
        observed = time.process_time()
        loop.teacher.tell(observation)
        told = time.process_time()
        if number >= WARMUPS:
            steps.append(updated - asked)
            observing.append(observed - updated)
            deciding.append(asked - started + told - observed)
    figures |= {"step": steps, "observe": observing, "decide": deciding}


@contextmanager
def timed(figures: Figures, name: str) -> Iterator[None]:
    began = time.process_time()
    yield
    figures[name] = time.process_time() - began


def memory() -> float:
    """Resident memory now, in MB."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


def growth(rows: list[Figures]) -> list[str]:
    """What grows faster than the number of languages, in words."""
    found = []
    ordered = sorted(rows, key=lambda row: row["languages"])
    for before, after in pairwise(ordered):
        languages = after["languages"] / before["languages"]
        now = lowest(after)
        for what, value in lowest(before).items():
            if now[what] > FASTER * languages * max(value, FLOOR):
                steps = f"{value:.3g} at {before['languages']} languages, {now[what]:.3g} at {after['languages']}"
                found.append(f"{what} grows faster than the number of languages: {steps}")
    return found


def lowest(row: Figures) -> dict[str, float]:
    """Every figure of a row that may not grow too fast; of several measurements the one with the least noise."""
    parts = {"step": "an update", "observe": "observing", "decide": "deciding"}
    names = {
        "open": "opening, s",
        "memory": "peak memory, MB",
        "open_files": "open files",
        "mapped_files": "mapped files",
    }
    found = {"preparing, s": min(row["prepare"])} | {label: row[name] for name, label in names.items()}
    for teacher in TEACHERS:
        found[f"start of {teacher}, s"] = row[teacher]["start"]
        found |= {f"{label} with {teacher}, s": min(row[teacher][name]) for name, label in parts.items()}
    return found


COLUMNS: dict[str, Callable[[Figures], str]] = {
    "prepare, s": lambda row: spread(row["prepare"], 1),
    "open, s": lambda row: f"{row['open']:.2f}",
    "start, s": lambda row: f"{row['uniform']['start']:.2f}",
    "start DQN, s": lambda row: f"{row['dqn']['start']:.2f}",
    "peak memory, MB": lambda row: f"{row['memory']:.0f}",
    "open files": lambda row: f"{row['open_files']}",
    "mapped files": lambda row: f"{row['mapped_files']}",
}


def show(rows: list[Figures]) -> None:
    print(f"\n{os.cpu_count()} cores, one thread, processor time\n")
    print("| languages | " + " | ".join(COLUMNS) + " |\n" + "|---" * (1 + len(COLUMNS)) + "|")
    for row in rows:
        print(f"| {row['languages']} | " + " | ".join(column(row) for column in COLUMNS.values()) + " |")
    print("\nmilliseconds, median (lowest to highest)\n\n| languages | teacher | update | observing | deciding |")
    print("|---|---|---|---|---|")
    for row in rows:
        for teacher in TEACHERS:
            parts = [spread(row[teacher][name]) for name in ("step", "observe", "decide")]
            print(f"| {row['languages']} | {teacher} | " + " | ".join(parts) + " |")


def spread(seconds: list[float], unit: float = 1000) -> str:
    """Median (lowest to highest), in milliseconds unless the unit is 1."""
    low, middle, high = (unit * value for value in (min(seconds), statistics.median(seconds), max(seconds)))
    digits = 0 if middle >= 100 else 1 if middle >= 1 else 2
    return f"{middle:,.{digits}f} ({low:,.{digits}f}-{high:,.{digits}f})"


def plot(rows: list[Figures], path: Path) -> None:
    """Two panels: what grows with the languages once, and what a decision costs."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    mpl.rcParams["svg.hashsalt"] = "rota"
    counts = [row["languages"] for row in rows]
    figure, (once, each) = pyplot.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
    series = {
        "preparing, s": ([statistics.median(row["prepare"]) for row in rows], "o"),
        "start of a run, s": ([row["uniform"]["start"] for row in rows], "s"),
        "peak memory, GB": ([row["memory"] / 1024 for row in rows], "^"),
    }
    for (label, (values, marker)), colour in zip(series.items(), COLOURS.values(), strict=False):
        once.plot(counts, values, marker=marker, color=colour, label=label)
    for teacher, marker in zip(TEACHERS, "os^D", strict=True):
        costs = [
            [(a + b) * 1000 for a, b in zip(row[teacher]["observe"], row[teacher]["decide"], strict=True)]
            for row in rows
        ]
        each.plot(
            counts, [statistics.median(cost) for cost in costs], marker=marker, color=COLOURS[teacher], label=teacher
        )
        each.fill_between(
            counts, [min(cost) for cost in costs], [max(cost) for cost in costs], color=COLOURS[teacher], alpha=0.2
        )
    once.set_title("once in a run")
    each.set_title("observing and deciding, ms a decision")
    for panel in (once, each):
        panel.set_xscale("log", base=2)
        panel.set_yscale("log")
        panel.set_xticks(counts, map(str, counts))
        panel.set_xlabel("languages")
        panel.grid(alpha=0.3)
        panel.legend(frameon=False, fontsize="small")
    figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)


if __name__ == "__main__":
    sys.exit(main())
