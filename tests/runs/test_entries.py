"""Records without check values, as version 0.1 wrote them: an entry of another form is named, not stumbled over."""

import json

import pytest

from rota.runs.entries import Known, fault
from rota.runs.records import last_entry, read_record

STEP = {"step": 1, "arm": "az", "why": "sampled", "loss": 2.5, "tokens": 90}
SCORE = {
    **{"step": 9, "steps": [6, 9], "combine": "average", "select": None, "split": "test", "search": {"beam": 1}},
    **{"language": "az", "metric": "bleu", "score": 1.5, "signature": "tok:13a"},
}
CHECK = {"step": 5, "source_gain": {"az": [0.1, 0.2]}, "train_loss": {}, "dev_source_gain": {}, "epochs": {"az": 0.5}}
WHOLE = {
    "steps": STEP,
    "observations": {"step": 1, "arm": "az", "alignment": {"az": [1, 2.0, 3, {"be": [0.1, 0.2]}, 4, 5]}, "own": "x"},
    "rewards": {"step": 1, "rewards": {"az": 0.5}},
    "validations": {"step": 5, "dev_loss": {"az": 3.5}, "tokens": {"az": 0}},
    "timings": {"step": 5, "wall": 1.5, "cpu": 2, "phases": {"updates": 1.0}},
    "spot_checks": CHECK,
    "alarms": {"step": 3, "kind": "lost", "arm": None, "text": "It is lost."},
    "stops": {"step": 3, "why": "continued"},
    "evals": SCORE,
    "translations": {"file": "translations/9.txt", "hash": "ab"},
    "phases": {"phase": "train", "seconds": 1.5, "code": -9},
}


@pytest.mark.parametrize("record", WHOLE)
def test_an_entry_as_it_is_written_is_right_and_one_without_its_first_keys_is_not(record):
    entry = WHOLE[record]
    assert fault(record, entry) is None
    key = next(iter(entry))
    assert fault(record, {name: value for name, value in entry.items() if name != key}) == f"it has no {key}"


@pytest.mark.parametrize(
    ("record", "key", "value", "why"),
    [
        ("steps", "step", 0, "its step is not a whole number above 0"),
        ("steps", "step", True, "its step is not a whole number above 0"),
        ("steps", "tokens", 1.5, "its tokens is not a whole number above 0"),
        ("steps", "loss", float("nan"), "its loss is not a number"),
        ("steps", "loss", 10**400, "its loss is not a number"),
        ("steps", "arm", "\ud800", "its arm is not a text"),
        ("steps", "tokens_by_language", {"az": 0}, "its tokens_by_language is not an object of counts"),
        ("steps", "scores", [1], "its scores is not an object of numbers"),
        ("steps", "arm", "xx", "it is of 'xx', and the arms of the run are az, be"),
        ("steps", "tokens_by_language", {"xx": 5}, "it is of 'xx', and the arms of the run are az, be"),
        ("observations", "alignment", {"az": [1]}, "its alignment is not an object of sums"),
        ("validations", "dev_loss", {"be": 1.0}, "its dev_loss has no 'az'"),
        ("timings", "phases", {"updates": "x"}, "its phases is not an object of numbers"),
        ("spot_checks", "train_loss", {"az": [1]}, "its train_loss is not an object of pairs of numbers"),
        ("evals", "steps", [], "its steps is not a list of steps"),
        ("evals", "combine", ["last"], "its combine is not a way to combine checkpoints"),
        ("evals", "hashes", "ab", "its hashes is not an object of texts"),
    ],
)
def test_a_value_of_another_kind_is_named(record, key, value, why):
    assert fault(record, WHOLE[record] | {key: value}, Known(("az", "be"), ("az",))) == why


def test_records_of_other_names_may_hold_anything():
    assert fault("lines", {"anything": []}) is None


def test_reading_names_the_file_and_line_and_a_display_passes_over_them(tmp_path):
    path = tmp_path / "steps.jsonl"
    path.write_text("".join(json.dumps(each) + "\n" for each in (STEP, STEP | {"step": 2, "tokens": None})))
    with pytest.raises(ValueError, match=r"steps\.jsonl, line 2 is damaged \(its tokens is not a whole number above 0"):
        list(read_record(path))
    assert last_entry(path) == STEP


def test_a_custom_loop_may_record_updates_without_losses_and_tokens():
    entry = {"step": 1, "arm": "az", "why": "sampled"}
    assert fault("steps", entry) is None
    assert fault("steps", entry, Known(arms=("az",), languages=("az",))) == "it has no loss"
