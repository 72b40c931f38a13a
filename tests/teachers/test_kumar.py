"""Kumar et al. 2019: the DQN teacher with other defaults, and nothing else."""

import numpy as np
from pydantic import TypeAdapter

from rota.measures import GroupLosses, JointLoss
from rota.teachers import AnyTeacherConfig, Classroom, build_teacher
from rota.testing import Rehearsal
from rota.testing.contract import same_state

SMALL = {"groups": 2, "hidden": [6], "replay_minimum": 5, "replay_capacity": 12, "replay_batch": 4, "epsilon_steps": 50}


def config(**values):
    return TypeAdapter(AnyTeacherConfig).validate_python(values)


def test_kumar_decides_and_learns_as_dqn_with_its_settings():
    dqn = {"name": "dqn", "warmup": None, "reward": "gain-over-mean", "state_data": "train", **SMALL}
    ours, other = Rehearsal({"name": "kumar", **SMALL}), Rehearsal(dqn)
    assert ours.run(60) == other.run(60)
    assert same_state(ours.teacher.state_dict(), other.teacher.state_dict())


def test_its_state_has_the_losses_of_every_bin_and_its_reward_is_joint():
    bins = {"fr.1": 30, "fr.2": 30, "fr.3": 30}
    room = Classroom(bins, low_resource=(), steps=100, language_of=dict.fromkeys(bins, "fr"))
    teacher = build_teacher(config(name="kumar", **SMALL), room, np.random.default_rng(1))
    state, reward = sorted(teacher.watches, key=lambda measure: type(measure).__name__)
    assert isinstance(state, GroupLosses)
    assert state.data == "train"
    assert isinstance(reward, JointLoss)
    assert teacher._size == 2 * 3


def test_it_is_written_down_with_its_own_name():
    written = config(name="kumar").model_dump(mode="json")
    assert (written["name"], written["reward"], written["state_data"]) == ("kumar", "gain-over-mean", "train")
    assert config(**written) == config(name="kumar")
