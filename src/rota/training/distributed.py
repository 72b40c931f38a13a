"""One run trained by several processes, as ``rota train --processes`` or ``torchrun`` starts them.

Gradients go through PyTorch's DistributedDataParallel, on NCCL between GPUs and on gloo between CPUs; decisions, losses
and the wish to stop go through gloo. When processes fail, the first one to notice says so; torchrun names the culprit.
"""

from __future__ import annotations

import atexit
import gc
import logging
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from datetime import timedelta
from typing import Any, Final, cast

import numpy as np
import torch
from torch import distributed, nn
from torch._C._distributed_c10d import PrefixStore, Store
from torch.distributed.rendezvous import rendezvous
from torch.nn.parallel import DistributedDataParallel

from rota.runs.records import Record
from rota.student.hardware import refuse_number
from rota.team import Result, Team
from rota.types import FloatArray

logger = logging.getLogger(__name__)

TIMEOUT: Final = timedelta(minutes=10)
"""How long a process waits for the others before it takes one of them for lost."""

FOREVER: Final = timedelta(days=30)
"""For preparing data: nothing but the death of the process that does it ends the wait."""

PARTING: Final = 60.0
"""Seconds that a process has for saving when torchrun itself was killed."""

LEFT_ALONE: Final = "what started the processes of this run has ended before they were connected; start it again"

# Kept until the interpreter ends (_let_go). Else the last to let go of a group may be DistributedDataParallel, which
# then waits for gloo's thread with Python's lock in hand, while that thread may be waiting for the lock (torch 2.13).
_groups: list[object] = []


class RankLostError(ConnectionError):
    """This process, or another one of its run, has failed; no other process says so."""


@contextmanager
def join_team(device: str = "auto") -> Iterator[Team]:
    """The team that the environment of ``torchrun`` describes; without it, a process on its own."""
    if int(os.environ.get("WORLD_SIZE", "1")) == 1:
        yield Team()
        return
    backend = choose_backend(device)
    joined = threading.Event()
    stop_without_parent(joined=joined)
    _require_agent()
    store, rank, size = next(rendezvous("env://", timeout=TIMEOUT))
    store = PrefixStore(f"rota/{len(_groups)}", store)
    distributed.init_process_group(backend, store=store, rank=rank, world_size=size, timeout=TIMEOUT)
    _groups.append(distributed.group.WORLD)
    atexit.register(_let_go)
    joined.set()
    team = Processes(store, rank, size)
    failed = False
    try:
        yield team
    except SystemExit:  # all have stopped together
        raise
    except ValueError as mistake:  # usually all find the same one, and the first process says it
        team.leave_word(mistake)
        raise
    except BaseException as error:
        failed = True
        atexit.unregister(_let_go)
        if isinstance(error, Exception):
            team.say_once(error)
        raise
    finally:
        # NCCL would wait for kernels that wait for a process which has failed, and the reason would never be read.
        if not (failed and "nccl" in backend):
            distributed.destroy_process_group()


def _let_go() -> None:
    """Waits for gloo's threads, without Python's lock: one that wants it once the interpreter ends aborts the process.

    After a failure they may be busy until the timeout, which is not waited for.
    """
    gc.collect()  # DistributedDataParallel first
    _groups.clear()


def stop_without_parent(
    parent: Callable[[], int] = os.getppid,
    *,
    every: float = 1.0,
    grace: float = PARTING,
    end: Callable[[int], object] = os._exit,
    joined: threading.Event | None = None,
) -> threading.Thread:
    """Asks this process to stop, as SIGTERM does, soon after the process that started it has ended.

    A run then saves. A process that is still there after ``grace`` seconds waits for one that is not: it is ended.
    ``rota train --processes`` tells its own id, so that it is missed also if it ends before this is called. Until
    ``joined`` is set there is nothing to save, and the wait for the others would not notice a signal: it is ended.
    """
    began = int(os.environ.get("ROTA_LAUNCHER") or parent())  # see rota.cli.processes

    def watch() -> None:
        while parent() == began:
            time.sleep(every)
        if joined is not None and not joined.is_set():
            logger.error(LEFT_ALONE)
            end(1)
            return
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(grace)
        end(1)

    thread = threading.Thread(target=watch, name="parent watch", daemon=True)
    thread.start()
    return thread


