"""``make bench``: every benchmark after the other, all rows in one file; what the file has is not measured again.

    python benchmarks/run.py [NAME ...] [--json bench.json] [--again] [--quick]
                             [--threads 1,2] [--preset small,base] [--data FOLDER]

NAME is limit, time, data, teachers or memory (of this machine, without a corpus; machine is all five), or one of the
scripts data_path, translation, two_cores, two_processes, selecting and peers; by default everything. Each prints its
own table, and a script says when it was skipped because a corpus or a run is missing. Stopped in the middle, the same
command resumes. --threads, --preset and --data are for the first five; scripts have options of their own, see
docs/benchmarks.md.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from machine.pieces import BENCHMARKS, Piece, measure_apart, plan
from rows import SHARE, Results, Row, written

HERE = Path(__file__).resolve().parent
SCRIPTS = {
    "data_path": HERE / "data_path.py",
    "translation": HERE / "translation.py",
    "two_cores": HERE / "two_cores.py",
    "two_processes": HERE / "two_processes.py",
    "selecting": HERE / "selecting.py",
    "peers": HERE / "peers" / "run.py",
}
QUICK = {
    "data_path": ["--repetitions", "1"],
    "translation": ["--repetitions", "1", "--sentences", "16"],
    "two_cores": ["--turns", "1", "--sentences", "32"],
    "two_processes": ["--turns", "1", "--preset", "tiny", "--tokens", "400"],
    "selecting": ["--updates", "2"],
    "peers": ["--preset", "tiny", "--tokens", "400", "--updates", "4", "--rounds", "1", "--pairs", "2000"],
}
WIDEST = 46
"""Characters of a row's name; longer ones are folded."""


def main() -> int:
    arguments = parse()
    names = [name for given in arguments.names for name in (BENCHMARKS if given == "machine" else [given])]
    own = [name for name in BENCHMARKS if not names or name in names]
    try:
        if own:
            measure_machine(own, arguments)
        failed = run_scripts([name for name in SCRIPTS if not names or name in names], arguments)
    except ValueError as error:
        sys.stderr.write(f"error: {error}\n")
        return 2
    except KeyboardInterrupt:
        print(f"stopped; {arguments.json} has what was measured, and the same command resumes")
        return 130
    if failed:
        print(f"failed: {', '.join(failed)}")
    return 1 if failed else 0


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    known = ("machine", *BENCHMARKS, *SCRIPTS)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(known))
    parser.add_argument("--json", type=Path, default=Path("bench.json"))
    parser.add_argument("--again", action="store_true", help="measure again what the file has")
    parser.add_argument("--quick", action="store_true", help="tiny sizes, to see that all works")
    parser.add_argument("--threads", default="1,2", help="numbers of threads, each measured in its own process")
    parser.add_argument("--preset", help="sizes of the model; by default small,base")
    parser.add_argument("--data", metavar="FOLDER", help="a prepared data folder; by default a generated corpus")
    arguments = parser.parse_args()
    for name in arguments.names:
        if name not in known:
            parser.error(f"unknown benchmark {name!r}; there are {', '.join(known)}")
    return arguments


def measure_machine(names: Sequence[str], arguments: argparse.Namespace) -> None:
    presets = (arguments.preset or ("tiny" if arguments.quick else "small,base")).split(",")
    pieces = plan(names, presets, numbers(arguments.threads), data=arguments.data, quick=arguments.quick)
    results = Results(arguments.json)
    done = measure(pieces, results, again=arguments.again)
    # A pipe has no width of its own: a row need not be squeezed into 80 columns there.
    console = Console(width=None if sys.stdout.isatty() else 120, markup=False, highlight=False)
    console.print(tables(results.rows, names))
    if done:
        print(f"{done} of {len(pieces)} were in {arguments.json} already; --again measures them again", flush=True)


def measure(pieces: Sequence[Piece], results: Results, *, again: bool = False) -> int:
    """Measure what ``results`` does not have, or all of it ``again``; how many pieces were there already."""
    due = [piece for piece in pieces if again or not results.has(piece.benchmark, piece.setting)]
    for number, piece in enumerate(due, start=1):
        print(f"{number} of {len(due)}: {piece.benchmark}: {piece.setting}", flush=True)
        results.add(measure_apart(piece))
    return len(pieces) - len(due)


def numbers(written: str) -> list[int]:
    try:
        return [int(part) for part in written.split(",")]
    except ValueError:
        raise ValueError(f"--threads is {written!r}; write for example 1,2") from None


def run_scripts(names: Sequence[str], arguments: argparse.Namespace) -> list[str]:
    """Each script in turn; the names of those that failed."""
    failed = []
    for name in names:
        by_itself = name == "peers"  # finds out by itself what is left to do
        if not by_itself and not arguments.again and measured(arguments.json, name):
            print(f"== {name}: in {arguments.json} already", flush=True)
            continue
        print(f"== {name}", flush=True)
        again = ["--again"] if arguments.again and by_itself else []
        quick = QUICK[name] if arguments.quick else []
        command = [sys.executable, str(SCRIPTS[name]), "--json", str(arguments.json), *again, *quick]
        if subprocess.run(command, check=False).returncode:
            failed.append(name)
    return failed


def measured(path: Path, name: str) -> bool:
    return any(each.benchmark == name.replace("_", "-") for each in Results(path).rows)


def tables(rows: Sequence[Row], names: Sequence[str] = ()) -> Group:
    """One part for each benchmark, one table for each setting."""
    parts: list[Text | Table] = []
    for benchmark in dict.fromkeys(each.benchmark for each in rows):
        if names and benchmark not in names:
            continue
        mine = [each for each in rows if each.benchmark == benchmark]
        parts.append(Text(f"{benchmark}: {BENCHMARKS.get(benchmark, '')}".rstrip(": "), style="bold"))
        if benchmark == "teachers":
            parts.append(teachers_table(mine))
            continue
        for setting in dict.fromkeys(each.setting for each in mine):
            parts += [Text(setting, style="cyan"), table([each for each in mine if each.setting == setting])]
    return Group(*parts)


def teachers_table(rows: Sequence[Row]) -> Table:
    """One line for each teacher, a column for each size: the share of the run, in percent of its processor time."""
    shares: dict[str, dict[str, Row]] = {}
    for each in rows:
        if each.what == SHARE:
            *words, preset, tokens, _, threads = each.setting.split(", ")
            shares.setdefault(", ".join(words), {})[f"{preset}, {tokens}, {threads}"] = each
    sizes = list(dict.fromkeys(size for found in shares.values() for size in found))
    found = Table(box=None, padding=(0, 1), show_edge=False, title_justify="left", title="% of the run, processor time")
    found.add_column("teacher", overflow="fold")
    for size in sizes:
        found.add_column(size, justify="right")
    for name, by_size in shares.items():
        found.add_row(name, *(written(by_size[size]) if size in by_size else "" for size in sizes))
    return found


def table(rows: Sequence[Row]) -> Table:
    """Columns that no row fills are left out."""
    found = Table(box=None, padding=(0, 1), show_edge=False, show_header=False)
    found.add_column(width=WIDEST, overflow="fold")
    found.add_column(justify="right", no_wrap=True)
    for _ in range(2):
        found.add_column(no_wrap=True)
    for each in rows:
        ratio = "" if each.ratio is None else f"ratio {each.ratio:.2f}"
        goal = "" if each.goal is None else f"goal: {each.goal}"
        compared = ", ".join(part for part in (ratio, goal) if part)
        found.add_row(each.what, written(each), each.unit, compared, style="bold" if each.goal else "")
    return found


if __name__ == "__main__":
    sys.exit(main())
