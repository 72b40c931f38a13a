"""Do two versions of Rota compute the same? Tiny runs with both of them, compared byte by byte.

    python benchmarks/golden.py BEFORE [AFTER] [--folder DIR] [--only NAME ...] [--quick] [--allow-new-keys KEY ...]

BEFORE is a commit; AFTER is a commit or the folder of a checkout, by default the one that this script lies in, with
all changes that are not committed. Both versions prepare the same small corpora, train the same runs with every
teacher (in one piece, cut in two, with two processes), evaluate, export and make the reports of the committed records.
AFTER also goes on with runs that BEFORE began. Every file that BEFORE wrote must come out the same:

- weights and other tensors by name, type and bytes; records, translations, tables and prepared data by their bytes;
- `run.json`, `state.json` and `checkpoint.json` by their values, apart from versions, paths and checksums;
- pictures, pages and texts for people may differ and are only mentioned, as are files that only AFTER writes.

Ends with code 1 if anything differs. What was made by a commit is kept in DIR and used again. The runs are started by
helper processes that have imported torch and then fork, two at a time and with one thread each; apart from that they
are what `python -m rota` does.
"""

from __future__ import annotations

import argparse
import fcntl
import fnmatch
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
from collections.abc import Collection, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
LANES = 2  # helper processes
CUT = 17  # the step at which a run is cut in two: no checkpoint is due, and a choice of DQN is in progress
STUDIES = ("catalogues", "ted8-small-3k")  # of docs/results/laptop
QUICK = ("uniform", "tscl", "dqn")

CONFIG: dict[str, Any] = {
    "seed": 3,
    "data": {
        "corpus": "synthetic",
        "folder": "prepared",
        "low_resource": ["lato", "kelo"],
        "subwords": {"size": 400},
        "synthetic": {
            "families": {"la": {"lala": 300, "lato": 60}, "ke": {"kela": 200, "kelo": 40}},
            **{"dev": 24, "test": 12, "noise": 0.05},
        },
    },
    "student": {
        **{"preset": "tiny", "layers": 1, "width": 48, "feedforward": 96, "dropout": 0.1},
        **{"lr_warmup": 10, "learning_rate": {"peak": 0.004}},
    },
    "training": {
        **{"steps": 48, "tokens": 200, "checkpoint_every": 10, "validate_every": 12},
        **{"threads": 1, "tensorboard": False},
    },
    "evaluation": {"beam": 2},
}
# A network of another kind, cut into small pieces, for the schedule that costs least otherwise.
OTHER_STUDENT = {
    **{"encoder_layers": 2, "tie_embeddings": False, "word_dropout": 0.1, "attention_dropout": 0.2, "piece_tokens": 60},
    "learning_rate": {"scale": 0.2, "decay": "linear"},
}
TSCL = {"name": "tscl", "warmup": 8, "reward_tokens": 80}
DQN = {
    **{"name": "dqn", "warmup": 6, "decide_every": 2, "hidden": [16, 16], "epsilon_steps": 20, "groups": 4},
    **{"group_sentences": 3, "reward_tokens": 80, "replay_minimum": 5, "replay_batch": 4, "replay_capacity": 12},
}
OF_DQN = {"run": "whole/dqn", "decide_every": 2}
CASES: dict[str, dict[str, Any]] = {
    "uniform": {"teacher": {"name": "uniform"}},
    "mixed": {"teacher": {"name": "mixed", "warmup": 12}},
    "temperature": {"teacher": {"name": "temperature", "temperature": 2, "decide_every": 3}, "student": OTHER_STUDENT},
    "tscl": {"teacher": TSCL},
    "tscl-released": {"teacher": {**TSCL, "variant": "released"}, "training": {"last_arm_tokens": 90}},
    "tscl-sampling": {"teacher": {**TSCL, "algorithm": "sampling", "policy": "boltzmann", "reward_scale": "quantiles"}},
    "dqn": {"teacher": DQN},
    "dqn-released": {"teacher": {**DQN, "variant": "released"}, "training": {"last_arm_tokens": 90}},
    "dqn-refresh": {
        "teacher": {**DQN, "refresh": "1/2", "reward_batch": "current-language", "reward_scale": "z-score"}
    },
    "replay-proportions": {"teacher": {"name": "replay-proportions", "warmup": 6, **OF_DQN}},
    "replay-shuffled": {"teacher": {"name": "replay-shuffled", "window": "25%", **OF_DQN}},
    "two-phase": {"teacher": {"name": "two-phase", "decide_every": 2}},
}
TOGETHER = ("uniform", "mixed", "tscl", "dqn")  # also trained by two processes

