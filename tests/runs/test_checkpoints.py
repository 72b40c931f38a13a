import logging

import numpy as np
import pytest
import torch

from rota.files import read_json, write_json
from rota.runs.checkpoints import WEIGHTS, Checkpoints


class Part:
    def __init__(self, state):
        self.state = state

    def state_dict(self):
        return self.state

    def load_state_dict(self, state):
        self.state = state


def student(value):
    return Part(
        {"network": {"layer.weight": torch.full((2, 3), value)}, "optimiser": {"mean": torch.ones(2)}, "step": 7}
    )


def test_a_state_comes_back_as_it_was(tmp_path):
    rng = np.random.default_rng(3)
    state = {
        "rng": rng.bit_generator.state,
        "list": [1, 2.5, None, {"inner": np.arange(3, dtype=np.int64)}],
        "tensor": torch.tensor([1.5, float("inf")]),
        "flag": True,
    }
    Checkpoints(tmp_path).save(5, {"teacher": Part(state)})
    loaded = Checkpoints(tmp_path).newest().load()["teacher"]
    assert loaded["rng"] == state["rng"]
    assert loaded["list"][:3] == [1, 2.5, None]
    assert loaded["list"][3]["inner"].dtype == np.int64
    assert loaded["list"][3]["inner"].tolist() == [0, 1, 2]
    assert torch.equal(loaded["tensor"], state["tensor"])
    assert loaded["flag"] is True


def test_the_newest_intact_checkpoint_is_used_and_damage_is_reported(tmp_path, caplog):
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save(10, {"student": student(1.0)})
    checkpoints.save(20, {"student": student(2.0)})
    weights = tmp_path / "20" / WEIGHTS
    content = bytearray(weights.read_bytes())
    content[-1] ^= 1
    weights.write_bytes(content)
    with caplog.at_level(logging.WARNING):
        assert checkpoints.newest().step == 10
    assert "20 is damaged" in caplog.text
    assert WEIGHTS in caplog.text


@pytest.mark.parametrize("name", ["checkpoint.json", "state.json", WEIGHTS])
def test_a_missing_or_cut_file_is_damage(tmp_path, name):
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save(10, {"student": student(1.0)})
    checkpoints.save(20, {"student": student(2.0)})
    path = tmp_path / "20" / name
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    assert checkpoints.newest().step == 10
    path.unlink()
    assert checkpoints.newest().step == 10


def test_a_checkpoint_that_is_passed_over_is_warned_of_once(tmp_path, caplog):
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save(10, {"student": student(1.0)})
    (tmp_path / "20").mkdir()
    (tmp_path / "5").mkdir()
    (tmp_path / "5" / "checkpoint.json").write_bytes((tmp_path / "10" / "checkpoint.json").read_bytes())
    for _ in range(3):
        assert [checkpoint.step for checkpoint in checkpoints.list()] == [10]
    assert [record.getMessage() for record in caplog.records] == [
        f"checkpoint {tmp_path / '5'} says that it is of step 10; it is passed over",
        f"checkpoint {tmp_path / '20'} is damaged (checkpoint.json); it is passed over",
    ]


def test_a_folder_that_was_never_finished_is_not_a_checkpoint(tmp_path):
    (tmp_path / ".30.partial").mkdir()
    assert Checkpoints(tmp_path).newest() is None


def test_older_checkpoints_lose_the_moments_of_the_optimiser(tmp_path):
    checkpoints = Checkpoints(tmp_path, keep=2)
    for step in (10, 20, 30):
        checkpoints.save(step, {"student": student(float(step)), "teacher": Part({"replay": np.arange(step)})})
    oldest = checkpoints.list()[0]
    assert [found.complete for found in checkpoints.list()] == [False, True, True]
    assert not (tmp_path / "10" / "student.optimiser.safetensors").exists()
    assert (tmp_path / "20" / "student.optimiser.safetensors").exists()
    assert oldest.network()["layer.weight"][0, 0] == 10
    assert len(oldest.load_part("teacher")["replay"]) == 10
    with pytest.raises(ValueError, match="not complete any more"):
        oldest.load()
    with pytest.raises(ValueError, match="no part 'pupil'; it has student, teacher"):
        oldest.load_part("pupil")


