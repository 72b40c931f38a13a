"""Policies of stable-baselines3 as teachers: what they see and do, and that a file cannot run code."""

import pickle
import re
import zipfile

import numpy as np
import pytest
from sb3_cases import actor, q_network, write_model

from rota.measures import DevLoss
from rota.settings import ConfigError
from rota.teachers import Classroom, build_teacher, teacher_from
from rota.teachers.sb3 import Outlook, read_policy
from rota.types import Decision, Observation

CLASSROOM = Classroom({"az": 10, "tr": 90}, ("az",), steps=200, goal={"az": 0.75, "tr": 0.25})


def told(step=50, az=4.0, tr=2.0, seen=None, arm="az"):
    seen = {"az": 30, "tr": 90} if seen is None else seen
    return Observation(
        step, ((Decision(arm, "sampled"), 10),), {DevLoss(arms="all", tokens=500): {"az": az, "tr": tr}}, seen
    )


def teacher(path, classroom=CLASSROOM, seed=1, **settings):
    config = teacher_from({"name": "sb3", "model": str(path), **settings})
    return build_teacher(config, classroom, np.random.default_rng(seed))


def test_a_policy_sees_losses_shares_and_the_time_gone():
    assert Outlook(CLASSROOM).seen(told()).tolist() == [4.0, 2.0, 0.25, 0.75, 0.25]
    assert Outlook(CLASSROOM).seen(told(step=0, az=33.0, seen={})).tolist() == [20.0, 2.0, 0.0, 0.0, 0.0]


def test_the_loss_of_the_goal_is_that_of_its_languages():
    language_of = {"web": "az", "az": "az", "tr": "tr"}
    sizes = dict.fromkeys(language_of, 5)
    outlook = Outlook(Classroom(sizes, (), 9, goal={"az": 3, "tr": 1}, language_of=language_of))
    assert outlook.goal_loss({"web": 2.0, "az": 2.0, "tr": 6.0}) == pytest.approx(3.0)


def test_shares_of_a_mixture_follow_the_action():
    shares = Outlook(CLASSROOM).shares(np.array([1.0, 0.0]))
    assert shares["az"] / shares["tr"] == pytest.approx(np.exp(3))
    assert sum(shares.values()) == pytest.approx(1)
    assert Outlook(CLASSROOM).shares(np.array([9.0, 0.0])) == shares  # beyond 1 is 1


def by_hand(weights, seen, names, activation):
    values = seen
    for number, name in enumerate(names):
        values = weights[f"{name}.weight"].numpy() @ values + weights[f"{name}.bias"].numpy()
        values = activation(values) if number < len(names) - 1 else values
    return values


def test_a_q_network_takes_the_best_arm(tmp_path):
    weights = q_network(5, 2)
    made = teacher(write_model(tmp_path / "dqn.zip", weights))
    assert made.ask(0).why == "explore"  # it has seen nothing yet
    made.tell(told())
    values = by_hand(
        weights, [4.0, 2.0, 0.25, 0.75, 0.25], ["q_net.q_net.0", "q_net.q_net.2"], lambda x: np.maximum(x, 0)
    )
    decision = made.ask(50)
    assert decision.arm == ("az", "tr")[int(values.argmax())]
    assert list(decision.scores.values()) == pytest.approx(values, rel=1e-5)
    assert decision.why == "exploit"


def test_an_actor_draws_from_its_probabilities_or_takes_the_likeliest(tmp_path):
    weights = actor(5, 2)
    path = write_model(tmp_path / "ppo.zip", weights)
    logits = by_hand(weights, [4.0, 2.0, 0.25, 0.75, 0.25], ["mlp_extractor.policy_net.0", "action_net"], np.tanh)
    probability = 1 / (1 + np.exp(logits[1] - logits[0]))
    made = teacher(path)
    made.tell(told())
    drawn = [made.ask(step) for step in range(400)]
    assert np.mean([decision.arm == "az" for decision in drawn]) == pytest.approx(probability, abs=0.08)
    assert {round(decision.probability, 6) for decision in drawn} == {round(probability, 6), round(1 - probability, 6)}
    made = teacher(path, deterministic=True)
    made.tell(told())
    assert {made.ask(step).arm for step in range(50)} == {("az", "tr")[int(logits.argmax())]}


def test_an_actor_with_a_spread_chooses_mixtures(tmp_path):
    weights = actor(5, 2, spread=0.1)
    weights |= {name: 0.1 * weights[name] for name in ("action_net.weight", "action_net.bias")}  # between -1 and 1
    path = write_model(tmp_path / "mixture.zip", weights)
    mean = by_hand(weights, [4.0, 2.0, 0.25, 0.75, 0.25], ["mlp_extractor.policy_net.0", "action_net"], np.tanh)
    made = teacher(path, deterministic=True)
    made.tell(told())
    decision = made.ask(50)
    assert (decision.arm, decision.mixture.unit) == ("mixture", "batch")
    assert decision.mixture.shares == pytest.approx(Outlook(CLASSROOM).shares(mean))
    made = teacher(path)
    made.tell(told())
    assert made.ask(50).mixture.shares != made.ask(50).mixture.shares


def test_the_activation_is_the_one_that_it_was_trained_with(tmp_path):
    weights, seen = actor(5, 2), np.array([4.0, 2.0, 0.25, 0.75, 0.25], dtype=np.float32)
    settings = {"policy_kwargs": {"activation_fn": "<class 'torch.nn.modules.activation.ELU'>"}}
    found = read_policy(write_model(tmp_path / "elu.zip", weights, **settings)).outputs(seen)
    names = ["mlp_extractor.policy_net.0", "action_net"]
    assert found == pytest.approx(by_hand(weights, seen, names, lambda x: np.where(x > 0, x, np.exp(x) - 1)), rel=1e-5)


