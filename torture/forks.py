"""Runs commands of Rota in forks of this process, with limits and, if asked, killed before a chosen change of a file.

torch is imported once, before the forks; otherwise a command is what ``python -m rota`` does. Processes that a suite
starts are forks too. Those that ``rota prepare --processes`` starts are not, so nothing here asks for them.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import json
import mmap
import os
import resource
import runpy
import signal
import sys
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NoReturn

IMPORTED = (
    *("torch", "torch._dynamo", "tokenizers", "sacrebleu", "safetensors.numpy", "typer", "rich.live", "rich.progress"),
    *("rich.logging", "matplotlib.figure", "matplotlib.backends.backend_agg", "matplotlib.backends.backend_svg"),
    *("rota.cli", "rota.api", "rota.training.loop", "rota.evaluation.evaluate", "rota.experiments.queue"),
    *("rota.report.several", "rota.export.hugging_face", "rota.start.points", "rota.start.vectors"),
)
CHANGES = ("os.rename", "os.link", "os.mkdir", "os.remove", "os.rmdir", "os.truncate", "shutil.rmtree")
MEMORY = 1 << 30  # more than what torch takes
WAIT = 240.0  # seconds after which a command that hangs is ended; a busy machine takes its time


def import_first() -> None:
    for name in IMPORTED:
        with suppress(ImportError):
            importlib.import_module(name)
    _build_commands_once()
    gc.freeze()  # a collection in a fork would copy what it visits


def _build_commands_once() -> None:
    """Typer reads the signatures of all commands at every start, which takes longer than refusing a config."""
    from rota.cli import app

    typer: Any = importlib.import_module("typer.main")
    commands = typer.get_command(app)
    typer.get_command = lambda _: commands


@dataclass(frozen=True)
class Outcome:
    """How a command ended: ``code`` is minus the signal if one ended it."""

    code: int
    output: str
    seconds: float  # of processor time
    memory: int  # bytes at most, beyond those of the process that it was forked from
    elapsed: float

    @property
    def traceback(self) -> bool:
        return "Traceback (most recent call last)" in self.output

    @property
    def refusal(self) -> bool:
        """One line that says what is wrong, and exit code 2."""
        return self.code == 2 and "error: " in self.output and not self.traceback

    @property
    def last_line(self) -> str:
        lines = self.output.strip().splitlines()
        return lines[-1] if lines else ""


class Moments:
    """Counts the changes of files below a folder, in this process and its forks; SIGKILL before the chosen one.

    A change is a file opened for writing, renamed, removed, cut or flushed to the disk, or a folder made or removed.
    """

    def __init__(self, folder: Path, kill_at: int | None = None) -> None:
        self.folder, self.kill_at = str(folder), kill_at
        self._count = mmap.mmap(-1, 8)

    @property
    def count(self) -> int:
        return int.from_bytes(self._count[:8], "little")

    def watch(self) -> None:
        """From now on, in this process and in what it forks."""
        sys.addaudithook(self._hear)
        fsync = os.fsync

        def counted(descriptor: Any) -> None:
            self._happens()
            fsync(descriptor)

        os.fsync = counted

    def _hear(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open":
            path, _, flags = arguments
            changes = isinstance(flags, int) and flags & (os.O_WRONLY | os.O_RDWR)
        else:
            path, changes = arguments[0] if arguments else None, event in CHANGES
        if changes and isinstance(path, str | os.PathLike):
            place = os.path.join(os.getcwd(), os.fspath(path))  # noqa: PTH109, PTH118 - called for every event
            if place.startswith(self.folder):
                self._happens()

    def _happens(self) -> None:
        if self.count == self.kill_at:
            self._count[:8] = (1 << 40).to_bytes(8, "little")  # once, not also in the process that started this one
            os.kill(os.getpid(), signal.SIGKILL)
        self._count[:8] = (self.count + 1).to_bytes(8, "little")


def run_rota(
    arguments: Sequence[str],
    folder: Path,
    *,
    stdin: bytes = b"",
    moments: Moments | None = None,
    kill_after: float | None = None,
    processor_seconds: int | None = None,
    before: Callable[[], object] = lambda: None,
    wait: float = WAIT,
) -> Outcome:
    """``rota ARGUMENTS`` in ``folder``; ``before`` is called in its process; ``kill_after`` seconds it gets SIGKILL."""
    log = folder.with_name(f"{folder.name}.log")
    source = folder.with_name(f"{folder.name}.stdin")
    source.write_bytes(stdin)
    log.unlink(missing_ok=True)
    begun = time.monotonic()
    pid = os.fork()
    if pid == 0:
        _be_rota(arguments, folder, log, source, moments, processor_seconds, before)
    with suppress(ProcessLookupError, PermissionError):
        os.setpgid(pid, pid)
    status, usage = _wait(pid, begun, kill_after, wait)
    with suppress(ProcessLookupError, PermissionError):
        if moments is None:
            os.killpg(pid, signal.SIGKILL)  # whatever it left; after a kill its children must notice themselves
    output = log.read_text("utf-8", "replace") if log.exists() else ""
    own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    memory = max(0, usage.ru_maxrss - own) * 1024
    return Outcome(status, output, usage.ru_utime + usage.ru_stime, memory, time.monotonic() - begun)


def _wait(pid: int, begun: float, kill_after: float | None, wait: float) -> tuple[int, Any]:
    limit = wait if kill_after is None else min(wait, kill_after)
    while True:
        done, status, usage = os.wait4(pid, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status), usage
        if time.monotonic() - begun > limit:
            os.kill(pid, signal.SIGKILL)
            limit = float("inf")
        time.sleep(0.002)


def _be_rota(
    arguments: Sequence[str],
    folder: Path,
    log: Path,
    source: Path,
    moments: Moments | None,
    processor_seconds: int | None,
    before: Callable[[], object],
) -> NoReturn:
    os.setpgid(0, 0)
    atexit._clear()  # of the libraries, whose turn comes in the first process; a command runs what it registers itself
    _redirect(source, log)
    os.chdir(folder)
    if processor_seconds is not None:
        used = resource.getrusage(resource.RUSAGE_SELF)
        spent = int(used.ru_utime + used.ru_stime)
        resource.setrlimit(resource.RLIMIT_CPU, (spent + processor_seconds, spent + processor_seconds + 1))
        resource.setrlimit(resource.RLIMIT_DATA, (_data_now() + MEMORY,) * 2)
    _fork_instead_of_starting()
    before()
    if moments is not None:
        moments.watch()
    os._exit(_call("rota", arguments))


def run_batch(
    trials: Sequence[tuple[Sequence[str], Path, bytes]],
    folder: Path,
    seconds: int,
    before: Callable[[], object] = lambda: None,
) -> list[Outcome]:
    """Commands that change no file, one after the other in the same fork.

    Each trial is the command, a file and what that file holds meanwhile. If a command ends the process, the others go
    on in another.
    """
    outcomes: list[Outcome] = []
    answers = folder.with_name(f"{folder.name}.answers")
    held = {path: path.read_bytes() for _, path, _ in trials}
    while len(outcomes) < len(trials):
        answers.write_text("")
        rest = trials[len(outcomes) :]

        def work(rest: Sequence[tuple[Sequence[str], Path, bytes]] = rest) -> None:
            before()
            _answer(rest, folder, answers, seconds)

        ended = run_rota((), folder, before=work)
        for path, content in held.items():
            path.write_bytes(content)
        outcomes += [Outcome(**json.loads(line)) for line in answers.read_text().splitlines()]
        if len(outcomes) < len(trials):
            outcomes.append(ended)
    return outcomes


def _answer(trials: Sequence[tuple[Sequence[str], Path, bytes]], folder: Path, answers: Path, seconds: int) -> NoReturn:
    log = folder.with_name(f"{folder.name}.log")
    resource.setrlimit(resource.RLIMIT_DATA, (_data_now() + MEMORY,) * 2)
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with answers.open("a") as file:
        for command, path, content in trials:
            held = path.read_bytes()
            path.write_bytes(content)
            os.truncate(log, 0)
            begun, used = time.monotonic(), time.process_time()
            signal.setitimer(signal.ITIMER_PROF, seconds)  # ends the process
            code = _call("rota", command, at_exit=False)
            signal.setitimer(signal.ITIMER_PROF, 0)
            now = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            output = log.read_text("utf-8", "replace")[-30_000:]
            outcome = Outcome(code, output, time.process_time() - used, (now - most) * 1024, time.monotonic() - begun)
            path.write_bytes(held)
            file.write(json.dumps(asdict(outcome)) + "\n")
            file.flush()
    os._exit(0)


def _redirect(source: Path, log: Path) -> None:
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for stream, file in enumerate((os.open(source, os.O_RDONLY), output, output)):
        os.dup2(file, stream)


def _call(module: str, arguments: Sequence[str], *, at_exit: bool = True) -> int:
    """What ``python -m module`` does, up to its exit code."""
    sys.argv = ["rota", *arguments]
    code = 0
    try:
        runpy.run_module(module, run_name="__main__", alter_sys=False)
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
        code = 1
    with suppress(Exception):
        if at_exit:
            atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
    return code


def _data_now() -> int:
    """Bytes of private memory that the process has: the limit is on these."""
    fields = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(fields["VmData"].split()[0]) * 1024


class ForkedProcess:
    """What a suite uses of ``subprocess.Popen``, without importing torch again."""

    def __init__(self, command: Sequence[str], *, stdout: Any, env: Mapping[str, str], **_: Any) -> None:
        self._code: int | None = None
        self.pid = os.fork()
        if self.pid == 0:
            for stream in (1, 2):
                os.dup2(stdout.fileno(), stream)
            os.environ.update(env)
            signal.signal(signal.SIGINT, signal.default_int_handler)
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            os._exit(_call(command[2], command[3:]))

    def poll(self) -> int | None:
        if self._code is None:
            done, status = os.waitpid(self.pid, os.WNOHANG)
            self._code = os.waitstatus_to_exitcode(status) if done else None
        return self._code

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def _fork_instead_of_starting() -> None:
    from types import SimpleNamespace

    from rota.experiments import queue

    queue.subprocess = SimpleNamespace(Popen=ForkedProcess, DEVNULL=-3, STDOUT=-2)  # type: ignore[assignment, attr-defined]
