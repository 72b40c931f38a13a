"""Of several processes, one names those that are gone, and only those."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

CASES = ["kill:3:0", "kill:4:3", "kill:4:1,2", "error:4:1", "error:3:0", "hang:3:1"]


@pytest.fixture(scope="module")
def said():
    script = Path(__file__).with_name("roll_call_cases.py")
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, script, *CASES], env=environment, capture_output=True, timeout=200)
    assert done.returncode == 0, done.stderr.decode()
    return json.loads(done.stdout)


@pytest.mark.parametrize("case", CASES)
def test_those_that_are_gone_are_named_and_no_others(said, case):
    how, size, victims = case.split(":")
    left = [entry for entry in said[case] if str(entry["rank"]) not in victims.split(",")]
    assert len(left) == int(size) - len(victims.split(",")), "every other process ends"
    for entry in left:
        assert re.findall(r"rank (\d) \(", entry["said"]) == victims.split(","), entry["said"]
        assert {"kill": "no longer answers", "error": "ended: out of memory", "hang": "hangs"}[how] in entry["said"]


@pytest.mark.parametrize("case", CASES)
def test_one_process_speaks_unless_the_first_could_do_so_itself(said, case):
    assert sum(entry["speaks"] for entry in said[case]) == (0 if case == "error:3:0" else 1)
