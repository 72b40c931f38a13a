"""A run that is older than a setting whose default has changed since: it keeps what it did, and resumes."""

import json

import pytest

from rota import api
from rota.config import as_begun, parse_config, parse_recorded
from rota.data.batches import LanguageStream, MixtureStream
from rota.evaluation.selection import selection_pairs
from rota.files import read_json
from rota.report.study import first_difference
from rota.runs import Run
from rota.settings import BEFORE, ConfigError, with_earlier
from rota.types import Mixture

VALUES = {
    "data": {
        "corpus": "synthetic",
        "synthetic": {"families": {"la": {"lala": 200, "lato": 60}}, "dev": 20, "test": 4},
        "subwords": {"size": 300},
    },
    "student": {"preset": "tiny", "width": 16, "heads": 2, "feedforward": 16, "layers": 1, "lr_warmup": 2},
    "teacher": {"name": "tscl", "warmup": None},
    "training": {"steps": 6, "tokens": 60, "checkpoint_every": 3, "validate_every": 3, "threads": 1},
}
RECORDS = ("steps", "observations", "rewards", "validations")


def config(tmp_path, **training):
    data = {**VALUES["data"], "folder": str(tmp_path / "data")}
    return parse_config({**VALUES, "data": data, "training": {**VALUES["training"], **training}})


TRAINING = {key.removeprefix("training."): value for key, value in BEFORE.items() if key.startswith("training.")}


def earlier(tmp_path):
    """The settings of the time before, written out."""
    return config(tmp_path, **TRAINING)


def without_later_settings(run):
    """Its description as a version wrote it that did not have the settings yet."""
    about = dict(run.about)  # without its check value, which those versions did not write
    run.about_path.write_text(json.dumps(about | {"config": stripped(about["config"])}))


def stripped(dumped):
    return dumped | {"training": {key: value for key, value in dumped["training"].items() if key not in TRAINING}}


@pytest.fixture
def old_run(tmp_path):
    """At step 3 of 6."""
    run = Run(tmp_path / "old")
    api.train(earlier(tmp_path), run.folder, until=3)
    without_later_settings(run)
    return run


def test_an_earlier_run_resumes_bit_for_bit_with_a_config_that_names_no_later_setting(old_run, tmp_path):
    whole = Run(tmp_path / "whole")
    api.train(earlier(tmp_path), whole.folder)
    api.train(config(tmp_path), old_run.folder)
    for name in RECORDS:
        assert old_run.record_path(name).read_bytes() == whole.record_path(name).read_bytes()


def test_a_new_run_measures_other_sentences(tmp_path):
    before, now = Run(tmp_path / "before"), Run(tmp_path / "now")
    api.train(earlier(tmp_path), before.folder)
    api.train(config(tmp_path), now.folder)
    assert now.setting("config.training.dev_division") == "text"
    assert now.record_path("validations").read_bytes() != before.record_path("validations").read_bytes()


def test_a_config_that_names_another_value_is_another_run(old_run, tmp_path):
    with pytest.raises(ConfigError, match="training.dev_division was 'alternate' and is 'text'"):
        api.train(config(tmp_path, dev_division="text"), old_run.folder)


def test_the_selection_of_an_earlier_run_is_on_the_sentences_that_its_teacher_did_not_see(old_run, tmp_path):
    assert old_run.setting("config.training.dev_division") == "alternate"
    store = api.prepare(config(tmp_path))
    pairs = selection_pairs(store, ["lala"], 0.5, old_run.setting("config.training.dev_division"))
    assert pairs["lala"] == store.text("dev", "lala")[1::2]


def test_a_report_does_not_take_an_earlier_and_a_new_run_for_two_seeds_of_one_row(tmp_path):
    old, new = ({"config": each.dump(), "seed": 1} for each in (earlier(tmp_path), config(tmp_path)))
    old["config"] = stripped(old["config"])
    assert first_difference(old, new) == ("training.dev_division", "alternate", "text")
    assert first_difference(old, {"config": earlier(tmp_path).dump(), "seed": 1}) is None


def test_a_recorded_config_is_read_as_it_was_meant(tmp_path):
    dumped = stripped(earlier(tmp_path).dump())
    assert parse_recorded(dumped) == earlier(tmp_path)
    assert as_begun(config(tmp_path), dumped).dump() == earlier(tmp_path).dump()
    assert as_begun(config(tmp_path), config(tmp_path).dump()) == config(tmp_path)


