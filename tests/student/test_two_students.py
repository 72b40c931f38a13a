"""Two processes that train one student probe it as one does."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """What the only process found, and what the first and the second of two did."""
    folder = tmp_path_factory.mktemp("students")
    script = Path(__file__).with_name("two_students.py")
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, script, folder], env=environment, capture_output=True, timeout=300)
    assert done.returncode == 0, done.stderr.decode()
    return [json.loads((folder / f"{name}.json").read_text()) for name in ("1.0", "2.0", "2.1")]


def test_both_processes_find_the_same(found):
    _, first, second = found
    assert first == second


@pytest.mark.parametrize(
    "name", ["losses", "norm", "metric", "examined", "correct", "samples", "entropies", "average", "projection"]
)
def test_two_processes_find_what_one_does(found, name):
    alone, first, _ = found
    np.testing.assert_allclose(first[name], alone[name], rtol=1e-3)


def test_probing_changes_no_weight_of_either(found):
    for each in found:
        assert each["losses"] == each["unprobed"]["losses"]
        assert each["weights"] == each["unprobed"]["weights"]
        assert each["unprobed"]["projection"] is None