BY_VALUE = {"run.json", "state.json", "checkpoint.json"}
NOT_COMPARED = {"timings.jsonl", ".lock"}
FOR_PEOPLE = ("*.png", "*.svg", "index.html", "report.md", "README.md")
# Versions, paths, and the checksums of files that are compared themselves.
FREE_KEYS = {"run.json": {"versions", "data.folder"}, "checkpoint.json": {"files"}}

# A helper: reads jobs from its standard input, forks for each and tells how the children ended.
HELPER = """
import atexit, contextlib, importlib, json, os, runpy, signal, socket, sys, traceback
for name in sys.argv[1:]:
    with contextlib.suppress(ImportError):
        importlib.import_module(name)

def child(job, rank, port):
    signal.alarm(300)
    output = os.open(job["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0), os.dup2(output, 1), os.dup2(output, 2)
    os.chdir(job["cwd"])
    os.environ["PYTHONPATH"] = job["source"]
    if job["processes"] > 1:  # as torchrun would
        size = str(job["processes"])
        os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": size, "LOCAL_WORLD_SIZE": size}
        os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    sys.path.insert(0, job["source"])
    sys.argv = ["rota", *job["arguments"]]
    code = 1
    try:
        runpy.run_module("rota", run_name="__main__", alter_sys=True)
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
    import rota
    if not rota.__file__.startswith(job["source"]):
        print("this was the wrong version:", rota.__file__)
        code = 1
    atexit._run_exitfuncs()
    sys.stdout.flush(), sys.stderr.flush()
    os._exit(code)

for line in sys.stdin:
    job = json.loads(line)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    pids = [os.fork() or child(job, rank, port) for rank in range(job["processes"])]
    print(json.dumps([os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids]), flush=True)
"""
IMPORTED = [
    *("torch", "torch._dynamo", "torch.distributed", "torch.nn.parallel", "torch.utils.tensorboard", "numpy.testing"),
    *("tokenizers", "sacrebleu", "safetensors.numpy", "pydantic.plugin", "ruamel.yaml", "typer", "rich.live"),
    *("rich.progress", "rich.logging", "matplotlib.figure", "matplotlib.backends.backend_agg", "matplotlib.colors"),
]


@dataclass(frozen=True)
class Difference:
    """Where two files part: ``at`` is a line, a key or a tensor."""

    file: str
    at: str
    how: str

    def __str__(self) -> str:
        return ", ".join(filter(None, (self.file, self.at))) + f": {self.how}"


@dataclass
class Findings:
    """What comparing two folders, or several pairs of them, came to."""

    different: list[Difference] = field(default_factory=list)
    noted: list[Difference] = field(default_factory=list)  # in files for people
    new: list[str] = field(default_factory=list)  # files that only AFTER wrote


def compare_folders(before: Path, after: Path, allowed: Sequence[str] = ()) -> Findings:
    """Every file that BEFORE wrote beside what AFTER wrote under the same name."""
    old, new = _files_in(before), _files_in(after)
    found = Findings()
    for name in old:
        how = _compare_files(before / name, after / name, allowed) if name in new else [("", "is missing")]
        noted = any(fnmatch.fnmatch(Path(name).name, pattern) for pattern in FOR_PEOPLE)
        (found.noted if noted else found.different).extend(Difference(name, *each) for each in how)
    for name in new:
        if name in old:
            continue
        if name.endswith("checkpoint.json"):  # not a new kind of file, but a step that was not saved before
            found.different.append(Difference(name, "", "is a checkpoint that BEFORE does not have"))
        found.new.append(name)
    if not old:
        found.different.append(Difference(before.name, "", "BEFORE wrote no file"))
    return found


def _files_in(folder: Path) -> list[str]:
    files = (path for path in folder.rglob("*") if path.is_file() and path.name not in NOT_COMPARED)
    names = (str(path.relative_to(folder)) for path in files)
    return sorted(names, key=lambda name: (name.count("/"), name))  # records before checkpoints


