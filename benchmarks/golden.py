"""Do two versions of Rota compute the same? Tiny runs with both of them, compared byte by byte.

    python benchmarks/golden.py BEFORE [AFTER] [--folder DIR] [--only NAME ...] [--quick] [--all]
        [--allow-new-keys KEY ...]

BEFORE is a commit; AFTER is a commit or the folder of a checkout, by default the one that this script lies in, with
all changes that are not committed. Both versions prepare the same small corpora, train the same runs with every
teacher (in one piece, cut in two, with two processes), evaluate, export and make the reports of the committed records.
AFTER also goes on with runs that BEFORE began. Every file that BEFORE wrote must come out the same:

- weights and other tensors by name, type and bytes; records, translations, tables and prepared data by their bytes;
- `run.json`, `state.json` and `checkpoint.json` by their values, apart from versions, paths and checksums;
- pictures, pages and texts for people may differ and are only mentioned, as are files that only AFTER writes.

Ends with code 1 if anything differs. What a commit made is kept in DIR and used again. Two commands run at a time, with
one thread each. They are what `python -m rota` does, except that torch is imported before, once for all of them.
"""

from __future__ import annotations

import argparse
import fcntl
import gzip
import hashlib
import importlib.metadata
import io
import json
import os
import random
import shutil
import subprocess
import sys
import tarfile
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from golden_files import Difference, Findings, compare_folders, matches

ROOT = Path(__file__).resolve().parents[1]
AT_A_TIME = 2
CUT = 17  # the step at which a run is cut in two: no checkpoint is due, and a choice of DQN is in progress
STUDIES = ("catalogues", "ted8-small-3k")  # of docs/results/laptop
QUICK = ("uniform", "tscl", "dqn")
TOGETHER = ("uniform", "mixed", "tscl", "dqn")  # also trained by two processes

CONFIG = """
seed: 3
data:
  corpus: synthetic
  folder: prepared
  low_resource: [lato, kelo]
  subwords: {size: 400}
  synthetic: {families: {la: {lala: 300, lato: 60}, ke: {kela: 200, kelo: 40}}, dev: 24, test: 12, noise: 0.05}
student:
  {preset: tiny, layers: 1, width: 48, feedforward: 96, dropout: 0.1, lr_warmup: 10, learning_rate: {peak: 0.004}}
training: {steps: 48, tokens: 200, checkpoint_every: 10, validate_every: 12, threads: 1, tensorboard: false}
evaluation: {beam: 2}
"""
# Text files beside the folders of both versions: the manifest says where its files lay.
FILES_CONFIG = """
data:
  folder: prepared-files
  train: {xa: "../text/train.{language}.{side}.gz", xb: ../text/train.xb.tsv}
  dev: {xa: "../text/dev.{language}.{side}.gz", xb: ../text/dev.xb.tsv}
  test: {xa: "../text/test.{language}.{side}.gz", xb: ../text/test.xb.tsv}
  subwords: {size: 300}
  cleaning: {max_words: 12}
"""
TSCL = "name: tscl, warmup: 8, reward_tokens: 80"
# It learns fast, so that what it has learned shows in its choices.
DQN = (
    "name: dqn, warmup: 6, decide_every: 2, hidden: [16, 16], epsilon_steps: 20, groups: 4, group_sentences: 3, "
    "reward_tokens: 80, replay_minimum: 5, replay_batch: 4, replay_capacity: 12, tau: 0.5, learning_rate: 0.02"
)
OF_DQN = "run: whole/dqn, decide_every: 2"
CASES = {  # what is set over the config
    "uniform": ("teacher=uniform",),
    "mixed": ("teacher={name: mixed, warmup: 12}",),
    "temperature": (  # and a network of another kind, cut into small pieces
        "teacher={name: temperature, temperature: 2, decide_every: 3}",
        *("student.encoder_layers=2", "student.tie_embeddings=false", "student.word_dropout=0.1"),
        *("student.piece_tokens=60", "student.learning_rate={scale: 0.2, decay: linear}"),
    ),
    "tscl": (f"teacher={{{TSCL}}}",),
    "tscl-released": (f"teacher={{{TSCL}, variant: released}}", "training.last_arm_tokens=90"),
    "tscl-sampling": (f"teacher={{{TSCL}, algorithm: sampling, policy: boltzmann, reward_scale: quantiles}}",),
    "dqn": (f"teacher={{{DQN}}}",),
    "dqn-released": (f"teacher={{{DQN}, variant: released}}", "training.last_arm_tokens=90"),
    "dqn-refresh": (f"teacher={{{DQN}, refresh: 1/2, reward_batch: current-language, reward_scale: z-score}}",),
    "replay-proportions": (f"teacher={{name: replay-proportions, warmup: 6, {OF_DQN}}}",),
    "replay-shuffled": (f"teacher={{name: replay-shuffled, window: 25%, {OF_DQN}}}",),
    "two-phase": ("teacher={name: two-phase, decide_every: 2}",),
}
# Long enough to translate different sentences differently.
TRANSLATOR = (
    *("training.steps=150", "training.tokens=800", "training.checkpoint_every=30", "student.learning_rate.peak=0.006"),
    *("student.width=64", "student.dropout=0", "student.label_smoothing=0", "student.lr_warmup=30"),
)


