"""Runs commands of Rota for golden.py: imports once what takes long, then forks for each command.

Reads jobs as lines of JSON from the standard input, and answers each with the exit codes of its processes. The code of
Rota itself is imported after the fork, from the folder that the job names.
"""

from __future__ import annotations

import atexit
import importlib
import json
import os
import runpy
import signal
import socket
import sys
import traceback
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

SECONDS = 1200  # after which a process that hangs is ended; a busy machine takes its time
IMPORTED = (
    *("torch", "torch._dynamo", "torch.distributed", "torch.nn.parallel", "torch.utils.tensorboard", "tokenizers"),
    *("sacrebleu", "safetensors.numpy", "pydantic.plugin", "ruamel.yaml", "typer", "rich.live", "rich.progress"),
    *("rich.logging", "matplotlib.figure", "matplotlib.backends.backend_agg", "matplotlib.backends.backend_svg"),
)


def main() -> None:
    for name in IMPORTED:
        with suppress(ImportError):
            importlib.import_module(name)
    for line in sys.stdin:
        job = json.loads(line)
        port = free_port()
        pids = [os.fork() or be_rota(job, rank, port) for rank in range(job["processes"])]
        codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids]
        print(json.dumps(codes), flush=True)


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port


def be_rota(job: dict[str, Any], rank: int, port: int) -> NoReturn:
    """Do what ``python -m rota`` does, started by torchrun if there are several processes."""
    signal.alarm(SECONDS)
    output = os.open(job["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for stream, file in enumerate((os.open(os.devnull, os.O_RDONLY), output, output)):
        os.dup2(file, stream)
    os.chdir(job["cwd"])
    os.environ["PYTHONPATH"] = job["source"]
    if job["processes"] > 1:
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
    used = Path(sys.modules["rota"].__file__ or "") if "rota" in sys.modules else None
    if used and not used.is_relative_to(job["source"]):
        print(f"this was another version: {used}")
        code = 1
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    main()
