"""What every teacher of the registry must do, whatever it is."""

from pathlib import Path

import pytest
from replay_cases import make_run
from sb3_cases import actor, q_network, write_model

from rota.teachers import TEACHERS, Uniform
from rota.teachers.bandits.tscl import TSCLConfig
from rota.teachers.static import UniformConfig
from rota.teachers.weights.presets import PRESETS
from rota.testing import Rehearsal, TeacherContract
from rota.testing.contract import CLASSROOM

GROUPS = 2
DQN = {
    "name": "dqn",
    "groups": GROUPS,
    "hidden": [6],
    "replay_minimum": 5,
    "replay_capacity": 12,
    "replay_batch": 4,
    "warmup": 60,
    "epsilon_steps": 100,
    "epsilon_floor": 0.2,
}
CASES = {
    "uniform": {"name": "uniform"},
    "uniform after a warm-up": {"name": "uniform", "warmup": 10},
    "proportional": {"name": "proportional"},
    "temperature": {"name": "temperature"},
    "fixed": {"name": "fixed", "shares": {"az": 1, "tr": 2}},
    "mixed": {"name": "mixed", "warmup": 10},
    "temperature with a schedule": {
        "name": "temperature",
        "schedule": {"from": 1, "to": 5, "shape": "linear", "at": 30},
        "warmup": 5,
    },
    "cooldown": {"name": "cooldown", "schedule": {"from": 5, "to": 1, "at": 20}},
    "unimax": {"name": "unimax", "epochs": 2},
    "unimax early": {"name": "unimax", "epochs": 1.5, "when": "early", "decide_every": 2},
    "unimax late": {"name": "unimax", "epochs": 1, "when": "late", "warmup": 7},
    "two-phase": {"name": "two-phase", "switch": 15},
    "two-phase with an automatic switch": {"name": "two-phase", "switch": "auto", "epochs": 20, "second": "uniform"},
    "late": {"name": "late", "epochs": 20, "floor": 0.01, "decide_every": 2},
    "temperature with easy sentences first": {"name": "temperature", "curriculum": {"by": "rarity", "until": 30}},
    "tscl with a norm-based curriculum": {
        "name": "tscl",
        "warmup": 5,
        "curriculum": {"name": "norm", "check_every": 2, "refresh_every": 7},
    },
    "uniform in phases by relative loss": {
        "name": "uniform",
        "decide_every": 2,
        "curriculum": {"name": "relative-loss", "every": 9, "target": 1.0},
    },
    "temperature with an actor and a critic": {
        "name": "temperature",
        "curriculum": {"name": "actor-critic", "every": 3, "refresh_every": 11, "memory": 6},
    },
    "mixed with self-paced weights": {"name": "mixed", "curriculum": {"name": "dropout-variance", "until": 20}},
    "ccl-m": {
        "name": "ccl-m",
        "baseline": {"az": 4.0, "be": 4.0, "tr": 3.0, "ru": 3.0},
        "every": 3,
        "threshold": 0.4,
    },
    "ccl-m after a warm-up": {
        "name": "ccl-m",
        "baseline": dict.fromkeys(("az", "be", "tr", "ru"), 5.0),
        "relatives": {"az": ["tr"]},
        "every": 10,
        "warmup": 7,
        "decide_every": 2,
    },
    "weight-change": {"name": "weight-change", "decide_every": 3, "warmup": 10},
    "tscl": {"name": "tscl", "warmup": 10},
    "tscl without a warm-up": {"name": "tscl", "warmup": None, "reward_scale": "quantiles"},
    "tscl rewarded by the goal": {"name": "tscl", "warmup": 10, "reward_batch": "joint"},
    "tscl naive": {"name": "tscl", "warmup": 10, "algorithm": "naive", "window": 3},
    "tscl window": {"name": "tscl", "warmup": 10, "algorithm": "window", "policy": "boltzmann", "window": 3},
    "tscl sampling": {"name": "tscl", "warmup": 10, "algorithm": "sampling", "first_visits": "after-warmup"},
    "tscl as released": {"name": "tscl", "warmup": 10, "variant": "released"},
    "tscl as Rota's": {"name": "tscl", "warmup": 10, "variant": "rota"},
    "dqn as Rota's": {**DQN, "variant": "rota", "warmup": 10},
    "tscl that observes rarely": {"name": "tscl", "warmup": 12, "observe_every": 3},
    "dqn": DQN,
    "dqn as released": {**DQN, "variant": "released"},
    "dqn on z-scores": {**DQN, "warmup": None, "reward_scale": "z-score", "reward_batch": "current-language"},
    "kumar": {**DQN, "name": "kumar", "warmup": None},
    "dqn that does not learn": {**DQN, "learn": False},
    "align": {"name": "align"},
    "align after a warm-up": {"name": "align", "warmup": 20, "observe_every": 1, "gate_every": 5},
    "align that starts late": {
        "name": "align",
        "start": 45,
        "direction": "both",
        "observe_every": 3,
        "decide_every": 3,
    },
    "align by its gate alone": {"name": "align", "direction": "none", "observe_every": 1, "gate_every": 3},
    "sb3": {"name": "sb3", "model": "ppo.zip", "decide_every": 2},
    "sb3 with a Q network": {"name": "sb3", "model": "dqn.zip", "decide_every": 2, "warmup": 10},
    "sb3 with mixtures": {"name": "sb3", "model": "mixture.zip", "decide_every": 2, "observe_every": 4},
    "caps": {"name": "caps", "look_every": 10, "patience": 2},
    "caps that observes rarely": {
        "name": "caps",
        "look_every": 12,
        "patience": 1,
        "decide_every": 2,
        "observe_every": 4,
    },
    "replay-proportions": {"name": "replay-proportions", "run": "other", "warmup": 10},
    "replay-shuffled": {"name": "replay-shuffled", "run": "other", "window": 7},
    "replay-exact": {"name": "replay-exact", "run": "other"},
    "weights": {"name": "weights", "signal": "excess", "loss": "dev", "rule": "mirror", "pull": 0.1, "warmup": 10},
    "weights by the actor": {"name": "weights", "rule": "actor", "reweight_every": 3, "prior": "proportional"},
    "weights by adam": {"name": "weights", "rule": "actor", "actor": "adam", "floor": 0},
    "weights of some": {
        "name": "weights",
        "prior": {"name": "fixed", "shares": {"az": 1, "tr": 2}},
        "scale": "z-score",
    },
    **{name: {"name": name} for name in PRESETS},
    **{f"{name} as published": {"name": name, "variant": "source"} for name in PRESETS},
    "exp3 that changes rarely": {"name": "exp3", "decide_every": 2, "reweight_every": 6, "warmup": 10},
    "odm after a warm-up that it hears": {"name": "odm", "warmup": {"until": 20, "inform": "all"}, "start": 4},
    "a user's own": {"name": "own_teacher:WorstFirstConfig", "epsilon": 0.3},
    "one with a measure of its own": {"name": "own_measure:TailFirstConfig", "epsilon": 0.3},
}


