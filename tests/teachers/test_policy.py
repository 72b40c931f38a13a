import json

import numpy as np
import pytest
import torch

from rota.measures import GroupLosses, JointLoss
from rota.report.figures.teachers import plot_policy
from rota.runs.checkpoints import Checkpoints
from rota.teachers import Classroom, Uniform, build_teacher
from rota.teachers.dqn.config import DQNConfig
from rota.teachers.dqn.policy import probe_checkpoint, probe_q_network, probe_teacher_state
from rota.testing import observation_of

LANGUAGES = ("az", "tr", "ru")
CLASSROOM = Classroom({"az": 5, "tr": 90, "ru": 80}, low_resource=("az",), steps=100)


def trained_teacher(**options):
    """A small DQN inside its warm-up, after some choices of its own."""
    config = DQNConfig(
        **{"groups": 2, "hidden": (7, 5), "replay_minimum": 2, "replay_batch": 4, "warmup": 10, **options}
    )
    teacher = build_teacher(config, CLASSROOM, np.random.default_rng(1))
    for step in range(0, 80, 10):
        decision = teacher.ask(step)
        values = {JointLoss: 5 - 0.01 * step, GroupLosses: np.full(6, 0.2)}
        teacher.tell(observation_of(teacher.watches, step + 10, decision, values, updates=10))
    return teacher


def test_the_losses_of_one_language_at_a_time_are_amplified():
    def sums_of_groups(states):
        return states.reshape(-1, 3, 2).sum(dim=2)

    matrix, values = probe_q_network(sums_of_groups, np.array([1.0, 1, 1, 1, 0.5, 0.5]), LANGUAGES, factor=5.0)
    assert values == pytest.approx(np.array([[10.0, 2, 1], [2, 10, 1], [2, 2, 5]]))
    assert matrix.sum(axis=1) == pytest.approx(np.ones(3))
    assert matrix[2] == pytest.approx(np.array([1, 1, np.exp(3)]) / (2 + np.exp(3)))


def test_a_state_that_does_not_fit_the_languages_is_refused():
    with pytest.raises(ValueError, match="the state has 7 losses; that is not a multiple of 3 languages"):
        probe_q_network(torch.nn.Identity(), np.ones(7), LANGUAGES)


def test_a_saved_teacher_is_probed_in_its_last_state(tmp_path):
    teacher = trained_teacher()
    Checkpoints(tmp_path).save(80, {"teacher": teacher})
    probe = probe_checkpoint(Checkpoints(tmp_path).newest())
    amplified = np.array([1, 1, 0.2, 0.2, 0.2, 0.2], dtype=np.float32)
    assert probe.q_values[0] == pytest.approx(teacher.teacher.q_values(amplified), rel=1e-5)
    assert (probe.step, probe.languages, probe.network) == (80, list(LANGUAGES), "target")


def test_the_network_that_acts_is_the_one_that_is_probed():
    teacher = trained_teacher(acts_with="online")
    probe = probe_teacher_state(teacher.state_dict(), factor=1.0)
    plain = np.full(6, 0.2, dtype=np.float32)
    assert probe.network == "online"
    assert probe.q_values[1] == pytest.approx(teacher.teacher.q_values(plain), rel=1e-5)


def test_another_state_can_be_given():
    teacher = trained_teacher()
    probe = probe_teacher_state(teacher.state_dict(), state=np.ones(6), factor=1.0)
    assert probe.q_values[0] == pytest.approx(teacher.teacher.q_values(np.ones(6, dtype=np.float32)), rel=1e-5)


def test_a_teacher_without_a_q_network_is_refused():
    with pytest.raises(ValueError, match="no Q network; probe a run whose teacher is dqn"):
        probe_teacher_state(Uniform(LANGUAGES, np.random.default_rng(1)).state_dict())


def test_a_teacher_that_has_observed_nothing_is_refused():
    teacher = build_teacher(DQNConfig(groups=2, hidden=(3,)), CLASSROOM, np.random.default_rng(1))
    with pytest.raises(ValueError, match="observed nothing yet; take a checkpoint from after its warm-up"):
        probe_teacher_state(teacher.state_dict())


def test_the_heat_map_is_drawn_from_the_file_alone(tmp_path):
    written = probe_teacher_state(trained_teacher().state_dict(), step=80).write(tmp_path / "policy.json")
    assert np.array(json.loads(written.read_text())["matrix"]).shape == (3, 3)
    picture = plot_policy(written, tmp_path / "figures" / "policy.png")
    assert picture.read_bytes().startswith(b"\x89PNG")
