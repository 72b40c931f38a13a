"""Several processes that prepare the same folder: one works, the others wait, a kill blocks nobody."""

import errno
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from small_corpus import run

from rota.data.corpora.download import alone_in
from rota.data.store import Store

PREPARE = """
import logging, sys, time
from pathlib import Path
sys.path.insert(0, {here!r})
from small_corpus import run
from rota.data.corpora.sources import CorpusConfig

def pause(stage, done, total):
    if {pauses} and stage == "encoding":
        print("paused", flush=True)
        time.sleep(60)

logging.basicConfig(stream=sys.stdout, format="%(message)s")
store = run(CorpusConfig.model_validate_json({corpus!r}), Path({folder!r}), progress=pause)
print(store.fingerprint)
"""


def another_process(corpus, folder, *, pauses=False):
    """A Python of its own that prepares the same folder; it stops in the middle if it ``pauses``."""
    here, content = Path(__file__).parent, corpus.model_dump_json()
    script = PREPARE.format(here=str(here), corpus=content, folder=str(folder), pauses=pauses)
    return subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)


def test_of_two_processes_one_prepares_and_the_other_waits_for_it(corpus, tmp_path):
    others = []

    def start_the_other(stage, done, total):
        if stage == "encoding" and not others:
            others.append(another_process(corpus, tmp_path / "data"))
            others.append(others[0].stdout.readline())  # so the other waits before we go on

    store = run(corpus, tmp_path / "data", progress=start_the_other)
    other, said = others
    assert said == f"{tmp_path}/data is being prepared by another process; waiting for it\n"
    assert other.communicate(timeout=60)[0] == f"{store.fingerprint}\n"
    assert other.returncode == 0
    store.check()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data", "text"]


def test_three_processes_at_once_all_get_the_data(corpus, tmp_path):
    processes = [another_process(corpus, tmp_path / "data") for _ in range(3)]
    fingerprints = {process.communicate(timeout=60)[0].splitlines()[-1] for process in processes}
    assert fingerprints == {Store.open(tmp_path / "data").fingerprint}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data", "text"]


def test_a_killed_preparation_neither_blocks_the_next_nor_leaves_anything(corpus, tmp_path, caplog):
    with another_process(corpus, tmp_path / "data", pauses=True) as process:
        assert process.stdout.readline() == "paused\n"
        process.kill()
    assert sorted(path.name for path in tmp_path.iterdir()) == [".data.lock", ".data.partial", "text"]
    run(corpus, tmp_path / "data").check()
    assert not caplog.records
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data", "text"]


def test_who_has_waited_holds_a_lock_that_others_can_see(tmp_path, caplog):
    inside, leave = threading.Event(), threading.Event()

    def wait_and_stay():
        with alone_in(tmp_path / "data"):
            inside.set()
            leave.wait(timeout=60)

    second = threading.Thread(target=wait_and_stay)
    with alone_in(tmp_path / "data"):
        second.start()
        while "waiting for it" not in caplog.text:
            time.sleep(0.01)
        assert not inside.is_set()
    assert inside.wait(timeout=60)
    assert (tmp_path / ".data.lock").exists()  # not the file that the first has just removed
    leave.set()
    second.join()
    assert list(tmp_path.iterdir()) == []


def test_a_file_system_without_locks_is_named(corpus, tmp_path, monkeypatch):
    def refuse(file, how):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr("fcntl.flock", refuse)
    with pytest.raises(ValueError, match=r"data\.lock cannot be locked \(No locks available\); set data\.folder"):
        run(corpus, tmp_path / "data")