def _compare_files(before: Path, after: Path, allowed: Sequence[str]) -> list[tuple[str, str]]:
    """Pairs of where and how; empty if the files count as the same."""
    old, new = before.read_bytes(), after.read_bytes()
    if old == new:
        return []
    if before.suffix == ".safetensors":
        return compare_tensors(old, new, allowed)
    if before.suffix == ".jsonl":
        return _compare_lines(old, new, allowed)
    if before.suffix == ".json":
        used: list[str] = []
        free = FREE_KEYS.get(before.name, set())
        found = compare_values(json.loads(old), json.loads(new), allowed, free=free, used=used)
        if used and before.name == "run.json":  # the fingerprint is of all keys
            found = [(at, how) for at, how in found if at != "config_fingerprint"]
        return found or ([] if used or before.name in BY_VALUE else [("", "the same values in other bytes")])
    return [_first_line(old, new)]


def compare_tensors(old: bytes, new: bytes, allowed: Sequence[str] = ()) -> list[tuple[str, str]]:
    """The tensors of two safetensors files by name, type, shape and bytes."""
    before, after = _tensors(old), _tensors(new)
    found = [(name, "the tensor is missing") for name in before if name not in after]
    found += [(name, "the tensor is new") for name in after if name not in before and not _matches(name, allowed)]
    for name in (name for name in before if name in after):
        (kind, shape, data), (new_kind, new_shape, new_data) = before[name], after[name]
        if (kind, shape) != (new_kind, new_shape):
            found.append((name, f"{kind} {shape} became {new_kind} {new_shape}"))
        elif data != new_data:
            found.append((name, _how_far(data, new_data, kind)))
    return found


def _tensors(data: bytes) -> dict[str, tuple[str, list[int], bytes]]:
    start = 8 + int.from_bytes(data[:8], "little")
    header = json.loads(data[8:start])
    header.pop("__metadata__", None)
    values = memoryview(data)[start:]
    return {
        name: (about["dtype"], about["shape"], bytes(values[slice(*about["data_offsets"])]))
        for name, about in header.items()
    }


def _how_far(old: bytes, new: bytes, kind: str) -> str:
    if kind not in ("F32", "F64", "I64"):
        return "other bytes"
    dtype = {"F32": "<f4", "F64": "<f8", "I64": "<i8"}[kind]
    before, after = (np.frombuffer(data, dtype).astype(float) for data in (old, new))
    return (
        f"{(before != after).sum():,} of {before.size:,} values differ, by {np.abs(after - before).max():.2g} at most"
    )


def compare_values(
    before: Any, after: Any, allowed: Sequence[str] = (), *, free: Collection[str] = (), used: list[str] | None = None
) -> list[tuple[str, str]]:
    """Two JSON trees: which keys differ and how. ``used`` collects the new keys that were allowed."""
    old, new = dict(_leaves(before)), dict(_leaves(after))
    found = []
    for key in dict.fromkeys((*old, *new)):
        if any(key == name or key.startswith(f"{name}.") for name in free):
            continue
        if key not in new:
            found.append((key, f"{old[key]} is missing"))
        elif key not in old and _matches(key, allowed):
            if used is not None:
                used.append(key)
        elif key not in old:
            found.append((key, f"{new[key]} is new"))
        elif old[key] != new[key]:
            found.append((key, f"{old[key]} became {new[key]}"))
    return found


def _matches(key: str, patterns: Sequence[str]) -> bool:
    return any(fnmatch.fnmatch(key, pattern) for pattern in patterns)


