"""The scripts of docs/scaling.md end with a code that says whether all went well."""

import importlib
from pathlib import Path
from types import SimpleNamespace

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def long_corpus(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module("long_corpus")


@pytest.mark.parametrize(
    ("same_data", "code", "found", "memory", "message"),
    [
        (True, 0, True, 100, None),
        (True, 1, True, 100, "failed: rota train ended with code 1"),
        (True, -9, True, 100, "failed: rota train ended with code -9"),
        (False, 0, True, 100, "failed: one process, two, and an interruption gave different data"),
        (True, 0, False, 100, "failed: cleaning did not find the pairs that were written twice"),
        (True, 0, True, 5000, "failed: peak memory of 5,000 MB, 4,096 allowed"),
    ],
)
def test_a_long_corpus_passes_only_if_every_part_did(
    long_corpus, monkeypatch, tmp_path, capsys, same_data, code, found, memory, message
):
    def use(code):
        return long_corpus.Use(wall=1.0, cpu=1.0, memory=memory, processes=1, code=code)

    monkeypatch.setattr(long_corpus, "compare", lambda *_: {"same": same_data})
    monkeypatch.setattr(long_corpus, "write_corpus", lambda *_: tmp_path / "long.yaml")
    monkeypatch.setattr(long_corpus, "interrupt", lambda *_: use(143))
    monkeypatch.setattr(long_corpus, "prepare", lambda *_: use(0))
    monkeypatch.setattr(long_corpus.Manifest, "load", lambda _: SimpleNamespace(files={}))
    monkeypatch.setattr(long_corpus, "check", lambda *_: found)
    monkeypatch.setattr(long_corpus, "watched", lambda _: use(code))
    monkeypatch.setattr("sys.argv", ["long_corpus.py", "--pairs", "100", "--folder", str(tmp_path)])
    assert long_corpus.main() == (0 if message is None else 1)
    failed = [line for line in capsys.readouterr().out.splitlines() if line.startswith("failed")]
    assert (failed == []) if message is None else (len(failed) == 1 and failed[0].startswith(message))
