"""The benchmarks themselves at tiny sizes: they run, and what they find is of the right kind."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from machine.pieces import Piece, measure, measure_apart, plan
from rota import api
from rota.config import parse_config
from rows import SHARE, Row
from run import teachers_table

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
PEERS = BENCHMARKS / "peers"
DATA = {
    "corpus": "synthetic",
    "synthetic": {"families": {"la": {"lala": 200, "lato": 60}}, "dev": 40, "test": 5},
    "subwords": {"size": 400},
}


@pytest.fixture(autouse=True)
def threads_as_before():
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bench") / "data"
    api.prepare(parse_config({"name": "bench", "data": {**DATA, "folder": str(folder)}}))
    return folder


def found(piece):
    return {each.what: each for each in measure(piece)}


def test_training_stays_below_its_limit():
    rows = found(Piece("limit", "tiny", 120, 300, 1, 2))
    assert 0 < rows["share of the limit, by wall time"].value < 1.2
    assert rows["real target tokens a second of processor time"].value > 0


def test_shares_of_the_time_add_up_to_the_whole():
    rows = found(Piece("time", "tiny", 120, 300, 1, 1))
    assert sum(each.value for each in rows.values()) == pytest.approx(100)
    assert rows["matrix products of layers"].value > 5
    assert {"optimiser and clipping", "layer norm", "softmax of attention"} <= set(rows)


def test_the_streams_are_measured_beside_an_update(data):
    rows = found(Piece("data", "tiny", 100, 400, 1, 2, data=str(data)))
    assert 0 < rows["share of a training update"].value < 50
    assert 0 < rows["share of a training update, by wall time"].value < 90
    for arm in ("one language", "all languages mixed"):
        by_wall, by_processor = (
            rows[f"{arm}, target tokens a second of {clock} time"] for clock in ("wall", "processor")
        )
        assert by_wall.value > 0
        assert (by_wall.goal, by_processor.goal) == (None, "at least 2")
    assert 0 <= rows["padding inside attention, target"].value < 100


def test_a_static_teacher_costs_next_to_nothing_and_rotation_less_than_the_whole_state(data):
    what = "share of the run, decisions and observations"
    teachers = ("uniform", "dqn, variant paper", "dqn, refresh 1/5", "align")
    rows = {name: found(Piece("teachers", "tiny", 100, 400, 1, 1, name, str(data))) for name in teachers}
    assert rows["uniform"][what].ratio is None
    paper = "dqn, variant paper"
    assert rows["uniform"][what].value < rows[paper][what].value
    assert rows["uniform"][f"{what}, by wall time"].value < rows[paper][f"{what}, by wall time"].value
    predicted = {name: rows[name]["predicted from operations"].value for name in teachers}
    assert predicted["uniform"] == 0
    assert 0 < predicted["dqn, refresh 1/5"] < predicted[paper]
    assert 0 < predicted["align"] < predicted["dqn, refresh 1/5"]
    assert rows["align"][what].value > 0


@pytest.mark.parametrize(
    "name",
    [
        *("tscl, variant rota", "dqn, variant rota", "late", "caps", "ccl-m", "weight-change", "spot checks"),
        *(f"uniform, curriculum {name}" for name in ("norm", "relative-loss", "actor-critic", "dropout-variance")),
    ],
)
def test_what_is_measured_now_and_then_and_besides_teachers_has_its_cost(data, name):
    rows = found(Piece("teachers", "tiny", 100, 400, 1, 1, name, str(data)))
    assert 0 <= rows["share of the run, decisions and observations"].value < 100
    least = {"uniform, curriculum dropout-variance": 30, "late": 0}.get(name, 0.001)
    assert rows["share of the run, decisions and observations"].value >= least


def test_all_teachers_are_in_one_table():
    rows = [
        Row("teachers", f"{name}, {size}, 8,000 subwords, 1 thread", SHARE + clock, value, value, value, "%")
        for name, size, value in (
            ("uniform", "tiny, 750 tokens", 0.5),
            ("dqn, refresh 1/5", "small, 8,000 tokens", 4.5),
        )
        for clock in ("", ", by wall time")
    ]
    found = teachers_table(rows)
    assert found.row_count == 2
    assert [str(column.header) for column in found.columns] == [
        "teacher",
        "tiny, 750 tokens, 1 thread",
        "small, 8,000 tokens, 1 thread",
    ]
    assert [list(column.cells) for column in found.columns] == [
        ["uniform", "dqn, refresh 1/5"],
        ["0.50", ""],
        ["", "4.5"],
    ]


@pytest.fixture
def run(monkeypatch, capsys):
    """Calls ``python benchmarks/run.py``; gives exit code, standard output and standard error."""
    import run

    def call(*arguments):
        monkeypatch.setattr(sys, "argv", ["run.py", *map(str, arguments)])
        try:
            code = run.main()
        except SystemExit as end:
            code = end.code
        output = capsys.readouterr()
        return code, output.out, output.err

    return call


def test_the_command_measures_in_fresh_processes_and_goes_on_with_its_file(run, tmp_path):
    path = tmp_path / "bench.json"
    code, output, _ = run("memory", "--quick", "--threads", "1", "--json", path)
    assert code == 0
    assert "peak resident memory" in output
    rows = {each["what"]: each["value"] for each in json.loads(path.read_text())["rows"]}
    assert rows["peak resident memory"] > rows["of it, before the student is built"] > 20
    code, output, _ = run("memory", "--quick", "--threads", "1", "--json", path)
    assert code == 0
    assert "1 of 1 were in" in output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["speed"], "unknown benchmark 'speed'; there are machine, limit, time, data, teachers, memory, data_path"),
        (["limit", "--threads", "one"], "--threads is 'one'; write for example 1,2"),
        (["limit", "--preset", "huge"], "unknown preset 'huge'"),
    ],
)
def test_mistakes_are_one_line(run, arguments, message):
    code, _, error = run(*arguments)
    assert code == 2
    assert message in error


def test_data_that_are_not_prepared_are_named(run, tmp_path):
    code, _, error = run("data", "--quick", "--data", tmp_path)
    assert code == 2
    assert "holds no prepared data; make them with rota prepare" in error


def test_a_process_that_fails_says_why(monkeypatch):
    failed = subprocess.CompletedProcess([], 1, stderr="Traceback\nMemoryError: too much\n")
    monkeypatch.setattr("machine.pieces.subprocess.run", lambda *_, **__: failed)
    with pytest.raises(ValueError, match=r"benchmark memory \(tiny, .*\) failed: MemoryError: too much"):
        measure_apart(Piece("memory", "tiny", 100, 400, 1, 1))


def test_quick_is_small():
    assert all(
        piece.tokens <= 300 and piece.preset == "tiny" for piece in plan([], ["tiny"], [1], data=None, quick=True)
    )


def test_our_driver_counts_every_target_token_once(data, tmp_path):
    sys.path.insert(0, str(PEERS))
    try:
        from text import pairs_in, write_text
    finally:
        sys.path.remove(str(PEERS))
    store = api.Store.open(data)
    text, out = tmp_path / "text", tmp_path / "rota.jsonl"
    write_text(store, text, 40)
    lines = (text / "train.tgt").read_text().splitlines()
    assert len(lines) == pairs_in(text) == 40
    assert all(word.startswith("t") for line in lines for word in line.split())
    wanted = {"text": str(text), "data": str(data), "out": str(out), "preset": "tiny", "dropout": 0.3, "seed": 1}
    wanted |= {"label_smoothing": 0.1, "vocabulary": store.manifest.vocabulary, "threads": 1, "updates": 1}
    tokens = sum(len(line.split()) + 1 for line in lines)
    (tmp_path / "wanted.json").write_text(json.dumps(wanted | {"tokens": tokens}))
    command = [sys.executable, PEERS / "drivers" / "train_rota.py", tmp_path / "wanted.json"]
    subprocess.run(command, check=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    (update,) = map(json.loads, out.read_text().splitlines())
    assert update["tokens"] == update["positions"] == tokens


@pytest.mark.parametrize("name", ["exp3-s", "odm", "loss-softmax", "multidds-s", "multiuat", "pike"])
def test_what_a_preset_measures_is_in_its_time_and_in_its_prediction(data, name):
    """One of each kind of measure."""
    rows = found(Piece("teachers", "tiny", 100, 400, 1, 1, name, str(data)))
    assert 0 < rows["share of the run, decisions and observations"].value < 100
    assert (rows["predicted from operations"].value > 0) == (name != "odm"), "training losses cost nothing"
