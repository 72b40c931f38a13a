"""The shares of a run as schedules of other toolkits, from records made by hand."""

import csv
import io
import json
import logging
import re
import subprocess
import sys

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from rota.data.store import Extent, Manifest
from rota.export.schedule import in_parts, read_schedule, stages, write_schedule
from rota.runs import Run

SIZES = {"az": 200, "no": 1_000, "tr": 4_000}
LENGTHS = {"az": 10, "no": 20, "tr": 25}  # target tokens of a sentence


def entries(arms, tokens=500):
    return [{"step": step, "arm": arm, "why": "sampled", "tokens": tokens} for step, arm in enumerate(arms, start=1)]


def make_run(tmp_path, steps, *, planned=None, data=True, sizes=None):
    sizes = sizes or SIZES
    splits = {
        "train": {
            arm: Extent(start=0, sentences=size, source_tokens=1, target_tokens=size * LENGTHS[arm])
            for arm, size in sizes.items()
        }
    }
    manifest = Manifest(
        **{"languages": tuple(sizes), "low_resource": (), "target": "en", "vocabulary": 10, "splits": splits},
        **{"cleaning": {}, "settings": {}, "inputs": {}, "files": {}},
    )
    if data:
        (tmp_path / "data").mkdir(exist_ok=True)
        manifest.save(tmp_path / "data")
    folder = tmp_path / "run"
    folder.mkdir()
    config = {"training": {"steps": planned or len(steps)}, "teacher": {"name": "tscl"}}
    about = {"folder": str(tmp_path / "data"), "fingerprint": manifest.fingerprint, "sizes": sizes}
    (folder / "run.json").write_text(json.dumps({"config": config, "seed": 7, "data": about}))
    more = {"why": "sampled", "loss": 1.0}
    (folder / "steps.jsonl").write_text("".join(json.dumps(more | entry) + "\n" for entry in steps))
    return Run(folder)


def test_a_table_has_updates_tokens_and_sentences_of_every_part(tmp_path):
    steps = entries(["az", "az", "no", "tr"])
    steps[3] |= {"arm": "mixed", "tokens_by_language": {"az": 100, "tr": 300}, "tokens": 400}
    text = write_schedule(read_schedule(make_run(tmp_path, steps), windows=2), "csv")
    rows = list(csv.DictReader(io.StringIO(text)))
    assert [row["arm"] for row in rows] == ["az", "no", "tr"] * 2
    assert rows[0] == {
        **{"first": "1", "last": "2", "arm": "az", "updates": "2", "tokens": "1000", "share_of_tokens": "1.0000"},
        **{"sentences": "100", "share_of_sentences": "1.0000"},  # of 10 tokens each
    }
    second = {row["arm"]: row for row in rows[3:]}
    assert {arm: row["updates"] for arm, row in second.items()} == {"az": "0.25", "no": "1", "tr": "0.75"}
    assert {arm: row["tokens"] for arm, row in second.items()} == {"az": "100", "no": "500", "tr": "300"}
    assert {arm: row["sentences"] for arm, row in second.items()} == {"az": "10", "no": "25", "tr": "12"}
    assert second["no"]["share_of_tokens"] == "0.5556"  # 5 / 9
    assert second["no"]["share_of_sentences"] == "0.5319"  # 25 / 47


def test_weights_are_whole_shares_of_sentences(tmp_path):
    """30 updates of 500 tokens each: 1,500 sentences of az, 750 of no, 0 of tr."""
    run = make_run(tmp_path, entries(["az", "no"] * 30))
    text = write_schedule(read_schedule(run), "weights", "text/{arm}.{side}.gz")
    assert yaml.safe_load(text)["data"] == {
        "az": {"path_src": "text/az.src.gz", "path_tgt": "text/az.tgt.gz", "weight": 67},
        "no": {"path_src": "text/no.src.gz", "path_tgt": "text/no.tgt.gz", "weight": 33},
    }
    assert "# tr was never trained on" in text


