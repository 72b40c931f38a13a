"""A run of 512 languages: it starts, takes steps and decides, in bounded time and memory."""

import json
import os
import subprocess
import sys

import pytest

from rota import api
from rota.config import parse_config

LANGUAGES = 512
STEPS = 3
SCRIPT = """
import json, sys, time
from pathlib import Path
from rota import api
from machine.memory import peak
from rota.config import parse_config
from rota.data.store import Store

values, run = json.loads(sys.argv[1]), Path(sys.argv[2])
config = parse_config(values)
before = peak()
started = time.process_time()
loop = api.build_loop(config, Store.open(config.data_folder), run)
built = time.process_time()
api.run_loop(loop, config, run, until=int(sys.argv[3]))
ended = time.process_time()
print(json.dumps({"build": built - started, "run": ended - built, "memory": peak() - before, "step": loop.step}))
"""


def values(folder):
    """Every language has 20 dev sentences, ten of them the teacher's, in groups of one."""
    return {
        "data": {
            "corpus": "synthetic",
            "synthetic": {"languages": LANGUAGES, "high": 10, "low": 10, "dev": 20, "test": 1},
            "low_resource": [],
            "subwords": {"size": 2_000, "lines": 10},
            "folder": str(folder),
        },
        "student": {"preset": "tiny", "lr_warmup": "10%"},
        "teacher": {
            "name": "dqn",
            "warmup": None,
            "decide_every": 1,
            "groups": 5,
            "group_sentences": 1,
            "reward_tokens": 4_000,
            "replay_minimum": 2,
            "replay_batch": 32,
        },
        "training": {"steps": 1_000, "tokens": 200, "validate_every": STEPS, "threads": 1, "tensorboard": False},
    }


@pytest.mark.slow
def test_512_languages_start_and_take_steps_in_bounded_time_and_memory(tmp_path):
    config = values(tmp_path / "data")
    api.prepare(parse_config(config), processes=1)
    command = [sys.executable, "-c", SCRIPT, json.dumps(config), str(tmp_path / "run"), str(STEPS)]
    # A process of its own: the memory of this one has been used by other tests.
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=environment)
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["step"] == STEPS
    records = [json.loads(line) for line in (tmp_path / "run" / "steps.jsonl").read_text().splitlines()]
    assert len(records) == STEPS
    validation = json.loads((tmp_path / "run" / "validations.jsonl").read_text().splitlines()[-1])
    assert len(validation["dev_loss"]) == LANGUAGES
    assert found["build"] < 15, "seconds of the processor, of which loading libraries takes some"
    assert found["run"] < 60, "seconds of the processor"
    assert found["memory"] < 2**30, "beside Python and its libraries"