def test_saving_a_step_again_replaces_it(tmp_path):
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save(10, {"student": student(1.0)})
    checkpoints.save(10, {"student": student(4.0)})
    assert checkpoints.newest().network()["layer.weight"][0, 0] == 4


def test_a_newer_format_is_refused_by_name(tmp_path):
    Checkpoints(tmp_path).save(10, {"student": student(1.0)})
    manifest = tmp_path / "10" / "checkpoint.json"
    write_json(manifest, read_json(manifest, remedy="") | {"format": 99}, checked=True)
    with pytest.raises(ValueError, match="format 99"):
        Checkpoints(tmp_path).newest()


def test_at_least_one_complete_checkpoint_stays(tmp_path):
    with pytest.raises(ValueError, match="at least 1"):
        Checkpoints(tmp_path, keep=0)


def test_thinning_does_not_certify_damage(tmp_path):
    checkpoints = Checkpoints(tmp_path, keep=1)
    checkpoints.save(10, {"student": student(1.0)})
    with (tmp_path / "10" / WEIGHTS).open("ab") as file:
        file.write(b"x")
    checkpoints.save(20, {"student": student(2.0)})
    assert checkpoints.list()[0].damaged_file() == WEIGHTS


def test_what_is_dropped_does_not_take_a_place_among_those_that_are_kept(tmp_path):
    checkpoints = Checkpoints(tmp_path, keep=2)
    for step in (10, 20, 25):
        checkpoints.save(step, {"student": student(float(step))})
    checkpoints.save(30, {"student": student(30.0)}, drop=[25])
    assert [(found.step, found.complete) for found in checkpoints.list()] == [(10, False), (20, True), (30, True)]


def test_a_run_of_which_nothing_is_intact_is_not_started_again_silently(tmp_path):
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save(10, {"student": student(1.0)})
    (tmp_path / "10" / WEIGHTS).unlink()
    with pytest.raises(ValueError, match="no intact complete checkpoint"):
        checkpoints.newest()


def test_a_tensor_without_dimensions_keeps_its_shape(tmp_path):
    Checkpoints(tmp_path).save(1, {"teacher": Part({"scalar": torch.tensor(2.5), "array": np.array(3)})})
    state = Checkpoints(tmp_path).newest().load()["teacher"]
    assert state["scalar"].shape == state["array"].shape == ()


def killed_before_thinning(folder, monkeypatch):
    """Three complete checkpoints of a run that keeps two."""
    checkpoints = Checkpoints(folder, keep=2)
    with monkeypatch.context() as patch:
        patch.setattr(Checkpoints, "_thin", lambda self: None)
        for step in (4, 8, 12):
            checkpoints.save(step, {"student": student(float(step))})
    return checkpoints


def test_a_run_killed_before_it_thinned_an_older_checkpoint_does_so_when_it_resumes(tmp_path, monkeypatch):
    checkpoints = killed_before_thinning(tmp_path, monkeypatch)
    checkpoints.tidy()
    assert [checkpoint.complete for checkpoint in checkpoints.list()] == [False, True, True]
    assert not (tmp_path / "4" / "student.optimiser.safetensors").exists()


def test_nothing_is_thinned_while_a_newer_checkpoint_is_damaged(tmp_path, monkeypatch):
    checkpoints = killed_before_thinning(tmp_path, monkeypatch)
    (tmp_path / "12" / WEIGHTS).write_bytes(b"damaged")
    checkpoints.tidy()
    assert [checkpoint.complete for checkpoint in checkpoints.list()] == [True, True, True]