def _leaves(value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """Dotted keys and their values as JSON, so that 1, 1.0 and true differ and NaN equals itself."""
    if isinstance(value, dict | list) and value:
        items = value.items() if isinstance(value, dict) else enumerate(value)
        for key, inner in items:
            yield from _leaves(inner, f"{path}.{key}" if path else str(key))
    else:
        yield path, _short(json.dumps(value, ensure_ascii=False))


def _short(text: str) -> str:
    """Cut for people, with a checksum so that two long values that differ do so here too."""
    return text if len(text) <= 60 else f"{text[:40]}... ({hashlib.sha256(text.encode()).hexdigest()[:6]})"


def _compare_lines(old: bytes, new: bytes, allowed: Sequence[str]) -> list[tuple[str, str]]:
    """The first line of two records that differs, and which keys of it."""
    before, after = old.split(b"\n"), new.split(b"\n")
    for number, (one, other) in enumerate(zip(before, after, strict=False), start=1):
        if one == other:
            continue
        try:
            used: list[str] = []
            found = compare_values(json.loads(one), json.loads(other), allowed, used=used)
        except ValueError:
            return [_first_line(old, new)]
        if found or not used:
            how = "; ".join(f"{key} {how}" for key, how in found[:3]) or "the same values in other bytes"
            return [(f"line {number}", how)]
    return [] if len(before) == len(after) else [("", f"{len(before) - 1} lines became {len(after) - 1}")]


def _first_line(old: bytes, new: bytes) -> tuple[str, str]:
    before, after = old.split(b"\n"), new.split(b"\n")
    number = next((at for at, pair in enumerate(zip(before, after, strict=False)) if pair[0] != pair[1]), None)
    if number is None:
        return "", f"{len(before)} lines became {len(after)}"
    lines = (_short(text[number].decode("utf-8", "replace")) for text in (before, after))
    return f"line {number + 1}", "{!r} became {!r}".format(*lines)


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
    def log(self) -> Path:
        return self.makes.with_name(f".{self.makes.name}.log")

    @property
    def mark(self) -> Path:
        """Is there when the job has been done, and says what was done."""
        return self.makes.with_name(f".{self.makes.name}.done")

    @property
    def orders(self) -> str:
        versions = {name: importlib.metadata.version(name) for name in ("torch", "numpy", "tokenizers")}
        return json.dumps([self.commands, self.processes, CONFIG, CASES, versions])

    def is_done(self) -> bool:
        return self.kept and self.mark.exists() and self.mark.read_text() == self.orders


@dataclass(frozen=True)
class Check:
    """Two folders that must be the same."""

    name: str
    what: str
    before: Path
    after: Path


class Helper:
    """A process that has imported what takes long and forks to run a command."""

    def __init__(self) -> None:
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
        command = [sys.executable, "-W", "ignore", "-c", HELPER, *IMPORTED]
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


def jobs_of(version: Version, records: Path, origin: str) -> list[Job]:
    """All that one version makes on its own, what is needed first before what needs it."""
    here, common = version.folder, {"cwd": version.folder, "tree": version.tree, "kept": version.kept}
    data, pieces, text = here / "prepared", here / "prepared-two", here / "prepared-files"
    jobs = [
        Job(data, commands=(("prepare", "uniform.yaml"),), **common),
        Job(
            pieces,
            commands=(("prepare", "uniform.yaml", "--processes", "2", "--set", "data.folder=prepared-two"),),
            **common,
        ),
        Job(text, commands=(("prepare", "files.yaml"),), **common),
    ]
    for study in STUDIES:
        report = here / f"report-{study}-{origin}"
        jobs.append(Job(report, commands=(("report", str(records / study), "--out", report.name),), **common))
    for name, settings in CASES.items():
        needs = (data, here / "whole" / "dqn") if "run" in settings["teacher"] else (data,)
        train = ("train", f"{name}.yaml", "--run")
        whole, half, cut = (here / kind / name for kind in ("whole", "half", "cut"))
        jobs.append(Job(whole, commands=((*train, f"whole/{name}"),), needs=needs, **common))
        jobs.append(Job(half, commands=((*train, f"half/{name}", "--until", str(CUT)),), needs=needs, **common))
        jobs.append(Job(cut, commands=((*train, f"cut/{name}"),), needs=needs, copy_of=half, **common))
        if name in TOGETHER:
            both = (*train, f"two/{name}", "--set", "training.accumulate=2")
            jobs.append(Job(here / "two" / name, commands=(both,), needs=needs, processes=2, **common))
    scored, probed, exported = here / "evaluated", here / "probed", here / "exported"
    evaluate, policy = ("evaluate", "evaluated"), (("policy", "probed"), ("policy", "probed", "--step", "20"))
    select = (*evaluate, "--select", "low-resource")
    jobs.append(Job(scored, commands=(evaluate, select), copy_of=here / "whole" / "mixed", **common))
    jobs.append(Job(probed, commands=policy, copy_of=here / "whole" / "dqn", **common))
    hf = ("export", "whole/mixed", "--to", "hf", "--out", "exported")
    jobs.append(Job(exported, commands=(hf,), needs=(here / "whole" / "mixed",), **common))
    return sorted(jobs, key=lambda job: len(_chain(job, {each.makes: each for each in jobs})))


def continued_jobs(before: Version, after: Version) -> list[Job]:
    """AFTER goes on with the runs that BEFORE began, on the data that BEFORE prepared."""
    here = after.folder / f"begun-by-{before.name}"
    common = {"cwd": here, "tree": after.tree, "kept": before.kept and after.kept}
    data, replayed = here / "prepared", here / "whole" / "dqn"
    jobs = [
        Job(data, commands=(("prepare", "uniform.yaml"),), copy_of=before.folder / "prepared", **common),
        Job(replayed, commands=(), copy_of=before.folder / "whole" / "dqn", **common),
    ]
    for name, settings in CASES.items():
        needs = (data, replayed) if "run" in settings["teacher"] else (data,)
        train = ("train", f"{name}.yaml", "--run", f"continued/{name}")
        half = before.folder / "half" / name
        jobs.append(Job(here / "continued" / name, commands=(train,), needs=needs, copy_of=half, **common))
    return jobs


def checks_of(before: Version, after: Version, *, quick: bool) -> list[Check]:
    """What must be the same. A run cut in two, or begun by BEFORE, must equal the one that BEFORE made in one piece."""
    old, new = before.folder, after.folder
    begun = new / f"begun-by-{before.name}"
    checks = [Check("prepare", "generated corpus", old / "prepared", new / "prepared")]
    if not quick:
        checks += [
            Check("prepare", "with two processes", old / "prepared", new / "prepared-two"),
            Check("prepare", "text files", old / "prepared-files", new / "prepared-files"),
        ]
    checks.append(Check("prepare", "prepared by BEFORE", old / "prepared", begun / "prepared"))
    for name in QUICK if quick else CASES:
        whole = old / "whole" / name
        checks.append(Check(name, "whole", whole, new / "whole" / name))
        if not quick:
            checks.append(Check(name, "cut in two", whole, new / "cut" / name))
        checks.append(Check(name, "begun by BEFORE", whole, begun / "continued" / name))
        if name in TOGETHER and not quick:
            checks.append(Check(name, "two processes", old / "two" / name, new / "two" / name))
    if not quick:
        for name, what in (("evaluated", "evaluate"), ("probed", "policy"), ("exported", "export")):
            checks.append(
                Check(what, {"export": "hf", "policy": "of dqn"}.get(what, "of mixed"), old / name, new / name)
            )
        for study in STUDIES:
            report = f"report-{study}-{before.name}"
            checks.append(Check("report", study, old / report, new / report))
    return checks


def _chain(job: Job, jobs: dict[Path, Job]) -> list[Job]:
    """The job and all that must be done before it, itself last."""
    needs = (*job.needs, *([job.copy_of] if job.copy_of else []))
    before = [each for need in needs if need in jobs for each in _chain(jobs[need], jobs)]
    return [*dict.fromkeys(before), job]


def do(job: Job, helper: Helper) -> str | None:
    """Do a job anew; what went wrong, or None."""
    for path in (job.makes, job.mark, job.log):
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
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


def do_all(jobs: Sequence[Job]) -> dict[Path, str | None]:
    """Several at a time, in the given order; for each folder what went wrong, or None."""
    helpers = threading.local()
    opened: list[Helper] = []
    futures: dict[Path, Future[str | None]] = {}

    def start() -> None:
        helpers.mine = Helper()
        opened.append(helpers.mine)

    def work(job: Job) -> str | None:
        for need in (*job.needs, *([job.copy_of] if job.copy_of else [])):
            # What a job needs stands before it in the queue: it has been done, or is being done by the other thread.
            if need in futures and futures[need].result() is not None:
                return f"{need.parent.name}/{need.name} could not be made"
        return do(job, helpers.mine)

    with ThreadPoolExecutor(LANES, initializer=start) as pool:
        for job in jobs:
            futures[job.makes] = pool.submit(work, job)
    for helper in opened:
        helper.close()
    return {path: future.result() for path, future in futures.items()}


def merged(settings: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """The settings with the changes put over each section, except that a learning rate is replaced as a whole."""
    return {**settings, **{part: {**settings.get(part, {}), **values} for part, values in changes.items()}}


def write_configs(folder: Path) -> None:
    """One config for each case (JSON is YAML), and one for the text files beside the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, settings in CASES.items():
        (folder / f"{name}.yaml").write_text(json.dumps(merged(CONFIG, settings), indent=1))
    patterns = {"xa": "../text/{split}.{language}.{side}.gz", "xb": "../text/{split}.xb.tsv"}
    splits = {
        split: {name: pattern.replace("{split}", split) for name, pattern in patterns.items()}
        for split in ("train", "dev", "test")
    }
    data = {"folder": "prepared-files", **splits, "subwords": {"size": 300}, "cleaning": {"max_words": 12}}
    (folder / "files.yaml").write_text(json.dumps({"data": data}, indent=1))


def write_text(folder: Path) -> None:
    """Two made-up languages as text files, gzipped and TSV, with pairs that cleaning drops. Always the same bytes."""
    folder.mkdir(parents=True, exist_ok=True)
    for language in ("xa", "xb"):
        chance = random.Random(language)
        held_out: list[tuple[str, str]] = []
        for split, size in (("test", 15), ("dev", 20), ("train", 250)):
            pairs = [_pair(chance, language) for _ in range(size)]
            if split == "train":
                pairs += [
                    *pairs[:9],
                    *held_out[:7],
                    ("", "nothing said"),
                    ("kala", "a word " * 20),
                    ("mi\u00a0ra  la", "x y"),
                ]
                chance.shuffle(pairs)
            held_out += pairs
            _write_pairs(folder, split, language, pairs)
    for path in folder.iterdir():
        os.utime(path, (1e9, 1e9))  # the manifest has the date of each file


def _pair(chance: random.Random, language: str) -> tuple[str, str]:
    words = [chance.randrange(60) for _ in range(chance.randrange(3, 14))]
    vowels = "aeiou" if language == "xa" else "äéíöü"
    said = [f"{'kmlrstpn'[word % 8]}{vowels[word % 5]}{'nrls'[word % 4]}{vowels[word // 12]}" for word in words]
    return " ".join(said), " ".join(f"{'bcdfghjw'[word % 8]}{'aeo'[word % 3]}{'tdmg'[word % 4]}" for word in words)


def _write_pairs(folder: Path, split: str, language: str, pairs: Sequence[tuple[str, str]]) -> None:
    if language == "xb":
        (folder / f"{split}.xb.tsv").write_text("".join(f"{source}\t{english}\n" for source, english in pairs))
        return
    for side, lines in zip((language, "en"), zip(*pairs, strict=True), strict=True):
        packed = gzip.compress("".join(f"{line}\n" for line in lines).encode(), mtime=0)
        (folder / f"{split}.{language}.{side}.gz").write_bytes(packed)


def checked_out(commit: str, folder: Path) -> tuple[str, Path]:
    """The short hash of a commit and a folder with its files."""
    found = subprocess.run(
        ["git", "-C", ROOT, "rev-parse", "--verify", "--quiet", f"{commit}^{{commit}}"], capture_output=True
    )
    if found.returncode:
        sys.exit(f"error: {commit!r} is neither a commit nor a folder with a checkout")
    name = found.stdout.decode()[:12]
    tree = folder / "trees" / name
    if not tree.exists():
        packed = subprocess.run(["git", "-C", ROOT, "archive", name], capture_output=True, check=True).stdout
        tree.parent.mkdir(parents=True, exist_ok=True)
        partial = Path(tempfile.mkdtemp(dir=tree.parent))
        with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
            archive.extractall(partial, filter="data")
        partial.rename(tree)
    return name, tree


def versions_of(before: str, after: str | None, folder: Path) -> tuple[Version, Version]:
    name, tree = checked_out(before, folder)
    old = Version(name, tree, folder / name, kept=True)
    place = ROOT if after is None else Path(after).resolve()
    if (place / "src" / "rota").is_dir():
        path = f"tree-{hashlib.sha256(str(place).encode()).hexdigest()[:8]}"
        return old, Version(path, place, folder / path, kept=False)
    name, tree = checked_out(after or "", folder)
    if name == old.name:  # a commit beside itself is made twice
        return old, Version(f"{name}-again", tree, folder / f"{name}-again", kept=False)
    return old, Version(name, tree, folder / name, kept=True)


@contextmanager
def alone(versions: Sequence[Version]) -> Iterator[None]:
    """Others that use the same folder wait until this one has made what it needs."""
    with ExitStack() as stack:
        for version in sorted(versions, key=lambda version: version.folder):
            version.folder.mkdir(parents=True, exist_ok=True)
            file = stack.enter_context((version.folder / ".lock").open("w"))
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                print(f"waiting for another process that uses {version.folder}", flush=True)
                fcntl.flock(file, fcntl.LOCK_EX)
        yield


def make(before: Version, after: Version, checks: Sequence[Check]) -> tuple[dict[Path, str | None], int]:
    """All that the checks need; what went wrong with which folder, and how many were made."""
    records = before.tree / "docs" / "results" / "laptop"
    own = [jobs_of(version, records, before.name) for version in (before, after)]
    both = [job for pair in zip(*own, strict=True) for job in pair] + continued_jobs(before, after)
    jobs = {job.makes: job for job in both}
    wanted = {job.makes for check in checks for path in (check.before, check.after) for job in _chain(jobs[path], jobs)}
    with alone((before, after)):
        if not after.kept:
            for path in after.folder.iterdir():
                shutil.rmtree(path) if path.is_dir() else path.unlink()
        for folder in (before.folder, after.folder, after.folder / f"begun-by-{before.name}"):
            write_configs(folder)
        write_text(before.folder.parent / "text")
        missing = [job for job in both if job.makes in wanted and not job.is_done()]
        return do_all(missing), len(missing)


def report(checks: Sequence[Check], errors: dict[Path, str | None], allowed: Sequence[str], *, every: bool) -> bool:
    """Print the table; whether all is the same."""
    same, noted, new = True, [], {}
    width = max(len(check.name) for check in checks)
    for check in checks:
        failed = errors.get(check.before) or errors.get(check.after)
        found = (
            Findings([Difference("", "", failed)]) if failed else compare_folders(check.before, check.after, allowed)
        )
        lines = [str(difference).removeprefix(": ") for difference in found.different]
        verdict = "FAILED" if failed else "DIFFERENT" if lines else "identical"
        rest = f" (and {len(lines) - 1} more)" if len(lines) > 1 and not every else ""
        print(f"{check.name:{width}}  {check.what:18}  {verdict:9}  {lines[0] + rest if lines else ''}".rstrip())
        for line in lines[1:] if every else []:
            print(f"{'':{width}}  {'':18}  {'':9}  {line}")
        same = same and not lines
        noted += [f"{check.name}, {check.what}: {difference}" for difference in found.noted]
        for name in found.new:
            new.setdefault(Path(name).name, f"{check.name}, {check.what}: {name}")
    for title, lines in (("only AFTER writes", list(new.values())), ("differs, for people only", noted)):
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
    if arguments.only:
        checks = [check for check in checks if _matches(check.name, arguments.only)]
        if not checks:
            sys.exit(
                f"error: nothing is called {' or '.join(arguments.only)}; there are {', '.join(CASES)}, "
                "prepare, evaluate, policy, export and report"
            )
    print(f"before: {before.name}\nafter:  {after.tree if not after.kept else after.name}\n", flush=True)
    errors, made = make(before, after, checks)
    same = report(checks, errors, arguments.allow_new_keys, every=arguments.all)
    print(
        f"\n{'identical' if same else 'NOT identical'}: {len(checks)} comparisons, {made} folders made in "
        f"{time.monotonic() - began:.0f} s"
    )
    return 0 if same else 1


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before", help="a commit", metavar="BEFORE")
    parser.add_argument("after", nargs="?", help="a commit, or the folder of a checkout", metavar="AFTER")
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()) / "rota-golden", metavar="DIR")
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME", help="as in the first column; * is understood")
    parser.add_argument("--quick", action="store_true", help=f"{', '.join(QUICK)}: whole, and begun by BEFORE")
    parser.add_argument("--all", action="store_true", help="show every difference, not the first alone")
    parser.add_argument(
        "--allow-new-keys",
        nargs="+",
        default=[],
        metavar="KEY",
        help="keys of JSON files and records that AFTER may add, such as config.training.*",
    )
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