@dataclass(frozen=True)
class Version:
    """A version of Rota and where its results go."""

    name: str
    tree: Path
    folder: Path
    kept: bool  # what it made earlier is used again


@dataclass(frozen=True)
class Job:
    """Commands that make one folder, and the folders that must be there first."""

    makes: Path
    cwd: Path
    tree: Path
    commands: tuple[tuple[str, ...], ...]
    needs: tuple[Path, ...] = ()
    copy_of: Path | None = None
    processes: int = 1
    kept: bool = False

    @property
    def after(self) -> tuple[Path, ...]:
        return self.needs if self.copy_of is None else (*self.needs, self.copy_of)

    @property
    def log(self) -> Path:
        return self.makes.with_name(f".{self.makes.name}.log")

    @property
    def mark(self) -> Path:
        """Is there when the job has been done, and says what was done."""
        return self.makes.with_name(f".{self.makes.name}.done")

    @property
    def orders(self) -> str:
        versions = [importlib.metadata.version(name) for name in ("torch", "numpy", "tokenizers")]
        return json.dumps([self.commands, self.processes, CONFIG, FILES_CONFIG, CASES, TRANSLATOR, versions])

    def is_done(self) -> bool:
        return self.kept and self.mark.exists() and self.mark.read_text() == self.orders


@dataclass(frozen=True)
class Check:
    """Two folders that must be the same."""

    name: str
    what: str
    before: Path
    after: Path


def train(run: str, overrides: Sequence[str], *options: str) -> tuple[str, ...]:
    return ("train", "run.yaml", *chain.from_iterable(("--set", each) for each in overrides), "--run", run, *options)


def jobs_of(version: Version, records: Path, origin: str) -> list[Job]:
    """All that one version makes on its own, what is needed first before what needs it."""
    here, data, whole = version.folder, version.folder / "prepared", version.folder / "whole"
    jobs: list[Job] = []

    def add(makes: str, *commands: tuple[str, ...], needs: tuple[Path, ...] = (), **more: Any) -> None:
        jobs.append(Job(here / makes, here, version.tree, commands, needs, kept=version.kept, **more))

    prepare = ("prepare", "run.yaml")
    add("prepared", prepare)
    add("prepared-two", (*prepare, "--processes", "2", "--set", "data.folder=prepared-two"))
    add("prepared-files", ("prepare", "files.yaml"))
    for study in STUDIES:
        report = f"report-{study}-{origin}"
        add(report, ("report", str(records / study), "--out", report))
    for name, overrides in CASES.items():
        needs = (data, whole / "dqn") if OF_DQN in overrides[0] else (data,)
        add(f"whole/{name}", train(f"whole/{name}", overrides), needs=needs)
        add(f"half/{name}", train(f"half/{name}", overrides, "--until", str(CUT)), needs=needs)
    for name in TOGETHER:
        both = (*CASES[name], "training.accumulate=2")
        add(f"two/{name}", train(f"two/{name}", both), needs=(data,), processes=2)
    for name, overrides in CASES.items():
        needs = (data, whole / "dqn") if OF_DQN in overrides[0] else (data,)
        add(f"cut/{name}", train(f"cut/{name}", overrides), needs=needs, copy_of=here / "half" / name)
    add("translator", train("translator", TRANSLATOR), needs=(data,))
    evaluate, policy = ("evaluate", "evaluated"), ("policy", "probed")
    select = (*evaluate, "--select", "low-resource")
    add("evaluated", evaluate, select, needs=(data,), copy_of=here / "translator")
    add("probed", policy, (*policy, "--step", "20"), copy_of=whole / "dqn")
    add("exported", ("export", "translator", "--to", "hf", "--out", "exported"), needs=(here / "translator",))
    return jobs