def test_a_language_that_was_seen_little_keeps_a_weight(tmp_path):
    run = make_run(tmp_path, entries(["tr"] * 999 + ["no"]))
    assert yaml.safe_load(write_schedule(read_schedule(run), "weights"))["data"]["no"]["weight"] == 1


@given(st.dictionaries(st.sampled_from("abcdefgh"), st.floats(0, 1e6), min_size=1), st.integers(1, 1_000))
def test_whole_parts_sum_up_and_are_less_than_one_off(amounts, parts):
    total = sum(amounts.values())
    if total < 1e-3:
        return
    whole = in_parts(amounts, parts)
    assert sum(whole.values()) == parts
    assert all(abs(whole[name] - parts * amount / total) < 1 + 1e-6 for name, amount in amounts.items())


def read_by_opustrainer(config, sizes, at_once=100):
    """Lines of each data set by the rules of OpusTrainer: int(100 * weight) of each, until whole epochs are over."""
    total, by_stage = dict.fromkeys(sizes, 0), []
    for name in config["stages"]:
        *mix, until = config[name]
        _, watched, epochs = until.split()
        counts = {arm: int(at_once * float(weight)) for arm, weight in map(str.split, mix)}
        read = dict.fromkeys(sizes, 0)
        while read[watched] < int(epochs) * sizes[watched]:
            for arm, count in counts.items():
                read[arm] += count
        by_stage.append(read)
        total = {arm: total[arm] + read[arm] for arm in sizes}
    return total, by_stage


ARMS = [*["tr"] * 60, *["no", "tr"] * 120, *["az", "no", "no"] * 100, *["az", "tr"] * 100]


def test_opustrainer_reads_what_the_run_has_read(tmp_path):
    run = make_run(tmp_path, entries(ARMS))
    schedule = read_schedule(run, windows=10)
    config = yaml.safe_load(write_schedule(schedule, "opustrainer", "{arm}.tsv.gz"))
    assert config["datasets"] == {"az": "az.tsv.gz", "no": "no.tsv.gz", "tr": "tr.tsv.gz"}  # no is not false
    assert (config["seed"], config["num_fields"]) == (7, 2)
    expected = {arm: ARMS.count(arm) * 500 / LENGTHS[arm] for arm in SIZES}
    total, by_stage = read_by_opustrainer(config, SIZES)
    for arm in SIZES:
        assert total[arm] == pytest.approx(expected[arm], abs=0.02 * sum(expected.values()))
    assert by_stage[0]["az"] == 0  # the first updates were on other languages
    assert by_stage[-1]["no"] < 0.1 * by_stage[-1]["az"]
    assert len(by_stage) >= 7


def test_parts_without_a_whole_epoch_are_joined(tmp_path):
    """az has an epoch in every fourth part: 5 updates of 50 sentences in each of 20 parts, and 200 in an epoch."""
    run = make_run(tmp_path, entries(["az", "tr", "tr"] * 100), sizes=SIZES)
    found = stages(read_schedule(run, windows=100))
    assert len(found) < 60
    assert all(stage.epochs >= 1 for stage in found)
    lines = sum(SIZES[stage.until] * stage.epochs * 100 / stage.lines[stage.until] for stage in found)
    assert lines == pytest.approx(100 * 50 + 200 * 20, rel=0.1)


def test_a_run_of_less_than_an_epoch_is_one_stage(tmp_path):
    (stage,) = stages(read_schedule(make_run(tmp_path, entries(["tr"] * 10))))
    assert (stage.until, stage.epochs, stage.lines["tr"]) == ("tr", 1, 100)


def test_every_weight_survives_being_cut_off(tmp_path):
    from rota.export.schedule import _weight

    assert [int(100 * float(_weight(count))) for count in range(101)] == list(range(101))


