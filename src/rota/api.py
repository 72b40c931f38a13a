"""From a config to a prepared folder, a trained run, scores: what the commands do, for use from Python too."""

from __future__ import annotations

import fcntl
import json
import os
import platform
import shutil
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal, Unpack

import numpy as np
import torch

from rota.checks import check_before_preparing
from rota.config import RunConfig, parse_config
from rota.data.batches import make_stream
from rota.data.prepare import Progress as PrepareProgress
from rota.data.prepare import prepare as prepare_data
from rota.data.store import Store
from rota.evaluation.config import Changes, EvaluationConfig
from rota.evaluation.evaluate import Evaluation
from rota.evaluation.evaluate import evaluate as evaluate_run
from rota.evaluation.translations import Progress
from rota.evaluation.translator import read_run
from rota.files import write_atomically
from rota.runs.checkpoints import Checkpoints
from rota.runs.records import Record
from rota.settings import FREE, ConfigError, leaves
from rota.student.nmt import build_student
from rota.student.team import Team
from rota.teachers import Classroom, build_teacher
from rota.training.devsets import DevSets
from rota.training.distributed import NoRecord, join_team
from rota.training.journal import Journal
from rota.training.loop import Listener, Loop
from rota.training.probe import Probe
from rota.training.streams import Streams
from rota.training.tensorboard import TensorBoard


def cache_folder() -> Path:
    """Where downloads are kept: ``ROTA_CACHE``, else the user's cache folder."""
    default = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "rota"
    return Path(os.environ.get("ROTA_CACHE", default))


def prepare(
    config: RunConfig, *, again: bool = False, processes: int | None = None, progress: PrepareProgress | None = None
) -> Store:
    """The encoded data of a config; nothing is done if they are there already.

    ``processes``: by default one for each core if the corpus is large, else this one alone.
    """
    return prepare_data(
        config.data.corpus_config,
        config.data.cleaning,
        config.data.subwords,
        config.data_folder,
        cache=cache_folder(),
        seed=config.data.seed,
        again=again,
        processes=processes,
        progress=progress,
    )


def build_loop(config: RunConfig, store: Store, run: Path, team: Team | None = None) -> Loop:
    """All parts of a run, put together and brought to where the run stands; ``team`` trains it together."""
    training, team = config.training, team or Team()
    store.check()
    if training.threads is not None:
        torch.set_num_threads(training.threads)
    classroom = Classroom(store.sizes, store.low_resource, training.steps)
    student = build_student(
        config.student,
        vocabulary=store.manifest.vocabulary,
        steps=training.steps,
        seed=seed_for(config.seed, "student"),
        team=team,
    )
    sets = DevSets(
        store,
        config.teacher.measurements(),
        teacher_share=training.teacher_dev,
        validate_tokens=training.validate_tokens,
    )
    budget = {store.languages[-1]: training.last_arm_tokens or training.tokens}
    streams_seed = seed_for(config.seed, "streams")
    loop = Loop(
        student,
        build_teacher(config.teacher, classroom, np.random.default_rng(seed_for(config.seed, "teacher"))),
        Streams(lambda arm: make_stream(store, arm, budget.get(arm, training.tokens), streams_seed)),
        Probe(student, sets),
        Journal(run, Record if team.first else NoRecord),
        Checkpoints(run / "checkpoints", keep=training.keep),
        training,
        decide_every=config.teacher.decide_every,
        observe_every=config.teacher.observe_every,
        listens=config.teacher.listens,
        team=team,
    )
    team.after_first(lambda: start_run(config, store, sets, run))
    loop.resume()
    return loop


@contextmanager
def locked(run: Path, team: Team | None = None) -> Iterator[None]:
    """Only one process, or one team, trains a run; the lock goes with the first process, however it ends."""
    if team is not None and not team.first:
        yield
        return
    with only_holder(run, f"another process is training {run}; wait for it, or choose another folder"):
        yield