def contract(case):
    """The public contract as a class of tests for one config."""
    name = "Test" + "".join(word.capitalize() for word in case.replace("-", " ").replace("'", "").split())
    return name, type(name, (TeacherContract,), {"config": CASES[case], "__module__": __name__})


globals().update(map(contract, CASES))


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """A folder with a run to replay: one language after the other."""
    folder = tmp_path_factory.mktemp("project")
    make_run(folder / "other", list(CLASSROOM.arms) * 50)
    write_model(folder / "ppo.zip", actor(9, 4))
    write_model(folder / "mixture.zip", actor(9, 4, spread=0.5))
    write_model(folder / "dqn.zip", q_network(9, 4))
    return folder


@pytest.fixture(autouse=True)
def in_project(project, monkeypatch):
    monkeypatch.chdir(project)
    monkeypatch.syspath_prepend(Path(__file__).parents[2] / "docs")


def test_every_teacher_of_the_registry_is_held_to_the_contract():
    names = {values["name"] for values in CASES.values()}
    assert {name for name in names if ":" not in name} == set(TEACHERS)


def test_another_seed_gives_another_schedule():
    for case in ("uniform", "tscl", "dqn"):
        assert Rehearsal(CASES[case], seed=1).run(60) != Rehearsal(CASES[case], seed=2).run(60)


@pytest.mark.parametrize("case", CASES)
def test_open_loop_schedules_do_not_listen_and_the_others_do(case):
    name = CASES[case]["name"]
    watches = CASES[case].get("curriculum", {}).get("name") in ("norm", "relative-loss", "actor-critic")
    listens = (
        watches
        or name.startswith(("tscl", "dqn", "kumar", "align", "caps", "own_", "weight", "ccl-m", "sb3"))
        or name in PRESETS
    )
    assert Rehearsal(CASES[case]).turns.listens == listens


class Broken(TeacherContract):
    """Its methods are called one by one below; pytest does not collect it."""

    def __init__(self, config):
        self.config = config


class Forgetful(UniformConfig):
    """A schedule that does not save its generator."""

    name: str = "test_contract:Forgetful"

    def build(self, classroom, rng):
        teacher = super().build(classroom, rng)
        teacher.state_dict, teacher.load_state_dict = dict, lambda state: None
        return teacher


class Stranger(UniformConfig):
    name: str = "test_contract:Stranger"

    def build(self, classroom, rng):
        return Uniform([*classroom.arms, "xx"], rng)


class Credulous(TSCLConfig):
    """A bandit that takes any number for a loss."""

    name: str = "test_contract:Credulous"
    warmup: None = None

    def build(self, classroom, rng):
        teacher = super().build(classroom, rng)
        teacher.tell = lambda observation: {}
        return teacher


@pytest.mark.parametrize(
    ("config", "check"),
    [
        (Forgetful(), "test_it_resumes_exactly_from_a_checkpoint_after_tell"),
        (Stranger(), "test_it_chooses_known_arms_only"),
        (Credulous(), "test_a_value_that_is_not_finite_is_refused_and_leaves_no_trace"),
    ],
    ids=lambda value: getattr(value, "name", value),
)
def test_the_contract_finds_a_teacher_that_breaks_it(config, check, monkeypatch):
    monkeypatch.syspath_prepend(Path(__file__).parent)
    broken = Broken(config.model_copy(update={"name": f"{__name__}:{type(config).__name__}"}))
    with pytest.raises(AssertionError):
        getattr(broken, check)()