def test_the_command_writes_to_a_file_or_to_standard_output(tmp_path, rota):
    run = make_run(tmp_path, entries(ARMS), planned=10_000)
    code, out, err = rota("schedule", run, "--to", "weights")
    assert (code, err) == (0, "")
    assert f"{len(ARMS)} of 10,000 updates" in out  # it is not finished
    code, out, _ = rota("schedule", run, "--to", "opustrainer", "--out", tmp_path / "new" / "stages.yml")
    assert code == 0
    assert out == f"wrote {tmp_path / 'new' / 'stages.yml'}\n"
    assert yaml.safe_load((tmp_path / "new" / "stages.yml").read_text())["stages"][0] == "part1"


def test_without_the_prepared_data_tokens_are_counted(tmp_path, rota, caplog, monkeypatch):
    monkeypatch.setattr(logging.getLogger(), "handlers", [caplog.handler])  # no other command's console
    run = make_run(tmp_path, entries(["az", "no"] * 30), data=False)
    code, out, _ = rota("schedule", run, "--to", "weights")
    assert code == 0
    assert "Shares of target tokens" in out
    assert yaml.safe_load(out)["data"]["az"]["weight"] == 50
    assert "tokens are counted instead of sentences" in caplog.text
    code, out, _ = rota("schedule", run, "--to", "csv", "--windows", 1)
    assert out.splitlines()[1] == "1,60,az,30,15000,0.5000,,"
    code, _, err = rota("schedule", run, "--to", "opustrainer")
    assert code == 2
    assert "prepare them again with its config" in err


@pytest.mark.parametrize(
    ("steps", "options", "why"),
    [
        ([], {"to": "csv"}, "has no records of updates"),
        (entries(["az"]), {"to": "cvs"}, "--to is 'cvs'; it is one of opustrainer, csv, weights"),
        (entries(["az"]), {"to": "csv", "paths": "{arm}"}, "a table has no paths"),
        (entries(["az"]), {"to": "opustrainer", "paths": "all.tsv"}, "has no {arm}"),
        (entries(["az"]), {"to": "weights", "paths": "{arm}.txt"}, "has no {side}"),
        (entries(["gl"]), {"to": "csv"}, "it is of 'gl', and the arms of the run are az, no, tr"),
        ([{"step": 1, "arm": "az"}], {"to": "csv"}, "it has no tokens"),
    ],
)
def test_what_cannot_be_written_is_refused(tmp_path, steps, options, why):
    run = make_run(tmp_path, steps)
    with pytest.raises(ValueError, match=re.escape(why)):
        write_schedule(read_schedule(run), **options)


@pytest.mark.slow
def test_opustrainer_itself_accepts_the_stages_and_reads_the_same(tmp_path):
    site = tmp_path / "site"
    new = ["opustrainer==0.5", "sacremoses==0.1.1", "joblib==1.4.2", "typo==0.1.5"]
    pip = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", str(site), *new]
    subprocess.run(pip, check=True, capture_output=True)
    run = make_run(tmp_path, entries(ARMS))
    for arm, size in SIZES.items():
        (tmp_path / f"{arm}.tsv").write_text("".join(f"{arm} {line}\t{line}\n" for line in range(size)))
    text = write_schedule(read_schedule(run, windows=10), "opustrainer", str(tmp_path / "{arm}.tsv"))
    (tmp_path / "stages.yml").write_text(text)
    program = "import sys; open(sys.argv[1], 'w').write(sys.stdin.read())"
    command = [sys.executable, "-m", "opustrainer", "-c", "stages.yml", "-j", "1"]
    subprocess.run(
        [*command, sys.executable, "-c", program, "read.tsv"], cwd=tmp_path, check=True, env={"PYTHONPATH": str(site)}
    )
    read = [line.split()[0] for line in (tmp_path / "read.tsv").read_text().splitlines()]
    expected, _ = read_by_opustrainer(yaml.safe_load(text), SIZES)
    for arm in SIZES:
        assert read.count(arm) == pytest.approx(expected[arm], abs=200)
