"""Rows, their file, and the list of what is measured."""

import json

import pytest

from machine.pieces import BENCHMARKS, OTHERS, Piece, plan
from rota.teachers import TEACHERS
from rota.teachers.curricula import CURRICULA
from rota.teachers.weights.presets import PRESETS
from rows import Results, Row, row, written
from run import measure


def test_a_row_holds_the_median_and_the_spread():
    found = row("limit", "small", "share", [3.0, 1.0, 2.0], "", goal="at least 1")
    assert (found.value, found.low, found.high, found.goal) == (2.0, 1.0, 3.0, "at least 1")


def test_a_row_of_nothing_is_a_mistake():
    with pytest.raises(ValueError, match="limit, share: nothing was measured"):
        row("limit", "small", "share", [], "")


@pytest.mark.parametrize(
    ("values", "unit", "text"),
    [
        ([1176.4, 1367.2, 1420.0], "tokens/s", "1,367 (1,176 to 1,420)"),
        ([0.82, 0.85, 0.87], "", "0.85 (0.82 to 0.87)"),
        ([0.254], "%", "0.25"),
        ([12.34, 45.67], "%", "29.0 (12.3 to 45.7)"),
    ],
)
def test_numbers_are_written_with_the_digits_that_matter(values, unit, text):
    assert written(row("a", "b", "c", values, unit)) == text


def test_the_file_says_what_was_measured_where(tmp_path):
    path = tmp_path / "new" / "bench.json"
    Results(path).add([row("limit", "small", "share", [0.8], "", ratio=0.8)])
    content = json.loads(path.read_text())
    assert {"processor", "cores", "python", "torch", "numpy", "rota-nmt"} <= set(content["machine"])
    assert content["rows"] == [
        {
            "benchmark": "limit",
            "setting": "small",
            "what": "share",
            "value": 0.8,
            "low": 0.8,
            "high": 0.8,
            "unit": "",
            "ratio": 0.8,
            "goal": None,
        }
    ]


def test_rows_of_the_same_piece_are_replaced_and_others_kept(tmp_path):
    path = tmp_path / "bench.json"
    Results(path).add([row("limit", "small", "share", [0.8], ""), row("limit", "small", "gone", [1], "")])
    Results(path).add([row("limit", "base", "share", [0.7], "")])
    Results(path).add([row("limit", "small", "share", [0.9], "")])
    assert [(each.setting, each.value) for each in Results(path).rows] == [("base", 0.7), ("small", 0.9)]


def test_another_file_is_not_taken_for_results(tmp_path):
    path = tmp_path / "other.json"
    path.write_text("[1, 2]")
    with pytest.raises(ValueError, match="holds no results of a benchmark; name another file"):
        Results(path)


def test_the_plan_has_each_preset_and_number_of_threads_and_memory_at_four_sizes():
    pieces = plan([], ["small", "base"], [1, 2], data=None, quick=False)
    counts = {name: sum(piece.benchmark == name for piece in pieces) for name in BENCHMARKS}
    assert counts == {"limit": 4, "time": 4, "data": 2, "teachers": 12 + 6 + 2 * len(OTHERS), "memory": 8}
    measured = {piece.teacher.split(", ")[0] for piece in pieces if piece.benchmark == "teachers"}
    # The shares of fixed are written in a config, replays need a run: neither measures anything. sb3 needs a model.
    left_out = {"fixed", "sb3", *(name for name in TEACHERS if "replay" in name)}
    assert measured - {"spot checks"} == set(TEACHERS) - left_out
    assert {f"uniform, curriculum {name}" for name in CURRICULA} <= set(OTHERS)
    assert set(PRESETS) <= set(OTHERS)
    assert len({(piece.benchmark, piece.setting) for piece in pieces}) == len(pieces)
    assert {piece.threads for piece in pieces if piece.benchmark == "memory"} == {1}, "which threads do not change"


@pytest.mark.parametrize(
    ("names", "presets", "threads", "message"),
    [
        (["speed"], ["tiny"], [1], "unknown benchmark 'speed'; there are limit, time"),
        ([], ["huge"], [1], "unknown preset 'huge'; there are tiny, small, base"),
        ([], ["tiny"], [0], "thread counts from 1 on"),
    ],
)
def test_what_cannot_be_measured_is_named(names, presets, threads, message):
    with pytest.raises(ValueError, match=message):
        plan(names, presets, threads, data=None, quick=True)


def test_pieces_that_the_file_has_are_not_measured_again(tmp_path, monkeypatch):
    measured = []

    def apart(piece: Piece) -> list[Row]:
        measured.append(piece.setting)
        return [row(piece.benchmark, piece.setting, "share", [len(measured)], "")]

    monkeypatch.setattr("run.measure_apart", apart)
    pieces = plan(["limit"], ["tiny"], [1, 2], data=None, quick=True)
    path = tmp_path / "bench.json"
    assert measure(pieces[:1], Results(path)) == 0
    assert measure(pieces, Results(path)) == 1
    assert measured == [pieces[0].setting, pieces[1].setting]
    measure(pieces, Results(path), again=True)
    assert [each.value for each in Results(path).rows] == [3, 4]
