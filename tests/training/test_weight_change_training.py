"""The change of weights on a real student: against the weights themselves, and cut in two."""

import numpy as np
import pytest

from rota import api
from rota.config import parse_config
from rota.runs import Run

DATA = {
    "corpus": "synthetic",
    "synthetic": {"families": {"la": {"lala": 200, "lato": 30}}, "dev": 20, "test": 4},
    "subwords": {"size": 300},
}
STUDENT = {
    **{"preset": "tiny", "width": 16, "heads": 2, "feedforward": 16, "layers": 1},
    **{"lr_warmup": 2, "learning_rate": {"peak": 0.01}},
}
TRAINING = {"steps": 20, "tokens": 60, "checkpoint_every": 20, "validate_every": 10, "threads": 1, "tensorboard": False}


def config(folder):
    return parse_config(
        {
            "data": {**DATA, "folder": str(folder / "data")},
            "student": STUDENT,
            "teacher": {"name": "weight-change", "decide_every": 4, "warmup": 4},
            "training": TRAINING,
        }
    )


def moments(student):
    matrices = [tensor.double().numpy() for tensor in student.network.state_dict().values() if tensor.dim() > 1]
    return np.array([(matrix.mean(), matrix.std()) for matrix in matrices])


def divergence(p, q):
    both = 0.0
    for (mean, deviation), (other_mean, other) in ((p, q), (q, p)):
        both += np.log(other / deviation) + (deviation**2 + (mean - other_mean) ** 2) / (2 * other**2) - 0.5
    return both


def test_what_is_recorded_is_the_change_of_the_weights_of_each_choice(tmp_path):
    loop = api.build_loop(config(tmp_path), api.prepare(config(tmp_path)), tmp_path / "run")
    expected = []
    for until in (4, 8, 12):
        before = moments(loop.student)
        loop.run(until=until)
        pairs = zip(before, moments(loop.student), strict=True)
        expected.append(np.mean([divergence(p, q) for p, q in pairs]))
    loop.journal.close()
    found = [entry["weight_change"] for entry in Run(tmp_path / "run").read("observations")]
    assert found == pytest.approx(expected[1:])  # nothing is measured in the warm-up


@pytest.mark.parametrize("cut", [6, 8, 11])
def test_a_run_that_is_cut_in_two_equals_the_whole(tmp_path, cut):
    whole, halves = Run(tmp_path / "whole"), Run(tmp_path / "halves")
    api.train(config(tmp_path), whole.folder)
    api.train(config(tmp_path), halves.folder, until=cut)
    api.train(config(tmp_path), halves.folder)
    for name in ("steps", "observations", "rewards", "validations"):
        assert whole.record_path(name).read_bytes() == halves.record_path(name).read_bytes()