def test_only_the_teacher_that_has_a_setting_is_given_what_it_did_before():
    shuffled = with_earlier({"teacher": {"name": "replay-shuffled", "run": "other"}})
    assert shuffled["teacher"]["split_at_warmup"] is False
    assert with_earlier({"teacher": {"name": "replay-exact", "run": "other"}})["teacher"] == {
        "name": "replay-exact",
        "run": "other",
    }


def test_mixed_batches_of_an_earlier_run_stay_sorted_by_length(tmp_path):
    mixed = {"teacher": "mixed", "data": {**VALUES["data"], "folder": str(tmp_path / "data")}}
    by_length = parse_config({**VALUES, **mixed, "training": {**VALUES["training"], **TRAINING}})
    old, whole, new = (Run(tmp_path / name) for name in ("old", "whole", "new"))
    api.train(by_length, old.folder, until=3)
    without_later_settings(old)
    api.train(parse_config({**VALUES, **mixed}), old.folder)
    api.train(by_length, whole.folder)
    api.train(parse_config({**VALUES, **mixed}), new.folder)
    steps = [run.record_path("steps").read_bytes() for run in (old, whole, new)]
    assert steps[0] == steps[1] != steps[2]


WARMED = {"name": "mixed", "warmup": 3, "decide_every": 2}


def test_a_run_whose_checkpoint_gives_mixtures_by_name_alone_resumes_bit_for_bit(tmp_path, monkeypatch):
    """Before decisions carried their mixture, neither they nor the streams said what ``mixed`` is made of."""
    values = {**VALUES, "teacher": WARMED, "data": {**VALUES["data"], "folder": str(tmp_path / "data")}}
    old, whole = Run(tmp_path / "old"), Run(tmp_path / "whole")
    api.train(parse_config(values), whole.folder)
    for until in (3, 5):  # in the warm-up and after it, each time within a decision of two updates
        with monkeypatch.context() as before:
            before.setattr(Mixture, "state", lambda self: None)
            before.setattr(MixtureStream, "state_dict", LanguageStream.state_dict)
            api.train(parse_config(values), old.folder, until=until)
        saved = old.checkpoints().newest().load()
        assert saved["loop"]["decision"]["mixture"] is None
        assert not any("shares" in stream for stream in saved["streams"].values())
    api.train(parse_config(values), old.folder)
    assert {entry["arm"] for entry in old.read("steps")} == {"mixed-high-resource", "mixed"}
    for name in ("steps", "validations"):
        assert old.record_path(name).read_bytes() == whole.record_path(name).read_bytes()


def test_an_earlier_dqn_run_keeps_the_first_dev_sentences_as_prototypes(tmp_path):
    data = {**VALUES["data"], "folder": str(tmp_path / "data")}
    dqn = {"name": "dqn", "warmup": None, "groups": 3, "group_sentences": 1, "decide_every": 1, "replay_minimum": 1}
    values = {**VALUES, "data": data, "training": {**VALUES["training"], **TRAINING}}
    old, whole, new = (Run(tmp_path / name) for name in ("old", "whole", "new"))
    first = parse_config({**values, "teacher": {**dqn, "state_sentences": "first"}})
    api.train(first, old.folder, until=3)
    about = dict(old.about)
    del about["config"]["teacher"]["state_sentences"]  # as it was written before the setting had another default
    old.about_path.write_text(json.dumps(about))
    assert parse_recorded(about["config"]).teacher.state_sentences == "first"
    api.train(parse_config({**values, "teacher": dqn}), old.folder)
    api.train(first, whole.folder)
    api.train(parse_config({**values, "teacher": dqn}), new.folder)
    teachers = [read_json(run.checkpoint().folder / "checkpoint.json", remedy="")["files"] for run in (old, whole, new)]
    memories = [{name: found for name, found in files.items() if "teacher" in name} for files in teachers]
    assert memories[0]
    assert memories[0] == memories[1] != memories[2]
    assert new.setting("config.teacher.state_sentences") == "spread"


def test_an_earlier_run_paced_by_its_weights_keeps_its_long_blocks(tmp_path):
    now = parse_config({**VALUES, "teacher": "weight-change"})
    assert now.teacher.decide_every == 1  # of 6 updates
    dumped = now.dump()
    dumped["teacher"]["decide_every"] = 50  # the default whatever the length, before
    assert as_begun(now, dumped).teacher.decide_every == 50
    written = parse_config({**VALUES, "teacher": {"name": "weight-change", "decide_every": 2}})
    assert as_begun(written, dumped).teacher.decide_every == 2
