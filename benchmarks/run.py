"""``make bench``: every benchmark after the other, all rows in one file; what the file has is not measured again.

    python benchmarks/run.py [NAME ...] [--json bench.json] [--again] [--quick]

NAME is rota (``rota bench``, everything that needs no corpus), data_path, translation, selecting or peers; by default
all of them. Each prints its own table, and says when it was skipped because a corpus or a run is not there. Stopped in
the middle, the same command goes on. Other arguments are set by calling the scripts themselves; see docs/benchmarks.md.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

from rota.bench.rows import Results

HERE = Path(__file__).resolve().parent
SCRIPTS = {
    "rota": ["-m", "rota", "bench"],
    "data_path": [str(HERE / "data_path.py")],
    "translation": [str(HERE / "translation.py")],
    "selecting": [str(HERE / "selecting.py")],
    "peers": [str(HERE / "peers" / "run.py")],
}
SELVES = ("rota", "peers")
"""These find out by themselves what is still to be done."""


def main() -> int:
    arguments = parse()
    failed = []
    for name in arguments.names or SCRIPTS:
        if name not in SELVES and not arguments.again and measured(arguments.json, name):
            print(f"== {name}: in {arguments.json} already", flush=True)
            continue
        print(f"== {name}", flush=True)
        command = [sys.executable, *SCRIPTS[name], "--json", str(arguments.json), *options(name, arguments)]
        if subprocess.run(command, check=False).returncode:
            failed.append(name)
    if failed:
        print(f"failed: {', '.join(failed)}")
    return 1 if failed else 0


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(SCRIPTS))
    parser.add_argument("--json", type=Path, default=Path("bench.json"))
    parser.add_argument("--again", action="store_true", help="measure again what the file has")
    parser.add_argument("--quick", action="store_true", help="tiny sizes, to see that all works")
    arguments = parser.parse_args()
    unknown = [name for name in arguments.names if name not in SCRIPTS]
    if unknown:
        parser.error(f"unknown benchmark {unknown[0]!r}; there are {', '.join(SCRIPTS)}")
    return arguments


def measured(path: Path, name: str) -> bool:
    return any(each.benchmark == name.replace("_", "-") for each in Results(path).rows)


def options(name: str, arguments: argparse.Namespace) -> list[str]:
    again = ["--again"] if arguments.again and name in SELVES else []
    if not arguments.quick:
        return again
    return (
        again
        + {
            "rota": ["--quick"],
            "data_path": ["--repetitions", "1"],
            "translation": ["--repetitions", "1", "--sentences", "16"],
            "selecting": ["--updates", "2"],
            "peers": ["--preset", "tiny", "--tokens", "400", "--updates", "4", "--rounds", "1", "--pairs", "2000"],
        }[name]
    )


if __name__ == "__main__":
    sys.exit(main())
