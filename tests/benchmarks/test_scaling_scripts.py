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


@pytest.fixture
def languages(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module("languages")


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


def figures(languages, count, **changes):
    """What a child reports where preparing and deciding grow with the languages, and nothing else does."""
    teachers = {
        teacher: {"start": 0.3, "step": [0.2, 0.3], "observe": [0.1, 0.2], "decide": [0.002 * count, 9.0], "memory": 9}
        for teacher in languages.TEACHERS
    }
    once = {"prepare": [0.05 * count, 0.04 * count], "open": 0.0001, "memory": 500.0, "open_files": 12}
    return {"languages": count, "mapped_files": 8, **once, **teachers, **changes}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({}, "nothing grows faster than the number of languages"),
        ({"prepare": [99.0, 2.56 * 9.9]}, "nothing grows faster than the number of languages"),
        (
            {"prepare": [99.0, 2.56 * 10.1]},
            "preparing, s grows faster than the number of languages: 2.56 at 64 languages, 25.9 at 512",
        ),
        ({"open": 0.049}, "nothing grows faster than the number of languages"),
        (
            {"open": 0.051},
            "opening, s grows faster than the number of languages: 0.0001 at 64 languages, 0.051 at 512",
        ),
        (
            {"open_files": 121},
            "open files grows faster than the number of languages: 12 at 64 languages, 121 at 512",
        ),
    ],
)
def test_what_grows_faster_than_the_languages_is_named_and_fails(languages, monkeypatch, capsys, changes, message):
    def child(count, *_):
        return figures(languages, count, **(changes if count == 512 else {}))

    monkeypatch.setattr(languages, "run_child", child)
    monkeypatch.setattr("sys.argv", ["languages.py", "--languages", "8", "64", "512"])
    assert languages.main() == (0 if message.startswith("nothing") else 1)
    assert capsys.readouterr().out.splitlines()[-1] == message


def test_the_cost_of_a_teacher_may_not_grow_faster_either(languages):
    slow = figures(languages, 512)
    slow["dqn"]["decide"] = [0.002 * 64 * 11]
    (found,) = languages.growth([figures(languages, 64), slow])
    assert found.startswith("deciding with dqn, s grows faster than the number of languages: 0.128 at 64")