def begun_in(before: Version, after: Version) -> Path:
    return after.folder / f"begun-by-{before.name}"


def continued_jobs(before: Version, after: Version) -> list[Job]:
    """AFTER goes on with the runs that BEFORE began, on the data that BEFORE prepared."""
    here, kept = begun_in(before, after), before.kept and after.kept
    data, replayed = here / "prepared", here / "whole" / "dqn"
    first = before.folder / "prepared", before.folder / "whole" / "dqn"
    jobs = [
        Job(data, here, after.tree, (("prepare", "run.yaml"),), copy_of=first[0], kept=kept),
        Job(replayed, here, after.tree, (), copy_of=first[1], kept=kept),
    ]
    for name, overrides in CASES.items():
        needs = (data, replayed) if OF_DQN in overrides[0] else (data,)
        command, half = train(f"continued/{name}", overrides), before.folder / "half" / name
        jobs.append(Job(here / "continued" / name, here, after.tree, (command,), needs, half, kept=kept))
    return jobs


def checks_of(before: Version, after: Version, *, quick: bool) -> list[Check]:
    """What must be the same. A run cut in two, or begun by BEFORE, must equal the one that BEFORE made in one piece."""
    old, new, begun = before.folder, after.folder, begun_in(before, after)
    checks = [
        Check("prepare", "generated corpus", old / "prepared", new / "prepared"),
        Check("prepare", "done by BEFORE", old / "prepared", begun / "prepared"),
        Check("prepare", "two processes", old / "prepared", new / "prepared-two"),
        Check("prepare", "text files", old / "prepared-files", new / "prepared-files"),
    ][: 2 if quick else None]
    for name in QUICK if quick else CASES:
        whole = old / "whole" / name
        checks.append(Check(name, "whole", whole, new / "whole" / name))
        checks.append(Check(name, "begun by BEFORE", whole, begun / "continued" / name))
        if not quick:
            checks.append(Check(name, "cut in two", whole, new / "cut" / name))
        if name in TOGETHER and not quick:
            checks.append(Check(name, "two processes", old / "two" / name, new / "two" / name))
    if quick:
        return checks
    made = [("evaluate", "evaluated"), ("policy", "probed"), ("export", "exported")]
    checks += [Check(name, folder, old / folder, new / folder) for name, folder in made]
    reports = [(study, f"report-{study}-{before.name}") for study in STUDIES]
    return [*checks, *(Check("report", study, old / folder, new / folder) for study, folder in reports)]


