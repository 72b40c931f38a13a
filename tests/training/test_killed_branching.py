"""A run that is killed while it takes over its stem begins again, and ends like an undisturbed one."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest


def moments(folder, every):
    script = Path(__file__).with_name("killed_branching.py")
    done = subprocess.run(
        [sys.executable, script, folder, str(every)],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        timeout=580,
    )
    assert done.returncode == 0, done.stderr.decode()
    return json.loads((folder / "moments.json").read_text())


def check(found):
    *killed, last = found
    assert {each["code"] for each in killed} == {-signal.SIGKILL}
    assert last["code"] == 0, "the last attempt had begun before its moment came"
    for each in found:
        assert (each["again"], each["different"], each["left"]) == (0, [], []), each
    return len(killed)


def test_a_branch_killed_at_some_moments_begins_again_and_loses_nothing(tmp_path):
    assert check(moments(tmp_path, every=9)) >= 3


@pytest.mark.slow
def test_a_branch_killed_at_any_moment_begins_again_and_loses_nothing(tmp_path):
    assert check(moments(tmp_path, every=1)) >= 25
