"""Trains PPO and DQN of stable-baselines3 in a scripted world and compares them, as teachers, with Rota's own.

    python docs/train_policy.py FOLDER [CHOICES] [SEEDS]

Models that are in the folder already are not trained again.
"""

import sys
from pathlib import Path

import torch
from stable_baselines3 import DQN, PPO

from rota.simulation import ClassroomEnv
from rota.simulation.league import play
from rota.teachers import teacher_from

STEPS, DECIDE_EVERY = 3_000, 100  # an episode has thirty choices
WORLDS = ("transfer", "noisy", "repeated")  # the policies know the last, with other numbers each time
OTHERS = ("uniform", "proportional", "temperature", "tscl", "align")


def train(path, choices):
    """PPO chooses one language, or, as ppo-mixture, the shares of all; DQN chooses one."""
    actions = "mixture" if path.stem == "ppo-mixture" else "arm"
    env = ClassroomEnv("repeated", steps=STEPS, decide_every=DECIDE_EVERY, actions=actions, vary=0.2)
    common = {"learning_rate": 1e-3, "gamma": 1.0, "seed": 1, "device": "cpu"}
    if path.stem == "dqn":
        model = DQN(
            "MlpPolicy", env, learning_starts=600, target_update_interval=300, exploration_fraction=0.5, **common
        )
    else:
        model = PPO("MlpPolicy", env, n_steps=600, batch_size=200, policy_kwargs={"log_std_init": -1.0}, **common)
    model.learn(choices).save(path)


def main(folder, choices=12_000, seeds=10, models=("ppo", "ppo-mixture", "dqn")):
    torch.set_num_threads(1)
    teachers = {name: teacher_from(name).fitted(STEPS, 1) for name in OTHERS}
    for name in models:
        path = Path(folder) / f"{name}.zip"
        if not path.exists():
            train(path, int(choices))
        teachers[f"sb3, {name}"] = teacher_from({"name": "sb3", "model": str(path), "decide_every": DECIDE_EVERY})
    league = play(teachers, worlds=WORLDS, seeds=int(seeds), steps=STEPS)
    print(league.markdown())
    return league


if __name__ == "__main__":
    main(*sys.argv[1:])