def _require_agent(every: float = 1.0) -> None:
    """Raises if torchrun has ended: its store is there before it starts a process, and while it lives.

    A process that it started shortly before it was killed already has another parent, which is no reason to stop.
    """
    if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True":
        return
    for _ in range(3):
        try:
            socket.create_connection((os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])), timeout=5).close()
        except ConnectionRefusedError:
            time.sleep(every)
        except OSError:  # such as a name that is not known, which the rendezvous tells
            return
        else:
            return
    if os.environ.get("RANK", "0") != "0":
        raise SystemExit(1)  # the first process says why
    raise RankLostError(LEFT_ALONE)


def choose_backend(device: str) -> str:
    """NCCL where every process has a GPU of its own, with gloo beside it for what is said on the CPU."""
    refuse_number(device)
    if device == "cpu" or not torch.cuda.is_available():
        return "gloo"
    local, available = int(os.environ.get("LOCAL_RANK", "0")), torch.cuda.device_count()
    # All of them must find out, because only the first one prints.
    here = max(local + 1, int(os.environ.get("LOCAL_WORLD_SIZE", "1")))
    if here > available:
        found = f"{here} processes on this machine want a GPU each, and it has {available}"
        raise ValueError(f"{found}; start {available} with --nproc-per-node {available}, or --set student.device=cpu")
    torch.cuda.set_device(local)
    return "cpu:gloo,cuda:nccl"


class Processes(Team):
    """Several processes in step. ``store`` is the rendezvous that outlives any of them."""

    def __init__(self, store: Store, rank: int, size: int) -> None:
        self.rank, self.size = rank, size
        self._store, self._waits = store, 0

    def add_up(self, values: FloatArray) -> FloatArray:
        tensor = torch.from_numpy(values.astype(np.float64))
        distributed.all_reduce(tensor)
        return tensor.numpy()

    def anyone(self, flag: bool) -> bool:
        return bool(self.add_up(np.array([float(flag)]))[0])

    def share(self, work: Callable[[], Result]) -> Result:
        box: list[Any] = [work() if self.first else None]
        distributed.broadcast_object_list(box, src=0, device=torch.device("cpu"))
        return cast(Result, box[0])

    def after_first(self, work: Callable[[], Result]) -> Result:
        self._waits += 1
        done = f"done/{self._waits}"
        if not self.first:
            self._store.wait([done], FOREVER)
            if self._store.get(done) != b"well":
                raise SystemExit(1)  # the first process says why
            return work()
        outcome = "badly"
        try:
            result = work()
            outcome = "well"
        finally:
            self._store.set(done, outcome)
        return result

    def replicate(self, network: nn.Module) -> nn.Module:
        return DistributedDataParallel(network, gradient_as_bucket_view=True)

    def hold_back(self, replica: nn.Module) -> AbstractContextManager[None]:
        assert isinstance(replica, DistributedDataParallel)
        return cast(AbstractContextManager[None], replica.no_sync())

    def leave_word(self, mistake: Exception) -> None:
        """Why this process ends, for those that will notice it."""
        if not self.first:
            self._store.set("last word", f"rank {self.rank}: {mistake}")

    def _last_word(self) -> str | None:
        try:
            return self._store.get("last word").decode() if self._store.check(["last word"]) else None
        except distributed.DistError:
            return None

    def say_once(self, error: Exception) -> None:
        """Of several failures the first one is told, whichever process it happens to; the others end in silence."""
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # torchrun sends it to those who are left, and gives them time
        try:
            first = self._store.add("failures", 1) == 1
        except distributed.DistError:  # the store is gone, which without torchrun lives in the first process
            first = True
        if not first:
            raise SystemExit(1) from None
        if _is_broken_connection(error):
            remedy = "the same command resumes from the last checkpoint"
            raise RankLostError(f"{self._last_word() or 'another process of this run has ended or hangs'}; {remedy}")
        if not self.first:
            raise RankLostError(f"rank {self.rank}: {error}") from error


def _is_broken_connection(error: Exception) -> bool:
    """Gloo has no exception of its own; its messages name its source files."""
    return isinstance(error, distributed.DistError) or (isinstance(error, RuntimeError) and "gloo" in str(error))


class NoRecord(Record):
    """For the processes that do not write."""

    def write(self, entry: Mapping[str, Any]) -> None:
        pass

    def truncate(self, step: int | None = None) -> int | None:
        return step
