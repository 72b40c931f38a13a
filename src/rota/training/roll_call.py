"""Which of several processes has gone, found out by the others when a connection between them breaks.

A process that waits for a dead one has its connection broken at once; one that waits for a living one only when that
has left. So a thread of each process answers for it, and says no more than that the process is alive.
"""

from __future__ import annotations

import json
import threading
import time
from typing import Final

from torch._C._distributed_c10d import Store
from torch.distributed import DistError

PATIENCE: Final = 10.0
"""Seconds to answer, once a connection is broken."""

LISTEN_EVERY: Final = 0.2
"""Seconds between two looks of a process at whether the roll is called."""

GRACE: Final = 5 * LISTEN_EVERY
"""Seconds that the last one to answer is given, when all the others have."""


class RollCall:
    """``store`` is the rendezvous. The entry of a rank: ``alive`` (it answers), ``here`` (it calls too), or its end."""

    def __init__(self, store: Store, rank: int, size: int) -> None:
        self._store, self._rank, self._size = store, rank, size
        self._closed = threading.Event()
        # A connection of its own, since the main thread may wait on the other; torch before 2.8 has no such thing.
        own: Store = getattr(store, "clone", lambda: store)()
        self._listener = threading.Thread(target=self._listen, args=(own,), daemon=True)
        self._listener.start()

    def close(self) -> None:
        self._closed.set()
        self._listener.join()

    def tell_end(self, why: str) -> None:
        """The last words of this process, for the others."""
        self._store.set(self._key(self._rank), f"ended: {' '.join(why.split())}")
        self._store.set("roll", "called")

    def gone(self) -> tuple[dict[int, str], bool]:
        """Ranks that are gone, with their last words, and whether this process was the first to find out.

        The first one decides for all: the others may come when it has left already.
        """
        self._store.set(self._key(self._rank), "here")
        self._store.set("roll", "called")
        found = json.dumps({"by": self._rank, "gone": self._call()})
        verdict = json.loads(self._store.compare_set("verdict", "", found))
        return {int(rank): how for rank, how in verdict["gone"].items()}, verdict["by"] == self._rank

    def _call(self) -> dict[int, str]:
        start = changed = time.monotonic()
        entries = self._entries()
        while not self._settled(entries, time.monotonic() - changed) and time.monotonic() - start < PATIENCE:
            time.sleep(0.05)
            if (now := self._entries()) != entries:
                entries, changed = now, time.monotonic()
        gone = {rank: entries.get(rank, "no longer answers") for rank in range(self._size)}
        gone = {rank: how for rank, how in gone.items() if how not in ("alive", "here")}
        return gone or {rank: "hangs" for rank, entry in entries.items() if entry == "alive"}

    def _settled(self, entries: dict[int, str], quiet: float) -> bool:
        if self._store.check(["verdict"]):
            return True
        if len(entries) == self._size:  # else those who are merely alive have time to come here, too
            return "alive" not in entries.values() or any(entry.startswith("ended") for entry in entries.values())
        return len(entries) == self._size - 1 and quiet > GRACE

    def _entries(self) -> dict[int, str]:
        keys = {rank: self._key(rank) for rank in range(self._size)}
        return {rank: self._store.get(key).decode() for rank, key in keys.items() if self._store.check([key])}

    def _listen(self, store: Store) -> None:
        try:
            while not self._closed.wait(LISTEN_EVERY):
                if store.check(["roll"]):
                    store.compare_set(self._key(self._rank), "", "alive")
                    return
        except DistError:  # the store is gone; who needs it will find out
            return

    @staticmethod
    def _key(rank: int) -> str:
        return f"end/{rank}"
