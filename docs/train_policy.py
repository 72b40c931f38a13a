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

STEPS = 3_000  # updates of an episode, with a choice every ten
WORLDS = ("transfer", "noisy", "repeated")  # the policies know the second, with other numbers each time
OTHERS = ("uniform", "proportional", "temperature", "tscl", "align")


def train(path, choices):
    """PPO chooses one language, or, as ppo-mixture, the shares of all; DQN chooses one."""
    actions = "mixture" if path.stem == "ppo-mixture" else "arm"
    env = ClassroomEnv("noisy", steps=STEPS, decide_every=10, actions=actions, vary=0.3)
    common = {"policy_kwargs": {"net_arch": [64, 64]}, "seed": 1, "device": "cpu"}
    if path.stem == "dqn":
        model = DQN("MlpPolicy", env, train_freq=4, exploration_fraction=0.5, **common)
    else:
        model = PPO("MlpPolicy", env, n_steps=1_500, batch_size=500, gamma=1.0, **common)
    model.learn(choices).save(path)


def main(folder, choices=90_000, seeds=10, models=("ppo", "ppo-mixture", "dqn")):
    torch.set_num_threads(1)
    teachers = {name: teacher_from(name).fitted(STEPS, 1) for name in OTHERS}
    for name in models:
        path = Path(folder) / f"{name}.zip"
        if not path.exists():
            train(path, int(choices))
        teachers[f"sb3, {name}"] = teacher_from({"name": "sb3", "model": str(path)})
    league = play(teachers, worlds=WORLDS, seeds=int(seeds), steps=STEPS)
    print(league.markdown())
    return league


if __name__ == "__main__":
    main(*sys.argv[1:])
