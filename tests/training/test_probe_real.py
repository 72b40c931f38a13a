"""The probe with a real student: packed measurements equal separate ones and leave no trace."""

import numpy as np
import pytest

from rota import api
from rota.config import parse_config
from rota.data.batches import make_stream
from rota.measures import GroupLosses, JointLoss
from rota.student.nmt import build_student
from rota.training.devsets import DevSets
from rota.training.probe import Probe
from rota.training.turns import Window

VALUES = {
    "data": {
        "corpus": "synthetic",
        "synthetic": {"families": {"la": {"lala": 120, "lato": 60}}, "dev": 80, "test": 5},
        "subwords": {"size": 400},
    },
    "student": {"preset": "tiny", "width": 32, "heads": 2, "feedforward": 32, "layers": 1, "dropout": 0.3},
    "teacher": {"name": "dqn", "warmup": None, "groups": 10, "group_sentences": 4},
}


GROUPS = GroupLosses(groups=10, sentences=4)


@pytest.fixture(scope="module")
def parts(tmp_path_factory):
    folder = tmp_path_factory.mktemp("probe") / "data"
    config = parse_config({**VALUES, "data": {**VALUES["data"], "folder": str(folder)}})
    store = api.prepare(config)
    student = build_student(config.student, vocabulary=store.manifest.vocabulary, steps=100, seed=1)
    sets = DevSets(store, teacher_share=0.5, division="text", validate_tokens=500)
    return store, student, sets


def observe(student, sets):
    return Probe(student, sets).read(1, [GROUPS, JointLoss()], Window((), {"lala": (0.0, 1)}))


def test_packed_group_losses_equal_those_of_separate_passes(parts):
    store, student, sets = parts
    packed = observe(student, sets)[GROUPS]
    dev = store.split("dev")
    separate = []
    for arm in store.languages:
        part = sets.teacher_part(arm)
        for group in range(10):
            batch = dev.batch(arm, part[group * 4 : group * 4 + 4])
            separate.append(student.losses([batch]).per_token)
    assert packed == pytest.approx(separate, rel=1e-5)


def test_observing_leaves_no_trace_on_the_student(parts):
    store, _, sets = parts
    config = parse_config(VALUES)
    students = [
        build_student(config.student, vocabulary=store.manifest.vocabulary, steps=100, seed=1) for _ in range(2)
    ]
    losses = ([], [])
    for number, student in enumerate(students):
        stream = make_stream(store, "lala", 100, seed=1)
        for _ in range(4):
            losses[number].append(student.update([next(stream)]))
            if number:
                observe(student, sets)
    assert losses[0] == losses[1], "dropout is on: any draw while observing would show"
    weights = [student.state_dict()["network"] for student in students]
    assert all(np.array_equal(weights[0][name], weights[1][name]) for name in weights[0])
