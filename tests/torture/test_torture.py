"""The harness behind ``make torture`` finds what it is there to find."""

import json
import random
from types import SimpleNamespace

import pytest

import mutations
from counts import Counts
from flips import Flips
from forks import Outcome
from inputs import BadInput, judged
from kills import contents
from rota.config import parse_yaml
from samples import CONFIG, SUITE


def ended(code, output="", memory=0):
    return Outcome(code, output, seconds=0.1, memory=memory, elapsed=0.1)


@pytest.mark.parametrize(
    ("outcome", "end"),
    [
        (ended(0), "accepted"),
        (ended(2, "some progress\nerror: config.yaml: no such thing\n"), "refused"),
        (ended(2, "error: one line\nand another\n"), "other"),
        (ended(1, "Traceback (most recent call last):\n  ...\nKeyError: 'x'\n"), "traceback"),
        (ended(1, "error: it went wrong\n"), "refused"),
        (ended(1, "run/steps.jsonl, line 3: not JSON\nrun: 20 files read, 1 problem\n"), "refused"),
        (ended(-24), "hang"),  # SIGXCPU
        (ended(-9), "hang"),
        (ended(0, memory=(1 << 30) + 1), "memory"),
        (ended(-11), "other"),
    ],
)
def test_the_end_of_a_command_is_judged(outcome, end):
    assert judged(outcome) == end


def test_a_command_that_may_work_is_not_blamed_for_its_work():
    assert judged(ended(-24), may_work=True) == "at work at the limit"


@pytest.mark.parametrize("seed", range(20))
def test_a_flip_changes_one_byte(seed):
    data = bytes(range(200))
    changed = mutations.flipped(data, random.Random(seed))
    assert sum(one != other for one, other in zip(data, changed, strict=True)) == 1


def test_mutations_differ_from_the_original_and_follow_the_seed():
    for original in (CONFIG, SUITE):
        found = [mutations.text(original, random.Random(seed)) for seed in range(60)]
        assert found == [mutations.text(original, random.Random(seed)) for seed in range(60)]
        assert len(set(found)) > 50


def test_a_mutated_tree_can_still_be_parsed():
    parsed = [parse_yaml(mutations.tree(CONFIG, random.Random(seed)).decode()) for seed in range(40)]
    assert sum(isinstance(each, dict) for each in parsed) > 30


@pytest.mark.parametrize(
    "text", ['{"step": 1, "check": "0123abcd"}\n' * 2, '{\n "step": 1,\n "check": "0123abcd"\n}\n']
)
def test_check_values_are_taken_off(text):
    kept = mutations.without_checks(text)
    assert "check" not in kept
    assert [json.loads(part) for part in (kept.splitlines() if kept.count("}") > 1 else [kept])][-1] == {"step": 1}


def test_half_of_the_trials_of_records_are_without_check_values(tmp_path, monkeypatch):
    (tmp_path / "run").mkdir()
    path = tmp_path / "run" / "steps.jsonl"
    projects = SimpleNamespace(
        state=lambda _: None,
        project=tmp_path,
        restore=lambda _: path.write_text('{"step": 1, "check": "0123abcd"}\n'),
    )
    monkeypatch.setattr(mutations, "record", lambda original, _: original.encode())
    trials = BadInput(projects, random.Random(1), Counts())
    found = []
    monkeypatch.setattr(trials, "_try", lambda *_, **__: found.append("check" in path.read_text()))
    for _ in range(100):
        projects.restore(None)
        trials.record()
    assert 30 < sum(found) < 70


def test_another_byte_in_any_file_is_another_content_unless_the_file_holds_times(tmp_path):
    (tmp_path / "steps.jsonl").write_text('{"step": 1, "loss": 2.5}\n')
    (tmp_path / "evals.jsonl").write_text('{"score": 1, "seconds": 2.5}\n')
    (tmp_path / "timings.jsonl").write_text('{"wall": 2.5}\n')
    before = contents(tmp_path)
    (tmp_path / "evals.jsonl").write_text('{"score": 1, "seconds": 3.5}\n')
    (tmp_path / "timings.jsonl").write_text('{"wall": 3.5}\n')
    assert contents(tmp_path) == before
    (tmp_path / "steps.jsonl").write_text('{"step": 1, "loss": 2.6}\n')
    (tmp_path / "left.partial").write_text("")
    after = contents(tmp_path)
    assert {name for name in after if after[name] != before.get(name)} == {"steps.jsonl", "left.partial"}