def test_rewards_are_gains_of_the_goal_and_are_recorded(tmp_path):
    made = teacher(write_model(tmp_path / "ppo.zip", actor(5, 2)))
    assert made.tell(told(az=4.0, tr=2.0)) == {}
    gain = made.tell(told(az=3.0, tr=1.0, arm="tr"))  # 3.5 before, 2.5 now
    assert gain == {"tr": pytest.approx(1.0)}


def test_arms_in_another_order(tmp_path):
    path = write_model(tmp_path / "dqn.zip", q_network(5, 2))
    swapped = Classroom({"tr": 90, "az": 10}, ("az",), steps=200)
    plain, ordered = teacher(path), teacher(path, swapped, arms=["az", "tr"])
    for made in (plain, ordered):
        made.tell(told())
    assert plain.ask(50).arm == ordered.ask(50).arm
    assert ordered.outlook.arms == ("az", "tr")


def test_a_run_resumes_with_the_same_model_only(tmp_path):
    path = write_model(tmp_path / "ppo.zip", actor(5, 2))
    made = teacher(path)
    made.tell(told())
    state = made.state_dict()
    again = teacher(path, seed=9)
    again.load_state_dict(state)
    assert [again.ask(step).arm for step in range(30)] == [made.ask(step).arm for step in range(30)]
    write_model(path, actor(5, 2, seed=7))
    with pytest.raises(ValueError, match="holds another model now"):
        teacher(path).load_state_dict(state)


class Malicious:
    def __reduce__(self):
        return (open, ("ran.txt", "w"))


def test_nothing_in_a_file_is_unpickled(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with zipfile.ZipFile("bad.zip", "w") as archive:
        archive.writestr("data", '{"policy_kwargs": {":serialized:": "gASVCAAAAAAAAACMBGV2aWyULg=="}}')
        archive.writestr("policy.pth", pickle.dumps({"action_net.weight": Malicious()}, protocol=2))
    with pytest.raises(ValueError, match=r"bad\.zip is not a model of stable-baselines3"):
        read_policy(tmp_path / "bad.zip")
    assert not (tmp_path / "ran.txt").exists()


@pytest.mark.parametrize(
    ("weights", "settings", "why"),
    [
        (actor(7, 2), {}, "has 7 inputs and 2 outputs, and 2 languages need 5 and 2"),
        (actor(5, 3), {}, "has 5 inputs and 3 outputs"),
        (actor(5, 2), {"use_sde": True}, "train it with use_sde=False"),
        ({"actor.mu.weight": actor(5, 2)["action_net.weight"]}, {}, "is not a plain network of PPO, A2C or DQN"),
        (
            actor(5, 2) | {"features_extractor.cnn.0.weight": actor(5, 2)["value_net.weight"]},
            {},
            "is not a plain network",
        ),
        (actor(5, 2), {"policy_kwargs": {"activation_fn": "<class 'torch.nn.Mish'>"}}, "has the activation Mish"),
    ],
)
def test_models_that_do_not_fit_are_refused(tmp_path, weights, settings, why):
    with pytest.raises(ValueError, match=re.escape(why)):
        teacher(write_model(tmp_path / "model.zip", weights, **settings))


def test_files_that_are_no_models_are_refused(tmp_path, monkeypatch):
    with pytest.raises(ConfigError, match="which is not a file; train a policy first"):
        teacher(tmp_path / "missing.zip")
    (tmp_path / "text.zip").write_text("no zip")
    with pytest.raises(ValueError, match=r"text\.zip is not a model of stable-baselines3"):
        teacher(tmp_path / "text.zip")
    path = write_model(tmp_path / "ppo.zip", actor(5, 2))
    with pytest.raises(ValueError, match=re.escape("teacher.arms is az, be and the corpus has az, tr")):
        teacher(path, arms=["az", "be"])
    monkeypatch.setattr("rota.teachers.sb3.LARGEST", 10)
    with pytest.raises(ValueError, match="larger than 10 bytes"):
        teacher(path)


def test_an_observation_without_a_loss_is_refused(tmp_path):
    made = teacher(write_model(tmp_path / "ppo.zip", actor(5, 2)))
    with pytest.raises(ValueError, match="the dev loss of tr is nan"):
        made.tell(told(tr=float("nan")))


@pytest.mark.parametrize("kind", ["PPO", "mixture", "A2C", "DQN"])
def test_it_computes_what_stable_baselines3_does(tmp_path, kind):
    sb3 = pytest.importorskip("stable_baselines3")
    from rota.simulation import ClassroomEnv

    env = ClassroomEnv("switch", steps=40, actions="mixture" if kind == "mixture" else "arm")
    layers = {"net_arch": [7, 5]} if kind != "DQN" else {}
    model = getattr(sb3, "PPO" if kind == "mixture" else kind)("MlpPolicy", env, policy_kwargs=layers, device="cpu")
    model.save(tmp_path / "model.zip")
    policy = read_policy(tmp_path / "model.zip")
    outlook = Outlook(env.world.classroom(40))
    for seed in range(5):
        seen, _ = env.reset(seed=seed)
        seen[:2] = np.random.default_rng(seed).uniform(0, 8, 2)
        action, _ = model.predict(seen, deterministic=True)
        outputs = policy.outputs(seen)
        if kind == "mixture":
            assert outlook.shares(outputs) == pytest.approx(outlook.shares(action), rel=1e-4)
        else:
            assert int(outputs.argmax()) == int(action)