@contextmanager
def only_holder(folder: Path, refusal: str) -> Iterator[None]:
    """One process at a time holds the folder, which is made; the others are refused, not kept waiting."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        raise ValueError(f"{folder} cannot be a folder, since there is a file of that name; choose another") from None
    with (folder / ".lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ValueError(refusal) from None
        yield


def run_loop(
    loop: Loop,
    config: RunConfig,
    run: Path,
    *,
    until: int | None = None,
    listeners: Sequence[Listener] = (),
    stop: Callable[[], bool] = lambda: False,
) -> None:
    """Train until ``until``, the end, or ``stop``, with TensorBoard beside the given listeners."""
    board = TensorBoard(run / "tensorboard", loop.step) if config.training.tensorboard and loop.team.first else None
    loop.listeners = [*listeners, *([board] if board else [])] if loop.team.first else []
    try:
        loop.run(until, stop)
    finally:
        loop.journal.close()
        if board:
            board.close()


def train(config: RunConfig, run: Path | str, *, until: int | None = None, listeners: Sequence[Listener] = ()) -> Loop:
    """Train, or go on training, the run in the folder ``run``; the data are prepared first if need be.

    Under ``torchrun`` its processes train the run together; listeners hear of it in the first one alone.
    """
    run = Path(run)
    with join_team(config.student.device) as team, locked(run, team):
        check_before_preparing(config, run, team)
        loop = build_loop(config, team.after_first(lambda: prepare(config)), run, team)
        if loop.step < loop.steps:
            run_loop(loop, config, run, until=until, listeners=listeners)
    return loop


def evaluate(
    run: Path | str,
    *,
    split: Literal["dev", "test"] = "test",
    step: int | None = None,
    progress: Progress = lambda *_: None,
    **changes: Unpack[Changes],
) -> Evaluation:
    """Translate and score a run's test (or dev) sets; ``changes`` take the place of the settings in its config.

    ``select``: low-resource, macro, high-resource, loss or none. ``combine``: last, average or ensemble.
    """
    run = Path(run)
    about = read_run(run)
    store = Store.open(Path(about["data"]["folder"]))
    if store.fingerprint != about["data"]["fingerprint"]:
        raise ValueError(
            f"{store.folder} holds other data than {run} was trained on; prepare those again, or train anew"
        )
    written = EvaluationConfig.model_validate(about["config"]["evaluation"])
    config = written.changed(step=step, **changes)
    return evaluate_run(run, store, config, split=split, step=step, progress=progress)


def start_run(config: RunConfig, store: Store, sets: DevSets, run: Path) -> None:
    """Write what the run is, or make sure that the folder holds this very run."""
    about = describe(config, store) | {"measured": sets.sizes()}
    if (run / "steps.jsonl.gz").exists():
        raise ConfigError(f"{run} holds published records, without models to go on from; choose another folder")
    if (run / "run.json").exists():
        _same_run(read_run(run), about, run)
        return
    run.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(store.folder / "subwords.json", run / "subwords.json")
    write_atomically(run / "run.json", json.dumps(about, indent=1, ensure_ascii=False) + "\n")


def describe(config: RunConfig, store: Store) -> dict[str, Any]:
    """What ``run.json`` says: resolved config, data, versions, hardware."""
    data = {"folder": str(store.folder.resolve()), "fingerprint": store.fingerprint}
    names = ("rota-nmt", "torch", "numpy", "tokenizers", "sacrebleu")
    hardware = {"machine": platform.machine(), "cores": os.cpu_count(), "threads": torch.get_num_threads()}
    return {
        "config": config.dump(),
        "config_fingerprint": config.fingerprint,
        "seed": config.seed,
        "data": {**data, "low_resource": list(store.low_resource), "sizes": dict(store.sizes)},
        "versions": {name: version(name) for name in names} | {"python": platform.python_version()},
        "hardware": hardware,
    }


def _same_run(before: dict[str, Any], now: dict[str, Any], run: Path) -> None:
    if before["data"]["fingerprint"] != now["data"]["fingerprint"]:
        raise ConfigError(f"{run} was trained on other data; choose another folder with --run, or delete this one")
    change = difference(before["config"], now["config"])
    if change is not None:
        raise ConfigError(f"{run} holds another run: {change}; choose another folder with --run, or delete it")


def difference(before: dict[str, Any], now: dict[str, Any]) -> str | None:
    """The first setting that makes two dumped configs two runs, with both values; None if it is the same run."""
    old, new = leaves(_with_defaults(before)), leaves(now)
    for key in sorted({*old, *new} - FREE):
        if old.get(key) != new.get(key) and not key.startswith(("evaluation.", "data.")):
            return f"{key} was {old.get(key)!r} and is {new.get(key)!r}"
    return None


def _with_defaults(dumped: dict[str, Any]) -> dict[str, Any]:
    """A config as an older version wrote it, with the settings that came since; as it is, if one has gone since."""
    try:
        return parse_config(dumped).dump()
    except ConfigError:
        return dumped


def seed_for(seed: int, component: str) -> int:
    """A seed of its own for each component, so that adding one changes no other."""
    return int(np.random.SeedSequence([seed, zlib.crc32(component.encode())]).generate_state(1)[0])