def test_kinds_of_files_are_few(tmp_path):
    names = {
        "run/checkpoints/8/state.json": "checkpoints/state.json",
        "run/translations/16.test.lala.beam1-1.txt": "translations/*.txt",
        "data/train.source.tokens": "*.tokens",
        "data/dev.lala-en.lala": "sentences",
        "run/steps.jsonl": "steps.jsonl",
    }
    assert {name: Flips._kind(tmp_path / name) for name in names} == names


def trial(tmp_path, monkeypatch, check):
    """One that tries a run with two records and two checkpoints; ``check`` is how ``rota check`` ends each time."""
    for step in ("8", "16"):
        (tmp_path / "run" / "checkpoints" / step).mkdir(parents=True)
    for name in ("steps", "evals"):
        (tmp_path / "run" / f"{name}.jsonl").write_bytes(b'{"step": 1}\n' * 4)
    flips = object.__new__(Flips)
    flips.projects = SimpleNamespace(project=tmp_path, restore=lambda _: None)
    flips.done, flips.rng, flips.counts = None, random.Random(1), Counts()
    tried = []

    def batch(trials, *_):
        tried.extend((path, content) for _, path, content in trials)
        return [check] * len(trials)

    monkeypatch.setattr("flips.run_batch", batch)
    monkeypatch.setattr("flips.run_rota", lambda *_: check)
    monkeypatch.setattr(flips, "_results", lambda *_: ("silent", "report/report.md"))
    return flips, tried


@pytest.mark.parametrize(("output", "end"), [("steps.jsonl evals.jsonl: it has 1 line", "noticed"), ("", "silent")])
def test_records_are_cut_at_the_end_of_a_line_and_it_must_be_noticed(tmp_path, monkeypatch, output, end):
    flips, tried = trial(tmp_path, monkeypatch, ended(1 if output else 0, output))
    flips.cut()
    assert {path.name for path, _ in tried} == {"steps.jsonl", "evals.jsonl"}
    assert all(content == b'{"step": 1}\n' * content.count(b"\n") for _, content in tried)
    assert {content.count(b"\n") for _, content in tried} <= {0, 1, 2, 3}
    assert {*flips.counts.ends} == {"lost ends: steps.jsonl", "lost ends: evals.jsonl"}
    assert {each for ends in flips.counts.ends.values() for each in ends} == {end}
    assert flips.counts.failed == (end == "silent")


def test_a_checkpoint_is_removed_and_must_be_noticed_and_the_newest_made_again(tmp_path, monkeypatch):
    flips, _ = trial(tmp_path, monkeypatch, ended(1, "run/checkpoints/8: it is missing"))
    flips.rng.choice = lambda folders: folders[0]
    flips.remove()
    assert flips.counts.ends == {"lost ends: an older checkpoint": {"noticed": 1}}
    flips.remove()  # 16, the only one left: check does not name it
    assert flips.counts.ends["lost ends: the newest checkpoint"] == {"silent": 1}
    flips, _ = trial(tmp_path, monkeypatch, ended(1, "run/checkpoints/16: it is missing"))
    flips.rng.choice = lambda folders: folders[-1]
    flips.remove()  # it is named, but not the same after training
    assert flips.counts.ends == {"lost ends: the newest checkpoint": {"silent": 1}}


def test_counts_are_added_saved_and_shown(tmp_path):
    counts = Counts()
    counts.add("kills: prepare", "the same")
    counts.add("kills: prepare", "lost", "data/manifest.json")
    counts.save(tmp_path / "counts.json")
    counts.merge(Counts.load(tmp_path / "counts.json"))
    assert counts.failed
    assert counts.wrong == ["kills: prepare: lost: data/manifest.json"] * 2
    assert counts.table().splitlines() == [
        "| what was tried | times | the same | lost |",
        "|---|---:|---:|---:|",
        "| kills: prepare | 4 | 2 | 2 |",
        "| **all kills** | 4 | 2 | 2 |",
    ]
