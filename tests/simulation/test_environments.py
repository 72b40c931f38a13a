"""The Gymnasium environments: spaces, observations and rewards, with a scripted and with a real student."""

import subprocess
import sys

import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from rota.config import parse_config
from rota.runs import Run
from rota.simulation import ClassroomEnv, StudentEnv
from rota.simulation.simulate import simulate
from rota.simulation.worlds import make_world, varied
from rota.types import Decision, Mixture

pytestmark = pytest.mark.filterwarnings("ignore:.*render mode.*:UserWarning")


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"actions": "mixture", "vary": 0.3},
        {"reward": "same-arm-gain", "reward_scale": "z-score"},
        {"world": "useless", "reward": "gain-over-mean", "reward_scale": "quantiles"},
    ],
    ids=["arm", "mixture", "same-arm-gain", "useless"],
)
def test_gymnasium_has_nothing_to_object(settings):
    check_env(ClassroomEnv(**settings), skip_render_check=True)


def play(env, actions, seed=1):
    seen, info = env.reset(seed=seed)
    steps = [(seen, 0.0, False, info)]
    for action in actions:
        seen, reward, over, cut, info = env.step(action)
        assert not cut
        steps.append((seen, reward, over, info))
    return steps


def test_an_episode_is_a_run_and_its_rewards_sum_up_to_the_fall_of_the_loss():
    """By hand: ten updates at a time on left, of which everything is learned, half of the steps, then on right."""
    env = ClassroomEnv("stationary", steps=100)
    steps = play(env, [0] * 5 + [1] * 5)
    assert [over for _, _, over, _ in steps] == [False] * 10 + [True]
    # stationary: left starts at 5 and is 1 + 4 / (1 + n / 50) after n updates; right stays at 5.
    for number, (_, _, _, info) in enumerate(steps):
        updates = min(10 * number, 50)
        assert info["losses"] == pytest.approx({"left": 1 + 4 / (1 + updates / 50), "right": 5.0})
        assert info["step"] == 10 * number
    rewards = [reward for _, reward, _, _ in steps[1:]]
    assert rewards[0] == pytest.approx((5 - (1 + 4 / 1.2)) / 2)
    assert sum(rewards) == pytest.approx(steps[0][3]["loss"] - steps[-1][3]["loss"]) == pytest.approx(1.0)
    assert rewards[5:] == pytest.approx([0.0] * 5)


def test_what_is_seen():
    seen = play(ClassroomEnv("stationary", steps=100), [0, 1, 1])[-1][0]
    assert seen == pytest.approx([1 + 4 / 1.2, 5.0, 1 / 3, 2 / 3, 0.3], rel=1e-5)
    assert seen.dtype == np.float32


def test_the_reward_of_a_single_arm():
    env = ClassroomEnv("stationary", steps=100, reward="same-arm-gain")
    rewards = [reward for _, reward, _, _ in play(env, [0, 1, 0])[1:]]
    assert rewards == pytest.approx([5 - (1 + 4 / 1.2), 0.0, 4 / 1.2 - 4 / 1.4])


def test_a_mixture_gives_each_arm_its_share_of_the_updates():
    env = ClassroomEnv("stationary", steps=2_000, actions="mixture", decide_every=2_000)
    (_, (seen, _, over, _)) = play(env, [np.array([0.5, 0.0], dtype=np.float32)])
    assert over
    assert seen[2] == pytest.approx(np.exp(1.5) / (1 + np.exp(1.5)), abs=0.03)


def test_varied_worlds_differ_between_episodes_and_not_between_equal_seeds():
    env = ClassroomEnv("transfer", vary=0.5)
    first, again, other = (play(env, [0], seed)[-1][3]["loss"] for seed in (1, 1, 2))
    assert first == again != other
    world = make_world("switch", 100)
    changed = varied(world, np.random.default_rng(1), 0.5)
    assert (changed.transfer == 0).tolist() == (world.transfer == 0).tolist()  # what does not help still does not
    assert not np.allclose(changed.transfer_after, world.transfer_after)
    assert not np.allclose(changed.half, world.half)