class Helper:
    """The process of golden_helper.py."""

    def __init__(self) -> None:
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
        # -P: the modules beside the script are not for Rota.
        command = [sys.executable, "-P", "-W", "ignore", str(Path(__file__).with_name("golden_helper.py"))]
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(command, env=environment, text=True, stdin=pipe, stdout=pipe)

    def run(self, job: Job, arguments: Sequence[str]) -> list[int]:
        """The exit codes of the processes of one command."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        order = {"cwd": str(job.cwd), "source": str(job.tree / "src"), "log": str(job.log)}
        self._process.stdin.write(json.dumps({**order, "arguments": arguments, "processes": job.processes}) + "\n")
        self._process.stdin.flush()
        codes: list[int] = json.loads(self._process.stdout.readline())
        return codes

    def close(self) -> None:
        self._process.communicate()


def do(job: Job, helper: Helper) -> str | None:
    """Do a job anew; what went wrong, or None."""
    for path in (job.makes, job.mark, job.log):
        remove(path)
    job.makes.parent.mkdir(parents=True, exist_ok=True)
    if job.copy_of is not None:
        shutil.copytree(job.copy_of, job.makes)
    for command in job.commands:
        codes = helper.run(job, command)
        if any(codes):
            said = job.log.read_text(errors="replace").split("\n") if job.log.exists() else []
            last = next((line.strip() for line in reversed(said) if line.strip()), "it said nothing")
            return f"rota {command[0]} ended with code {max(codes, key=abs)}: {last} ({job.log})"
    job.mark.write_text(job.orders)
    return None


def remove(path: Path) -> None:
    shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)


def do_all(jobs: Sequence[Job]) -> dict[Path, str | None]:
    """Several at a time, in the given order; for each folder what went wrong, or None."""
    mine, helpers = threading.local(), []
    futures: dict[Path, Future[str | None]] = {}

    def start() -> None:
        mine.helper = Helper()
        helpers.append(mine.helper)

    def work(job: Job) -> str | None:
        for need in job.after:
            # What a job needs stands before it in the queue: it has been done, or is being done by another thread.
            if need in futures and futures[need].result() is not None:
                return f"{need} could not be made"
        return do(job, mine.helper)

    with ThreadPoolExecutor(AT_A_TIME, initializer=start) as pool:
        for job in jobs:
            futures[job.makes] = pool.submit(work, job)
    for helper in helpers:
        helper.close()
    return {path: future.result() for path, future in futures.items()}


def make(before: Version, after: Version, checks: Sequence[Check]) -> tuple[dict[Path, str | None], int]:
    """All that the checks need; what went wrong with which folder, and how many were made."""
    records = before.tree / "docs" / "results" / "laptop"
    own = [jobs_of(version, records, before.name) for version in (before, after)]
    every = {job.makes: job for job in (*chain.from_iterable(zip(*own, strict=True)), *continued_jobs(before, after))}
    wanted = {path for check in checks for path in (check.before, check.after)}
    for job in reversed(every.values()):
        wanted.update(job.after if job.makes in wanted else ())
    if not after.kept:
        remove(after.folder)
    for folder in (before.folder, after.folder, begun_in(before, after)):
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "run.yaml").write_text(CONFIG)
        (folder / "files.yaml").write_text(FILES_CONFIG)
    write_text(before.folder.parent / "text")
    missing = [job for job in every.values() if job.makes in wanted and not job.is_done()]
    return do_all(missing), len(missing)


def write_text(folder: Path) -> None:
    """Two made-up languages as text files, gzipped and TSV, with pairs that cleaning drops. Always the same bytes."""
    folder.mkdir(parents=True, exist_ok=True)
    unfit = [("", "nothing said"), ("kala", "a word " * 20), ("mi", "indescribable incomprehensibility")]
    for language in ("xa", "xb"):
        chance = random.Random(language)
        held_out: list[tuple[str, str]] = []
        for split, size in (("test", 15), ("dev", 20), ("train", 250)):
            pairs = [_pair(chance, "aeiou" if language == "xa" else "äéíöü") for _ in range(size)]
            if split == "train":
                pairs += [*pairs[:9], *held_out[:7], *unfit, ("mi\u00a0ra  la", "spaces of all kinds")]
                chance.shuffle(pairs)
            held_out += pairs
            _write_pairs(folder, split, language, pairs)
    for path in folder.iterdir():
        os.utime(path, (1e9, 1e9))  # the manifest has the date of each file


def _pair(chance: random.Random, vowels: str) -> tuple[str, str]:
    words = [chance.randrange(60) for _ in range(chance.randrange(3, 14))]
    said = [f"{'kmlrstpn'[word % 8]}{vowels[word % 5]}{'nrls'[word % 4]}{vowels[word // 12]}" for word in words]
    return " ".join(said), " ".join(f"{'bcdfghjw'[word % 8]}{'aeo'[word % 3]}{'tdmg'[word % 4]}" for word in words)


def _write_pairs(folder: Path, split: str, language: str, pairs: Sequence[tuple[str, str]]) -> None:
    if language == "xb":
        (folder / f"{split}.xb.tsv").write_text("".join(f"{source}\t{english}\n" for source, english in pairs))
        return
    for side, lines in zip((language, "en"), zip(*pairs, strict=True), strict=True):
        packed = gzip.compress("".join(f"{line}\n" for line in lines).encode(), mtime=0)
        (folder / f"{split}.{language}.{side}.gz").write_bytes(packed)


def versions_of(before: str, after: str | None, folder: Path) -> tuple[Version, Version]:
    name, tree = checked_out(before, folder)
    old = Version(name, tree, folder / name, kept=True)
    place = ROOT if after is None else Path(after).resolve()
    if (place / "src" / "rota").is_dir():
        own = folder / f"tree-{hashlib.sha256(str(place).encode()).hexdigest()[:8]}"
        return old, Version(str(place), place, own, kept=False)
    name, tree = checked_out(str(after), folder)
    again = name == old.name  # a commit beside itself is made twice
    return old, Version(name, tree, folder / (f"{name}-again" if again else name), kept=not again)


def checked_out(commit: str, folder: Path) -> tuple[str, Path]:
    """The short hash of a commit and a folder with its files."""
    git = ["git", "-C", str(ROOT)]
    found = subprocess.run([*git, "rev-parse", "--verify", "--quiet", f"{commit}^{{commit}}"], capture_output=True)
    if found.returncode:
        sys.exit(f"error: {commit!r} is neither a commit nor the folder of a checkout")
    name = found.stdout.decode()[:12]
    tree = folder / "trees" / name
    if not tree.exists():
        packed = subprocess.run([*git, "archive", name], capture_output=True, check=True).stdout
        tree.parent.mkdir(parents=True, exist_ok=True)
        partial = Path(tempfile.mkdtemp(dir=tree.parent))
        with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
            archive.extractall(partial, filter="data")
        partial.rename(tree)
    return name, tree


@contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """One at a time: another one that uses the same folder waits."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print(f"waiting for another process that uses {folder}", flush=True)
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def show(checks: Sequence[Check], errors: dict[Path, str | None], allowed: Sequence[str], *, every: bool) -> bool:
    """Print the table; whether all is the same."""
    same, noted, new = True, [], {}
    for check in checks:
        failed = errors.get(check.before) or errors.get(check.after)
        found = (
            Findings([Difference("", "", failed)]) if failed else compare_folders(check.before, check.after, allowed)
        )
        lines = [str(difference) for difference in found.different]
        if len(lines) > 1 and not every:
            lines = [f"{lines[0]} (and {len(lines) - 1} more)"]
        verdict = "FAILED" if failed else "DIFFERENT" if lines else "identical"
        print(f"{check.name:18}  {check.what:16}  {verdict:9}  {''.join(lines[:1])}".rstrip())
        for line in lines[1:]:
            print(f"{'':49}  {line}")
        same = same and not lines
        noted += [f"{check.name}, {check.what}: {difference}" for difference in found.noted]
        for name in found.new:
            new.setdefault(Path(name).name, f"{check.name}, {check.what}: {name}")
    for title, lines in (("only AFTER writes it", list(new.values())), ("differs, for people only", noted)):
        shown = lines if every else lines[:5]
        for line in shown:
            print(f"{title}: {line}")
        if len(lines) > len(shown):
            print(f"{title}: {len(lines) - len(shown)} more, shown by --all")
    return same


