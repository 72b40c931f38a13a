"""Translating in several processes: the same translations, and nothing left behind when something goes wrong."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
import torch
from student_cases import make_network, random_pairs

from rota.student import search
from rota.student.hardware import TooLargeError
from rota.student.search import EncoderCache, Part, Search, translate, translate_parts
from rota.student.search.workers import Workers, can_fork

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux has several processes")

LENGTHS = (7, 2, 12, 4, 4, 1, 9, 8, 3, 5, 5, 6)


def sources(*lengths: int) -> list[np.ndarray]:
    return [np.array(source, dtype=np.int32) for source, _ in random_pairs(*((length, 1) for length in lengths))]


def plain(found: list[search.Hypothesis]) -> list[tuple[list[int], float]]:
    return [(hypothesis.ids.tolist(), hypothesis.score) for hypothesis in found]


def children() -> set[int]:
    return set(map(int, Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read_text().split()))


@pytest.mark.parametrize("beam", [1, 3])
def test_two_processes_translate_bit_for_bit_as_one_does(beam):
    networks = [make_network(0, spread=0.25), make_network(1, spread=0.25)]
    alone = translate(networks, sources(*LENGTHS), beam=beam, batch_tokens=20 * beam)
    assert len({tuple(ids) for ids, _ in plain(alone)}) > 6
    before, finished = children(), []
    together = translate(
        networks, sources(*LENGTHS), beam=beam, batch_tokens=20 * beam, processes=2, progress=finished.append
    )
    assert plain(together) == plain(alone)
    assert sum(finished) == len(LENGTHS)
    assert len(finished) > 3
    assert children() == before, "they end with the translation"


def test_the_work_is_done_by_other_processes(monkeypatch):
    def told_by(networks, chosen, *_):
        return [search.Hypothesis(np.array([os.getpid()]), float(torch.get_num_threads())) for _ in chosen]

    monkeypatch.setattr(search.batches, "_search", told_by)
    found = plain(translate([make_network()], sources(*LENGTHS), batch_tokens=50, processes=2))
    assert len({ids[0] for ids, _ in found}) == 2
    assert os.getpid() not in {ids[0] for ids, _ in found}
    assert {threads for _, threads in found} == {1.0}
    found = plain(translate([make_network()], sources(*LENGTHS), processes=2))
    assert {ids[0] for ids, _ in found} == {os.getpid()}, "one batch needs no other process"


@pytest.mark.parametrize("processes", [1, 2])
def test_parts_come_in_order_and_share_no_batch(processes):
    network = make_network(spread=0.25)
    parts = [Part(sources(3, 9)), Part([]), Part(sources(4, 4, 4)), Part(sources(12), first=[7]), Part([])]
    settings, told = Search(beam=2), []
    found = list(
        translate_parts([network], parts, settings, processes=processes, progress=lambda *numbers: told.append(numbers))
    )
    expected = [translate([network], part.sources, beam=2, first=part.first) for part in parts]
    assert [plain(each) for each in found] == [plain(each) for each in expected]
    assert sorted(told) == [(0, 2), (2, 3), (3, 1)]


@pytest.mark.parametrize("processes", [1, 2])
def test_a_batch_that_does_not_fit_is_divided_in_any_process(monkeypatch, caplog, processes):
    whole = translate([make_network()], sources(*LENGTHS), beam=2)
    attempt = search.batches._search

    def fits(networks, chosen, *rest):
        if len(chosen) > 2:
            raise RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory")
        return attempt(networks, chosen, *rest)

    monkeypatch.setattr(search.batches, "_search", fits)
    with caplog.at_level(logging.WARNING):
        found = translate([make_network()], sources(*LENGTHS), beam=2, batch_tokens=100, processes=processes)
    assert [ids for ids, _ in plain(found)] == [ids for ids, _ in plain(whole)]
    assert "do not fit into memory; continuing with half as many" in caplog.text


@pytest.mark.parametrize("processes", [1, 2])
def test_other_errors_are_those_of_the_process_that_has_them(monkeypatch, processes):
    def fail(*_):
        raise ZeroDivisionError("no such thing")

    before = children()
    monkeypatch.setattr(search.batches, "_search", fail)
    with pytest.raises(ZeroDivisionError, match="no such thing"):
        translate([make_network()], sources(*LENGTHS), batch_tokens=50, processes=processes)
    assert children() == before


@pytest.mark.parametrize(("how", "error"), [(signal.SIGKILL, TooLargeError), (signal.SIGTERM, ChildProcessError)])
def test_a_process_that_was_killed_is_noticed(monkeypatch, how, error):
    monkeypatch.setattr(search.batches, "_search", lambda *_: os.kill(os.getpid(), how))
    before = children()
    with pytest.raises(error, match="use --threads 1"):
        translate([make_network()], sources(*LENGTHS), batch_tokens=50, processes=2)
    assert children() == before


def test_stopping_early_leaves_no_process():
    before = children()
    parts = [Part(sources(length)) for length in LENGTHS]
    with closing(translate_parts([make_network()], parts, Search(beam=2), processes=2)) as found:
        next(found)
        assert len(children() - before) == 2
    assert children() == before


def test_ctrl_c_is_for_the_parent_alone():
    with Workers(1, lambda _: signal.getsignal(signal.SIGINT) is signal.SIG_IGN) as workers:
        tasks = [1]
        assert list(workers.run(lambda: tasks.pop() if tasks else None)) == [(1, True)]


def test_processes_end_when_their_parent_is_killed():
    script = """
import os, sys, time
from rota.student.search.workers import Workers
tasks = [1, 2]
with Workers(2, lambda _: os.getpid()) as workers:
    print(*(pid for _, pid in workers.run(lambda: tasks.pop() if tasks else None)), flush=True)
    time.sleep(60)
"""
    parent = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    workers = list(map(int, parent.stdout.readline().split()))
    parent.kill()
    parent.wait()
    parent.stdout.close()
    limit = time.monotonic() + 20
    while any(map(is_running, workers)) and time.monotonic() < limit:
        time.sleep(0.02)
    assert not any(map(is_running, workers))


def is_running(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_what_encoders_said_is_kept_for_the_next_time(monkeypatch):
    network, cache, calls = make_network(), EncoderCache(), []
    encode = type(network).encode
    monkeypatch.setattr(type(network), "encode", lambda self, *rest: calls.append(1) or encode(self, *rest))
    first = translate([network], sources(*LENGTHS), batch_tokens=100, cache=cache, processes=2)
    batches = len(calls)
    assert batches > 2
    again = translate([network], sources(*LENGTHS), batch_tokens=100, cache=cache, processes=2)
    assert len(calls) == batches
    assert plain(again) == plain(first) == plain(translate([network], sources(*LENGTHS), batch_tokens=100))


def test_other_systems_and_daemons_have_one_process(monkeypatch):
    assert can_fork()
    monkeypatch.setattr(sys, "platform", "darwin")
    assert not can_fork()
