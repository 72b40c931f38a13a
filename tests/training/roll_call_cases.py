"""Teams of three and four processes, one or two of which come to harm: a script, so that torch is imported once.

    python roll_call_cases.py CASE ...

A case is ``NAME:SIZE:RANKS``, such as ``kill:4:3``. Prints a JSON object: what each rank that was left had to say.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import time
from datetime import timedelta
from typing import NoReturn

import numpy as np
from torch.distributed import TCPStore

from rota.training import distributed, roll_call

roll_call.PATIENCE, roll_call.LISTEN_EVERY, roll_call.GRACE = 4.0, 0.05, 1.5


def come_to_harm(how: str) -> None:
    if how == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if how == "hang":
        time.sleep(60)
    raise MemoryError("out of memory")


def be(rank: int, size: int, port: int, how: str, victims: set[int], pipe: int) -> NoReturn:
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(size)}
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "TORCHELASTIC_USE_AGENT_STORE": "True"}
    said = {"rank": rank, "speaks": False, "said": "nothing"}
    try:
        with distributed.join_team("cpu") as team:
            for turn in range(1000):
                team.share(lambda: "decision")
                team.add_up(np.zeros(2000))
                if turn == 20 and rank in victims:
                    come_to_harm(how)
    except distributed.RankLostError as error:
        said |= {"speaks": error.speaks, "said": str(error)}
    except MemoryError as error:
        said |= {"said": str(error)}
    os.write(pipe, json.dumps(said).encode() + b"\n")
    os._exit(0)


def play(case: str) -> list[dict[str, object]]:
    how, size, ranks = case.split(":")
    victims = set(map(int, ranks.split(",")))
    distributed.TIMEOUT = timedelta(seconds=5 if how == "hang" else 60)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    read, write = os.pipe()
    processes = [os.fork() or be(rank, int(size), port, how, victims, write) for rank in range(int(size))]
    os.close(write)
    # As under torchrun, it outlives every rank. It has threads, so it comes after the forks.
    store = TCPStore("127.0.0.1", port, int(size), is_master=True, wait_for_workers=False)
    if how == "hang":
        for rank in set(range(int(size))) - victims:
            os.waitpid(processes[rank], 0)
        for rank in victims:
            os.kill(processes[rank], signal.SIGKILL)
    with os.fdopen(read) as lines:
        said = [json.loads(line) for line in lines]
    del store
    return said


if __name__ == "__main__":
    sys.stdout.write(json.dumps({case: play(case) for case in sys.argv[1:]}))