def main() -> int:
    arguments = parse()
    began, folder = time.monotonic(), arguments.folder.resolve()
    before, after = versions_of(arguments.before, arguments.after, folder)
    checks = checks_of(before, after, quick=arguments.quick)
    names = list(dict.fromkeys(check.name for check in checks))
    if arguments.only:
        checks = [check for check in checks if matches(check.name, arguments.only)]
    if not checks:
        sys.exit(f"error: nothing is called {' or '.join(arguments.only)}; there are {', '.join(names)}")
    print(f"before: {before.name}\nafter:  {after.name}\n", flush=True)
    with alone_in(folder):
        errors, made = make(before, after, checks)
        same = show(checks, errors, arguments.allow_new_keys, every=arguments.all)
    seconds = time.monotonic() - began
    verdict = "identical" if same else "NOT identical"
    print(f"\n{verdict}; compared: {len(checks)}, made: {made}, in {seconds:.0f} s")
    return 0 if same else 1


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before", help="a commit", metavar="BEFORE")
    parser.add_argument("after", nargs="?", help="a commit, or the folder of a checkout", metavar="AFTER")
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()) / "rota-golden", metavar="DIR")
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME", help="as in the first column; * is understood")
    parser.add_argument("--quick", action="store_true", help=f"{', '.join(QUICK)}: whole, and begun by BEFORE")
    parser.add_argument("--all", action="store_true", help="show every difference, not the first alone")
    new_keys = "keys of JSON files and records that AFTER may add, such as config.training.*"
    parser.add_argument("--allow-new-keys", nargs="+", default=[], metavar="KEY", help=new_keys)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