def test_a_teacher_of_mixtures_can_be_simulated():
    class Mixer:
        watches = ()

        def ask(self, step):
            return Decision("mixture", "action", mixture=Mixture({"left": 3, "right": 1}))

        def tell(self, observation):
            """It learns nothing."""

    result = simulate(Mixer(), make_world("stationary", 800), 800)
    assert result.shares["left"] == pytest.approx(0.75, abs=0.05)


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"actions": "both"}, "actions is 'both'; it is one of arm, mixture"),
        ({"reward": "loss"}, "reward is 'loss'"),
        ({"reward_scale": "log"}, "reward_scale is 'log'"),
        ({"reward": "same-arm-gain", "actions": "mixture"}, "is the reward of a single arm"),
        ({"decide_every": 7}, "decide_every is 7, and an episode has 3,000 steps"),
        ({"world": "moon"}, "unknown world 'moon'"),
    ],
)
def test_what_cannot_work_is_refused(settings, why):
    with pytest.raises(ValueError, match=why):
        ClassroomEnv(**settings)


def test_a_step_before_the_first_reset_is_refused():
    with pytest.raises(ValueError, match="call reset first"):
        ClassroomEnv().step(0)


def test_without_gymnasium_one_line_says_what_to_install():
    imports = ["import rota.simulation.simulate", "from rota.simulation import ClassroomEnv"]
    program = "\n".join(["import sys", "sys.modules['gymnasium'] = None", *imports])
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert "ClassroomEnv needs gymnasium; install it with: pip install 'rota-nmt[rl]'" in done.stderr


@pytest.fixture
def config(tmp_path_factory):
    folder = tmp_path_factory.mktemp("student-env")
    synthetic = {"families": {"la": {"lala": 300, "lato": 60}}, "dev": 20, "test": 4}
    data = {"corpus": "synthetic", "synthetic": synthetic, "low_resource": ["lato"], "subwords": {"size": 300}}
    student = {"preset": "tiny", "width": 16, "heads": 2, "feedforward": 16, "layers": 1, "lr_warmup": 4}
    training = {"steps": 12, "tokens": 60, "validate_every": 6, "threads": 1, "spot_checks": 0}
    return parse_config({"data": data | {"folder": str(folder / "data")}, "student": student, "training": training})


def test_gymnasium_has_nothing_to_object_to_a_real_student(config):
    env = StudentEnv(config, decide_every=3)
    check_env(env, skip_render_check=True)
    env.close()


def test_an_episode_of_a_real_student_is_a_run(config, tmp_path):
    env = StudentEnv(config, decide_every=3, folder=tmp_path / "runs")
    steps = play(env, [0, 1, 1, 0])
    env.close()
    run = Run(tmp_path / "runs" / "episode-1")
    assert [entry["arm"] for entry in run.read("steps")] == ["lala"] * 3 + ["lato"] * 6 + ["lala"] * 3
    assert run.is_trained
    told = [entry["dev_loss"] for entry in run.read("observations")]
    assert [info["losses"] for _, _, _, info in steps[1:]] == told
    assert sum(reward for _, reward, _, _ in steps) == pytest.approx(steps[0][3]["loss"] - steps[-1][3]["loss"])
    assert steps[-1][2]
    with pytest.raises(ValueError, match="episode-1 exists already"):
        StudentEnv(config, decide_every=3, folder=tmp_path / "runs").reset()


def test_an_episode_is_over_where_early_stopping_ends_the_run(config, tmp_path):
    values = config.dump()
    # Nothing falls by five nats: the second validation, at update 4, ends the run in the middle of the second step.
    rule = {"validate_every": 2, "early_stopping": {"patience": 1, "smallest_change": 5.0}}
    values["training"] |= rule
    env = StudentEnv(parse_config(values), decide_every=3, folder=tmp_path / "runs")
    steps = play(env, [0, 1])
    env.close()
    assert [over for _, _, over, _ in steps] == [False, False, True]
    assert [info["step"] for _, _, _, info in steps] == [0, 3, 4]
    run = Run(tmp_path / "runs" / "episode-1")
    assert [entry["arm"] for entry in run.read("steps")] == ["lala"] * 3 + ["lato"]
    assert [entry["step"] for entry in run.read("stops")] == [4]
    assert run.is_trained
    assert [entry["dev_loss"] for entry in run.read("observations")] == [info["losses"] for _, _, _, info in steps[1:]]
    assert sum(reward for _, reward, _, _ in steps) == pytest.approx(steps[0][3]["loss"] - steps[-1][3]["loss"])


def test_a_real_student_is_trained_on_a_mixture_and_its_folder_goes(config):
    env = StudentEnv(config, decide_every=6, actions="mixture")
    play(env, [np.array([1.0, -1.0], dtype=np.float32)])
    folder = env.loop.journal.steps.path.parent
    assert folder.exists()
    env.reset()
    assert not folder.exists()
    env.close()
    with pytest.raises(ValueError, match="call reset first"):
        env.step(np.zeros(2))
